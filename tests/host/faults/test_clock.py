"""Row 34 of the failure table, with real processes: the wall clock of the host's machine steps."""

from __future__ import annotations

import shutil
import struct
import subprocess
import time
from datetime import datetime
from pathlib import Path

import pytest
from support.faults import Cluster, FailingProcess, configuration, running, served_cluster
from support.hosts import node, pod
from support.places import TESTS
from support.waiting import until

pytestmark = pytest.mark.slow
SOURCE = TESTS / "support" / "stepping_clock.c"
DAY_S = 86_400


class SteppingClock:
    """The clock of the processes that are started with `environment`."""

    def __init__(self, folder: Path) -> None:
        self._step = folder / "step"
        library = folder / "stepping_clock.so"
        self.set(0)
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("needs a C compiler: the machine's own clock is left alone")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
        self.environment = {"LD_PRELOAD": str(library), "BERTH_CLOCK_STEP": str(self._step)}

    def set(self, seconds: int) -> None:
        """So far from the machine's clock from now on."""
        with self._step.open("r+b" if self._step.exists() else "w+b") as file:
            file.write(struct.pack("=q", seconds))


@pytest.mark.long
async def test_row_34_a_step_of_the_wall_clock_ends_no_deadline_and_holds_no_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forwards and backwards, while a call is open, a pod waits on Permit, and others back off."""
    clock = SteppingClock(tmp_path)
    plugin = FailingProcess(tmp_path / "plugin")
    text = configuration(plugin, deadline="1s", Failing="filter permit")
    held = pod("held", labels={"faulty": "held"})
    async with running(plugin), served_cluster(node("n0"), pod("web"), held) as cluster:
        host = cluster.host(tmp_path / "host", text)
        with monkeypatch.context() as patch:
            for name, value in clock.environment.items():
                patch.setenv(name, value)
            await host.start()
        await host.ready()
        await cluster.bound("web")
        await until(lambda: len(plugin.asked("Permit")) == 2)
        for step_s, then_s in ((DAY_S, 2 * DAY_S), (-DAY_S, -2 * DAY_S)):
            name = f"slow-{abs(step_s)}-{step_s > 0}".lower()
            plugin.arm("Filter", "hang")
            cluster.server.create(pod(name))
            await until(lambda: not (plugin.folder / "armed").exists())
            began_s = time.monotonic()
            clock.set(step_s)
            await failed(cluster, name)
            assert 0.5 < time.monotonic() - began_s < 20.0
            assert 'plugin "Failing" did not answer within 1000 ms at Filter' in cluster.message_of(name)
            (condition,) = cluster.pod(name).get("status.conditions", [])
            told_s = datetime.fromisoformat(condition["lastTransitionTime"]).timestamp()
            assert abs(told_s - time.time() - step_s) < 600  # the host lives by that clock
            # Now the pod backs off, which ends as well.
            clock.set(then_s)
            await cluster.bound(name)
        assert not cluster.node_of("held")
        assert not cluster.message_of("held")
        (cycle,) = (words[1] for words in plugin.asked("Permit") if words[2:] == ["held"])
        assert await plugin.order("allow", cluster.pod("held").ref.uid, cycle) == "APPLIED"
        await cluster.bound("held")
        assert host.ended_with is None


async def failed(cluster: Cluster, name: str) -> None:
    """Wait until the pod's attempt has failed."""
    await until(lambda: bool(cluster.message_of(name)))
