"""Two processes use one socket: the instance id decides, and no call goes to the wrong instance."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from berth_host.attach.state import State
from berth_host.errors.plugins import CycleRestartError
from support.attached import AttachedHost, at_socket, attached_host
from support.plugin_processes import PluginProcess
from support.waiting import until

ECHO = "support.echo_plugin:Echo"


@pytest.fixture
async def rivals(tmp_path: Path) -> AsyncIterator[tuple[PluginProcess, PluginProcess]]:
    """Two plugins; each takes over the path when it starts, like a second container with the same volume."""
    first, second = (PluginProcess(tmp_path / "p.sock", ECHO) for _ in range(2))
    yield first, second
    await first.kill()
    await second.kill()


def instance(host: AttachedHost) -> str:
    (condition,) = host.attachments.conditions()
    return condition.instance_id if condition.state is State.ACTIVE else ""


@pytest.mark.slow
async def test_row_5_attached_instance_is_kept_until_it_ends_and_the_other_one_starts_over(
    tmp_path: Path, rivals: tuple[PluginProcess, PluginProcess]
) -> None:
    first, second = rivals
    await first.start()
    async with attached_host(at_socket(tmp_path / "p.sock", "Echo")) as host:
        before = instance(host)
        assert before
        cycle = host.cycle()
        assert (await host.client.filter(cycle, host.nodes)).all_passed
        await second.start()
        # The path is the other's by now; the connection is not.
        assert (await host.client.filter(host.cycle(), host.nodes)).all_passed
        assert instance(host) == before

        await first.kill()
        await until(lambda: instance(host) not in ("", before))
        with pytest.raises(CycleRestartError):
            await host.client.filter(cycle, host.nodes)
        assert (await host.client.filter(host.cycle(restarted=True), host.nodes)).all_passed
        assert host.attachments.recoveries == 2


@pytest.mark.long
@pytest.mark.slow
async def test_row_5_no_call_goes_to_the_other_instance_by_a_connection_that_is_made_later(
    tmp_path: Path, rivals: tuple[PluginProcess, PluginProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    """A plugin's connection is dialled at its first call; here the path then belongs to the other process."""
    first, second = rivals
    await first.start()
    async with attached_host(at_socket(tmp_path / "p.sock", "Echo")) as host:
        before = instance(host)
        await second.start()
        for _ in range(3):
            assert (await host.client.filter(host.cycle(), host.nodes)).all_passed
        assert instance(host) == before
        assert host.attachments.recoveries == 1
        assert capsys.readouterr().out.count("another process has put its socket there") == 1
        await first.kill()
        await until(lambda: instance(host) not in ("", before))
        assert (await host.client.filter(host.cycle(), host.nodes)).all_passed
