"""The served copy of the snapshot: the three cases of a delta, chunks, counts and sums, and its contents."""

from __future__ import annotations

import pytest
from berth_sdk.kube_object import KubeObject
from berth_sdk.needs import Need
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import state_pb2
from berth_sdk.serve.state_copy import SequenceError, StateCopy, Taken
from berth_sdk.tables import StateVersion

EPOCH = 7
CLAIMS = "persistentvolumeclaims"


def version(generation: int) -> pb.StateVersion:
    return pb.StateVersion(epoch=EPOCH, generation=generation)


def node(index: int, generation: int, name: str = "", **parts: object) -> pb.NodeState:
    return pb.NodeState(index=index, generation=generation, name=name, **parts)  # type: ignore[arg-type]


def delta(base: int | None, target: int, *upserts: pb.NodeState, **digests: int) -> pb.StateDelta:
    made = pb.StateDelta(target=version(target), upserts=upserts, **digests)  # type: ignore[arg-type]
    if base is not None:
        made.base.CopyFrom(version(base))
    return made


def summary(cpu_milli: int = 4000) -> pb.NodeSummary:
    return pb.NodeSummary(allocatable={"cpu": cpu_milli}, labels={"zone": "a"})


FULL = delta(None, 5, node(0, 2, "n0", summary=summary()), node(1, 5, "n1"), node_count=2, generation_sum=7)


@pytest.fixture
def copy() -> StateCopy:
    made = StateCopy([Need.nodes(), Need.pods()])
    assert made.apply(FULL) is Taken.APPLIED
    return made


def usage(cpu_milli: int) -> pb.NodeUsage:
    return pb.NodeUsage(requested={"cpu": cpu_milli}, pod_count=1)


STEP = delta(5, 6, node(0, 6, usage=usage(300)), node_count=2, generation_sum=11)


def test_fresh_copy_holds_nothing_and_needs_state_for_a_delta() -> None:
    copy = StateCopy()
    assert copy.version is None
    assert copy.apply(STEP) is Taken.MISSING_STATE
    assert len(copy.nodes) == 0


def test_full_state_is_taken_over(copy: StateCopy) -> None:
    assert copy.version == StateVersion(EPOCH, 5)
    assert copy.nodes.names == ["n0", "n1"]
    assert copy.nodes.allocatable("cpu").tolist() == [4000, 0]
    assert copy.nodes.generation.tolist() == [2, 5]


def test_delta_on_the_held_base_is_applied_once(copy: StateCopy) -> None:
    assert copy.apply(STEP) is Taken.APPLIED
    assert copy.nodes.requested("cpu").tolist() == [300, 0]
    assert copy.nodes.allocatable("cpu").tolist() == [4000, 0]
    assert copy.apply(STEP) is Taken.HELD
    assert copy.version == StateVersion(EPOCH, 6)


def test_delta_on_another_base_changes_nothing(copy: StateCopy) -> None:
    foreign = delta(4, 6, node(0, 6, usage=usage(300)), node_count=2, generation_sum=11)
    assert copy.apply(foreign) is Taken.MISSING_STATE
    assert copy.version == StateVersion(EPOCH, 5)
    assert copy.nodes.requested("cpu").tolist() == [0, 0]


def test_same_generation_of_another_epoch_is_another_version(copy: StateCopy) -> None:
    other = pb.StateDelta(
        base=pb.StateVersion(epoch=EPOCH + 1, generation=5),
        target=pb.StateVersion(epoch=EPOCH + 1, generation=6),
        node_count=2,
        generation_sum=7,
    )
    assert copy.apply(other) is Taken.MISSING_STATE


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(delta(5, 6, node(0, 6), node_count=3, generation_sum=11), id="node count"),
        pytest.param(delta(5, 6, node(0, 6), node_count=2, generation_sum=12), id="sum"),
        pytest.param(delta(5, 6, node_count=2, generation_sum=7, object_count=1), id="object count"),
        pytest.param(delta(5, 6, node(9, 6), node_count=3, generation_sum=13), id="index without a name"),
        pytest.param(delta(5, 6, node(1, 6, "n9"), node_count=2, generation_sum=8), id="index taken"),
        pytest.param(delta(5, 6, node(2, 6, "n1"), node_count=3, generation_sum=13), id="name taken"),
        pytest.param(
            pb.StateDelta(
                base=version(5),
                target=version(6),
                node_count=2,
                generation_sum=8,
                object_count=1,
                objects=[pb.ObjectState(resource="undeclared", generation=1)],
            ),
            id="object that nobody declared",
        ),
    ],
)
def test_copy_that_drifted_trusts_nothing_until_full_state_comes(
    copy: StateCopy, broken: pb.StateDelta
) -> None:
    assert copy.apply(broken) is Taken.MISSING_STATE
    assert copy.version is None
    assert copy.apply(STEP) is Taken.MISSING_STATE
    assert copy.apply(FULL) is Taken.APPLIED
    assert copy.nodes.names == ["n0", "n1"]


