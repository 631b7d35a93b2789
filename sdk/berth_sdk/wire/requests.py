"""The contract's requests -> the arguments of a plugin's methods. The servicers use it.

Unset and unknown values are read as the contract defines. Source: the contract's common.proto, queue.proto
and scheduling.proto.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from google.protobuf.struct_pb2 import Struct
from numpy.typing import NDArray

from berth_sdk.events import ClusterEvent, EventObject
from berth_sdk.node import Node
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import queue_pb2, scheduling_pb2
from berth_sdk.pod import Pod
from berth_sdk.results import NodeRejections, PatchOutcome, PatchResult, QueuedPod
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeTable
from berth_sdk.wire import records as wire
from berth_sdk.wire.codec import Convert, Layout
from berth_sdk.wire.groups import decode_pod_group
from berth_sdk.wire.scores import decode_aligned
from berth_sdk.wire.status import CODES

TRIAL: Final = "configure-trial"
"""The feature of the handshake with which a host may try arguments: `ConfigureRequest.trial`."""
_OUTCOMES: Final[Mapping[int, PatchOutcome]] = {
    scheduling_pb2.PatchResult.Outcome.Value(f"OUTCOME_{outcome.name}"): outcome for outcome in PatchOutcome
}
_PATCHED: Final = Layout(PatchResult, scheduling_pb2.PatchResult)
_READERS: Final[Mapping[str, Convert]] = {
    "Outcome": lambda _scope, number: _OUTCOMES.get(number, PatchOutcome.REFUSED),
    "ObjectRef": lambda _scope, message: wire.decode_ref(message),
    "KubeObject": lambda _scope, message: wire.decode_object(message),
}


def decode_status(message: pb.PluginStatus, plugin: str = "") -> Status:
    """Return the message as a Status. An unset code (a violation) and an unknown one become ERROR."""
    return Status(CODES.get(message.code, Code.ERROR), tuple(message.reasons), plugin)


def decode_args(message: Struct) -> dict[str, Any]:
    """Return a plugin's arguments. Struct has no integers, so whole numbers become `int`."""
    return {key: _plain(value) for key, value in message.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Struct):
        return decode_args(value)
    if isinstance(value, (str, bytes, bool, float)) or value is None:
        return value
    return [_plain(item) for item in value]


def decode_call_pod(ctx: pb.CallContext) -> Pod | None:
    """Return the cycle's pod; None if the request has only its ref. Clears some fields of the summary.

    Raises ValueError for a request without a pod.
    """
    if not ctx.HasField("pod"):
        raise ValueError("a call about neither a pod nor a group")
    pod = ctx.pod
    if not pod.complete:
        return None
    item = wire.decode_object(pod.object) if pod.HasField("object") else None
    return wire.take_pod(pod.summary, item=item)


def decode_bare_pod(ref: pb.ObjectRef) -> Pod:
    """Return a pod with nothing but its ref."""
    return Pod(name=ref.name, namespace=ref.namespace, uid=ref.uid, resource_version=ref.resource_version)


def decode_rejections(
    groups: Sequence[scheduling_pb2.NodeGroup], plugins: Sequence[str], nodes: NodeTable
) -> NodeRejections:
    """Return the rejected nodes by name, each with the status and the plugin that rejected it.

    A node in no group counts as unresolvable.
    """
    by_node: dict[str, Status] = {}
    for i, group in enumerate(groups):
        plugin = plugins[i] if i < len(plugins) else ""
        status = decode_status(group.status, plugin)
        for name in decode_names(group.nodes, nodes):
            by_node[name] = status
    return NodeRejections(by_node)


def decode_names(message: pb.NodeSet, nodes: NodeTable) -> list[str]:
    """Return the names in a set of nodes of `nodes`."""
    if message.names and not message.complement:
        return list(message.names)
    index_of = dict(zip(nodes.names, nodes.slots.tolist(), strict=True)) if message.names else {}
    chosen = wire.decode_rows(message, nodes.slots, index_of)
    return nodes.take(nodes.positions_of_slots(chosen)).names


def decode_scores(message: scheduling_pb2.Scores, nodes: NodeTable) -> NDArray[np.int64]:
    """int64[n] in the order of the candidates. Raises KeyError for a candidate without a named score."""
    if message.named:
        by_name = {entry.node: entry.score for entry in message.named}
        return np.asarray([by_name[name] for name in nodes.names], dtype=np.int64)
    return decode_aligned(message.SerializeToString())


def decode_patched(messages: Sequence[scheduling_pb2.PatchResult]) -> tuple[PatchResult, ...]:
    """Return the outcomes of the patches; an unknown outcome becomes REFUSED."""
    return tuple(PatchResult(**_PATCHED.decode(_READERS, None, message)) for message in messages)


def decode_queued_pod(message: queue_pb2.QueuedPod) -> QueuedPod:
    """Return a pod in the queue."""
    item = wire.decode_object(message.object) if message.HasField("object") else None
    first = message.first_attempt_at
    return QueuedPod(
        pod=wire.decode_pod(message.summary, item=item),
        attempts=message.attempts,
        added_at_s=wire.decode_time(message.added_at),
        first_attempt_at_s=wire.decode_time(first) if message.HasField("first_attempt_at") else None,
        victims_pending=message.victims_pending,
        group=decode_pod_group(message.group) if message.HasField("group") else None,
    )


def decode_event(message: queue_pb2.ClusterEvent) -> ClusterEvent:
    """Return a cluster event, with records for pods and nodes. Raises ObjectError for a malformed object."""
    return ClusterEvent(
        resource=message.resource,
        action=message.action,
        old=_event_object(message.old_object, message) if message.HasField("old_object") else None,
        new=_event_object(message.new_object, message) if message.HasField("new_object") else None,
    )


def _event_object(message: pb.KubeObject, event: queue_pb2.ClusterEvent) -> EventObject | None:
    item = wire.decode_object(message)
    if item is None or item.api_version != "v1" or item.kind not in ("Pod", "Node"):
        return item
    if item.kind == "Node":
        return Node.from_object(item)
    pod = Pod.from_object(item)
    # The object names the group also for a host that schedules no groups.
    return replace(pod, group_key=event.group_key) if event.group_key else pod
