"""Calls over a real socket to a server whose every answer is scripted: what travels, repairs, failures."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from berth_host.attempt.cycle import CycleEnd
from berth_host.errors.plugins import CycleRestartError
from berth_host.rpc.call_rules import PointPolicy, Policy
from berth_host.rpc.hint_answer import NO_HINT
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2, queue_pb2, scheduling_pb2
from berth_sdk.results import NodeRejections, QueuedPod
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.testing.builders import make_node, make_pod
from support.attached import AttachedHost, at_socket, attached_host
from support.scripted_plugin import (
    WAYS,
    WHOLE_POD,
    ScriptedPlugin,
    decided,
    descriptor,
    for_ever,
    lacking,
    refuse,
)
from support.waiting import PATIENCE_S, until

REJECTED = pb.PluginStatus(code=pb.PluginStatus.CODE_UNSCHEDULABLE)

ALL = ("PRE_FILTER", "FILTER", "POST_FILTER", "PRE_SCORE", "SCORE", "RESERVE", "PERMIT", "PRE_BIND", "BIND")


@pytest.fixture(autouse=True, params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send calls of the scheduling cycle as unary calls, on a stream, and in frames."""
    monkeypatch.setattr(ScriptedPlugin, "features", WAYS[request.param])


@asynccontextmanager
async def attached(
    tmp_path: Path, *plugins: identity_pb2.PluginDescriptor, **options: Any
) -> AsyncIterator[tuple[AttachedHost, ScriptedPlugin]]:
    """Yield a host with the scripted plugins (one, `Demo`, unless given) attached."""
    plugin = ScriptedPlugin(*(plugins or (descriptor("Demo", *ALL),)))
    names = [item.name for item in plugin.plugins]
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, *names), **options) as host:
        yield host, plugin


def failing(point: str, deadline_s: float | None = None) -> dict[str, PointPolicy]:
    return {point: PointPolicy(deadline_s, Policy.FAIL)}


# --- what travels ------------------------------------------------------------------------------------


async def test_pod_is_complete_in_the_first_call_of_a_cycle_alone(tmp_path: Path) -> None:
    async with attached(tmp_path) as (host, plugin):
        cycle = host.cycle(make_pod("web", uid="uid-web", cpu="500m", labels={"a": "b"}))
        await host.client.pre_filter(cycle, host.nodes)
        await host.client.filter(cycle, host.nodes)
        first = plugin.requests("PreFilter")[0].ctx.pod.summary
        second = plugin.requests("Filter")[0].ctx.pod.summary
        assert (first.ref.uid, first.requests["cpu"], dict(first.labels)) == ("uid-web", 500, {"a": "b"})
        assert [field.name for field, _ in second.ListFields()] == ["ref"]


async def test_pod_is_complete_in_every_call_in_names_mode(tmp_path: Path) -> None:
    async with attached(tmp_path, descriptor("Demo", *ALL, snapshot=False)) as (host, plugin):
        cycle = host.cycle()
        await host.client.pre_filter(cycle, host.nodes)
        await host.client.filter(cycle, host.nodes.take([0, 2]))
        assert all(
            request.ctx.pod.summary.scheduler_name for _, request in plugin.asked if hasattr(request, "ctx")
        )
        assert list(plugin.requests("Filter")[0].candidates.names) == ["n0", "n2"]
        assert not plugin.requests("SyncState")


async def test_pod_object_travels_to_plugins_that_declare_it(tmp_path: Path) -> None:
    wants = descriptor("Wants", "FILTER", needs=[WHOLE_POD])
    async with attached(tmp_path, descriptor("Plain", "FILTER"), wants) as (host, plugin):
        cycle = host.cycle(make_pod("web", uid="u"))
        await host.clients["Plain"].filter(cycle, host.nodes)
        await host.clients["Wants"].filter(cycle, host.nodes)
        plain, wanted = (request.ctx for request in plugin.requests("Filter"))
        assert not plain.pod.HasField("object")
        assert b'"web"' in wanted.pod.object.raw


async def test_first_call_of_a_cycle_carries_the_changes_and_later_ones_nothing(tmp_path: Path) -> None:
    async with attached(tmp_path) as (host, plugin):
        host.state.put(make_pod("x", uid="x", cpu="1"), "n1")
        cycle = host.cycle()
        await host.client.pre_filter(cycle, host.nodes)
        await host.client.filter(cycle, host.nodes)
        first, second = plugin.requests("PreFilter")[0].ctx, plugin.requests("Filter")[0].ctx
        assert [state.index for state in first.delta.upserts] == [host.state.index_of("n1")]
        assert first.delta.base == plugin.held
        assert first.version == first.delta.target == second.version
        assert not second.HasField("delta")