def test_full_state_with_wrong_digests_leaves_what_is_held(copy: StateCopy) -> None:
    broken = delta(None, 9, node(0, 9, "x"), node_count=2, generation_sum=9)
    assert copy.apply(broken) is Taken.MISSING_STATE
    assert copy.version == StateVersion(EPOCH, 5)
    assert copy.nodes.names == ["n0", "n1"]


def test_removed_index_may_carry_a_new_node_in_the_same_delta(copy: StateCopy) -> None:
    made = delta(5, 8, node(0, 8, "n2"), node_count=2, generation_sum=13)
    made.removed.extend([0, 77])
    assert copy.apply(made) is Taken.APPLIED
    assert copy.nodes.names == ["n2", "n1"]
    assert copy.nodes.allocatable("cpu").tolist() == [0, 0]


def test_generation_sum_is_modulo_2_to_the_53() -> None:
    copy = StateCopy()
    half = 2**52 - 1
    full = delta(None, half, *(node(i, half, f"n{i}") for i in range(3)), node_count=3)
    full.generation_sum = 3 * half % 2**53
    assert copy.apply(full) is Taken.APPLIED


# --- calls ---------------------------------------------------------------------------------------------


def test_call_with_its_delta_is_accepted_and_later_calls_need_none(copy: StateCopy) -> None:
    assert copy.accept(pb.CallContext(version=version(6), delta=STEP))
    assert copy.accept(pb.CallContext(version=version(6)))


def test_call_against_a_version_that_is_not_held_is_not_accepted(copy: StateCopy) -> None:
    assert not copy.accept(pb.CallContext(version=version(6)))
    assert not copy.accept(pb.CallContext(version=version(7), delta=delta(6, 7)))


def test_call_that_names_no_version_is_accepted(copy: StateCopy) -> None:
    assert copy.accept(pb.CallContext())


# --- pods ----------------------------------------------------------------------------------------------


def pod(uid: str, priority: int = 0, assumed: bool = False) -> pb.PodState:
    ref = pb.ObjectRef(namespace="default", name=uid, uid=uid)
    return pb.PodState(pod=pb.PodSummary(ref=ref, priority=priority), assumed=assumed)


def put_pods(copy: StateCopy, generation: int, *pods: pb.PodState, removed: tuple[str, ...] = ()) -> None:
    assert copy.version is not None
    state = node(0, generation, pods=pods, removed_pod_uids=removed)
    made = delta(copy.version.generation, generation, state, node_count=2, generation_sum=5 + generation)
    assert copy.apply(made) is Taken.APPLIED


def test_pods_come_change_and_leave(copy: StateCopy) -> None:
    put_pods(copy, 6, pod("a", assumed=True), pod("b"), pod("c"))
    table = copy.nodes.pods
    assert [p.uid for p in table.on_node(0)] == ["a", "b", "c"]
    assert [p.node_name for p in table.on_node(0)] == ["n0"] * 3
    assert table.assumed.tolist() == [True, False, False]
    put_pods(copy, 7, pod("c"), pod("a", priority=9))
    assert [(p.uid, p.priority) for p in table.on_node(0)] == [("c", 0), ("b", 0), ("a", 9)]
    assert not table.assumed.any()
    put_pods(copy, 8, pod("a"), removed=("c",))
    assert [p.uid for p in copy.nodes.node(0).pods] == ["a", "b"]


