"""Requests written by the host are read by the SDK, and replies written by the SDK by the host: the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from berth_host.errors.plugins import PluginProtocolError
from berth_host.model.compact_json import json_bytes
from berth_host.rpc.served import requests
from berth_host.rpc.served.codec import CODECS
from berth_host.rpc.served.replies import ReplyReader
from berth_host.rpc.served.statuses import plain
from berth_sdk.events import ClusterEvent
from berth_sdk.extension_points import NodeMode
from berth_sdk.json.reader import RawJson
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2
from berth_sdk.results import NodeRejections, ObjectPatch, PatchAction, PatchOutcome, PatchResult, QueuedPod
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.status import Code, Status, Verdicts
from berth_sdk.tables import NodeTable
from berth_sdk.testing.builders import make_node, make_pod, make_table
from berth_sdk.wire import records as wire
from berth_sdk.wire import requests as wire_requests
from berth_sdk.wire import results as wire_results
from berth_sdk.wire.scenarios import decode_scenario
from berth_sdk.wire.scores import Scored, encode_aligned
from hypothesis import given
from hypothesis import strategies as st

COUNT = 12
NODES = make_table([make_node(f"n{i}") for i in range(COUNT)])
MODES = pytest.mark.parametrize("mode", list(NodeMode), ids=lambda mode: mode.name.lower())
STATUSES = st.builds(
    Status,
    st.sampled_from([Code.SUCCESS, Code.UNSCHEDULABLE, Code.PENDING, Code.ERROR]),
    # Plain lines survive; what else there may be in a reason does not, see test_statuses.
    st.lists(st.text(min_size=1, max_size=20).map(plain), max_size=3).map(tuple),
).map(lambda status: Status() if status.is_success else status)
SUBSETS = st.sets(st.integers(0, COUNT - 1), min_size=1).map(sorted)


def index_of(name: str) -> int | None:
    position = NODES.position(name)
    return None if position is None else int(NODES.slots[position])


def read_by(rpc: str, mode_reader: ReplyReader, reply: Any) -> Any:
    """Return the answer to a call, as its codec reads it."""
    return CODECS[rpc].read(mode_reader, reply)


def reader(mode: NodeMode, nodes: NodeTable = NODES) -> ReplyReader:
    return ReplyReader("Demo", "Filter", mode, nodes)


@MODES
@given(positions=SUBSETS)
def test_decoded_candidates_equal_the_encoded_nodes(mode: NodeMode, positions: list[int]) -> None:
    message = requests.encode_candidates(NODES.take(positions), mode)
    if mode is NodeMode.NAMES:
        assert list(message.names) == [f"n{i}" for i in positions]
        assert not message.complement
    else:
        assert wire.decode_rows(message, NODES.slots, {}).tolist() == NODES.slots[positions].tolist()


@pytest.mark.slow
@MODES
@given(statuses=st.lists(STATUSES, min_size=COUNT, max_size=COUNT), positions=SUBSETS)
def test_decoded_verdicts_equal_the_encoded_ones(
    mode: NodeMode, statuses: list[Status], positions: list[int]
) -> None:
    nodes = NODES.take(positions)
    verdicts = Verdicts.of(statuses[: len(positions)])
    message = wire_results.encode_verdicts(verdicts, nodes, mode)
    got = reader(mode, nodes).verdicts(message)
    assert got.to_list() == [
        status if status.is_success else status.with_plugin("Demo") for status in verdicts.to_list()
    ]


@MODES
@given(scores=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=COUNT, max_size=COUNT))
def test_decoded_scores_equal_the_encoded_ones(mode: NodeMode, scores: list[int]) -> None:
    raw = encode_aligned(np.asarray(scores, dtype=np.int64))
    assert reader(mode).scores(raw).tolist() == scores


@MODES
@given(
    statuses=st.dictionaries(
        st.integers(0, COUNT - 1).map(lambda i: f"n{i}"),
        st.builds(Status, st.just(Code.UNSCHEDULABLE), st.just(("r",)), st.sampled_from(["A", "B"])),
    )
)
def test_decoded_rejections_equal_the_encoded_ones(mode: NodeMode, statuses: dict[str, Status]) -> None:
    groups, plugins = requests.encode_rejections(NodeRejections(statuses), NODES.names, mode, index_of)
    got = wire_requests.decode_rejections(groups, plugins, NODES)
    assert dict(got.by_node) == statuses


def test_absent_status_is_spelled_out_where_it_says_more_than_the_contract() -> None:
    absent = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("node(s) didn't satisfy plugin(s) [A]",))
    rejections = NodeRejections({"n0": Status(Code.UNSCHEDULABLE, ("x",), "A")}, absent)
    groups, plugins = requests.encode_rejections(rejections, NODES.names, NodeMode.NAMES, index_of)
    got = wire_requests.decode_rejections(groups, plugins, NODES)
    assert got.status("n0").plugin == "A"
    assert all(got.status(f"n{i}") == absent for i in range(1, COUNT))


@MODES
@pytest.mark.parametrize("whole", [False, True])
def test_decoded_scenarios_equal_the_encoded_ones(mode: NodeMode, whole: bool) -> None:
    here = make_pod("here", uid="here", node="n1", cpu="1")
    nodes = make_table([make_node("n0"), make_node("n1")], [here])
    new = make_pod("new", uid="new", cpu="2", labels={"a": "b"})
    scenarios = Scenarios(nodes, [Scenario("n1", (here,), (new,)), Scenario("n0")])
    messages = requests.encode_scenarios(scenarios, mode, whole=whole, usage=False)
    first, second = (decode_scenario(message, nodes, mode) for message in messages)
    assert (first.node_name, second.node_name) == ("n1", "n0")
    assert [pod.uid for pod in first.removed] == ["here"]
    (added,) = first.added
    assert (added.requests, added.labels) == (new.requests, new.labels)
    assert (added.object is not None) is whole


def test_a_scenario_without_a_name_is_refused_in_names_mode_and_not_read_as_the_first_node() -> None:
    nodes = make_table([make_node("n0")], [])
    (message,) = requests.encode_scenarios(
        Scenarios(nodes, [Scenario("n0")]), NodeMode.SNAPSHOT, whole=False, usage=False
    )
    assert decode_scenario(message, nodes, NodeMode.SNAPSHOT).node_name == "n0"
    with pytest.raises(ValueError, match="a scenario without node_name, which the node mode NAMES requires"):
        decode_scenario(message, nodes, NodeMode.NAMES)


def test_decoded_queued_pods_and_events_equal_the_encoded_ones() -> None:
    queued = QueuedPod(
        pod=make_pod("a", uid="u"),
        attempts=3,
        added_at_s=1000.25,
        first_attempt_at_s=900.5,
        victims_pending=True,
    )
    message = requests.encode_queued_pod(queued, True)
    got = wire_requests.decode_queued_pod(message)
    assert (got.attempts, got.added_at_s, got.first_attempt_at_s) == (3, 1000.25, 900.5)
    assert got.victims_pending
    assert got.pod.object is not None
    event = ClusterEvent(resource="Node", action="update.taints", old=make_node("n1"), new=make_node("n1"))
    read = wire_requests.decode_event(requests.encode_event(event))
    assert (read.resource, read.action) == ("Node", "update.taints")
    assert read.new is not None


def test_decoded_patch_outcomes_equal_the_encoded_ones() -> None:
    item = KubeObject.of({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}})
    ref = ObjectRef(namespace="default", name="c", uid="u", resource_version="7")
    results = [PatchResult(outcome=outcome, ref=ref, object=item, message="m") for outcome in PatchOutcome]
    got = wire_requests.decode_patched(requests.encode_patched(results))
    assert [(item.outcome, item.ref, item.message) for item in got] == [
        (item.outcome, item.ref, item.message) for item in results
    ]


@pytest.mark.parametrize(
    "action",
    [action for action in PatchAction if action is not PatchAction.UNKNOWN],
    ids=lambda action: action.name.lower(),
)
def test_decoded_patches_equal_the_encoded_ones(action: PatchAction) -> None:
    patch = ObjectPatch(
        resource="example.com/widgets",
        ref=ObjectRef(namespace="default", name="w", uid=""),
        merge_patch={"metadata": {"annotations": {"a": None}}},
        expected_resource_version="4",
        subresource="status",
        action=action,
    )
    context = pb.ReplyContext(status=pb.PluginStatus(code=pb.PluginStatus.CODE_SUCCESS))
    patches = [wire_results.encode_patch(patch)]
    read = reader(NodeMode.SNAPSHOT)
    got = read_by("PreBind", read, scheduling_pb2.PreBindResponse(ctx=context, patches=patches))
    assert got is not None
    assert got.patches == (patch,)
    assert read_by("PostFilter", read, scheduling_pb2.PostFilterResponse(patches=patches)).patches == (patch,)


def test_merge_patch_has_no_action_in_its_message() -> None:
    read = reader(NodeMode.SNAPSHOT)
    patch = scheduling_pb2.ObjectPatch(merge_patch_json=b"{}", action=scheduling_pb2.ObjectPatch.ACTION_MERGE)
    assert read_by("PostFilter", read, scheduling_pb2.PostFilterResponse(patches=[patch])).patches[
        0
    ].action is (PatchAction.MERGE)


@pytest.mark.parametrize("body", [b"{}", b"", b'[{"op": "remove"}]', b"apply: yaml"], ids=repr)
def test_unknown_action_of_a_patch_is_not_read_as_merge_whatever_its_body_is(body: bytes) -> None:
    patch = scheduling_pb2.ObjectPatch(merge_patch_json=body, action=9)  # type: ignore[arg-type]  # of a later contract
    found = read_by(
        "PostFilter", reader(NodeMode.SNAPSHOT), scheduling_pb2.PostFilterResponse(patches=[patch])
    )
    assert found.patches[0].action is PatchAction.UNKNOWN
    assert found.patches[0].merge_patch == {}


# --- replies that cannot be read -----------------------------------------------------------------------


def group(*, bitmap: bytes = b"", names: tuple[str, ...] = ()) -> scheduling_pb2.NodeVerdicts:
    node_set = pb.NodeSet(bitmap=bitmap, names=names)
    status = pb.PluginStatus(code=pb.PluginStatus.CODE_UNSCHEDULABLE)
    return scheduling_pb2.NodeVerdicts(rejected=[scheduling_pb2.NodeGroup(status=status, nodes=node_set)])


@pytest.mark.parametrize(
    ("mode", "verdicts", "words"),
    [
        pytest.param(NodeMode.SNAPSHOT, group(bitmap=b"\xff\xff\xff"), "not among the candidates", id="bit"),
        pytest.param(NodeMode.SNAPSHOT, group(names=("n1",)), "named nodes although", id="names for bits"),
        pytest.param(NodeMode.NAMES, group(bitmap=b"\x01"), "a bitmap although", id="bits for names"),
        pytest.param(NodeMode.NAMES, group(names=("n99",)), "'n99', which is not among", id="stranger"),
        pytest.param(NodeMode.NAMES, group(names=("n1", "n1")), "listed a node twice", id="twice"),
    ],
)
def test_sets_that_are_no_subset_are_violations(
    mode: NodeMode, verdicts: scheduling_pb2.NodeVerdicts, words: str
) -> None:
    with pytest.raises(PluginProtocolError, match=words):
        reader(mode).verdicts(verdicts)


def test_node_in_two_groups_is_a_violation() -> None:
    twice = scheduling_pb2.NodeVerdicts(
        rejected=[*group(bitmap=b"\x03").rejected, *group(bitmap=b"\x02").rejected]
    )
    with pytest.raises(PluginProtocolError, match="two groups"):
        reader(NodeMode.SNAPSHOT).verdicts(twice)


@pytest.mark.parametrize("status", [None, pb.PluginStatus()])
def test_group_without_a_code_is_a_violation(status: pb.PluginStatus | None) -> None:
    verdicts = group(bitmap=b"\x01")
    verdicts.rejected[0].ClearField("status")
    if status is not None:
        verdicts.rejected[0].status.CopyFrom(status)
    with pytest.raises(PluginProtocolError, match="a status without a code: set `code`"):
        reader(NodeMode.SNAPSHOT).verdicts(verdicts)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([f"n{i}" for i in range(COUNT - 1)], "without a score"),
        ([*(f"n{i}" for i in range(COUNT)), "n99"], "no candidates"),
        (["n0", "n0"], "twice"),
    ],
)
def test_named_scores_must_cover_the_candidates(names: list[str], words: str) -> None:
    scores = scheduling_pb2.Scores(named=[scheduling_pb2.NamedScore(node=name) for name in names])
    with pytest.raises(PluginProtocolError, match=words):
        reader(NodeMode.NAMES).scores(scores.SerializeToString())


def test_named_scores_are_for_names_mode_alone() -> None:
    scores = scheduling_pb2.Scores(named=[scheduling_pb2.NamedScore(node="n0")])
    with pytest.raises(PluginProtocolError, match="only a plugin in NAMES mode"):
        reader(NodeMode.SNAPSHOT).scores(scores.SerializeToString())


def test_scores_with_a_field_of_a_newer_contract_are_read_without_it() -> None:
    raw = scheduling_pb2.Scores(dense=range(COUNT)).SerializeToString() + b"\x78\x01"  # number 15
    assert reader(NodeMode.SNAPSHOT).scores(raw).tolist() == list(range(COUNT))


def test_eligible_nodes_may_be_unknown_by_name_but_not_by_bit() -> None:
    read = reader(NodeMode.SNAPSHOT)
    named = scheduling_pb2.PreFilterResponse(eligible=pb.NodeSet(names=["n1", "nowhere"]))
    assert read_by("PreFilter", read, Scored(named, 4, None)).eligible == frozenset({"n1", "nowhere"})
    but_one = scheduling_pb2.PreFilterResponse(eligible=pb.NodeSet(complement=True, bitmap=b"\x01"))
    eligible = read_by("PreFilter", read, Scored(but_one, 4, None)).eligible
    assert eligible is not None
    assert len(eligible) == COUNT - 1
    beyond = scheduling_pb2.PreFilterResponse(eligible=pb.NodeSet(bitmap=b"\x00\x00\x00\x01"))
    with pytest.raises(PluginProtocolError, match="not among the candidates"):
        read_by("PreFilter", read, Scored(beyond, 4, None))


def test_opaque_parameters_in_a_patch_are_sent_as_their_owner_wrote_them() -> None:
    kept = RawJson(
        rb'{ "z":1.0,"n":' + b"7" * 5_000 + rb',"a":"\ud800","d":' + b"[" * 3_000 + b"]" * 3_000 + b"}"
    )
    config = [{"source": "FromClaim", "opaque": {"driver": "d", "parameters": kept}}]
    body = {"status": {"allocation": {"devices": {"config": config}}}}
    patch = ObjectPatch(
        resource="resource.k8s.io/resourceclaims",
        ref=ObjectRef(name="c", namespace="default"),
        merge_patch=body,
    )
    reply = scheduling_pb2.PreBindResponse(
        ctx=pb.ReplyContext(status=pb.PluginStatus(code=pb.PluginStatus.CODE_SUCCESS)),
        patches=[wire_results.encode_patch(patch)],
    )
    (got,) = read_by("PreBind", reader(NodeMode.SNAPSHOT), reply).patches
    assert got.merge_patch == body
    assert kept.content in json_bytes(got.merge_patch)


NO_JSON = [
    b"{",
    b"[1]",
    b'"text"',
    pytest.param(b"[" * 100_000, id="deep list"),
    pytest.param(b'{"a":' * 50_000, id="deep object"),
    b'{"a": NaN}',
    b'{"a": "\\ud800"}',
    b'{"a": "\xff"}',
]


@pytest.mark.parametrize("raw", NO_JSON)
def test_patch_that_is_no_json_object_is_a_violation(raw: bytes) -> None:
    reply = scheduling_pb2.PreBindResponse(
        ctx=pb.ReplyContext(status=pb.PluginStatus(code=pb.PluginStatus.CODE_SUCCESS)),
        patches=[scheduling_pb2.ObjectPatch(resource="pods", merge_patch_json=raw)],
    )
    with pytest.raises(PluginProtocolError, match="JSON"):
        read_by("PreBind", reader(NodeMode.SNAPSHOT), reply)
