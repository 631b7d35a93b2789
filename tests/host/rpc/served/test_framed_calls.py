"""Framed connections of an attached instance: one per plugin, kept while calls are answered, closed by a call
that is not, passed by while a call is open.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from berth_host.config.berth.configuration import Transport
from berth_host.rpc.call_rules import PointPolicy, Policy
from berth_host.rpc.served.frames import LARGEST_BYTES
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from berth_sdk.status import Code
from berth_sdk.wire.frames import FEATURE as FRAMED
from berth_sdk.wire.frames import NUMBERS
from support.attached import AttachedHost, at_socket, attached_host
from support.scripted_plugin import WAYS, ScriptedPlugin, decided, descriptor, for_ever, refuse
from support.waiting import PATIENCE_S, until

POINTS = ("PRE_FILTER", "FILTER", "RESERVE", "PERMIT", "PRE_BIND")


class Carried(ScriptedPlugin):
    """Listens for frames."""

    features = (FRAMED,)


class Leaving(Carried):
    """Closes the connection after every answer, as a server that stops does."""

    def __init__(self, *plugins: identity_pb2.PluginDescriptor) -> None:
        super().__init__(*plugins)
        self.frames.leaves = True


class Confused(Carried):
    """Answers another call than was asked."""

    async def _carried(self, call: int, raw: bytes, context: Any) -> tuple[int, bytes]:
        await super()._carried(call, raw, context)
        return NUMBERS["Permit"], spb.PermitResponse(ctx=decided()).SerializeToString()


@asynccontextmanager
async def attached(tmp_path: Path, plugin: ScriptedPlugin, **options: Any) -> AsyncIterator[AttachedHost]:
    path = tmp_path / "p.sock"
    names = [item.name for item in plugin.plugins]
    async with plugin.serving(path), attached_host(at_socket(path, *names), **options) as host:
        yield host


def carrier(host: AttachedHost) -> str:
    """As `berth plugins` shows it."""
    (condition,) = host.attachments.conditions()
    return condition.carrier


async def test_calls_of_the_scheduling_cycle_share_one_connection(tmp_path: Path) -> None:
    plugin = Carried(descriptor("Demo", *POINTS))
    async with attached(tmp_path, plugin) as host:
        assert carrier(host) == "framed"
        for _ in range(3):
            cycle = host.cycle()
            await host.client.pre_filter(cycle, host.nodes)
            await host.client.filter(cycle, host.nodes)
            assert (await host.client.reserve(cycle, "n0")).is_success
            assert (await host.client.pre_bind(cycle, "n0")).status.is_success
    assert (plugin.frames.opened, plugin.framed) == (1, 9)
    assert len(plugin.requests("PreBind")) == 3


async def test_an_idle_connection_is_closed_with_the_attachment(tmp_path: Path) -> None:
    plugin = Carried(descriptor("Demo", *POINTS))
    async with attached(tmp_path, plugin) as host:
        await host.client.filter(host.cycle(), host.nodes)
        assert plugin.frames.ended == 0
        await host.attachments.stop()
        assert plugin.frames.ended == 1


async def test_an_instance_without_the_feature_gets_unary_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Carried, "features", ())
    plugin = Carried(descriptor("Demo", *POINTS))
    async with attached(tmp_path, plugin) as host:
        assert carrier(host) == "unary"
        await host.client.filter(host.cycle(), host.nodes)
    assert plugin.framed == 0
    assert len(plugin.requests("Filter")) == 1


async def test_each_plugin_has_a_connection_and_one_waits_for_no_other(tmp_path: Path) -> None:
    plugin = Carried(descriptor("One", "FILTER"), descriptor("Two", "FILTER"))
    both = asyncio.Event()

    async def together(_request: Any) -> None:
        if len(plugin.requests("Filter")) == 2:
            both.set()
        await both.wait()

    plugin.on("Filter", together)
    async with attached(tmp_path, plugin) as host:
        cycle = host.cycle(budget_s=30.0)
        await asyncio.gather(*(client.filter(cycle, host.nodes) for client in host.clients.values()))
    assert (plugin.frames.opened, plugin.framed) == (2, 2)


async def test_a_call_beside_an_open_one_is_unary(tmp_path: Path) -> None:
    plugin = Carried(descriptor("Demo", "FILTER"))
    both = asyncio.Event()

    async def together(_request: Any) -> None:
        if len(plugin.requests("Filter")) == 2:
            both.set()
        await both.wait()

    plugin.on("Filter", together)
    async with attached(tmp_path, plugin) as host:
        cycles = (host.cycle(budget_s=30.0) for _ in range(2))
        await asyncio.gather(*(host.client.filter(cycle, host.nodes) for cycle in cycles))
    assert plugin.framed == 1


async def test_a_deadline_closes_the_connection_and_the_next_call_opens_another(tmp_path: Path) -> None:
    plugin = Carried(descriptor("Demo", "FILTER"))
    plugin.once("Filter", for_ever)
    async with attached(tmp_path, plugin, points={"filter": PointPolicy(policy=Policy.FAIL)}) as host:
        late = (await host.client.filter(host.cycle(budget_s=0.1), host.nodes)).to_list()
        assert {status.code for status in late} == {Code.ERROR}
        assert re.search(r"within \d+ ms, all that was left of the cycle's budget", late[0].reasons[0])
        assert (await host.client.filter(host.cycle(), host.nodes)).all_passed
    assert (plugin.frames.opened, plugin.framed) == (2, 2)


async def test_a_connection_that_the_instance_closed_is_opened_again(
    tmp_path: Path,
) -> None:
    plugin = Leaving(descriptor("Demo", "RESERVE"))
    async with attached(tmp_path, plugin) as host:
        for turn in range(1, 20):
            cycle = host.cycle()
            assert (await host.client.reserve(cycle, "n0")).is_success
            assert len(plugin.requests("Reserve")) == turn


async def test_the_answer_to_another_call_is_a_violation(tmp_path: Path) -> None:
    plugin = Confused(descriptor("Demo", "FILTER"))
    async with attached(tmp_path, plugin) as host:
        result = await host.client.filter(host.cycle(), host.nodes)
        text = result.to_list()[0].reasons[0]
        assert "answered what is no reply to it" in text
        assert host.client.stats.violations == 1


async def test_a_large_request_is_unary(tmp_path: Path) -> None:
    plugin = Carried(descriptor("Demo", "FILTER", snapshot=False))
    async with attached(tmp_path, plugin) as host:
        cycle = host.cycle()
        cycle.state("Demo").token = b"x" * LARGEST_BYTES
        await host.client.filter(cycle, host.nodes)
    assert plugin.framed == 0
    assert len(plugin.requests("Filter")) == 1


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("transport", list(Transport))
async def test_calls_travel_in_frames_where_both_sides_allow_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, transport: Transport
) -> None:
    monkeypatch.setattr(Carried, "features", WAYS[way])
    path = tmp_path / "p.sock"
    plugin = Carried(descriptor("Demo", "FILTER"))
    place = replace(at_socket(path, "Demo"), transport=transport)
    async with plugin.serving(path), attached_host(place) as host:
        await host.client.filter(host.cycle(), host.nodes)
        assert carrier(host) == min(way, transport, key=["unary", "framed"].index)
    ((_, hello),) = (asked for asked in plugin.asked if asked[0] == "Handshake")
    assert list(hello.features) == sorted(WAYS[transport])
    (configured,) = plugin.requests("Configure")
    assert set(configured.features) == set(WAYS[transport]) & set(WAYS[way])


async def test_a_call_that_fails_has_its_code_and_the_next_one_is_answered(tmp_path: Path) -> None:
    plugin = Carried(descriptor("Demo", "FILTER"))
    plugin.once("Filter", refuse(grpc.StatusCode.RESOURCE_EXHAUSTED))
    points = {"filter": PointPolicy(policy=Policy.FAIL)}
    async with attached(tmp_path, plugin, points=points) as host:
        status = (await host.client.filter(host.cycle(), host.nodes)).status(0)
        assert "refused the call for want of room (scripted)" in status.message
        assert (await host.client.filter(host.cycle(), host.nodes)).all_passed
    assert plugin.framed == 2


async def test_a_cancelled_cycle_cancels_its_call(tmp_path: Path) -> None:
    plugin = Carried(descriptor("Demo", "FILTER"))
    ended = asyncio.Event()

    async def until_cancelled(_request: Any) -> None:
        try:
            await for_ever(None)
        finally:
            ended.set()

    plugin.once("Filter", until_cancelled)
    async with attached(tmp_path, plugin) as host:
        call = asyncio.ensure_future(host.client.filter(host.cycle(), host.nodes))
        await until(lambda: bool(plugin.requests("Filter")))
        call.cancel()
        await asyncio.wait_for(ended.wait(), PATIENCE_S)
        assert (await host.client.filter(host.cycle(), host.nodes)).all_passed
    assert plugin.framed == 2


@pytest.mark.slow
async def test_an_instance_that_dies_under_a_call_is_unavailable(tmp_path: Path) -> None:
    plugin = Carried(descriptor("Demo", "RESERVE"))
    plugin.on("Reserve", for_ever)
    async with attached(tmp_path, plugin) as host:
        call = asyncio.ensure_future(host.client.reserve(host.cycle(), "n0"))
        await until(lambda: bool(plugin.requests("Reserve")))
        await plugin.stop()
        status = await asyncio.wait_for(call, PATIENCE_S)
        assert status.code is Code.ERROR
        assert host.client.stats.of("Reserve").failures == {"unavailable": 1}