def test_pods_that_are_not_sent_keep_their_places_and_the_others_fill_the_gaps(copy: StateCopy) -> None:
    put_pods(copy, 6, *map(pod, "abcde"))
    put_pods(copy, 7, pod("f"), pod("b"), pod("g"), pod("h"), removed=("a", "d"))
    assert [p.uid for p in copy.nodes.pods.on_node(0)] == ["f", "b", "c", "g", "e", "h"]
    put_pods(copy, 8, pod("h"), removed=("b", "f", "g"))
    assert [p.uid for p in copy.nodes.pods.on_node(0)] == ["h", "c", "e"]


def test_complete_pods_replace_those_held(copy: StateCopy) -> None:
    put_pods(copy, 6, pod("a"), pod("b"))
    state = node(0, 7, pods=[pod("b")], pods_complete=True)
    assert copy.apply(delta(6, 7, state, node_count=2, generation_sum=12)) is Taken.APPLIED
    assert [p.uid for p in copy.nodes.pods.on_node(0)] == ["b"]


def test_copy_without_pod_needs_has_no_pod_table() -> None:
    copy = StateCopy([Need.nodes()])
    assert copy.apply(FULL) is Taken.APPLIED
    with pytest.raises(ValueError, match=r"add Need\.pods\(\)"):
        _ = copy.nodes.pods


# --- objects -------------------------------------------------------------------------------------------


def claim(name: str, generation: int, raw: bytes = b"{}", **fields: object) -> pb.ObjectState:
    return pb.ObjectState(
        resource=CLAIMS,
        generation=generation,
        ref=pb.ObjectRef(namespace="default", name=name),
        object=pb.KubeObject(api_version="v1", kind="PersistentVolumeClaim", raw=raw),
        **fields,  # type: ignore[arg-type]
    )


def with_objects(made: pb.StateDelta, *objects: pb.ObjectState) -> pb.StateDelta:
    made.objects.extend(objects)
    return made


def test_objects_are_read_as_of_the_version_held_also_after_full_state() -> None:
    copy = StateCopy([Need.objects(CLAIMS)])
    reader = copy.objects(CLAIMS)
    made = with_objects(delta(None, 3, generation_sum=5, object_count=2), claim("b", 3), claim("a", 2))
    assert copy.apply(made) is Taken.APPLIED
    assert len(reader.list()) == len(reader.list("default")) == 2
    assert reader.list("elsewhere") == []
    changed = with_objects(
        delta(3, 5, generation_sum=4, object_count=1),
        claim("b", 4, raw=b'{"x":1}'),
        claim("a", 5, removed=True),
    )
    assert copy.apply(changed) is Taken.APPLIED
    found = reader.get("b", "default")
    assert found is not None
    assert found.get("x") == 1
    assert reader.get("a", "default") is None
    assert copy.apply(delta(None, 6)) is Taken.APPLIED
    assert reader.list() == []


def test_undeclared_resource_cannot_be_read() -> None:
    with pytest.raises(KeyError):
        StateCopy().objects(CLAIMS)


def test_object_in_an_unknown_encoding_counts_but_is_missing() -> None:
    copy = StateCopy([Need.objects(CLAIMS)])
    item = claim("a", 2)
    item.object.encoding = pb.KubeObject.Encoding.ValueType(9)
    made = with_objects(delta(None, 3, generation_sum=2, object_count=1), item)
    assert copy.apply(made) is Taken.APPLIED
    assert copy.objects(CLAIMS).get("a", "default") is None
    assert copy.objects(CLAIMS).list() == []


def test_node_objects_alone_give_whole_records() -> None:
    copy = StateCopy([Need.node_objects()])
    raw = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n0", "labels": {"zone": "a"}},
        "status": {"allocatable": {"cpu": "2"}},
    }
    item = KubeObject.of(raw)
    state = node(0, 1, "n0", object=pb.KubeObject(api_version="v1", kind="Node", raw=item.raw))
    assert copy.apply(delta(None, 1, state, node_count=1, generation_sum=1)) is Taken.APPLIED
    assert copy.nodes.has_label("zone", "a").tolist() == [True]
    assert copy.nodes.allocatable("cpu").tolist() == [2000]
    assert copy.nodes.node(0).object is not None