async def test_a_synchronisation_whose_answer_cannot_be_read_fails_the_call(tmp_path: Path) -> None:
    async with attached(tmp_path, points=failing("filter")) as (host, plugin):
        plugin.once("Filter", lambda _: scheduling_pb2.FilterResponse(ctx=lacking(pb.MISSING_STATE)))
        plugin.once("SyncState", lambda _: b"\xff\xff\xff")
        verdicts = await host.client.filter(host.cycle(), host.nodes)
        assert "answered what is no reply to it at Filter" in verdicts.to_list()[0].reasons[0]
        assert (await host.client.filter(host.cycle(), host.nodes)).all_passed


async def test_binding_cycle_carries_neither_version_nor_delta(tmp_path: Path) -> None:
    async with attached(tmp_path) as (host, plugin):
        host.state.put(make_pod("x", uid="x"), "n1")
        cycle = host.cycle()
        await host.client.pre_bind(cycle, "n0")
        ctx = plugin.requests("PreBind")[0].ctx
        assert not ctx.HasField("version")
        assert not ctx.HasField("delta")


@pytest.mark.slow
async def test_delta_that_is_too_large_for_a_call_goes_ahead_of_it(tmp_path: Path) -> None:
    async with attached(tmp_path) as (host, plugin):
        host.state.add_nodes(make_node(f"more-{i}") for i in range(600))
        await host.client.filter(host.cycle(), host.nodes)
        assert len(plugin.requests("SyncState")) == 2
        assert not plugin.requests("Filter")[0].ctx.HasField("delta")


@pytest.mark.slow
async def test_candidates_are_a_bitmap_and_all_of_them_one_bit(tmp_path: Path) -> None:
    async with attached(tmp_path, node_count=20) as (host, plugin):
        await host.client.filter(host.cycle(), host.nodes)
        await host.client.filter(host.cycle(), host.nodes.take([1, 9]))
        everything, some = (request.candidates for request in plugin.requests("Filter"))
        assert (everything.complement, everything.bitmap) == (True, b"")
        slots = [int(host.nodes.slots[i]) for i in (1, 9)]
        assert int.from_bytes(some.bitmap, "little") == sum(1 << slot for slot in slots)


async def test_answers_come_back_in_the_order_of_the_rows_that_were_asked_about(tmp_path: Path) -> None:
    async with attached(
        tmp_path, descriptor("Demo", "FILTER", "SCORE", normalization=identity_pb2.SCORE_NORMALIZATION_NONE)
    ) as (host, plugin):
        # Ascending on the wire: the plugin rejects the lowest slot and scores 10, 20, 30.
        lowest = int(host.nodes.slots.min())

        def answer(_request: Any) -> scheduling_pb2.FilterResponse:
            group = scheduling_pb2.NodeGroup(status=REJECTED, nodes=pb.NodeSet(bitmap=bytes([1 << lowest])))
            return scheduling_pb2.FilterResponse(
                verdicts=scheduling_pb2.NodeVerdicts(rejected=[group]),
                early_scores=scheduling_pb2.Scores(dense=[10, 20, 30]),
            )

        plugin.on("Filter", answer)
        cycle = host.cycle()
        turned = host.nodes.take([2, 0, 1])
        verdicts = await host.client.filter(cycle, turned)
        assert verdicts.passed.tolist() == [True, False, True]
        outcome = await host.client.score(cycle, turned)
        assert outcome.normalized.tolist() == [30, 10, 20]
        assert not plugin.requests("Score")


async def test_answers_that_come_with_pre_filter_are_in_that_order_too(tmp_path: Path) -> None:
    none = identity_pb2.SCORE_NORMALIZATION_NONE
    async with attached(
        tmp_path, descriptor("Demo", "PRE_FILTER", "FILTER", "SCORE", normalization=none)
    ) as (
        host,
        plugin,
    ):
        lowest = int(host.nodes.slots.min())
        group = scheduling_pb2.NodeGroup(status=REJECTED, nodes=pb.NodeSet(bitmap=bytes([1 << lowest])))
        early = scheduling_pb2.PreFilterResponse(
            early_filter=scheduling_pb2.NodeVerdicts(rejected=[group]),
            early_scores=scheduling_pb2.Scores(dense=[10, 20, 30]),
        )
        plugin.on("PreFilter", lambda _request: early)
        cycle = host.cycle()
        turned = host.nodes.take([2, 0, 1])
        await host.client.pre_filter(cycle, turned)
        assert (await host.client.filter(cycle, turned)).passed.tolist() == [True, False, True]
        assert (await host.client.score(cycle, turned)).normalized.tolist() == [30, 10, 20]
        assert not plugin.requests("Filter")
        assert not plugin.requests("Score")


