"""The states of an attached instance: circuit breakers, silence, and cycles of a lost instance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from berth_host.attach import probing
from berth_host.attach.state import State
from berth_host.rpc.breaker import IN_A_ROW
from berth_sdk.plugin.v1 import identity_pb2
from support.attached import AttachedHost, at_socket, attached_host
from support.scripted_plugin import ScriptedPlugin, descriptor, refuse
from support.waiting import until


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "PROBE_PERIOD_S", 0.05)
    monkeypatch.setattr(probing, "TICK_S", 0.05)


def stands(host: AttachedHost) -> tuple[State, str]:
    (condition,) = host.attachments.conditions()
    return condition.state, condition.reason


def probed(plugin: ScriptedPlugin, *, ready: bool, message: str = "") -> identity_pb2.ProbeResponse:
    return identity_pb2.ProbeResponse(ready=ready, message=message, instance_id=plugin.instance_id)


async def test_open_circuit_degrades_the_instance_and_one_good_answer_makes_it_whole(
    tmp_path: Path, quick: None
) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
        plugin.on("Filter", refuse(grpc.StatusCode.INTERNAL))
        for _ in range(IN_A_ROW + 3):
            await host.client.filter(host.cycle(), host.nodes)
        assert len(plugin.requests("Filter")) == IN_A_ROW
        assert stands(host)[0] is State.DEGRADED
        assert stands(host)[1].startswith("plugin Demo is not asked at filter: broke")
        (condition,) = host.attachments.conditions()
        assert [(one.plugin, one.point) for one in condition.circuits] == [("Demo", "filter")]
        plugin.on("Filter", lambda _: None)
        # A probe comes by itself once the pause is over; calls until then find the circuit open.
        await until(lambda: host.attachments.conditions()[0].circuits[0].state.value == "HalfOpen")
        await host.client.filter(host.cycle(), host.nodes)
        assert stands(host) == (State.ACTIVE, "")
        assert len(plugin.requests("Filter")) == IN_A_ROW + 1
        # What failed on its account may be tried again.
        assert host.witness.seen == [("attached", "Demo"), ("attached", "Demo")]


async def test_instance_that_is_not_ready_is_degraded_and_not_asked(tmp_path: Path, quick: None) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
        plugin.on("Probe", lambda _: probed(plugin, ready=False, message="loading"))
        await until(lambda: stands(host) == (State.DEGRADED, "not ready: loading"))
        assert not host.client.available
        plugin.on("Probe", lambda _: probed(plugin, ready=True))
        await until(lambda: stands(host) == (State.ACTIVE, ""))
        assert host.client.available


async def test_older_instance_is_reconciled_when_the_newer_one_is_lost(tmp_path: Path) -> None:
    """Reconcile moves the reservations of a lost instance; those of an attached one stay with it."""
    old, new = (ScriptedPlugin(descriptor("Demo", "RESERVE")) for _ in range(2))
    old.instance_id, new.instance_id = "old", "new"
    new.started_at_s = old.started_at_s + 10
    place = replace(at_socket(tmp_path / "folder", "Demo"), is_open=True)
    (tmp_path / "folder").mkdir()
    async with old.serving(tmp_path / "folder" / "old.sock"), attached_host(place) as host:
        assert len(old.requests("Reconcile")) == 1
        async with new.serving(tmp_path / "folder" / "new.sock"):
            await until(lambda: len(host.attachments.conditions()) == 2)
            attached = host.attachments.plugins["Demo"]
            await until(lambda: attached.active is not None and attached.active.instance_id == "new")
            assert len(new.requests("Reconcile")) == 1
        await until(lambda: attached.active is not None and attached.active.instance_id == "old")
        await until(lambda: len(old.requests("Reconcile")) == 2)
