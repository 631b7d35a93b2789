"""Which failed calls count against an instance, through the relay and a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from berth_host.attach.state import State
from berth_host.attempt.cycle import Cycle
from berth_host.rpc.breaker import ENOUGH_CALLS, IN_A_ROW
from berth_host.rpc.call_rules import PointPolicy, Policy
from berth_host.rpc.client import PluginClient
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2
from berth_sdk.results import NodeRejections
from support.attached import AttachedHost, at_socket, attached_host
from support.scripted_plugin import SUCCESS, ScriptedPlugin, descriptor, refuse


async def hold(_request: Any) -> None:
    """Answer nothing."""
    await asyncio.Event().wait()


def open_circuits(host: AttachedHost) -> list[tuple[str, str]]:
    conditions = host.attachments.conditions()
    return [(one.plugin, one.point) for condition in conditions for one in condition.circuits]


async def test_plugin_that_got_only_the_rest_of_the_budget_is_not_blamed(
    tmp_path: Path,
) -> None:
    hog, late = ScriptedPlugin(descriptor("Hog", "FILTER")), ScriptedPlugin(descriptor("Late", "FILTER"))
    for plugin in (hog, late):
        plugin.on("Filter", hold)
    places = at_socket(tmp_path / "hog.sock", "Hog"), at_socket(tmp_path / "late.sock", "Late")
    points = {"filter": PointPolicy(deadline_s=0.06, policy=Policy.IGNORE)}
    async with (
        hog.serving(tmp_path / "hog.sock"),
        late.serving(tmp_path / "late.sock"),
        attached_host(*places, points=points) as host,
    ):
        for _ in range(IN_A_ROW):
            cycle = host.cycle(budget_s=0.08)
            await host.clients["Hog"].filter(cycle, host.nodes)
            await host.clients["Late"].filter(cycle, host.nodes)
        assert open_circuits(host) == [("Hog", "filter")]


@pytest.mark.parametrize(
    ("point", "ask"),
    [
        ("reserve", lambda client, cycle: client.reserve(cycle, "n0")),
        ("permit", lambda client, cycle: client.permit(cycle, "n0")),
        ("postFilter", lambda client, cycle: client.post_filter(cycle, NodeRejections())),
    ],
)
async def test_plugin_that_had_the_whole_budget_and_did_not_answer_is_blamed(
    tmp_path: Path, point: str, ask: Callable[[PluginClient, Cycle], Awaitable[object]]
) -> None:
    """The default deadline is the cycle's budget; at each call slightly less than that is left."""
    plugin = ScriptedPlugin(descriptor("Demo", "RESERVE", "PERMIT", "POST_FILTER"))
    for rpc in ("Reserve", "Permit", "PostFilter"):
        plugin.on(rpc, hold)
    path = tmp_path / "p.sock"
    points = {point: PointPolicy(deadline_s=0.05)}
    async with plugin.serving(path), attached_host(at_socket(path, "Demo"), points=points) as host:
        for _ in range(IN_A_ROW):
            await ask(host.client, host.cycle(budget_s=0.05))
        assert open_circuits(host) == [("Demo", point)]


async def test_a_repeated_call_counts_once_for_the_circuit_breaker(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
        plugin.on("Filter", refuse(grpc.StatusCode.UNAVAILABLE))
        for _ in range(IN_A_ROW):
            await host.client.filter(host.cycle(), host.nodes)
        assert open_circuits(host) == [("Demo", "filter")]
        assert len(plugin.requests("Filter")) == IN_A_ROW


async def test_a_further_round_that_is_not_answered_counts_as_the_first_one_does(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "PRE_BIND"))
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
        again = scheduling_pb2.PreBindResponse(ctx=pb.ReplyContext(status=SUCCESS))
        again.ask_again_after.FromMilliseconds(1)
        for _ in range(ENOUGH_CALLS // 2):
            plugin.once("PreBind", lambda _: again)
            plugin.once("PreBind", refuse(grpc.StatusCode.INTERNAL))
            cycle = host.cycle()
            assert (await host.client.pre_bind(cycle, "n0")).status.is_success
            assert not (await host.client.pre_bind(cycle, "n0")).status.is_success
        (condition,) = host.attachments.conditions()
        assert condition.state is State.DEGRADED
        assert open_circuits(host) == [("Demo", "preBind")]