async def test_scores_that_come_with_pre_score_are_of_use_for_its_candidates_alone(tmp_path: Path) -> None:
    async with attached(tmp_path, descriptor("Demo", "PRE_SCORE", "SCORE")) as (host, plugin):
        early = scheduling_pb2.PreScoreResponse(early_scores=scheduling_pb2.Scores(small=bytes([1, 2, 3])))
        plugin.on("PreScore", lambda _request: early)
        plugin.on("Score", lambda _: scheduling_pb2.ScoreResponse(scores=scheduling_pb2.Scores(dense=[9, 9])))
        cycle = host.cycle()
        turned = host.nodes.take([2, 0, 1])
        await host.client.pre_score(cycle, turned)
        assert (await host.client.score(cycle, turned)).normalized.tolist() == [3, 1, 2]
        assert not plugin.requests("Score")
        assert (await host.client.score(cycle, host.nodes.take([0, 1]))).normalized.tolist() == [9, 9]


async def test_token_is_echoed_until_it_is_forgotten(tmp_path: Path) -> None:
    async with attached(tmp_path) as (host, plugin):
        tokens = [b"one", None, b""]

        def answer(_request: Any) -> scheduling_pb2.FilterResponse:
            return scheduling_pb2.FilterResponse(ctx=pb.ReplyContext(plugin_token=tokens.pop(0)))

        plugin.on("Filter", answer)
        cycle = host.cycle()
        for _ in range(3):
            await host.client.filter(cycle, host.nodes)
        await host.client.reserve(cycle, "n0")
        assert [request.ctx.plugin_token for request in plugin.requests("Filter")] == [b"", b"one", b"one"]
        assert plugin.requests("Reserve")[0].ctx.plugin_token == b""


async def test_published_keys_reach_the_plugins_that_read_them_when_they_change(tmp_path: Path) -> None:
    reader = descriptor("Reader", "FILTER", reads_shared=["Writer/light"])
    async with attached(tmp_path, descriptor("Writer", "FILTER"), reader) as (host, plugin):

        def publish(request: Any) -> scheduling_pb2.FilterResponse:
            entries = []
            if request.ctx.plugin == "Writer":
                entries = [pb.CycleStateEntry(key="Writer/light", value=values.pop(0))]
            return scheduling_pb2.FilterResponse(ctx=pb.ReplyContext(publish=entries))

        values = [b"red", b"red", b"green"]
        plugin.on("Filter", publish)
        cycle = host.cycle()
        for _ in range(3):
            await host.clients["Writer"].filter(cycle, host.nodes)
            await host.clients["Reader"].filter(cycle, host.nodes)
        sent = [
            [(entry.key, entry.value) for entry in request.ctx.shared]
            for request in plugin.requests("Filter")
            if request.ctx.plugin == "Reader"
        ]
        assert sent == [[("Writer/light", b"red")], [], [("Writer/light", b"green")]]
        assert cycle.shared.values == {"Writer/light": b"green"}


async def test_publishing_in_anothers_name_is_a_violation(tmp_path: Path) -> None:
    async with attached(tmp_path) as (host, plugin):
        entry = pb.CycleStateEntry(key="Other/light", value=b"x")
        plugin.on("Filter", lambda _: scheduling_pb2.FilterResponse(ctx=pb.ReplyContext(publish=[entry])))
        cycle = host.cycle()
        status = (await host.client.filter(cycle, host.nodes)).status(0)
        assert "published the key 'Other/light', which is not its own" in status.message
        assert cycle.shared.values == {}


@pytest.mark.slow
async def test_every_call_names_its_attachment(tmp_path: Path) -> None:
    async with attached(tmp_path) as (host, plugin):
        cycle = host.cycle()
        await host.client.pre_filter(cycle, host.nodes)
        await host.client.filter(cycle, host.nodes)
        await host.client.reserve(cycle, "n0")
        await host.client.unreserve(cycle, "n0", "test")
        await host.client.pre_enqueue([QueuedPod(pod=cycle.pod)])
        host.client.end_cycle(cycle, CycleEnd.ABORTED)
        await until(lambda: bool(plugin.requests("EndCycles")))
        seen = set()
        for rpc, request in plugin.asked:
            for message in request if isinstance(request, list) else [request]:
                named = message.ctx if hasattr(message, "ctx") else message
                seen.add((rpc, named.attachment_id))
        (attachment_id,) = {attachment_id for _, attachment_id in seen}
        assert attachment_id
        assert {"Probe", "SyncState", "Filter", "Unreserve", "EndCycles", "Reconcile"} <= {
            rpc for rpc, _ in seen
        }


