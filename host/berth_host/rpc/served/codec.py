"""The host's records -> messages of the contract. Called by `GrpcTransport`; nothing here waits or decides.

Nodes go as the plugin chose: bitmaps over the snapshot's slots (SNAPSHOT), or names (NAMES).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from berth_sdk.events import ClusterEvent, EventObject
from berth_sdk.extension_points import NodeMode
from berth_sdk.kube_object import KubeObject
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import queue_pb2, scheduling_pb2
from berth_sdk.pod import Pod
from berth_sdk.results import NodeRejections, PatchOutcome, PatchResult, QueuedPod
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable
from berth_sdk.wire import records as wire
from berth_sdk.wire.scores import encode_aligned
from berth_sdk.wire.status import encode_status
from numpy.typing import NDArray

IndexOf = Callable[[str], int | None]
"""The slot of a node in the cycle's snapshot, None for an unknown name."""


# --- sets of nodes ---------------------------------------------------------------------------------


def encode_candidates(nodes: NodeTable, mode: NodeMode) -> pb.NodeSet:
    """The candidates of a request; "all" is said in one bit."""
    if mode is NodeMode.NAMES:
        return pb.NodeSet(names=nodes.names)
    if len(nodes) == nodes.snapshot_size:
        return pb.NodeSet(complement=True)
    return pb.NodeSet(bitmap=wire.encode_bitmap(nodes.slots))


def encode_names(names: Sequence[str], mode: NodeMode, index_of: IndexOf) -> pb.NodeSet:
    """Some nodes by name; in SNAPSHOT mode those that the snapshot lacks are left out."""
    if mode is NodeMode.NAMES:
        return pb.NodeSet(names=names)
    slots = [slot for slot in map(index_of, names) if slot is not None]
    return pb.NodeSet(bitmap=wire.encode_bitmap(slots))


# --- the scheduling cycle ----------------------------------------------------------------------------


def encode_rejections(
    rejections: NodeRejections, all_names: Sequence[str], mode: NodeMode, index_of: IndexOf
) -> tuple[list[scheduling_pb2.NodeGroup], list[str]]:
    """(groups, the plugin of each). Nodes that are not listed get a group of their own if they have more
    to say than the contract's reading of an absent node.
    """
    by_status: dict[Status, list[str]] = {}
    for name, status in rejections.by_node.items():
        by_status.setdefault(status, []).append(name)
    groups = [
        scheduling_pb2.NodeGroup(status=encode_status(status), nodes=encode_names(names, mode, index_of))
        for status, names in by_status.items()
    ]
    plugins = [status.plugin for status in by_status]
    if rejections.absent != NodeRejections().absent:
        rest = [name for name in all_names if name not in rejections.by_node]
        if rest:
            groups.append(
                scheduling_pb2.NodeGroup(
                    status=encode_status(rejections.absent), nodes=encode_names(rest, mode, index_of)
                )
            )
            plugins.append(rejections.absent.plugin)
    return groups, plugins


def encode_scenarios(scenarios: Scenarios, mode: NodeMode, whole: bool) -> list[scheduling_pb2.Scenario]:
    """One message per scenario."""
    slots = scenarios.nodes.slots.tolist()
    return [
        encode_scenario(item, slot if mode is NodeMode.SNAPSHOT else None, whole)
        for item, slot in zip(scenarios.items, slots, strict=True)
    ]


def encode_scenario(item: Scenario, slot: int | None, whole: bool) -> scheduling_pb2.Scenario:
    """`slot` None: the node goes by name."""
    message = scheduling_pb2.Scenario()
    changed = message.nodes.add(
        removed=[pb.ObjectRef(namespace=pod.namespace, name=pod.name, uid=pod.uid) for pod in item.removed],
        added=[
            pb.PodState(
                pod=wire.encode_pod(pod, in_state=True),
                object=_object_of(pod) if whole else None,
            )
            for pod in item.added
        ],
    )
    if slot is None:
        changed.node_name = item.node_name
    else:
        changed.node_index = slot
    return message


def encode_scores(scores: NDArray[np.int64]) -> scheduling_pb2.Scores:
    """Dense, in the order of the candidates."""
    return scheduling_pb2.Scores.FromString(encode_aligned(scores))


# --- the binding cycle -------------------------------------------------------------------------------

_OUTCOMES: Mapping[PatchOutcome, scheduling_pb2.PatchResult.Outcome.ValueType] = {
    PatchOutcome.APPLIED: scheduling_pb2.PatchResult.OUTCOME_APPLIED,
    PatchOutcome.CONFLICT: scheduling_pb2.PatchResult.OUTCOME_CONFLICT,
    PatchOutcome.NOT_FOUND: scheduling_pb2.PatchResult.OUTCOME_NOT_FOUND,
    PatchOutcome.REFUSED: scheduling_pb2.PatchResult.OUTCOME_REFUSED,
    PatchOutcome.SKIPPED: scheduling_pb2.PatchResult.OUTCOME_SKIPPED,
    PatchOutcome.UNKNOWN: scheduling_pb2.PatchResult.OUTCOME_UNKNOWN,
}


def encode_patched(results: Sequence[PatchResult]) -> list[scheduling_pb2.PatchResult]:
    """The outcome of each patch."""
    return [
        scheduling_pb2.PatchResult(
            outcome=_OUTCOMES[result.outcome],
            ref=wire.encode_ref(result.ref),
            object=None if result.object is None else wire.encode_object(result.object),
            message=result.message,
        )
        for result in results
    ]


# --- the queue -----------------------------------------------------------------------------------------


def encode_queued_pods(pods: Sequence[QueuedPod], whole: bool) -> list[queue_pb2.QueuedPod]:
    """Pods as the queue holds them."""
    return [_queued_pod(pod, whole) for pod in pods]


def encode_event(event: ClusterEvent) -> queue_pb2.ClusterEvent:
    """A change in the cluster; objects without their JSON are left out."""
    return queue_pb2.ClusterEvent(
        resource=event.resource,
        action=event.action,
        old_object=_event_object(event.old),
        new_object=_event_object(event.new),
    )


def encode_pods(pods: Sequence[Pod], whole: bool) -> list[queue_pb2.QueuedPod]:
    """Pods of which only the record is known."""
    return [_queued_pod(QueuedPod(pod=pod), whole) for pod in pods]


def _queued_pod(queued: QueuedPod, whole: bool) -> queue_pb2.QueuedPod:
    message = queue_pb2.QueuedPod(
        summary=wire.encode_pod(queued.pod),
        object=_object_of(queued.pod) if whole else None,
        attempts=queued.attempts,
        added_at=wire.encode_time(queued.added_at_s),
        victims_pending=queued.victims_pending,
    )
    if queued.first_attempt_at_s is not None:
        message.first_attempt_at.CopyFrom(wire.encode_time(queued.first_attempt_at_s))
    return message


def _object_of(pod: Pod) -> pb.KubeObject | None:
    return None if pod.object is None else wire.encode_object(pod.object)


def _event_object(item: EventObject | None) -> pb.KubeObject | None:
    known = item if item is None or isinstance(item, KubeObject) else item.object
    return None if known is None else wire.encode_object(known)
