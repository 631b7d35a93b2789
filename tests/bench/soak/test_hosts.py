"""The host of a soak as a process: an end that the soak did not cause is an error."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from berth_bench.soak.account import Account
from berth_bench.soak.clusters import embedded_cluster
from berth_bench.soak.hosts import Hosts
from berth_bench.soak.plugin_process import PluginProcess
from berth_bench.soak.plugins import SoakFit, SoakGate, SoakKeeper, SoakRank
from berth_bench.versus.scheduler_process import SchedulerError
from support.waiting import until


@pytest.mark.long
@pytest.mark.slow
async def test_host_that_ends_by_itself_stays_an_error_after_the_next_kill(
    tmp_path: Path,
) -> None:
    plugins = [PluginProcess(one.__name__, tmp_path) for one in (SoakFit, SoakRank, SoakKeeper, SoakGate)]
    async with embedded_cluster(Account([]), tmp_path) as cluster:
        hosts = Hosts(tmp_path, cluster.kubeconfig, plugins)
        try:
            for plugin in plugins:
                await plugin.start()
            await hosts.start()
            hosts.check()
            await hosts.restart()
            hosts.check()
            found = await hosts.failures_of("SoakFit")
            assert found is not None
            os.kill(found.pid, signal.SIGKILL)
            await until(lambda: is_missed(hosts))
            with pytest.raises(SchedulerError, match="ended by itself with -9"):
                await hosts.restart()
        finally:
            await hosts.stop()
            for plugin in plugins:
                await plugin.kill()


def is_missed(hosts: Hosts) -> bool:
    """Wait until the soak reports the end of the host."""
    try:
        hosts.check()
    except SchedulerError:
        return True
    return False