def test_summary_and_object_are_kept_when_only_the_other_changes() -> None:
    copy = StateCopy([Need.nodes(), Need.node_objects()])
    first = pb.KubeObject(api_version="v1", kind="Node", raw=b'{"v":1}')
    state = node(0, 1, "n0", summary=summary(), object=first)
    assert copy.apply(delta(None, 1, state, node_count=1, generation_sum=1)) is Taken.APPLIED
    second = pb.KubeObject(api_version="v1", kind="Node", raw=b'{"v":2}')
    assert copy.apply(delta(1, 2, node(0, 2, object=second), node_count=1, generation_sum=2)) is Taken.APPLIED
    assert copy.nodes.allocatable("cpu").tolist() == [4000]
    step = delta(2, 3, node(0, 3, summary=summary(1000)), node_count=1, generation_sum=3)
    assert copy.apply(step) is Taken.APPLIED
    view = copy.nodes.node(0)
    assert copy.nodes.allocatable("cpu").tolist() == [1000]
    assert view.object is not None
    assert view.object.get("v") == 2


# --- SyncState -----------------------------------------------------------------------------------------


def chunk(part: pb.StateDelta, sequence: int, *, last: bool = False) -> state_pb2.SyncStateRequest:
    return state_pb2.SyncStateRequest(chunk=part, sequence=sequence, last=last)


FIRST = delta(None, 9, node(0, 8, "x0"))
LAST = delta(None, 9, node(1, 9, "x1"), node_count=2, generation_sum=17)


def test_chunks_are_seen_only_when_the_last_one_came(copy: StateCopy) -> None:
    stream = copy.begin_sync()
    stream.add(chunk(FIRST, 0))
    assert copy.nodes.names == ["n0", "n1"]
    stream.add(chunk(LAST, 1, last=True))
    assert copy.nodes.names == ["x0", "x1"]
    response = stream.response()
    assert (response.have, response.need_full) == (version(9), False)


def test_stream_that_breaks_off_changes_nothing(copy: StateCopy) -> None:
    stream = copy.begin_sync()
    stream.add(chunk(FIRST, 0))
    response = stream.response()
    assert (response.have, response.need_full) == (version(5), False)
    assert copy.nodes.names == ["n0", "n1"]


def test_streamed_delta_on_a_base_that_is_not_held_asks_for_everything(copy: StateCopy) -> None:
    stream = copy.begin_sync()
    stream.add(chunk(delta(4, 9), 0, last=True))
    response = stream.response()
    assert (response.have, response.need_full) == (version(5), True)


def test_streamed_delta_to_the_version_held_is_applied_already(copy: StateCopy) -> None:
    stream = copy.begin_sync()
    stream.add(chunk(delta(4, 5), 0, last=True))
    assert (stream.response().have, stream.response().need_full) == (version(5), False)


def test_streamed_delta_of_several_chunks_is_applied_as_one(copy: StateCopy) -> None:
    stream = copy.begin_sync()
    stream.add(chunk(delta(5, 9, node(0, 8, usage=usage(1))), 0))
    last = delta(5, 9, node(1, 9, usage=usage(2)), node_count=2, generation_sum=17)
    stream.add(chunk(last, 1, last=True))
    assert copy.nodes.requested("cpu").tolist() == [1, 2]
    assert copy.version == StateVersion(EPOCH, 9)


def test_copy_that_holds_nothing_answers_no_version() -> None:
    response = StateCopy().begin_sync().response()
    assert not response.HasField("have")


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        pytest.param(chunk(LAST, 2), "chunk 2 came where 1 was due", id="gap"),
        pytest.param(chunk(LAST, 0), "chunk 0 came where 1 was due", id="repeated"),
        pytest.param(chunk(delta(5, 9), 1), "of another delta", id="not full any more"),
        pytest.param(chunk(delta(None, 8), 1), "of another delta", id="another target"),
    ],
)
def test_chunks_that_do_not_fit_together_are_refused(
    copy: StateCopy, second: state_pb2.SyncStateRequest, problem: str
) -> None:
    stream = copy.begin_sync()
    stream.add(chunk(FIRST, 0))
    with pytest.raises(SequenceError, match=problem):
        stream.add(second)
    assert copy.version == StateVersion(EPOCH, 5)


def test_chunk_after_the_last_is_refused(copy: StateCopy) -> None:
    stream = copy.begin_sync()
    stream.add(chunk(delta(None, 9), 0, last=True))
    with pytest.raises(SequenceError, match="after the last"):
        stream.add(chunk(LAST, 1))
