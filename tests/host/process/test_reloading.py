"""A configuration that is read anew while the scheduler runs."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.errors import ConfigurationError, Finding
from berth_host.config.loading import default_configuration, load_configuration
from berth_host.process.process import ProcessSettings, SchedulerProcess, needs_restart
from support.waiting import PATIENCE_S, until


async def test_event_loop_runs_while_a_configuration_is_read() -> None:
    """The reading ends when the loop says so: it would hang if it held the loop."""
    begun, goes_on = threading.Event(), threading.Event()

    def load() -> LoadedConfiguration:
        begun.set()
        assert goes_on.wait(PATIENCE_S)
        raise ConfigurationError("decode", [Finding("not today")], source="f")

    process = SchedulerProcess(ProcessSettings(configuration=default_configuration(), load=load))
    # What a HUP does, without the cluster that a whole process needs.
    reloading = asyncio.ensure_future(process._reload())  # noqa: SLF001
    async with asyncio.timeout(PATIENCE_S / 2):
        await until(begun.is_set)
        goes_on.set()
        await reloading


async def test_reload_reads_certificates_and_cas_again_also_with_a_configuration_that_is_refused() -> None:
    class Renewed:
        count = 0

        async def renew(self) -> None:
            self.count += 1

    def load() -> LoadedConfiguration:
        raise ConfigurationError("decode", [Finding("not today")], source="f")

    process = SchedulerProcess(ProcessSettings(configuration=default_configuration(), load=load))
    server = Renewed()
    vars(process)["_endpoints"] = SimpleNamespace(server=server)
    await process._reload()  # noqa: SLF001
    assert server.count == 1


def load(more: str) -> LoadedConfiguration:
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    return load_configuration(head + more, source="test")


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ("", []),
        ("clientConnection: {qps: 7}", ["clientConnection"]),
        ("leaderElection: {resourceName: other}", ["leaderElection"]),
        ("enableProfiling: false", ["enableProfiling", "enableContentionProfiling"]),
        ("delayCacheUntilActive: true", ["delayCacheUntilActive"]),
        (
            "leaderElection: {leaderElect: false}\nclientConnection: {burst: 7}",
            ["clientConnection", "leaderElection"],
        ),
        ("podMaxBackoffSeconds: 20", []),
        ("percentageOfNodesToScore: 20", []),
        ("profiles: [{schedulerName: other}]", []),
    ],
)
def test_changed_fields_that_need_a_restart_are_named(more: str, names: list[str]) -> None:
    assert needs_restart(load(""), load(more)) == names
