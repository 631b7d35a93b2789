"""What each call of HandleService does to the host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from berth_host.handle import calls
from berth_host.log.hidden import MASK, forget, hide
from berth_host.rpc import loop_slices
from berth_host.rpc.served.statuses import MAX_REASON_BYTES
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import handle_pb2, scheduling_pb2
from berth_sdk.results import (
    Decision,
)
from support.handle_serving import (
    serving,
)


async def test_waiting_pods_are_listed_with_their_objects_on_request() -> None:
    async with serving() as host:
        (plain,) = await host.call(
            "ListWaitingPods", handle_pb2.ListWaitingPodsRequest(plugin="Demo", only_mine=True)
        )
        (item,) = plain.pods
        assert (item.pod.ref.uid, item.cycle_id, item.node_name) == ("uid-held", "cycle-7", "n1")
        assert list(item.pending_plugins) == ["Demo"]
        assert item.deadline.ToMilliseconds() == 1_234_500
        assert not item.HasField("object")
        (full,) = await host.call(
            "ListWaitingPods", handle_pb2.ListWaitingPodsRequest(plugin="Demo", with_objects=True)
        )
        assert b'"held"' in full.pods[0].object.raw
        assert host.backend.asked == [("waiting_pods", "Demo", True), ("waiting_pods", "Demo", False)]


async def test_list_of_waiting_pods_comes_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "CHUNK_BYTES", 1)
    async with serving() as host:
        held = host.backend.waiting_pods("Demo", True)
        monkeypatch.setattr(host.backend, "waiting_pods", lambda *_: held * 3)
        chunks = await host.call("ListWaitingPods", handle_pb2.ListWaitingPodsRequest(plugin="Demo"))
        assert [len(chunk.pods) for chunk in chunks] == [1, 1, 1]


async def test_each_decision_gets_its_own_result_in_order() -> None:
    async with serving() as host:
        allow, reject = handle_pb2.WaitDecision.VERDICT_ALLOW, handle_pb2.WaitDecision.VERDICT_REJECT
        decisions = [
            handle_pb2.WaitDecision(pod_uid=f"u{i}", cycle_id="c", verdict=allow if i % 2 else reject)
            for i in range(6)
        ]
        decisions.append(handle_pb2.WaitDecision(pod_uid="u6", cycle_id="c"))
        reply = await host.call(
            "DecideWaitingPods",
            handle_pb2.DecideWaitingPodsRequest(plugin="Demo", decisions=decisions),
        )
        names = [handle_pb2.DecideWaitingPodsResponse.Result.Name(result) for result in reply.results]
        assert names == [
            "RESULT_APPLIED",
            "RESULT_STORED_EARLY",
            "RESULT_ALREADY_DECIDED",
            "RESULT_NOT_WAITING",
            "RESULT_STALE_CYCLE",
            "RESULT_NOT_PERMITTED",
            "RESULT_NOT_PERMITTED",  # no verdict
        ]
        assert [entry[0] for entry in host.backend.asked] == ["reject", "allow"] * 3


async def test_words_of_a_plugin_come_without_secrets() -> None:
    said = "the token hunter2-of-the-way-back is refused"
    hide(["hunter2-of-the-way-back"])
    try:
        async with serving() as host:
            reject = handle_pb2.WaitDecision(
                pod_uid="u", cycle_id="c", verdict=handle_pb2.WaitDecision.VERDICT_REJECT, message=said
            )
            decide = handle_pb2.DecideWaitingPodsRequest(plugin="Demo", decisions=[reject])
            await host.call("DecideWaitingPods", decide)
            item = handle_pb2.BindingCancellation(pod_uid="CANCELLED", cycle_id="c", message=said)
            await host.call("CancelBinding", handle_pb2.CancelBindingRequest(plugin="Demo", items=[item]))
            event = handle_pb2.EventRecord(reason="Seen", type="Normal", note=said)
            await host.call("RecordEvents", handle_pb2.RecordEventsRequest(plugin="Demo", events=[event]))
            assert len(host.backend.asked) == 3
            for asked in host.backend.asked:
                assert "hunter2" not in str(asked)
                assert MASK in str(asked)
    finally:
        forget(["hunter2-of-the-way-back"])


async def test_each_cancellation_gets_its_own_result_in_order() -> None:
    async with serving() as host:
        uids = ["STALE_CYCLE", "CANCELLED", "NOT_IN_PRE_BIND"]
        items = [
            handle_pb2.BindingCancellation(pod_uid=uid, cycle_id="c", message="é" * 4000) for uid in uids
        ]
        request = handle_pb2.CancelBindingRequest(plugin="Demo", items=items)
        reply = await host.call("CancelBinding", request)
        names = [handle_pb2.CancelBindingResponse.Result.Name(result) for result in reply.results]
        assert names == [f"RESULT_{uid}" for uid in uids]
        assert [entry[:4] for entry in host.backend.asked] == [("cancel", "Demo", uid, "c") for uid in uids]
        assert {len(entry[4].encode()) for entry in host.backend.asked} == {MAX_REASON_BYTES}


async def test_each_nomination_gets_its_own_result_in_order() -> None:
    modes = handle_pb2.Nomination
    async with serving() as host:
        items = [
            modes(pod_uid="APPLIED", mode=modes.MODE_OVERRIDE, node_name="n1"),
            modes(pod_uid="UNKNOWN_NODE", mode=modes.MODE_OVERRIDE, node_name="gone"),
            modes(pod_uid="APPLIED", mode=modes.MODE_OVERRIDE),
            modes(pod_uid="NOT_PENDING", mode=modes.MODE_FROM_STATUS, node_name="n1"),
            modes(pod_uid="APPLIED", mode=modes.MODE_REMOVE, node_name="n1"),
            modes(pod_uid="APPLIED", node_name="n1"),
            modes(pod_uid="APPLIED", mode=9, node_name="n1"),  # type: ignore[arg-type]  # of a later minor
        ]
        reply = await host.call("Nominate", handle_pb2.NominateRequest(plugin="Demo", items=items))
        assert [handle_pb2.NominateResponse.Result.Name(result) for result in reply.results] == [
            "RESULT_APPLIED",
            "RESULT_UNKNOWN_NODE",
            "RESULT_UNKNOWN_NODE",  # no name
            "RESULT_NOT_PENDING",
            "RESULT_APPLIED",
            "RESULT_NOT_PERMITTED",
            "RESULT_NOT_PERMITTED",
        ]
        assert host.backend.asked == [
            ("nominate", "Demo", "APPLIED", "n1"),
            ("nominate", "Demo", "UNKNOWN_NODE", "gone"),
            ("nominate", "Demo", "NOT_PENDING", None),
            ("nominate", "Demo", "APPLIED", ""),
        ]


async def test_scores_are_run_for_an_open_call() -> None:
    async with serving() as host:
        request = handle_pb2.RunScoresRequest(plugin="Demo", cycle_id="open", node_names=["n2", "n0"])
        reply = await host.call("RunScores", request)
        assert (reply.status.code, list(reply.totals)) == (pb.PluginStatus.CODE_SUCCESS, [-1, 1])
        (item,) = reply.plugins
        assert (item.plugin, item.weight, list(item.scores)) == ("Other", 2, [0, 1])
        failed = await host.call("RunScores", handle_pb2.RunScoresRequest(plugin="Demo", cycle_id="open"))
        assert (failed.status.code, list(failed.status.reasons)) == (
            pb.PluginStatus.CODE_ERROR,
            ["no scores"],
        )
        assert host.backend.asked == [("scores", "Demo", "n2", "n0"), ("scores", "Demo")]
        for cycle_id, code, text in [
            ("busy", grpc.StatusCode.RESOURCE_EXHAUSTED, "it is busy"),
            ("nowhere", grpc.StatusCode.INVALID_ARGUMENT, "it is nowhere"),
            (
                "over",
                grpc.StatusCode.FAILED_PRECONDITION,
                "no PostFilter, Reserve or Permit of Demo is open in cycle over",
            ),
        ]:
            request.cycle_id = cycle_id
            assert await host.refused("RunScores", request) == (code, text)


async def test_requeue_moves_the_named_pods_and_all_rejected_ones() -> None:
    async with serving() as host:
        request = handle_pb2.RequeueRequest(
            plugin="Demo",
            pod_uids=["a"],
            all_rejected_by_me=True,
            reason="light",
            skip_backoff=True,
        )
        assert (await host.call("Requeue", request)).moved == 4
        assert host.backend.asked == [
            ("requeue", "Demo", ["a"], "light", True),
            ("requeue", "Demo", None, "light", True),
        ]
        assert (await host.call("Requeue", handle_pb2.RequeueRequest(plugin="Demo"))).moved == 0


async def test_sort_keys_are_invalidated_by_the_plugin_that_sorts_alone() -> None:
    async with serving() as host:
        request = handle_pb2.InvalidateSortKeysRequest(plugin="Demo", all=True)
        assert (await host.refused("InvalidateSortKeys", request))[0] is grpc.StatusCode.PERMISSION_DENIED
        for fields in ({"all": True}, {"pod_uids": ["a"]}, {}):
            await host.call(
                "InvalidateSortKeys", handle_pb2.InvalidateSortKeysRequest(plugin="Sorter", **fields)
            )
        assert host.backend.asked == [("invalidate", "Sorter", None), ("invalidate", "Sorter", ["a"])]


async def test_events_are_written_bounded_and_counted() -> None:
    async with serving() as host:
        host.backend.events_left = 30
        record = handle_pb2.EventRecord(
            regarding=pb.ObjectRef(name="web", uid="u"), reason="Blinked", note="é" * 2000
        )
        request = handle_pb2.RecordEventsRequest(plugin="Demo", events=[record] * 120)
        assert (await host.call("RecordEvents", request)).dropped == 90
        assert len(host.backend.asked) == 100
        _, _, name, kind, reason, action, note = host.backend.asked[0]
        assert (name, kind, reason, action) == ("web", "Normal", "Blinked", "")
        assert len(note.encode()) == 1024


async def test_other_plugins_filters_answer_while_the_post_filter_is_open() -> None:
    async with serving() as host:
        index = host.state.index_of("n1")
        added = [
            pb.PodState(pod=pb.PodSummary(ref=pb.ObjectRef(name=f"p{i}", uid=f"p{i}"))) for i in range(2)
        ]
        scenarios = [
            scheduling_pb2.Scenario(node=scheduling_pb2.ScenarioNode(node_index=index or 0, added=added)),
            scheduling_pb2.Scenario(node=scheduling_pb2.ScenarioNode(node_name="n2", added=added[:1])),
        ]
        request = handle_pb2.RunFiltersRequest(plugin="Demo", cycle_id="open", scenarios=scenarios)
        reply = await host.call("RunFilters", request)
        assert [(status.code, list(status.reasons)) for status in reply.statuses] == [
            (pb.PluginStatus.CODE_UNSCHEDULABLE, ["n1 is full"]),
            (pb.PluginStatus.CODE_SUCCESS, []),
        ]
        request.cycle_id = "over"
        code, text = await host.refused("RunFilters", request)
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert text == "no PostFilter of Demo is open in cycle over"


@pytest.mark.parametrize(
    "scenario",
    [
        scheduling_pb2.Scenario(node=scheduling_pb2.ScenarioNode(node_name="nowhere")),
        scheduling_pb2.Scenario(node=scheduling_pb2.ScenarioNode(node_index=999)),
        scheduling_pb2.Scenario(
            node=scheduling_pb2.ScenarioNode(
                node_name="n1", removed=[pb.ObjectRef(name="x", uid="not there")]
            )
        ),
    ],
    ids=["node", "index", "pod"],
)
async def test_scenarios_about_what_is_not_there_are_refused(scenario: scheduling_pb2.Scenario) -> None:
    async with serving() as host:
        request = handle_pb2.RunFiltersRequest(plugin="Demo", cycle_id="open", scenarios=[scenario])
        assert (await host.refused("RunFilters", request))[0] is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("index", [0, 1], ids=["no index", "an index"])
async def test_a_scenario_without_a_name_is_refused_in_names_mode(index: int) -> None:
    async with serving() as host:
        node = scheduling_pb2.ScenarioNode(node_index=index)
        request = handle_pb2.RunFiltersRequest(
            plugin="ByNames", cycle_id="open", scenarios=[scheduling_pb2.Scenario(node=node)]
        )
        assert await host.refused("RunFilters", request) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "a scenario has no node_name, and the plugin's node mode is NAMES: set ScenarioNode.node_name, or"
            " `state` for a new node (node_index is read in SNAPSHOT mode only)",
        )
        node.node_name = "n1"
        request.scenarios[0].node.CopyFrom(node)
        (status,) = (await host.call("RunFilters", request)).statuses
        assert status.code == pb.PluginStatus.CODE_SUCCESS


SUMMARY = pb.NodeSummary(allocatable={"pods": 10})


@pytest.mark.parametrize(
    ("node", "problem"),
    [
        (
            scheduling_pb2.ScenarioNode(state=pb.NodeState(name="n1", summary=SUMMARY)),
            "node 'n1' is in the snapshot: name it, or rename the new node",
        ),
        (
            scheduling_pb2.ScenarioNode(state=pb.NodeState(summary=SUMMARY)),
            "the new node of a scenario has no name: set NodeState.name",
        ),
        (
            scheduling_pb2.ScenarioNode(state=pb.NodeState(name="new")),
            "the new node 'new' has neither summary nor object: set one of them, or both",
        ),
        (
            scheduling_pb2.ScenarioNode(
                state=pb.NodeState(name="new", summary=SUMMARY), removed=[pb.ObjectRef(name="x", uid="x")]
            ),
            "node 'new' is new, so no pods can leave it: leave out `removed`",
        ),
        (
            scheduling_pb2.ScenarioNode(
                state=pb.NodeState(name="new", summary=SUMMARY),
                added=[pb.PodState(pod=pb.PodSummary(ref=pb.ObjectRef(namespace="a", name="x")))],
            ),
            "pod a/x, which comes to the new node 'new', has no uid: give it a uid of its own",
        ),
    ],
    ids=["known", "nameless", "empty", "pods that leave", "pod without a uid"],
)
async def test_new_nodes_that_are_known_or_not_complete_are_refused(
    node: scheduling_pb2.ScenarioNode, problem: str
) -> None:
    async with serving() as host:
        scenario = scheduling_pb2.Scenario(node=node)
        request = handle_pb2.RunFiltersRequest(plugin="Demo", cycle_id="open", scenarios=[scenario])
        assert await host.refused("RunFilters", request) == (grpc.StatusCode.INVALID_ARGUMENT, problem)


async def test_preemption_is_evaluated_for_an_open_post_filter() -> None:
    async with serving() as host:
        request = handle_pb2.EvaluatePreemptionRequest(
            plugin="Demo", cycle_id="open", min_candidate_nodes_percentage=20, min_candidate_nodes_absolute=7
        )
        reply = await host.call("EvaluatePreemption", request)
        assert (reply.status.code, reply.nominated_node) == (pb.PluginStatus.CODE_SUCCESS, "n1")
        assert [ref.uid for ref in reply.victims] == ["low-uid"]
        assert host.backend.asked == [("preempt", "Demo", 20, 7)]
        request.cycle_id = "over"
        code, text = await host.refused("EvaluatePreemption", request)
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert text == "no PostFilter of Demo is open in cycle over"


ALLOW = handle_pb2.WaitDecision.VERDICT_ALLOW
REMOVE = handle_pb2.Nomination.MODE_REMOVE


@pytest.mark.parametrize(
    ("rpc", "request_of"),
    [
        (
            "DecideWaitingPods",
            lambda count: handle_pb2.DecideWaitingPodsRequest(
                plugin="Demo",
                decisions=[handle_pb2.WaitDecision(verdict=ALLOW, pod_uid="NOT_WAITING")] * count,
            ),
        ),
        (
            "CancelBinding",
            lambda count: handle_pb2.CancelBindingRequest(
                plugin="Demo", items=[handle_pb2.BindingCancellation(pod_uid="NOT_IN_PRE_BIND")] * count
            ),
        ),
        (
            "Nominate",
            lambda count: handle_pb2.NominateRequest(
                plugin="Demo", items=[handle_pb2.Nomination(mode=REMOVE, pod_uid="NOT_PENDING")] * count
            ),
        ),
    ],
)
async def test_a_call_about_many_pods_does_not_hold_the_loop(
    rpc: str, request_of: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few megabytes are hundreds of thousands of decisions, and other plugins have deadlines meanwhile."""
    monkeypatch.setattr(loop_slices, "STEP_S", 0.0)
    turns = 0
    seen: list[int] = []

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with serving() as host:
        host.backend.decisions = [Decision.NOT_WAITING] * 200
        host.backend.asked = Noting(lambda: seen.append(turns))
        turning = asyncio.create_task(turn())
        reply = await host.call(rpc, request_of(200))
        turning.cancel()
    assert len(reply.results) == len(seen) == 200
    assert len(set(seen)) == 200  # the others had a turn between any two


class Noting(list[tuple[Any, ...]]):
    """Tells of each that would be noted."""

    def __init__(self, tell: Callable[[], None]) -> None:
        super().__init__()
        self._tell = tell

    def append(self, item: tuple[Any, ...]) -> None:
        self._tell()