async def test_a_reserve_that_was_held_up_by_an_unreserve_is_not_undone(tmp_path: Path) -> None:
    """It was never sent; its Unreserve would hold up the next attempt of the pod in its turn."""
    async with attached(tmp_path) as (host, plugin):
        plugin.on("Unreserve", lambda _: scheduling_pb2.UnreserveResponse())
        first = host.cycle()
        assert (await host.client.reserve(first, "n0")).is_success
        await host.client.unreserve(first, "n0", "test")
        second = host.cycle(first.pod)
        await host.client.filter(second, host.nodes)
        status = await host.client.reserve(second, "n0")
        assert "acknowledged none of 1 reservations" in status.message
        await host.client.unreserve(second, "n0", "test")
        given_back = [item.cycle_id for request in plugin.requests("Unreserve") for item in request.items]
        assert set(given_back) == {first.cycle_id}


@pytest.mark.parametrize(
    ("cycle_id", "words"),
    [("", "did not name the cycle that it answers"), ("another", "answered for the cycle 'another'")],
)
async def test_answer_of_no_cycle_or_of_another_one_is_dropped(
    tmp_path: Path, cycle_id: str, words: str
) -> None:
    async with attached(tmp_path) as (host, plugin):
        plugin.echoes = False
        rejected = scheduling_pb2.NodeGroup(status=REJECTED, nodes=pb.NodeSet(bitmap=b"\1"))
        answer = scheduling_pb2.FilterResponse(
            ctx=pb.ReplyContext(cycle_id=cycle_id, plugin_token=b"t"),
            verdicts=scheduling_pb2.NodeVerdicts(rejected=[rejected]),
        )
        plugin.on("Filter", lambda _: answer)
        cycle = host.cycle()
        status = (await host.client.filter(cycle, host.nodes)).status(1)
        assert (status.code, cycle.state("Demo").token) == (Code.ERROR, None)
        assert words in status.message


async def test_ends_of_cycles_ride_on_the_next_call(tmp_path: Path) -> None:
    async with attached(tmp_path) as (host, plugin):
        ended = host.cycle()
        await host.client.filter(ended, host.nodes)
        host.client.end_cycle(ended, CycleEnd.UNSCHEDULABLE)
        await host.client.filter(host.cycle(), host.nodes)
        await host.client.filter(host.cycle(), host.nodes)
        carried = [
            [(end.cycle_id, end.outcome) for end in request.ctx.ended]
            for request in plugin.requests("Filter")
        ]
        assert carried == [[], [(ended.cycle_id, pb.CycleEnd.OUTCOME_UNSCHEDULABLE)], []]


@pytest.mark.slow
async def test_ends_that_no_call_carries_go_by_themselves_after_a_second(tmp_path: Path) -> None:
    async with attached(tmp_path) as (host, plugin):
        cycle = host.cycle()
        await host.client.filter(cycle, host.nodes)
        host.client.end_cycle(cycle, CycleEnd.BOUND)
        await until(lambda: bool(plugin.requests("EndCycles")))
        (request,) = plugin.requests("EndCycles")
        assert [end.cycle_id for end in request.ended] == [cycle.cycle_id]


async def test_rejections_of_a_failed_search_are_grouped_by_plugin_and_reason(tmp_path: Path) -> None:
    async with attached(tmp_path, node_count=4) as (host, plugin):
        full = Status(Code.UNSCHEDULABLE, ("full",), "Fit")
        rejections = NodeRejections(
            {"n0": full, "n2": full}, Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("gone",), "Other")
        )
        await host.client.post_filter(host.cycle(), rejections)
        (request,) = plugin.requests("PostFilter")
        groups = [
            (
                plugin_name,
                list(group.status.reasons),
                int.from_bytes(group.nodes.bitmap, "little").bit_count(),
            )
            for plugin_name, group in zip(request.rejected_by, request.rejected, strict=True)
        ]
        assert groups == [("Fit", ["full"], 2), ("Other", ["gone"], 2)]


