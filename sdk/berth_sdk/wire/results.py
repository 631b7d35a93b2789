"""A plugin's answers and its descriptor -> the contract's messages. The servicers use it.

`WRITERS` has one writer for each kind of value, for all answers (`wire.codec`). Rejections are grouped, one
`NodeGroup` per distinct status, so that the size of a reply depends on the number of reasons. Source: the
contract's common.proto, identity.proto and scheduling.proto.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from berth_sdk.cycle_state import CycleState
from berth_sdk.events import EventInterest, Hint
from berth_sdk.extension_points import DependsOn, ExtensionPoint, NodeColumn, NodeLabel, NodeMode
from berth_sdk.json.writer import write_json
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2, scheduling_pb2
from berth_sdk.pod_fields import PodField
from berth_sdk.pod_group import Placement
from berth_sdk.results import ObjectPatch, PatchAction
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.scope import Scope
from berth_sdk.status import SUCCESS, Status, Verdicts
from berth_sdk.tables import NodeTable
from berth_sdk.wire import records as wire
from berth_sdk.wire.codec import Convert, Layout
from berth_sdk.wire.groups import encode_assignments
from berth_sdk.wire.status import encode_status

_HINTS: Final = {
    Hint.QUEUE: identity_pb2.EventInterest.HINT_QUEUE,
    Hint.ASK_PLUGIN: identity_pb2.EventInterest.HINT_ASK_PLUGIN,
}
_NOTHING: Final = EventInterest("Pod", ("add",), label_selector="berth.io/none,!berth.io/none")
"""No event: its selector matches no object."""
_POINTS: Final = {point.config_name: point for point in ExtensionPoint}
_BITMAP_FROM: Final = 32
"""The number of names from which on a bitmap is shorter."""


def encode_verdicts(verdicts: Verdicts, nodes: NodeTable, mode: NodeMode) -> scheduling_pb2.NodeVerdicts:
    """Return the message with one group per distinct rejection, without feasible nodes."""
    message = scheduling_pb2.NodeVerdicts()
    if verdicts.all_passed:
        return message
    groups = verdicts.groups
    rejected: dict[Status, NDArray[np.bool_]] = {}
    for group, status in enumerate(verdicts.statuses):
        if group == 0 or status.is_success:
            continue
        members = np.equal(groups, group)
        if not members.any():
            continue
        known = rejected.get(status)
        rejected[status] = members if known is None else known | members
    names = np.asarray(nodes.names, dtype=np.object_) if mode is NodeMode.NAMES else None
    for status, members in rejected.items():
        if names is None:
            listed = pb.NodeSet(bitmap=_members_bitmap(nodes.slots, members))
        else:
            listed = pb.NodeSet(names=names[members].tolist())
        message.rejected.add(status=encode_status(status), nodes=listed)
    return message


def _members_bitmap(rows: NDArray[np.intp], members: NDArray[np.bool_]) -> bytes:
    """Return `wire.encode_bitmap(rows[members])`, for ascending rows."""
    size = int(rows[-1]) + 1
    mask = members
    if size != len(rows):
        mask = np.zeros(size, dtype=np.bool_)
        mask[rows] = members
    return np.packbits(mask, bitorder="little").tobytes().rstrip(b"\x00")


def encode_eligible(names: frozenset[str], nodes: NodeTable, mode: NodeMode) -> pb.NodeSet:
    """Return node names as a message: as a bitmap if there are many, and the snapshot has them all."""
    if mode is NodeMode.SNAPSHOT and len(names) >= _BITMAP_FROM:
        positions = [position for name in names if (position := nodes.position(name)) is not None]
        if len(positions) == len(names):
            return pb.NodeSet(bitmap=wire.encode_bitmap(nodes.slots[positions]))
    return pb.NodeSet(names=sorted(names))


def encode_placement(placement: Placement, mode: NodeMode) -> scheduling_pb2.PlacementNodes:
    """Return a placement with its nodes as names or as a bitmap."""
    nodes = placement.nodes
    if mode is NodeMode.NAMES:
        listed = pb.NodeSet(names=nodes.names)
    else:
        listed = pb.NodeSet(bitmap=wire.encode_bitmap(nodes.slots))
    return scheduling_pb2.PlacementNodes(name=placement.name, nodes=listed)


class Answering(Protocol):
    """The part of a call that the writers of its answer read."""

    @property
    def mode(self) -> NodeMode:
        """The plugin's way to name nodes."""
        ...

    @property
    def nodes(self) -> NodeTable:
        """The nodes of the request."""
        ...


def encode_patch(patch: ObjectPatch) -> scheduling_pb2.ObjectPatch:
    """Return a patch as its message. Raises TypeError or ValueError for a patch that JSON cannot express."""
    message: scheduling_pb2.ObjectPatch = _PATCH.encode(WRITERS, None, patch)
    return message


