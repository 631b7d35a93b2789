"""Records <-> messages of the contract, for the SDK's server and the host's codec.

A decoded Pod or Node has the fields of its summary, and an `object` only if the message has its JSON. Source:
the contract's common.proto and identity.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from functools import lru_cache
from typing import Final, TypeVar

import numpy as np
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from numpy.typing import NDArray

from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.needs import Need, NeedKind
from berth_sdk.node import Node, NodeImage, Taint
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.pod import DEFAULT_SCHEDULER_NAME, HostPort, OwnerRef, Pod, Toleration
from berth_sdk.tables import NodeUsage, StateVersion
from berth_sdk.tables.node_columns import NON_ZERO

_NANOS: Final = 10**9
K = TypeVar("K")
V = TypeVar("V")
Rows = NDArray[np.intp]


# --- small pieces ----------------------------------------------------------------------------------


def encode_ref(ref: ObjectRef) -> pb.ObjectRef:
    """Return an ObjectRef as a message."""
    return pb.ObjectRef(
        namespace=ref.namespace, name=ref.name, uid=ref.uid, resource_version=ref.resource_version
    )


def decode_ref(message: pb.ObjectRef) -> ObjectRef:
    """Return a message as an ObjectRef."""
    return ObjectRef(
        namespace=message.namespace,
        name=message.name,
        uid=message.uid,
        resource_version=message.resource_version,
    )


def encode_version(version: tuple[int, int]) -> pb.StateVersion:
    """Return (epoch, generation) as a message."""
    return pb.StateVersion(epoch=version[0], generation=version[1])


def decode_version(message: pb.StateVersion) -> StateVersion:
    """Return a message as a StateVersion."""
    return StateVersion(message.epoch, message.generation)


def plain(values: Mapping[K, V]) -> dict[K, V]:
    """Return a map of a message as a dict. Most are empty, and the check is faster than a loop."""
    return {key: values[key] for key in values} if values else {}


def put(into: MutableMapping[K, V], values: Mapping[K, V]) -> None:
    """Put `values` into a map of a message, several times as fast as `update`."""
    for key in values:
        into[key] = values[key]


def encode_time(time_s: float) -> Timestamp:
    """Return Unix seconds as a Timestamp, to the microsecond as in Kubernetes."""
    microseconds = round(time_s * 10**6)
    return Timestamp(seconds=microseconds // 10**6, nanos=microseconds % 10**6 * 1000)


def decode_time(message: Timestamp) -> float:
    """Return a Timestamp as Unix seconds."""
    return (message.seconds * _NANOS + message.nanos) / _NANOS


def encode_duration(seconds: float) -> Duration:
    """Return seconds as a Duration; never below zero."""
    nanos = max(0, round(seconds * _NANOS))
    return Duration(seconds=nanos // _NANOS, nanos=nanos % _NANOS)


def encode_object(item: KubeObject) -> pb.KubeObject:
    """Return a KubeObject as a message with its JSON."""
    return pb.KubeObject(
        encoding=pb.KubeObject.ENCODING_JSON, api_version=item.api_version, kind=item.kind, raw=item.raw
    )


def decode_object(message: pb.KubeObject) -> KubeObject | None:
    """Return a message as a KubeObject; None for an unknown encoding: the object counts as missing."""
    if message.encoding not in (pb.KubeObject.ENCODING_UNSPECIFIED, pb.KubeObject.ENCODING_JSON):
        return None
    return KubeObject(message.api_version, message.kind, raw=message.raw)


def encode_need(need: Need) -> identity_pb2.DeclaredNeed:
    """Return a Need as a message."""
    return identity_pb2.DeclaredNeed(
        kind=identity_pb2.DeclaredNeed.Kind.ValueType(need.kind.value),
        drop_fields=need.drop_fields,
        label_prefixes=need.label_prefixes,
        resource=need.resource,
        annotation_prefixes=need.annotation_prefixes,
        images=need.images,
    )


def decode_need(message: identity_pb2.DeclaredNeed) -> Need:
    """Return a message as a Need. Raises ValueError for an unspecified or unknown kind."""
    return Need(
        kind=NeedKind(message.kind),
        resource=message.resource,
        drop_fields=tuple(message.drop_fields),
        label_prefixes=tuple(message.label_prefixes),
        annotation_prefixes=tuple(message.annotation_prefixes),
        images=message.images,
    )


def _encode_ports(ports: Iterable[HostPort]) -> list[pb.HostPort]:
    return [pb.HostPort(ip=port.ip, protocol=port.protocol, port=port.port) for port in ports]


def _decode_port(message: pb.HostPort) -> HostPort:
    return HostPort(message.ip, message.protocol, message.port)


# --- pods ------------------------------------------------------------------------------------------


def encode_pod(
    pod: Pod,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    in_state: bool = False,
) -> pb.PodSummary:
    """Return the summary of a pod. `labels`, `annotations`: sent instead of the pod's own; None: the pod's.

    `in_state`: the pod is on a node, and the message around the summary names the node.
    """
    message = _encode_spec(pod)
    ref = message.ref
    ref.namespace, ref.name, ref.uid = pod.namespace, pod.name, pod.uid
    ref.resource_version = pod.resource_version
    put(message.labels, pod.labels if labels is None else labels)
    put(message.annotations, pod.annotations if annotations is None else annotations)
    if pod.node_name and not in_state:
        message.required_node = pod.node_name
    if pod.nominated_node:
        message.nominated_node = pod.nominated_node
    if pod.claims:
        message.claims.extend(pod.claims)
    if pod.terminating:
        message.terminating = True
    if pod.group_key:
        message.group_key = pod.group_key
    owner = pod.owner
    if owner is not None:
        message.owner.CopyFrom(
            pb.OwnerRef(api_version=owner.api_version, kind=owner.kind, name=owner.name, uid=owner.uid)
        )
    if pod.created_at_s is not None:
        message.created_at.CopyFrom(encode_time(pod.created_at_s))
    if pod.started_at_s is not None:
        message.started_at.CopyFrom(encode_time(pod.started_at_s))
    return message


def _encode_spec(pod: Pod) -> pb.PodSummary:
    """Return the part that depends only on the spec, encoded once for all pods with the same spec."""
    read = pod.shared_spec
    if read is None:
        return _summary_of_spec(pod)
    if read.summary is None:
        read.summary = _summary_of_spec(pod).SerializeToString()
    return pb.PodSummary.FromString(read.summary)


def _summary_of_spec(pod: Pod) -> pb.PodSummary:
    message = pb.PodSummary(
        priority=pod.priority,
        requests=pod.requests,
        non_zero_requests=pod.non_zero_requests,
        node_selector=pod.node_selector,
        scheduler_name=pod.scheduler_name,
        scheduling_gates=pod.scheduling_gates,
        images=pod.images,
        never_preempts=pod.never_preempts,
        host_ports=_encode_ports(pod.host_ports),
        tolerations=[
            pb.Toleration(key=item.key, operator=item.operator, value=item.value, effect=item.effect)
            for item in pod.tolerations
        ],
    )
    if pod.score_requests != {**pod.requests, **pod.non_zero_requests}:
        message.score_requests.update(pod.score_requests)
    return message


def decode_pod(
    message: pb.PodSummary, *, node_name: str | None = None, item: KubeObject | None = None
) -> Pod:
    """Return a summary as a Pod. `item`: the pod's JSON.

    `node_name`: the pod's node; None: the node that it requires.
    """
    copy = pb.PodSummary()
    copy.CopyFrom(message)
    return take_pod(copy, node_name=node_name, item=item)


def take_pod(message: pb.PodSummary, *, node_name: str | None = None, item: KubeObject | None = None) -> Pod:
    """Return the same as `decode_pod`, and clear some fields of the message."""
    ref = message.ref
    namespace, name, uid, resource_version = ref.namespace, ref.name, ref.uid, ref.resource_version
    message.ClearField("ref")
    required_node = message.required_node
    if required_node:
        message.ClearField("required_node")
    created_at_s = started_at_s = None
    if message.HasField("created_at"):
        created_at_s = decode_time(message.created_at)
        message.ClearField("created_at")
    if message.HasField("started_at"):
        started_at_s = decode_time(message.started_at)
        message.ClearField("started_at")
    # The remaining fields are common to all pods of a controller.
    return _decode_common(namespace, message.SerializeToString()).sibling(
        (name, uid, resource_version),
        required_node if node_name is None else node_name,
        created_at_s,
        started_at_s,
        item,
    )


@lru_cache(maxsize=256)
def _decode_common(namespace: str, raw: bytes) -> Pod:
    """Return a Pod with the fields that all pods of a controller have in common."""
    message = pb.PodSummary.FromString(raw)
    requests = plain(message.requests)
    # No key: the amount in `requests`.
    non_zero: dict[str, int] = {name: requests[name] for name in NON_ZERO if name in requests}
    non_zero.update(plain(message.non_zero_requests))
    return Pod(
        name="",
        namespace=namespace,
        labels=plain(message.labels),
        annotations=plain(message.annotations),
        priority=message.priority,
        requests=requests,
        non_zero_requests=non_zero,
        score_requests=plain(message.score_requests) or {**requests, **non_zero},
        node_selector=plain(message.node_selector),
        tolerations=tuple([_decode_toleration(entry) for entry in message.tolerations]),
        owner=_decode_owner(message.owner) if message.HasField("owner") else None,
        scheduler_name=message.scheduler_name or DEFAULT_SCHEDULER_NAME,
        nominated_node=message.nominated_node,
        scheduling_gates=tuple(message.scheduling_gates),
        host_ports=tuple(_decode_port(port) for port in message.host_ports),
        images=tuple(message.images),
        claims=tuple(message.claims),
        never_preempts=message.never_preempts,
        terminating=message.terminating,
        group_key=message.group_key,
    )


def _decode_toleration(message: pb.Toleration) -> Toleration:
    return Toleration(message.key, message.operator, message.value, message.effect)


def _decode_owner(message: pb.OwnerRef) -> OwnerRef:
    return OwnerRef(message.api_version, message.kind, message.name, message.uid)


# --- nodes -----------------------------------------------------------------------------------------


def encode_node(
    node: Node,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    images: bool = True,
) -> pb.NodeSummary:
    """Return the summary of a node. `labels`, `annotations`: sent instead of the node's; None: the node's."""
    message = pb.NodeSummary(
        labels=node.labels if labels is None else labels,
        annotations=node.annotations if annotations is None else annotations,
        unschedulable=node.unschedulable,
        allocatable=node.allocatable,
        declared_features=node.declared_features,
    )
    if node.taints:
        message.taints.extend(
            pb.Taint(key=taint.key, value=taint.value, effect=taint.effect) for taint in node.taints
        )
    if images and node.images:
        message.images.extend(
            pb.NodeImage(names=image.names, size_bytes=image.size_bytes) for image in node.images
        )
    return message


def decode_node(name: str, message: pb.NodeSummary, *, item: KubeObject | None = None) -> Node:
    """Return a summary as a Node. `item`: the node's JSON."""
    return Node(
        name=name,
        labels=plain(message.labels),
        annotations=plain(message.annotations),
        taints=tuple(Taint(taint.key, taint.value, taint.effect) for taint in message.taints),
        unschedulable=message.unschedulable,
        allocatable=plain(message.allocatable),
        images=tuple(NodeImage(tuple(image.names), image.size_bytes) for image in message.images),
        declared_features=tuple(message.declared_features),
        object=item,
    )