@pytest.mark.slow
async def test_scenarios_are_split_below_the_message_limit(tmp_path: Path) -> None:
    async with attached(tmp_path, descriptor("Demo", "FILTER", needs=[WHOLE_POD])) as (
        host,
        plugin,
    ):
        big = make_pod("big", uid="big", annotations={"filler": "x" * 400_000})
        scenarios = Scenarios(host.nodes, [Scenario(f"n{i % 3}", added=(big,)) for i in range(12)])
        verdicts = await host.client.filter_scenarios(host.cycle(), scenarios)
        assert verdicts.all_passed
        assert len(verdicts) == 12
        sizes = [len(request.scenarios) for request in plugin.requests("SimulateFilter")]
        assert len(sizes) > 1
        assert sum(sizes) == 12


async def test_queue_questions_go_out_in_one_batch(tmp_path: Path) -> None:
    async with attached(tmp_path, descriptor("Demo", "QUEUE_SORT", "PRE_ENQUEUE")) as (host, plugin):
        queued = [QueuedPod(pod=make_pod(f"p{i}"), attempts=i, added_at_s=12.5) for i in range(3)]
        assert await host.client.sort_keys(queued) == [b"k"] * 3
        assert await host.client.pre_enqueue(queued) == [SUCCESS] * 3
        (keys,) = plugin.requests("SortKeys")
        assert [(pod.summary.ref.name, pod.attempts) for pod in keys.pods] == [
            ("p0", 0),
            ("p1", 1),
            ("p2", 2),
        ]
        assert keys.pods[0].added_at.ToMilliseconds() == 12500


async def test_gate_of_a_plugin_with_objects_is_asked_with_the_state(tmp_path: Path) -> None:
    need = identity_pb2.DeclaredNeed(
        kind=identity_pb2.DeclaredNeed.KIND_OBJECT, resource="example.com/widgets"
    )
    async with attached(tmp_path, descriptor("Demo", "PRE_ENQUEUE", needs=[need])) as (host, plugin):
        plugin.once("PreEnqueue", refuse(grpc.StatusCode.FAILED_PRECONDITION))
        assert await host.client.pre_enqueue([QueuedPod(pod=make_pod("a"))]) == [SUCCESS]
        first, second = plugin.requests("PreEnqueue")
        assert first.version == second.version
        # Refused once for another state: everything was sent again before the second question.
        assert len(plugin.requests("SyncState")) == 2


async def test_gate_whose_copy_was_moved_by_another_call_is_asked_again_without_the_whole_state(
    tmp_path: Path,
) -> None:
    need = identity_pb2.DeclaredNeed(
        kind=identity_pb2.DeclaredNeed.KIND_OBJECT, resource="example.com/widgets"
    )
    async with attached(tmp_path, descriptor("Demo", "PRE_ENQUEUE", needs=[need])) as (host, plugin):
        host.state.put(make_pod("x", uid="x"), "n1")
        plugin.once("PreEnqueue", refuse(grpc.StatusCode.FAILED_PRECONDITION))
        assert await host.client.pre_enqueue([QueuedPod(pod=make_pod("a"))]) == [SUCCESS]
        first, second = plugin.requests("PreEnqueue")
        assert first.HasField("delta")
        assert not second.HasField("delta"), "SyncState has brought the copy there"
        assert [chunks[0].chunk.HasField("base") for chunks in plugin.requests("SyncState")] == [False, True]
        assert host.attachments.plugins["Demo"].drifts == 0, "the plugin has lost nothing"


# --- repairs -----------------------------------------------------------------------------------------


async def test_missing_pod_is_sent_again_within_the_call(tmp_path: Path) -> None:
    async with attached(tmp_path) as (host, plugin):
        cycle = host.cycle()
        await host.client.pre_filter(cycle, host.nodes)
        plugin.once("Filter", lambda _: scheduling_pb2.FilterResponse(ctx=lacking(pb.MISSING_POD)))
        assert (await host.client.filter(cycle, host.nodes)).all_passed
        first, second = plugin.requests("Filter")
        assert not first.ctx.pod.summary.scheduler_name
        assert second.ctx.pod.summary.scheduler_name
        assert (first.ctx.attempt, second.ctx.attempt) == (0, 1)


async def test_state_that_was_lost_is_sent_in_full_before_the_call_is_repeated(tmp_path: Path) -> None:
    async with attached(tmp_path) as (host, plugin):
        plugin.once("Filter", lambda _: scheduling_pb2.FilterResponse(ctx=lacking(pb.MISSING_STATE)))
        assert (await host.client.filter(host.cycle(), host.nodes)).all_passed
        assert len(plugin.requests("SyncState")) == 2
        assert not plugin.requests("SyncState")[1][0].chunk.HasField("base")
        assert len(plugin.requests("Filter")) == 2


