"""Row 24 of the failure table, with real processes: a plugin that breaks the contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from berth_host.attach.state import State
from berth_host.rpc.failure_record import VIOLATIONS
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2
from google.protobuf.message import Message
from support.faults import RawPlugin, as_time_passes, attached, configuration, in_time, running
from support.hosts import World, node, pod
from support.scripted_plugin import decided, descriptor

pytestmark = pytest.mark.slow

ANOTHER = pb.ReplyContext(cycle_id="another", status=decided().status)
INVALID: dict[str, tuple[str, Message, str]] = {
    "unknown node": (
        "Filter",
        scheduling_pb2.FilterResponse(
            verdicts=scheduling_pb2.NodeVerdicts(
                rejected=[scheduling_pb2.NodeGroup(nodes=pb.NodeSet(bitmap=b"\x00\xff"))]
            )
        ),
        "a node that is not among the candidates",
    ),
    "wrong length": (
        "Score",
        scheduling_pb2.ScoreResponse(scores=scheduling_pb2.Scores(dense=[1])),
        "answered 1 scores for 2",
    ),
    "score 1000": (
        "Score",
        scheduling_pb2.ScoreResponse(scores=scheduling_pb2.Scores(dense=[1, 1000])),
        "returns an invalid score 1000",
    ),
    "no decision at Reserve": ("Reserve", scheduling_pb2.ReserveResponse(), "did not decide"),
    "no decision at Permit": ("Permit", scheduling_pb2.PermitResponse(), "did not decide"),
    "no decision at PreBind": ("PreBind", scheduling_pb2.PreBindResponse(), "did not decide"),
    "no decision at Bind": ("Bind", scheduling_pb2.BindResponse(host_binds=True), "did not decide"),
    "another cycle's answer": (
        "Permit",
        scheduling_pb2.PermitResponse(ctx=ANOTHER),
        "answered for the cycle 'another'",
    ),
    "patch on an undeclared kind": (
        "PreBind",
        scheduling_pb2.PreBindResponse(
            ctx=decided(),
            patches=[
                scheduling_pb2.ObjectPatch(
                    resource="secrets", ref=pb.ObjectRef(name="s"), merge_patch_json=b"{}"
                )
            ],
        ),
        "patched secrets /s, a resource that it did not declare",
    ),
}
POINTS = "filter score reserve permit preBind bind"


def invalid_plugin(folder: Path) -> RawPlugin:
    names = ("FILTER", "POST_FILTER", "SCORE", "RESERVE", "PERMIT", "PRE_BIND", "BIND")
    plugin = RawPlugin(folder, descriptor("Raw", *names))
    plugin.on("Score", scheduling_pb2.ScoreResponse(scores=scheduling_pb2.Scores(dense=[1, 1])))
    return plugin


def strict(plugin: RawPlugin, points: str) -> str:
    """Failed calls of these points fail the pod, those of Score and PostFilter as well."""
    text = configuration(plugin, Raw=points)
    for point in ("score", "postFilter"):
        text = text.replace(f" {point}: {{deadline", f" {point}: {{policy: Fail, deadline")
    return text


@pytest.mark.long
async def test_row_24_invalid_answer_is_refused_counted_and_named_and_the_policy_applies(
    tmp_path: Path,
) -> None:
    """Each to a host of its own: the third would put the instance into quarantine."""
    plugin = invalid_plugin(tmp_path)
    text = strict(plugin, POINTS)
    async with running(plugin):
        for name, (rpc, answer, words) in INVALID.items():
            plugin.once(rpc, answer)
            async with World([node("n0"), node("n1"), pod("web")], configuration=text) as world:
                await in_time(lambda world=world: world.message_of("web"))
                assert 'plugin "Raw"' in world.message_of("web"), name
                assert words in world.message_of("web"), name
                stats = world.host.plugin_stats()["Raw"]
                assert (stats.violations, stats.of(rpc).failures) == (1, {"violation": 1}), name
                await world.settle()
                assert world.node_of("web"), name


@pytest.mark.long
async def test_row_24_a_victim_of_higher_priority_is_left_alone(tmp_path: Path) -> None:
    plugin = invalid_plugin(tmp_path)
    text = strict(plugin, "postFilter")
    vip = pod("vip", cpu="3", nodeName="n0", priority=1000)
    async with running(plugin), World([node("n0"), vip], configuration=text) as world:
        await in_time(lambda: attached(world, "Raw"))
        found: Any = world.pod("vip")
        answer = scheduling_pb2.PostFilterResponse(
            ctx=decided(),
            nominated_node="n0",
            victims=[pb.ObjectRef(name="vip", namespace="default", uid=found.ref.uid)],
        )
        plugin.on("PostFilter", answer)
        world.server.create(pod("web", cpu="3"))
        await in_time(lambda: world.message_of("web"))
        await world.settle()
        assert "of priority 1000, not below the pod's 0" in world.message_of("web")
        assert world.node_of("vip") == "n0"
        assert world.host.plugin_stats()["Raw"].violations >= 1


@pytest.mark.long
async def test_row_24_the_third_invalid_answer_of_any_kind_ends_in_quarantine(tmp_path: Path) -> None:
    plugin = invalid_plugin(tmp_path)
    for name in ("unknown node", "no decision at Reserve", "patch on an undeclared kind"):
        plugin.once(INVALID[name][0], INVALID[name][1])
    text = strict(plugin, POINTS)
    async with running(plugin), World([node("n0"), node("n1")], configuration=text) as world:
        await in_time(lambda: attached(world, "Raw"))
        (place,) = world.host.attachments.attached_places.places
        for i in range(3):
            assert place.state is State.ACTIVE
            world.server.create(pod(f"p{i}"))
            await in_time(lambda i=i: world.message_of(f"p{i}"))
        await in_time(lambda: place.state is State.QUARANTINED)
        asked = len(plugin.lines("journal"))
        world.server.create(pod("after"))
        await in_time(lambda: "is in quarantine" in world.message_of("after"))
        assert [words[0] for words in plugin.lines("journal")[asked:] if words[0] == "Filter"] == []
        await plugin.restart()
        await world.settle()
        assert all(world.node_of(name) for name in ("p0", "p1", "p2", "after"))


@pytest.mark.long
async def test_row_24_a_bind_that_is_claimed_and_was_not_done_is_invalid(tmp_path: Path) -> None:
    """The pod is looked for, for so long as a plugin may be ahead of the cluster; then it is tried again."""
    plugin = invalid_plugin(tmp_path)
    claim = scheduling_pb2.BindResponse(ctx=decided())
    for _ in range(VIOLATIONS):
        plugin.once("Bind", claim)
    text = strict(plugin, "reserve bind")
    async with running(plugin), World([node("n0"), pod("web")], configuration=text) as world:
        (place,) = world.host.attachments.attached_places.places
        await as_time_passes(world, lambda: bool(world.message_of("web")))
        assert "it answered success, but the pod is not bound to n0" in world.message_of("web")
        stats = world.host.plugin_stats()["Raw"]
        assert (stats.violations, stats.of("Bind").failures) == (1, {"violation": 1})
        await as_time_passes(world, lambda: place.state is State.QUARANTINED)
        assert len(plugin.requests("Bind")) == VIOLATIONS
        reserved = [request.ctx.cycle_id for request in plugin.requests("Reserve")]
        await plugin.restart()
        await as_time_passes(world, lambda: bool(world.node_of("web")))
        given_back = [item.cycle_id for one in plugin.requests("Unreserve") for item in one.items]
        assert given_back == reserved  # the last one by the next instance: one in quarantine is not asked