def encode_usage(usage: NodeUsage) -> pb.NodeUsage:
    """Return a NodeUsage as a message."""
    message = pb.NodeUsage(pod_count=usage.pod_count)
    put(message.requested, usage.requested)
    put(message.non_zero_requested, usage.non_zero_requested)
    if usage.host_ports:
        message.host_ports.extend(_encode_ports(usage.host_ports))
    return message


def decode_usage(message: pb.NodeUsage) -> NodeUsage:
    """Return a message as a NodeUsage."""
    return _usage_of(message.SerializeToString())


@lru_cache(maxsize=1024)
def _usage_of(raw: bytes) -> NodeUsage:
    """Return the NodeUsage in `raw`, one object for all nodes with equal usage. No code changes its maps."""
    message = pb.NodeUsage.FromString(raw)
    return NodeUsage(
        requested=plain(message.requested),
        non_zero_requested=plain(message.non_zero_requested),
        pod_count=message.pod_count,
        host_ports=frozenset([_decode_port(port) for port in message.host_ports]),
    )


# --- sets of nodes ---------------------------------------------------------------------------------


def encode_bitmap(rows: Rows | Sequence[int]) -> bytes:
    """Return slots as a bitmap: bit i is bit i mod 8, from the least significant, of byte i div 8."""
    chosen = np.asarray(rows, dtype=np.intp)
    if not len(chosen):
        return b""
    mask = np.zeros(int(chosen.max()) + 1, dtype=np.bool_)
    mask[chosen] = True
    return np.packbits(mask, bitorder="little").tobytes()