async def test_delta_starts_where_the_plugin_says_that_it_stands(tmp_path: Path) -> None:
    async with attached(tmp_path) as (host, plugin):
        old = plugin.held
        host.state.put(make_pod("x", uid="x"), "n1")
        await host.client.filter(host.cycle(), host.nodes)
        host.state.put(make_pod("y", uid="y"), "n2")
        plugin.once(
            "Filter", lambda _: scheduling_pb2.FilterResponse(ctx=lacking(pb.MISSING_STATE, have=old))
        )
        await host.client.filter(host.cycle(), host.nodes)
        repaired = plugin.requests("Filter")[-1].ctx.delta
        assert repaired.base == old
        assert len(repaired.upserts) == 2
        assert len(plugin.requests("SyncState")) == 1


@pytest.mark.slow
async def test_a_second_need_in_one_call_is_a_violation_and_is_healed_in_the_background(
    tmp_path: Path,
) -> None:
    async with attached(tmp_path) as (host, plugin):
        plugin.on("Filter", lambda _: scheduling_pb2.FilterResponse(ctx=lacking(pb.MISSING_STATE)))
        status = (await host.client.filter(host.cycle(), host.nodes)).status(0)
        assert status.message == 'plugin "Demo" asked again for what it was just given at Filter'
        assert len(plugin.requests("Filter")) == 2
        synced = len(plugin.requests("SyncState"))
        await until(lambda: len(plugin.requests("SyncState")) > synced)


@pytest.mark.sampled(every=2)
@pytest.mark.slow
@pytest.mark.parametrize("need", [pb.MISSING_CYCLE, pb.MISSING_UNSPECIFIED, 77])
async def test_lost_memory_restarts_the_cycle_once_before_reserve(tmp_path: Path, need: Any) -> None:
    async with attached(tmp_path) as (host, plugin):
        plugin.on("Filter", lambda _: scheduling_pb2.FilterResponse(ctx=lacking(need)))
        with pytest.raises(CycleRestartError):
            await host.client.filter(host.cycle(), host.nodes)
        status = (await host.client.filter(host.cycle(restarted=True), host.nodes)).status(0)
        assert "lost what this cycle had left with it" in status.message


async def test_lost_memory_after_reserve_fails_the_point(tmp_path: Path) -> None:
    async with attached(tmp_path) as (host, plugin):
        plugin.on("Permit", lambda _: scheduling_pb2.PermitResponse(ctx=lacking(pb.MISSING_CYCLE)))
        cycle = host.cycle()
        await host.client.reserve(cycle, "n0")
        assert (await host.client.permit(cycle, "n0")).status.code is Code.ERROR


# --- failures ----------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_pure_call_is_repeated_once_when_unavailable(tmp_path: Path) -> None:
    async with attached(tmp_path) as (host, plugin):
        plugin.once("Filter", refuse(grpc.StatusCode.UNAVAILABLE))
        assert (await host.client.filter(host.cycle(), host.nodes)).all_passed
        assert [request.ctx.attempt for request in plugin.requests("Filter")] == [0, 1]
        assert host.client.stats.of("Filter").repeats == 1


@pytest.mark.sampled(every=4)
@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
    ],
)
async def test_no_other_failure_is_repeated(tmp_path: Path, code: grpc.StatusCode) -> None:
    async with attached(tmp_path) as (host, plugin):
        plugin.on("Filter", refuse(code))
        assert (await host.client.filter(host.cycle(), host.nodes)).status(0).code is Code.ERROR
        assert len(plugin.requests("Filter")) == 1


async def test_call_with_effects_is_never_repeated(tmp_path: Path) -> None:
    async with attached(tmp_path) as (host, plugin):
        plugin.on("Reserve", refuse(grpc.StatusCode.UNAVAILABLE))
        assert (await host.client.reserve(host.cycle(), "n0")).code is Code.ERROR
        assert len(plugin.requests("Reserve")) == 1


