"""The arguments of a call -> the contract's requests: what the host writes, field by field.

A request is written from the names of the call's arguments (`Call.sends`) and the fields of its message.
`FIELDS` has one writer per field, whatever call it belongs to; `CallCodec` puts them together. Nodes go as
the plugin chose: bitmaps over the snapshot's slots (SNAPSHOT), or names (NAMES).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from berth_sdk.events import ClusterEvent, EventObject
from berth_sdk.extension_points import NodeMode
from berth_sdk.kube_object import KubeObject
from berth_sdk.needs import NeedKind
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import queue_pb2, scheduling_pb2
from berth_sdk.pod import Pod
from berth_sdk.pod_group import Placement
from berth_sdk.results import NodeRejections, PatchResult, QueuedPod
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.scenarios import Scenarios
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable
from berth_sdk.wire import records as wire
from berth_sdk.wire.codec import Convert, Layout
from berth_sdk.wire.groups import encode_assignments, encode_pod_group, encode_trial
from berth_sdk.wire.scenarios import encode_scenario
from berth_sdk.wire.scores import encode_aligned
from berth_sdk.wire.status import encode_status
from numpy.typing import NDArray

from berth_host.attempt.call_record import CycleRecord
from berth_host.errors.state import InvariantError
from berth_host.rpc.served.link import InstanceLink
from berth_host.rpc.served.node_names import ENCODED, NamedRequest, field_bytes
from berth_host.rpc.served.outbox import Parcel

IndexOf = Callable[[str], int | None]
"""The slot of a node in the cycle's snapshot, None for an unknown name."""


@dataclass(slots=True, eq=False)
class Written:
    """A request without its context, and the facts that its reply is read with (see `ReplyReader`)."""

    message: Any
    tail: bytes = b""
    """A field that is encoded already, which follows the message."""
    nodes: NodeTable | None = None
    back: NDArray[np.intp] | None = None
    count: int = 0

    @property
    def request(self) -> Any:
        """The request as it is sent."""
        return NamedRequest(self.message, self.tail) if self.tail else self.message


class RequestWriter:
    """The writer of requests to one plugin at one instance. Attributes: link, plugin, mode (how nodes are
    named), whole_pod (True if pods are sent as JSON), sends_usage (True if the usage of nodes is sent).
    """

    def __init__(self, link: InstanceLink, descriptor: Descriptor) -> None:
        self.link = link
        self.plugin = descriptor.name
        self.mode = descriptor.node_mode
        self.whole_pod = descriptor.wants_whole_pod
        self.sends_usage = any(need.kind is NeedKind.NODE_SUMMARY for need in descriptor.needs)

    def parcel(self, cycle: CycleRecord, node_name: str, reason: str = "") -> Parcel:
        """Return the reservation of a cycle, for the outbox. `reason`: why it is given back."""
        token = cycle.state(self.plugin).token
        anchor = None if cycle.trace is None else cycle.trace.anchor
        return Parcel(
            cycle.cycle_id,
            cycle.subject.ref,
            node_name,
            token or b"",
            cycle.profile,
            reason,
            trial=cycle.trial,
            anchor=anchor,
        )

    def index_of(self, node_name: str) -> int | None:
        """Return the node's slot in SNAPSHOT mode; None, which leaves the field unset, in NAMES mode."""
        feed = self.link.feed
        return None if self.mode is NodeMode.NAMES or feed is None else feed.index_of(node_name)


# --- the fields of requests ------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Asking:
    """One request that is being written. `cycle` None: a batch of the queue. `args`: by their names."""

    writer: RequestWriter
    cycle: CycleRecord | None
    args: Mapping[str, Any]
    written: Written
    rejections: tuple[list[scheduling_pb2.NodeGroup], list[str]] | None = None
    """The two fields of a NodeRejections, once made."""

    @property
    def own_cycle(self) -> CycleRecord:
        """The cycle of a request that belongs to one."""
        if self.cycle is None:
            raise InvariantError("a request of the queue has a field of a cycle")
        return self.cycle


def _candidates(asking: Asking) -> pb.NodeSet | None:
    """Return the nodes by ascending slot, as they travel; None if they follow the message, as bytes."""
    written = asking.written
    written.nodes, written.back = _ascending(asking.args["nodes"])
    if asking.writer.mode is not NodeMode.NAMES:
        return encode_candidates(written.nodes, asking.writer.mode)
    number = written.message.DESCRIPTOR.fields_by_name["candidates"].number
    written.tail = field_bytes(number, ENCODED.of(written.nodes))
    return None


