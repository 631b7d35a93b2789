"""A host on standby configures and calls no instance before its term begins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from berth_host.attach import attachment as attachment_module
from berth_host.attach import probing
from berth_host.attach.state import State
from berth_host.errors.plugins import PluginError
from berth_host.rpc.calls import FILTER
from berth_sdk.testing.builders import make_pod
from support.attached import AttachedHost, at_socket
from support.plugin_processes import plugin_process
from support.scripted_plugin import ScriptedPlugin, descriptor, refuse
from support.waiting import until

ECHO = "support.echo_plugin:Echo"
TERM = ["Handshake", "Configure", "SyncState", "Probe", "Reconcile"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks and probes every few hundredths of a second."""
    monkeypatch.setattr(attachment_module, "STANDBY_LOOK_S", 0.02)
    monkeypatch.setattr(probing, "PROBE_PERIOD_S", 0.05)
    monkeypatch.setattr(probing, "TICK_S", 0.05)


@asynccontextmanager
async def standing_by(path: Path, name: str = "Demo") -> AsyncIterator[AttachedHost]:
    host = AttachedHost([at_socket(path, name)])
    try:
        await host.attachments.start(60.0, stands_by=True)
        yield host
    finally:
        await host.attachments.stop()


def state_of(host: AttachedHost) -> State:
    (condition,) = host.attachments.conditions()
    return condition.state


def reserving() -> ScriptedPlugin:
    return ScriptedPlugin(descriptor("Demo", "FILTER", "RESERVE"))


async def test_nothing_but_handshakes_before_the_term_and_all_of_it_at_its_begin(tmp_path: Path) -> None:
    plugin = reserving()
    async with plugin.serving(tmp_path / "p.sock"), standing_by(tmp_path / "p.sock") as host:
        assert state_of(host) is State.STANDBY
        assert not host.client.available
        (attached,) = host.attachments.plugins.values()
        assert (attached.stands_by, attached.absence) == (True, "is not attached: this host stands by")
        await until(lambda: len(plugin.requests("Handshake")) > 3)
        assert {rpc for rpc, _ in plugin.asked} == {"Handshake"}
        assert len({request.attachment_id for request in plugin.requests("Handshake")}) == 1
        await host.attachments.begin_term()
        assert (state_of(host), attached.stands_by) == (State.ACTIVE, False)
        assert [rpc for rpc, _ in plugin.asked if rpc != "Handshake"][: len(TERM) - 1] == TERM[1:]
        (request,) = plugin.requests("Reconcile")
        assert request.host_epoch == host.state.version.epoch


@pytest.mark.slow
async def test_instance_replaced_during_standby_is_attached_when_the_term_begins(tmp_path: Path) -> None:
    first, second = reserving(), reserving()
    async with standing_by_after(first, tmp_path / "p.sock") as host:
        await first.stop()
        async with second.serving(tmp_path / "p.sock"):
            await until(lambda: bool(second.requests("Handshake")) and state_of(host) is State.STANDBY)
            await host.attachments.begin_term()
            await until(lambda: state_of(host) is State.ACTIVE)
            assert not first.requests("Configure")
            assert len(second.requests("Configure")) == 1


@asynccontextmanager
async def standing_by_after(plugin: ScriptedPlugin, path: Path) -> AsyncIterator[AttachedHost]:
    async with plugin.serving(path), standing_by(path) as host:
        yield host


async def test_term_begins_without_an_instance_that_is_not_there(tmp_path: Path) -> None:
    plugin = reserving()
    async with standing_by_after(plugin, tmp_path / "p.sock") as host:
        plugin.on("Configure", refuse(grpc.StatusCode.INTERNAL))
        await host.attachments.begin_term()
        assert not host.client.available
        plugin.on("Configure", lambda _: None)
        await until(lambda: state_of(host) is State.ACTIVE)


@pytest.mark.slow
async def test_leader_keeps_its_instance_until_the_standby_host_begins_its_term(
    tmp_path: Path,
) -> None:
    """Both hosts use the same plugin process, as they may with a plugin on a node's socket."""
    path = tmp_path / "p.sock"
    async with plugin_process(path, ECHO):
        leader = AttachedHost([at_socket(path, "Echo")])
        try:
            await leader.attachments.start(60.0)
            async with standing_by(path, "Echo") as other:
                await asyncio.sleep(0.2)  # time for looks of the one, and for probes of the other
                assert await asked(leader)
                assert leader.attachments.recoveries == 1
                await other.attachments.begin_term()
                (place,) = leader.attachments.places
                place.backoff.next_s = lambda: 60.0  # type: ignore[method-assign]  # it is gone, and must not come back
                assert await asked(other)
                with pytest.raises(
                    PluginError, match=r"not attached to this host any more|lost its instance|was cut off"
                ):
                    await asked(leader)
                await until(lambda: "another host has attached to it" in place.reason)
                assert await asked(other)
        finally:
            await leader.attachments.stop()


async def asked(host: AttachedHost) -> bool:
    """Return True if the plugin answers a Filter."""
    (route,) = host.attachments.plugins["Echo"].routes.values()
    if route.transport is None:
        raise PluginError("Echo", "Filter", "lost its instance")
    result = await route.transport.ask(FILTER, host.cycle(make_pod("p", uid="p")), (host.nodes,), 30.0)
    return len(result.verdicts) == len(host.nodes)
