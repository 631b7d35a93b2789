"""Records survive the wire, and node sets mean what the contract says."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.needs import Need, NeedKind
from berth_sdk.node import Node
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.pod import Pod
from berth_sdk.tables import NodeUsage, StateVersion
from berth_sdk.wire import records as wire
from hypothesis import given
from hypothesis import strategies as st
from support.record_strategies import TIMES_S, USAGES, nodes, pods

ROWS = st.lists(st.integers(0, 70), unique=True).map(lambda rows: np.array(rows, dtype=np.intp))


@pytest.mark.slow
@given(pod=pods())
def test_pod_survives_the_wire(pod: Pod) -> None:
    message = pb.PodSummary.FromString(wire.encode_pod(pod).SerializeToString())
    assert wire.decode_pod(message) == pod


@given(pod=pods())
def test_pod_in_state_takes_its_node_from_what_carries_it(pod: Pod) -> None:
    message = wire.encode_pod(pod, in_state=True)
    assert message.required_node == ""
    assert wire.decode_pod(message, node_name="n7") == replace(pod, node_name="n7")


@pytest.mark.slow
@given(first=pods(), name=st.text("ab", min_size=1), labels=st.dictionaries(st.text("xy"), st.text("z")))
def test_siblings_share_their_spec_and_nothing_else(first: Pod, name: str, labels: dict[str, str]) -> None:
    manifest: dict[str, Any] = {
        "metadata": {"name": first.name, "uid": "u-1", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "containers": [{"image": "app", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "priority": first.priority,
        },
    }
    sibling = {"metadata": {"name": name, "namespace": "other", "labels": labels}, "spec": manifest["spec"]}
    bound = {**sibling, "spec": {**manifest["spec"], "nodeName": "n1"}}
    for pod in map(Pod.from_object, (manifest, sibling, bound)):
        sent = pb.PodSummary.FromString(wire.encode_pod(pod).SerializeToString())
        assert wire.decode_pod(sent) == replace(pod, object=None)
        other = wire.decode_pod(sent, node_name="n7", item=pod.object)
        assert other == replace(pod, node_name="n7")
        # Who writes to what is read-only spoils no other pod.
        for values in (other.labels, other.annotations):
            assert isinstance(values, dict)
            values["spoiled"] = "yes"
        assert wire.decode_pod(sent) == replace(pod, object=None)


@given(node=nodes())
def test_node_survives_the_wire(node: Node) -> None:
    message = pb.NodeSummary.FromString(wire.encode_node(node).SerializeToString())
    assert wire.decode_node(node.name, message) == node


@given(usage=USAGES)
def test_usage_survives_the_wire(usage: NodeUsage) -> None:
    assert wire.decode_usage(wire.encode_usage(usage)) == usage


def test_nodes_of_which_pods_take_the_same_share_one_record_which_is_as_plain_as_in_the_host() -> None:
    usage = NodeUsage(requested={"cpu": 100}, non_zero_requested={"cpu": 100}, pod_count=1)
    sent = wire.encode_usage(usage)
    read = wire.decode_usage(sent)
    assert wire.decode_usage(sent) is read
    assert read == usage
    assert json.dumps(read.requested) == json.dumps(usage.requested)


@given(time_s=TIMES_S.filter(lambda time_s: time_s is not None))
def test_time_survives_the_wire(time_s: float) -> None:
    assert wire.decode_time(wire.encode_time(time_s)) == time_s


def test_time_before_1970_has_positive_nanos() -> None:
    message = wire.encode_time(-0.25)
    assert (message.seconds, message.nanos) == (-1, 750_000_000)
    assert wire.decode_time(message) == -0.25


@pytest.mark.parametrize(
    "need",
    [
        pytest.param(Need.nodes(images=True, annotation_prefixes=("a/",)), id="nodes"),
        pytest.param(Need.pod_objects("status", "metadata.managedFields"), id="pod objects"),
        pytest.param(Need.objects("storage.k8s.io/csinodes", "status"), id="objects"),
        pytest.param(Need(kind=NeedKind.POD_SUMMARY, label_prefixes=("app",)), id="pods"),
    ],
)
def test_state_need_survives_the_wire(need: Need) -> None:
    assert wire.decode_need(wire.encode_need(need)) == need


def test_state_need_of_no_known_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="0 is not a valid NeedKind"):
        wire.decode_need(identity_pb2.DeclaredNeed())


def test_reference_and_version_survive_the_wire() -> None:
    ref = ObjectRef(name="a", namespace="b", uid="c", resource_version="d")
    assert wire.decode_ref(wire.encode_ref(ref)) == ref
    version = StateVersion(2**53 - 1, 7)
    assert wire.decode_version(wire.encode_version(version)) == version


def test_object_travels_as_its_json_bytes() -> None:
    item = KubeObject.of({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}})
    got = wire.decode_object(wire.encode_object(item))
    assert got is not None
    assert (got.api_version, got.kind, got.raw) == ("v1", "Pod", item.raw)


def test_object_in_an_unknown_encoding_counts_as_missing() -> None:
    message = pb.KubeObject(api_version="v1", kind="Pod", raw=b"\x00")
    message.encoding = pb.KubeObject.Encoding.ValueType(9)
    assert wire.decode_object(message) is None


def test_labels_and_annotations_can_be_narrowed() -> None:
    pod = Pod(name="a", labels={"x": "1", "y": "2"}, annotations={"z": "3"})
    message = wire.encode_pod(pod, labels={"x": "1"}, annotations={})
    assert dict(message.labels) == {"x": "1"}
    assert dict(message.annotations) == {}


@given(rows=ROWS)
def test_bitmap_lists_exactly_the_rows(rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> None:
    assert wire.decode_bitmap(wire.encode_bitmap(rows)).tolist() == sorted(rows.tolist())


def test_bitmap_begins_with_the_least_significant_bit_and_has_no_trailing_zeros() -> None:
    assert wire.encode_bitmap([0, 3, 9]) == bytes([0b0000_1001, 0b0000_0010])
    assert wire.encode_bitmap([]) == b""


WITHIN = np.array([2, 5, 6, 9], dtype=np.intp)
INDEX_OF = {"a": 2, "b": 5, "c": 6, "d": 9, "elsewhere": 7}


@pytest.mark.parametrize(
    ("message", "want"),
    [
        pytest.param(pb.NodeSet(), [], id="nothing set is the empty set"),
        pytest.param(pb.NodeSet(complement=True), [2, 5, 6, 9], id="complement of nothing is all"),
        pytest.param(pb.NodeSet(names=["c", "a"]), [2, 6], id="names"),
        pytest.param(pb.NodeSet(complement=True, names=["a"]), [5, 6, 9], id="all but a name"),
        pytest.param(pb.NodeSet(bitmap=wire.encode_bitmap([5, 9])), [5, 9], id="bitmap"),
        pytest.param(pb.NodeSet(bitmap=b"\x20\x00\x00", complement=True), [2, 6, 9], id="trailing zeros"),
    ],
)
def test_node_set_is_read_against_the_candidates(message: pb.NodeSet, want: list[int]) -> None:
    assert wire.decode_rows(message, WITHIN, INDEX_OF).tolist() == want


@pytest.mark.parametrize(
    ("message", "node"),
    [
        pytest.param(pb.NodeSet(names=["a", "ghost"]), "'ghost'", id="name that does not exist"),
        pytest.param(pb.NodeSet(names=["elsewhere"]), "'elsewhere'", id="name that was not asked about"),
        pytest.param(pb.NodeSet(bitmap=wire.encode_bitmap([2, 7])), "'elsewhere'", id="bit not asked about"),
        pytest.param(pb.NodeSet(bitmap=wire.encode_bitmap([400])), "index 400", id="bit beyond the snapshot"),
        pytest.param(
            pb.NodeSet(bitmap=wire.encode_bitmap([3]), complement=True), "index 3", id="all but a stranger"
        ),
    ],
)
def test_node_that_was_not_asked_about_is_an_error(message: pb.NodeSet, node: str) -> None:
    with pytest.raises(wire.UnknownNodeError) as caught:
        wire.decode_rows(message, WITHIN, INDEX_OF)
    assert caught.value.node == node


@given(chosen=st.lists(st.booleans(), min_size=4, max_size=4))
def test_rows_survive_the_wire(chosen: list[bool]) -> None:
    rows = WITHIN[np.array(chosen, dtype=np.bool_)]
    message = pb.NodeSet(bitmap=wire.encode_bitmap(rows))
    assert wire.decode_rows(message, WITHIN, INDEX_OF).tolist() == rows.tolist()
    others = pb.NodeSet(bitmap=message.bitmap, complement=True)
    assert {*wire.decode_rows(others, WITHIN, INDEX_OF)} == {*WITHIN} - {*rows}


@pytest.mark.parametrize(("seconds", "want"), [(2.5, (2, 500_000_000)), (0.0, (0, 0)), (-1.0, (0, 0))])
def test_durations_are_never_negative(seconds: float, want: tuple[int, int]) -> None:
    message = wire.encode_duration(seconds)
    assert (message.seconds, message.nanos) == want
