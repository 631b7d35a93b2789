"""Changes as messages: only what moved, only what was declared, in pieces that fit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from berth_host.cache.cache import Cache
from berth_host.cache.change_log import ChangeLog
from berth_host.cache.objects import ObjectStores
from berth_host.cache.snapshot import Snapshot
from berth_host.model.state_changes import StateChanges
from berth_host.rpc.state_codec import (
    MAX_DELTA_NODES,
    StateEncoder,
    StateTooLargeError,
    fits_in_call,
)
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.needs import Need, NeedKind
from berth_sdk.node import Node, NodeImage
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import state_pb2
from berth_sdk.pod import Pod
from berth_sdk.selection import StateSelection
from berth_sdk.wire.message_limit import DEFAULT_BYTES

CLAIMS, KIND = "persistentvolumeclaims", "PersistentVolumeClaim"
GIB = 2**30


def node(name: str = "n1", **fields: Any) -> Node:
    raw = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"images": [{"names": ["img"], "sizeBytes": 5}], "phase": "x"},
    }
    defaults: dict[str, Any] = {
        "labels": {"topology.kubernetes.io/zone": "a", "app": "b"},
        "annotations": {"note/x": "1", "other": "2"},
        "images": (NodeImage(("img",), 5),),
        "object": KubeObject.of(raw),
    }
    return Node(name=name, **(defaults | fields))


def pod(name: str, node_name: str = "n1", **fields: Any) -> Pod:
    amounts = {"cpu": 500, "memory": GIB}
    defaults: dict[str, Any] = {
        "labels": {"app": "web"},
        "annotations": {"note/x": "1"},
        "requests": amounts,
        "non_zero_requests": amounts,
        "score_requests": amounts,
    }
    return Pod(name=name, uid=f"uid-{name}", node_name=node_name, **(defaults | fields))


class Setup:
    """A cache of one node, and an encoder for some needs."""

    def __init__(self, *needs: Need) -> None:
        self.objects = ObjectStores()
        self.cache = Cache(self.objects.generations)
        self.snapshot = Snapshot(self.objects)
        self.encoder = StateEncoder(StateSelection.of(needs))
        self.cache.add_node(node())
        self.move()

    def move(self) -> None:
        self.snapshot.update(self.cache)
        self.base = self.snapshot.version

    def changes(self, full: bool = False) -> StateChanges:
        self.snapshot.update(self.cache)
        base = None if full else self.base
        changes = ChangeLog(self.snapshot).changes_since(base, self.encoder.selection)
        assert changes is not None
        return changes

    def delta(self, full: bool = False) -> pb.StateDelta:
        return self.encoder.delta(self.changes(full))


def test_usual_delta_of_a_cycle_takes_at_most_160_bytes() -> None:
    setup = Setup(Need.nodes())
    for i in range(5000):
        setup.cache.add_node(node(f"node-{i}"))
    for i in range(30):
        setup.cache.assume(pod(f"old-{i}", "node-4711"))
    setup.move()
    setup.cache.assume(pod("a", "node-4711"))
    delta = setup.delta()
    assert [state.index for state in delta.upserts] == [4712]
    assert delta.upserts[0].usage.requested["cpu"] == 15500
    assert not delta.upserts[0].HasField("summary")
    assert delta.ByteSize() <= 160  # about 140; how long the random epoch is written counts as well


def test_name_stands_only_where_the_index_is_new() -> None:
    setup = Setup()
    assert [state.name for state in setup.delta(full=True).upserts] == ["n1"]
    setup.cache.assume(pod("a"))
    assert [state.name for state in setup.delta().upserts] == [""]


def test_undeclared_state_is_not_sent() -> None:
    setup = Setup()
    setup.cache.assume(pod("a"))
    (state,) = setup.delta(full=True).upserts
    assert {field.name for field, _ in state.ListFields()} == {"generation", "name"}


def test_labels_annotations_and_images_are_narrowed_to_the_declared_ones() -> None:
    setup = Setup(Need(kind=NeedKind.NODE_SUMMARY, label_prefixes=("topology.",)))
    (state,) = setup.delta(full=True).upserts
    assert dict(state.summary.labels) == {"topology.kubernetes.io/zone": "a"}
    assert (dict(state.summary.annotations), list(state.summary.images)) == ({}, [])
    setup = Setup(Need.nodes(images=True, annotation_prefixes=("note/",)))
    (state,) = setup.delta(full=True).upserts
    assert set(state.summary.labels) == {"topology.kubernetes.io/zone", "app"}
    assert dict(state.summary.annotations) == {"note/x": "1"}
    assert [list(image.names) for image in state.summary.images] == [["img"]]


def test_pods_carry_their_mark_and_leave_the_node_to_the_message_around_them() -> None:
    setup = Setup(Need(kind=NeedKind.POD_SUMMARY, label_prefixes=("x",)))
    setup.cache.assume(pod("a"))
    (state,) = setup.delta().upserts
    (entry,) = state.pods
    assert (entry.assumed, entry.node_name, entry.pod.required_node) == (True, "", "")
    assert (dict(entry.pod.labels), dict(entry.pod.annotations)) == ({}, {})
    assert not state.pods_complete


def test_new_node_says_that_its_pods_are_complete() -> None:
    setup = Setup(Need.pods())
    setup.cache.add_node(node("n2"))
    (state,) = setup.delta().upserts
    assert state.pods_complete


def test_objects_are_sent_without_fields_that_every_plugin_drops() -> None:
    setup = Setup(Need.node_objects("status.images", "metadata.missing.deeper"))
    (state,) = setup.delta(full=True).upserts
    raw = json.loads(state.object.raw)
    assert raw == {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"phase": "x"}}
    assert not state.HasField("summary")


def test_field_under_a_list_is_dropped_from_each_element() -> None:
    setup = Setup(Need.pod_objects("spec.containers.env"))
    raw = {"spec": {"containers": [{"name": "a", "env": [1]}, {"name": "b", "env": [2]}]}}
    setup.cache.add_pod(pod("a", object=KubeObject("v1", "Pod", parsed=raw)))
    (state,) = setup.delta().upserts
    got = json.loads(state.pods[0].object.raw)
    assert got == {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}


def test_objects_of_other_kinds_come_with_the_same_version() -> None:
    setup = Setup(Need.objects(CLAIMS, "status"))
    raw = {"metadata": {"name": "c", "namespace": "ns"}, "status": {"x": 1}}
    setup.objects.put(KIND, KubeObject("v1", KIND, parsed=raw))
    delta = setup.delta()
    (item,) = delta.objects
    assert (item.resource, item.ref.namespace, item.ref.name, item.removed) == (CLAIMS, "ns", "c", False)
    assert json.loads(item.object.raw) == {"metadata": {"name": "c", "namespace": "ns"}}
    assert delta.object_count == 1
    setup.move()
    setup.objects.remove(KIND, ObjectRef(name="c", namespace="ns"))
    (item,) = setup.delta().objects
    assert (item.removed, item.HasField("object")) == (True, False)


def test_full_state_has_no_base_and_a_delta_has_one() -> None:
    setup = Setup(Need.nodes())
    assert not setup.delta(full=True).HasField("base")
    delta = setup.delta()
    assert (delta.base.epoch, delta.base.generation) == setup.base


def test_large_delta_does_not_ride_on_a_call() -> None:
    setup = Setup(Need.nodes())
    for i in range(MAX_DELTA_NODES):
        setup.cache.add_node(node(f"n-{i}"))
    changes = setup.changes()
    assert fits_in_call(changes, setup.encoder.delta(changes), DEFAULT_BYTES)
    setup.cache.add_node(node("one-more"))
    changes = setup.changes()
    assert not fits_in_call(changes, setup.encoder.delta(changes), DEFAULT_BYTES)
    setup.move()
    setup.cache.update_node(node(labels={"long": "x" * 300_000}))
    changes = setup.changes()
    assert not fits_in_call(changes, setup.encoder.delta(changes), DEFAULT_BYTES)


def chunks_of(
    encoder: StateEncoder, changes: StateChanges, limit_bytes: int
) -> list[state_pb2.SyncStateRequest]:
    """Return the chunks, without the pauses between them."""
    return [chunk for chunk in encoder.chunks(changes, limit_bytes) if chunk is not None]


@pytest.mark.parametrize("limit_bytes", [400, 1000, 10_000, 4 * 2**20])
def test_chunks_stay_below_the_limit_and_add_up_to_the_delta(limit_bytes: int) -> None:
    setup = Setup(Need.nodes(), Need.pods(), Need.objects(CLAIMS))
    for i in range(20):
        setup.cache.add_node(node(f"n-{i}"))
        setup.cache.assume(pod(f"p-{i}", "n-7"))
        raw = {"metadata": {"name": f"c-{i}", "namespace": "ns"}}
        setup.objects.put(KIND, KubeObject("v1", KIND, parsed=raw))
    setup.cache.remove_node("n1")
    changes = setup.changes()
    requests = chunks_of(setup.encoder, changes, limit_bytes)
    assert all(request.ByteSize() <= limit_bytes for request in requests)
    assert [request.sequence for request in requests] == list(range(len(requests)))
    assert [request.last for request in requests] == [False] * (len(requests) - 1) + [True]
    assert all(request.chunk.HasField("base") for request in requests)
    want = setup.encoder.delta(changes)
    for request in requests:
        indices = [state.index for state in request.chunk.upserts]
        assert len(indices) == len(set(indices))
        assert (request.chunk.base, request.chunk.target) == (want.base, want.target)
    got_pods = [p.pod.ref.uid for r in requests for state in r.chunk.upserts for p in state.pods]
    assert got_pods == [p.pod.ref.uid for state in want.upserts for p in state.pods]
    assert [item for r in requests for item in r.chunk.objects] == list(want.objects)
    assert [index for r in requests for index in r.chunk.removed] == list(want.removed)
    last = requests[-1].chunk
    assert (last.node_count, last.object_count, last.generation_sum) == (20, 20, want.generation_sum)


def test_empty_cluster_is_one_last_chunk() -> None:
    setup = Setup(Need.nodes())
    setup.cache.remove_node("n1")
    (request,) = chunks_of(setup.encoder, setup.changes(full=True), 4 * 2**20)
    assert (request.chunk.HasField("base"), request.last, len(request.chunk.upserts)) == (False, True, 0)


def test_single_object_beyond_the_limit_is_named() -> None:
    setup = Setup(Need.objects(CLAIMS))
    raw = {"metadata": {"name": "huge", "namespace": "ns"}, "data": "x" * 5000}
    setup.objects.put(KIND, KubeObject("v1", KIND, parsed=raw))
    with pytest.raises(StateTooLargeError, match="persistentvolumeclaims ns/huge takes"):
        chunks_of(setup.encoder, setup.changes(), 4000)


def test_single_pod_or_node_beyond_the_limit_is_named() -> None:
    setup = Setup(Need.nodes(), Need.pods())
    setup.cache.assume(pod("huge", labels={"x": "y" * 5000}))
    with pytest.raises(StateTooLargeError, match="pod default/huge takes"):
        chunks_of(setup.encoder, setup.changes(), 4000)
    setup.cache.update_node(node(labels={"x": "y" * 5000}))
    with pytest.raises(StateTooLargeError, match="node n1 takes"):
        chunks_of(setup.encoder, setup.changes(), 4000)


def test_state_captured_for_a_full_synchronisation_does_not_move_with_the_snapshot() -> None:
    setup = Setup(Need.nodes(), Need.pods(), Need.objects(CLAIMS))
    for i in range(3):
        setup.cache.add_node(node(f"n-{i}"))
        setup.cache.assume(pod(f"p-{i}", f"n-{i}"))
    changes = setup.changes(full=True)
    want = setup.encoder.delta(changes)
    steps = setup.encoder.chunks(changes, 400)
    got = [next(steps)]
    setup.cache.remove_node("n-0")
    setup.cache.update_node(node("n-1", labels={"new": "1"}))
    setup.cache.assume(pod("late", "n-2"))
    raw = {"metadata": {"name": "late", "namespace": "ns"}}
    setup.objects.put(KIND, KubeObject("v1", KIND, parsed=raw))
    setup.changes()
    got += steps
    chunks = [chunk.chunk for chunk in got if chunk is not None]
    assert [state.index for chunk in chunks for state in chunk.upserts if state.name] == [
        state.index for state in want.upserts
    ]
    pods = [entry for chunk in chunks for state in chunk.upserts for entry in state.pods]
    assert pods == [entry for state in want.upserts for entry in state.pods]
    assert (chunks[-1].node_count, chunks[-1].generation_sum) == (want.node_count, want.generation_sum)
    assert not any(chunk.objects for chunk in chunks)


def test_no_step_of_the_work_is_longer_than_one_pod() -> None:
    setup = Setup(Need.nodes(), Need.pods())
    for i in range(50):
        setup.cache.assume(pod(f"p-{i}"))
    steps = list(setup.encoder.chunks(setup.changes(full=True), 4 * 2**20))
    assert len(steps) >= 51
    assert [step for step in steps if step is not None] == steps[-1:]