def _raw_scores(asking: Asking) -> scheduling_pb2.Scores:
    scores, back = asking.args["scores"], asking.written.back
    return encode_scores(scores if back is None else scores[np.argsort(back)])


def _scenarios(asking: Asking) -> list[scheduling_pb2.Scenario]:
    writer = asking.writer
    return encode_scenarios(
        asking.args["scenarios"], writer.mode, whole=writer.whole_pod, usage=writer.sends_usage
    )


def _rejected(asking: Asking) -> list[scheduling_pb2.NodeGroup]:
    return _rejections(asking)[0]


def _rejected_by(asking: Asking) -> list[str]:
    return _rejections(asking)[1]


def _rejections(asking: Asking) -> tuple[list[scheduling_pb2.NodeGroup], list[str]]:
    if asking.rejections is None:
        rejections, feed = asking.args["rejections"], asking.writer.link.feed
        names = feed.node_names() if feed is not None else list(rejections.by_node)
        index_of = feed.index_of if feed is not None else _no_index
        asking.rejections = encode_rejections(rejections, names, asking.writer.mode, index_of)
    return asking.rejections


def _pods(asking: Asking) -> list[queue_pb2.QueuedPod]:
    """Return pods as the queue holds them, or pods of which only the record is known."""
    whole = asking.writer.whole_pod
    return [
        encode_queued_pod(pod if isinstance(pod, QueuedPod) else QueuedPod(pod=pod), whole)
        for pod in asking.args["pods"]
    ]


def _trial(asking: Asking) -> scheduling_pb2.ReservationTrial | None:
    """Return the trial of a Reserve in a group's cycle; None leaves the field unset."""
    trial = asking.own_cycle.trial
    return None if trial is None else encode_trial(trial)


def _parent(asking: Asking) -> scheduling_pb2.PlacementNodes:
    """Return the nodes to divide by ascending slot, as they travel."""
    parent: Placement = asking.args["parent"]
    asking.written.nodes, asking.written.back = _ascending(parent.nodes)
    return encode_placement(Placement(parent.name, asking.written.nodes), asking.writer.mode)


def encode_placement(placement: Placement, mode: NodeMode) -> scheduling_pb2.PlacementNodes:
    """Return a placement; one bit stands for all nodes."""
    nodes, _ = _ascending(placement.nodes)
    return scheduling_pb2.PlacementNodes(name=placement.name, nodes=encode_candidates(nodes, mode))


Field: TypeAlias = Callable[[Asking], Any]
FIELDS: Final[Mapping[str, Field]] = {
    "plugin": lambda asking: asking.writer.plugin,
    "attachment_id": lambda asking: asking.writer.link.identity.attachment_id,
    "pods": _pods,
    "event": lambda asking: encode_event(asking.args["event"]),
    "candidates": _candidates,
    "scores": _raw_scores,
    "scenarios": _scenarios,
    "rejected": _rejected,
    "rejected_by": _rejected_by,
    "node_name": lambda asking: asking.args["node_name"],
    "node_index": lambda asking: asking.writer.index_of(asking.args["node_name"]),
    "round": lambda asking: (asking.own_cycle.part(asking.writer.plugin).rounds or 1) - 1,
    "patched": lambda asking: encode_patched(asking.args["patched"]),
    "pod_deleted": lambda asking: asking.own_cycle.pod_deleted,
    "trial": _trial,
    "parent": _parent,
    "placement": lambda asking: encode_placement(asking.args["placement"], asking.writer.mode),
    "placements": lambda asking: [
        encode_placement(one, asking.writer.mode) for one in asking.args["placements"]
    ],
    "assignments": lambda asking: encode_assignments(asking.args["assignments"]),
    "raw_scores": lambda asking: asking.args["raw_scores"].tolist(),
    "scheduled": lambda asking: asking.args["steps"].scheduled,
    "remaining": lambda asking: asking.args["steps"].remaining,
    "max_failures": lambda asking: asking.args["steps"].max_failures,
    "unschedulable": lambda asking: asking.args["steps"].unschedulable,
    "reached_pre_filter": lambda asking: asking.args["tries"].reached_pre_filter,
}
"""The writer of each field, for all requests."""


def _ascending(nodes: NodeTable) -> tuple[NodeTable, NDArray[np.intp] | None]:
    """Return (the rows by ascending slot; the way back to the given order, None if both are the same)."""
    if nodes.is_ascending:
        return nodes, None
    order = np.argsort(nodes.slots, kind="stable")
    return nodes.take(order), np.argsort(order, kind="stable")


def _no_index(_name: str) -> int | None:
    return None