def decode_bitmap(bitmap: bytes) -> Rows:
    """Return a bitmap as slots, ascending (intp)."""
    return np.flatnonzero(mask_of(bitmap, 8 * len(bitmap)))


def mask_of(bitmap: bytes, size: int) -> NDArray[np.bool_]:
    """Return a bitmap as bool[size] by slot. Missing bits are False; bits beyond `size` are ignored."""
    if not bitmap:
        # For an empty input, numpy leaves the memory uninitialised.
        return np.zeros(size, dtype=np.bool_)
    raw = np.frombuffer(bitmap, dtype=np.uint8)
    return np.unpackbits(raw, count=size, bitorder="little").view(np.bool_)


def decode_rows(message: pb.NodeSet, within: Rows, index_of: Mapping[str, int]) -> Rows:
    """Return a NodeSet as slots of `within`, in the same order. `index_of`: the slots of known names.

    Raises UnknownNodeError if it lists a node that is not in `within`.
    """
    return within.compress(decode_chosen(message, within, index_of))


def decode_chosen(message: pb.NodeSet, within: Rows, index_of: Mapping[str, int]) -> NDArray[np.bool_]:
    """Return a NodeSet as bool[n]: which slots of `within` are in the set. Otherwise as `decode_rows`."""
    bitmap = encode_bitmap(_listed(message, index_of)) if message.names else message.bitmap
    size = 1 + int(within.max()) if len(within) else 0
    mask = mask_of(bitmap, max(size, 8 * len(bitmap)))
    chosen = mask.take(within)
    if np.count_nonzero(chosen) != np.count_nonzero(mask):
        raise UnknownNodeError(_stranger(np.flatnonzero(mask), within, index_of))
    return ~chosen if message.complement else chosen


class UnknownNodeError(ValueError):
    """The error of a node set with a node that is no candidate. Attribute: node, its name or index."""

    def __init__(self, node: str) -> None:
        self.node = node
        super().__init__(f"the answer lists node {node}, which is not among the candidates")


def _listed(message: pb.NodeSet, index_of: Mapping[str, int]) -> Rows:
    unknown = next((name for name in message.names if name not in index_of), None)
    if unknown is not None:
        raise UnknownNodeError(repr(unknown))
    named = np.fromiter((index_of[name] for name in message.names), dtype=np.intp)
    return np.union1d(decode_bitmap(message.bitmap), named)


def _stranger(listed: Rows, within: Rows, index_of: Mapping[str, int]) -> str:
    slot = int(np.setdiff1d(listed, within)[0])
    return next((repr(name) for name, index in index_of.items() if index == slot), f"index {slot}")