@pytest.mark.sampled(every=4)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "outcome", "words"),
    [
        (grpc.StatusCode.UNIMPLEMENTED, "violation", "does not implement what it declared"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "overloaded", "for want of room"),
        (grpc.StatusCode.INTERNAL, "raised", "broke (INTERNAL: scripted)"),
        (grpc.StatusCode.INVALID_ARGUMENT, "host_fault", "calls the request faulty"),
        (grpc.StatusCode.DATA_LOSS, "raised", "broke (DATA_LOSS: scripted)"),
    ],
)
async def test_each_grpc_code_has_its_kind_of_failure(
    tmp_path: Path, code: grpc.StatusCode, outcome: str, words: str
) -> None:
    async with attached(tmp_path) as (host, plugin):
        plugin.on("Filter", refuse(code))
        status = (await host.client.filter(host.cycle(), host.nodes)).status(0)
        assert words in status.message
        assert host.client.stats.of("Filter").failures == {outcome: 1}


async def test_fault_of_the_host_fails_under_every_policy(tmp_path: Path) -> None:
    points = {"filter": PointPolicy(policy=Policy.IGNORE)}
    async with attached(tmp_path, points=points) as (host, plugin):
        plugin.on("Filter", refuse(grpc.StatusCode.INVALID_ARGUMENT))
        assert (await host.client.filter(host.cycle(), host.nodes)).status(0).code is Code.ERROR


@pytest.mark.slow
async def test_deadline_is_the_points_own(tmp_path: Path) -> None:
    async with attached(tmp_path, points=failing("filter", 0.05)) as (host, plugin):
        plugin.on("Filter", for_ever)
        status = (await host.client.filter(host.cycle(), host.nodes)).status(0)
        assert status.message == 'plugin "Demo" did not answer within 50 ms at Filter'


@pytest.mark.slow
async def test_served_time_of_a_cycle_is_capped_by_its_budget(tmp_path: Path) -> None:
    async with attached(tmp_path, points=failing("filter", 10.0)) as (host, plugin):
        plugin.on("Filter", for_ever)
        cycle = host.cycle(budget_s=0.5)
        first = (await host.client.filter(cycle, host.nodes)).status(0)
        # Some of the budget may be spent before the call.
        assert re.search(r"within \d+ ms, all that was left of the cycle's budget", first.message)
        assert cycle.budget_left_s <= 0
        sent = len(plugin.requests("Filter"))
        status = (await host.client.filter(cycle, host.nodes)).status(0)
        assert len(plugin.requests("Filter")) == sent  # nothing was left for the second call
        assert status.message == (
            'plugin "Demo" was not asked, the cycle\'s 0.5 s for served plugins are spent, at Filter'
        )


@pytest.mark.slow
async def test_deadline_that_the_budget_cut_is_called_so(tmp_path: Path) -> None:
    async with attached(tmp_path, points=failing("filter", 10.0)) as (host, plugin):
        plugin.on("Filter", for_ever)
        status = (await host.client.filter(host.cycle(budget_s=0.05), host.nodes)).status(0)
        assert status.message.startswith('plugin "Demo" did not answer within ')
        assert re.search(
            r"within \d+ ms, all that was left of the cycle's budget, at Filter$", status.message
        )


@pytest.mark.slow
async def test_calls_that_overlap_are_charged_once(tmp_path: Path) -> None:
    async with attached(tmp_path, descriptor("A", "FILTER"), descriptor("B", "FILTER")) as (host, plugin):

        async def slow(_request: Any) -> scheduling_pb2.FilterResponse:
            await asyncio.sleep(0.1)
            return scheduling_pb2.FilterResponse()

        plugin.on("Filter", slow)
        cycle = host.cycle(budget_s=10.0)
        began_s = time.monotonic()
        await asyncio.gather(*(client.filter(cycle, host.nodes) for client in host.clients.values()))
        assert 0.1 <= 10.0 - cycle.budget_left_s <= time.monotonic() - began_s