# --- sets of nodes ---------------------------------------------------------------------------------


def encode_candidates(nodes: NodeTable, mode: NodeMode) -> pb.NodeSet:
    """Return the candidates of a request; one bit stands for all nodes."""
    if mode is NodeMode.NAMES:
        return pb.NodeSet(names=nodes.names)
    if len(nodes) == nodes.snapshot_size:
        return pb.NodeSet(complement=True)
    return pb.NodeSet(bitmap=wire.encode_bitmap(nodes.slots))


def encode_names(names: Sequence[str], mode: NodeMode, index_of: IndexOf) -> pb.NodeSet:
    """Return some nodes by name; in SNAPSHOT mode names that the snapshot lacks are left out."""
    if mode is NodeMode.NAMES:
        return pb.NodeSet(names=names)
    slots = [slot for slot in map(index_of, names) if slot is not None]
    return pb.NodeSet(bitmap=wire.encode_bitmap(slots))


# --- the scheduling cycle ----------------------------------------------------------------------------


def encode_rejections(
    rejections: NodeRejections, all_names: Sequence[str], mode: NodeMode, index_of: IndexOf
) -> tuple[list[scheduling_pb2.NodeGroup], list[str]]:
    """Return (groups, the plugin of each group).

    Nodes that are not listed get a group if their status differs from the contract's default for them.
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


def encode_scenarios(
    scenarios: Scenarios, mode: NodeMode, *, whole: bool, usage: bool
) -> list[scheduling_pb2.Scenario]:
    """Return one message per scenario.

    `whole`: added pods travel with their JSON. `usage`: the usage of the changed nodes travels.
    """
    slots = scenarios.nodes.slots.tolist()
    messages = [
        encode_scenario(item, slot if mode is NodeMode.SNAPSHOT else None, whole)
        for item, slot in zip(scenarios.items, slots, strict=True)
    ]
    if usage:
        for message, used in zip(messages, scenarios.nodes.usages(), strict=True):
            message.node.usage.CopyFrom(wire.encode_usage(used))
    return messages


def encode_scores(scores: NDArray[np.int64]) -> scheduling_pb2.Scores:
    """Return the scores as a message, dense, in the order of the candidates."""
    return scheduling_pb2.Scores.FromString(encode_aligned(scores))


# --- the binding cycle -------------------------------------------------------------------------------

_PATCHED: Final = Layout(PatchResult, scheduling_pb2.PatchResult)
_WRITERS: Final[Mapping[str, Convert]] = {
    "Outcome": lambda _scope, outcome: getattr(scheduling_pb2.PatchResult, f"OUTCOME_{outcome.name}"),
    "ObjectRef": lambda _scope, ref: wire.encode_ref(ref),
    "KubeObject": lambda _scope, item: wire.encode_object(item),
}


def encode_patched(results: Sequence[PatchResult]) -> list[scheduling_pb2.PatchResult]:
    """Return the outcome of each patch."""
    return [_PATCHED.encode(_WRITERS, None, result) for result in results]


# --- the queue -----------------------------------------------------------------------------------------


def encode_event(event: ClusterEvent) -> queue_pb2.ClusterEvent:
    """Return a change in the cluster as a message; objects without their JSON are left out."""
    return queue_pb2.ClusterEvent(
        resource=event.resource,
        action=event.action,
        old_object=_event_object(event.old),
        new_object=_event_object(event.new),
        group_key=next((pod.group_key for pod in (event.new, event.old) if isinstance(pod, Pod)), ""),
    )


def encode_queued_pod(queued: QueuedPod, whole: bool) -> queue_pb2.QueuedPod:
    """Return a pod as the queue holds it. `whole`: with its JSON."""
    message = queue_pb2.QueuedPod(
        summary=wire.encode_pod(queued.pod),
        object=_object_of(queued.pod) if whole else None,
        attempts=queued.attempts,
        added_at=wire.encode_time(queued.added_at_s),
        victims_pending=queued.victims_pending,
    )
    if queued.group is not None:
        message.group.CopyFrom(encode_pod_group(queued.group))
    if queued.first_attempt_at_s is not None:
        message.first_attempt_at.CopyFrom(wire.encode_time(queued.first_attempt_at_s))
    return message


def _object_of(pod: Pod) -> pb.KubeObject | None:
    return None if pod.object is None else wire.encode_object(pod.object)


def _event_object(item: EventObject | None) -> pb.KubeObject | None:
    known = item if item is None or isinstance(item, KubeObject) else item.object
    return None if known is None else wire.encode_object(known)