_PATCH: Final = Layout(ObjectPatch, scheduling_pb2.ObjectPatch)
_ACTIONS: Final = {
    # The default stays unset: most patches merge.
    PatchAction.MERGE: scheduling_pb2.ObjectPatch.ACTION_UNSPECIFIED,
    PatchAction.CREATE: scheduling_pb2.ObjectPatch.ACTION_CREATE,
    PatchAction.DELETE: scheduling_pb2.ObjectPatch.ACTION_DELETE,
    PatchAction.UNKNOWN: PatchAction.UNKNOWN.value,
}
WRITERS: Final[Mapping[str, Convert]] = {
    "NodeSet": lambda call, names: encode_eligible(names, call.nodes, call.mode),
    "NodeVerdicts": lambda call, verdicts: encode_verdicts(verdicts, call.nodes, call.mode),
    "ObjectRef": lambda _call, ref: wire.encode_ref(ref),
    "ObjectPatch": lambda _call, patch: encode_patch(patch),
    "Action": lambda _call, action: _ACTIONS[action],
    "json": lambda _call, body: write_json(dict(body)),
    "Duration": lambda _call, seconds: wire.encode_duration(seconds),
    "PlacementNodes": lambda call, placement: encode_placement(placement, call.mode),
    "PlacementAssignment": lambda _call, one: encode_assignments([one])[0],
    "FeasibleRun": lambda _call, run: scheduling_pb2.FeasibleRun(
        count=run.count, status=None if run.status is SUCCESS else encode_status(run.status)
    ),
}
"""(an `Answering`, the value) -> the value in the message, by kind."""


def encode_published(state: CycleState) -> list[pb.CycleStateEntry]:
    """Return the values that the plugin published since the last reply."""
    return [
        pb.CycleStateEntry(key=key, value=value or b"", deleted=value is None)
        for key, value in state.take_published().items()
    ]


def encode_descriptor(descriptor: Descriptor) -> identity_pb2.PluginDescriptor:
    """Return the descriptor as a message."""
    return identity_pb2.PluginDescriptor(
        name=descriptor.name,
        version=descriptor.version,
        points=[identity_pb2.ExtensionPoint.ValueType(point.value) for point in descriptor.points],
        node_mode=identity_pb2.NodeMode.ValueType(descriptor.node_mode.value),
        needs=[wire.encode_need(need) for need in descriptor.needs],
        pod_sensitivity=identity_pb2.PodSensitivity.ValueType(descriptor.pod_sensitivity.value),
        reads_shared=descriptor.reads_shared,
        events=_encode_events(descriptor.events),
        normalization=identity_pb2.ScoreNormalization.ValueType(descriptor.normalization.value),
        deadlines=[
            identity_pb2.PointDeadline(
                point=identity_pb2.ExtensionPoint.ValueType(_POINTS[name].value),
                deadline=wire.encode_duration(wish_s),
            )
            for name, wish_s in descriptor.deadlines.items()
        ],
        max_concurrency=descriptor.max_concurrency,
        handle_client=descriptor.handle_client,
        handle_required=descriptor.handle_required,
        sign_fields=_encode_fields(descriptor.sign_fields),
        depends_on=_encode_depends_on(descriptor.depends_on),
        reads=_encode_reads(descriptor.reads),
        host_keeps_answers=descriptor.host_keeps_answers,
        accounts=[
            identity_pb2.Account.ValueType(number)
            for number in sorted(one.value for one in descriptor.accounts)
        ],
        scope=None if descriptor.scope is None else _encode_scope(descriptor.scope),
    )


def _encode_scope(scope: tuple[Scope, ...]) -> identity_pb2.PodScope:
    return identity_pb2.PodScope(terms=[identity_pb2.PodScopeTerm(**_conditions(term)) for term in scope])


def _conditions(term: Scope) -> dict[str, Any]:
    return {field.name: getattr(term, field.name) for field in fields(term)}


def _encode_depends_on(depends_on: DependsOn | None) -> identity_pb2.DependsOn.ValueType:
    number = identity_pb2.DEPENDS_ON_UNSPECIFIED if depends_on is None else depends_on.value
    return identity_pb2.DependsOn.ValueType(number)


def _encode_fields(fields: tuple[PodField, ...] | None) -> identity_pb2.PodFields | None:
    if fields is None:
        return None
    return identity_pb2.PodFields(fields=[identity_pb2.PodField.ValueType(field.value) for field in fields])


def _encode_reads(reads: frozenset[NodeColumn | NodeLabel] | None) -> identity_pb2.NodeReads | None:
    if reads is None:
        return None
    numbers = sorted(one.value for one in reads if isinstance(one, NodeColumn))
    return identity_pb2.NodeReads(
        columns=[identity_pb2.NodeColumn.ValueType(number) for number in numbers],
        label_keys=sorted(one.key for one in reads if isinstance(one, NodeLabel)),
    )


def _encode_events(events: tuple[EventInterest, ...] | None) -> list[identity_pb2.EventInterest]:
    if events is None:
        return []  # means any event in the contract
    return [_encode_interest(interest) for interest in events or (_NOTHING,)]


def _encode_interest(interest: EventInterest) -> identity_pb2.EventInterest:
    return identity_pb2.EventInterest(
        resource=interest.resource,
        actions=interest.actions,
        label_selector=interest.label_selector,
        hint=_HINTS[interest.hint],
        profiles=interest.profiles,
    )