async def test_cancelled_cycle_cancels_its_call(tmp_path: Path) -> None:
    cancelled = asyncio.Event()

    async def hang(_request: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with attached(tmp_path, points=failing("filter", 30.0)) as (host, plugin):
        plugin.on("Filter", hang)
        task = asyncio.ensure_future(host.client.filter(host.cycle(budget_s=30.0), host.nodes))
        await until(lambda: bool(plugin.requests("Filter")))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(cancelled.wait(), PATIENCE_S)


@pytest.mark.slow
async def test_binding_calls_wait_for_their_turn(tmp_path: Path) -> None:
    open_calls, most, two = 0, 0, asyncio.Event()

    async def count(_request: Any) -> scheduling_pb2.PreBindResponse:
        nonlocal open_calls, most
        open_calls += 1
        most = max(most, open_calls)
        if most == 2:
            two.set()
        await two.wait()
        await asyncio.sleep(0.02)  # a third would come meanwhile
        open_calls -= 1
        return scheduling_pb2.PreBindResponse(ctx=decided())

    async with attached(tmp_path, descriptor("Demo", "PRE_BIND", max_concurrency=2)) as (host, plugin):
        plugin.on("PreBind", count)
        await asyncio.gather(*(host.client.pre_bind(host.cycle(), "n0") for _ in range(8)))
        assert most == 2


@pytest.mark.slow
async def test_bind_whose_outcome_is_unknown_is_marked(tmp_path: Path) -> None:
    async with attached(tmp_path, points=failing("bind", 2.0)) as (host, plugin):
        plugin.on("Bind", for_ever)
        cycle = host.cycle()
        assert (await host.client.bind(cycle, "n0")).status.code is Code.ERROR
        assert cycle.part("Demo").is_bind_unknown
        plugin.on(
            "Bind", lambda _: scheduling_pb2.BindResponse(ctx=decided(pb.PluginStatus.CODE_ERROR, "no"))
        )
        told = host.cycle()
        assert (await host.client.bind(told, "n0")).status.message == "no"
        assert not told.part("Demo").is_bind_unknown


async def test_score_error_that_the_plugin_reports_ends_the_cycle(tmp_path: Path) -> None:
    async with attached(tmp_path) as (host, plugin):
        reply = scheduling_pb2.ScoreResponse(ctx=decided(pb.PluginStatus.CODE_ERROR, "no light"))
        plugin.on("Score", lambda _: reply)
        outcome = await host.client.score(host.cycle(), host.nodes)
        assert outcome.status.message == 'running Score plugins: plugin "Demo" failed with: no light'


async def test_points_that_were_not_declared_are_never_asked(tmp_path: Path) -> None:
    async with attached(tmp_path, descriptor("Demo", "SCORE")) as (host, plugin):
        cycle = host.cycle()
        assert (await host.client.filter(cycle, host.nodes)).all_passed
        assert await host.client.pre_score(cycle, host.nodes) is SUCCESS
        assert (await host.client.bind(cycle, "n0")).status.code is Code.SKIP
        assert (await host.client.permit(cycle, "n0")).status is SUCCESS
        assert {rpc for rpc, _ in plugin.asked} == {"Handshake", "Configure", "SyncState", "Probe"}
        assert not cycle.account.notes
        assert host.client.stats.items()[0][1].calls == 0


async def test_scores_by_name_serve_a_plugin_without_bitmaps(tmp_path: Path) -> None:
    async with attached(tmp_path, descriptor("Demo", "SCORE", snapshot=False)) as (host, plugin):
        named = [scheduling_pb2.NamedScore(node=name, score=i) for i, name in enumerate(["n2", "n0", "n1"])]
        plugin.on("Score", lambda _: scheduling_pb2.ScoreResponse(scores=scheduling_pb2.Scores(named=named)))
        outcome = await host.client.score(host.cycle(), host.nodes)
        assert outcome.raw.tolist() == [1, 2, 0]
        assert outcome.raw.dtype == np.int64


async def test_hints_are_asked_with_the_event_and_default_to_yes(tmp_path: Path) -> None:
    interest = identity_pb2.EventInterest(resource="Node", hint=identity_pb2.EventInterest.HINT_ASK_PLUGIN)
    async with attached(tmp_path, descriptor("Demo", "FILTER", events=[interest])) as (host, plugin):
        from berth_sdk.events import ClusterEvent

        event = ClusterEvent(resource="Node", action="update.labels", new=make_node("n1"))
        pods = [make_pod("a"), make_pod("b")]
        plugin.once("QueueingHints", lambda _: queue_pb2.QueueingHintsResponse(queue=[True, False]))
        assert await host.client.queueing_hints(event, pods) == [True, False]
        (request,) = plugin.requests("QueueingHints")
        assert (request.event.resource, request.event.action) == ("Node", "update.labels")
        assert b'"n1"' in request.event.new_object.raw
        plugin.once("QueueingHints", lambda _: queue_pb2.QueueingHintsResponse(queue=[True]))
        assert await host.client.queueing_hints(event, pods) == [NO_HINT, NO_HINT]
        for errors, wanted in (([1], [False, NO_HINT]), ([2], [NO_HINT, NO_HINT])):
            answer = queue_pb2.QueueingHintsResponse(queue=[False, True], errors=errors)
            plugin.once("QueueingHints", partial(_given, answer))
            assert await host.client.queueing_hints(event, pods) == wanted


def _given(answer: Any, _: Any) -> Any:
    """Return the answer, whatever is asked."""
    return answer
