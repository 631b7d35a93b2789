"""Groups of pods, assignments and trials: records of the SDK <-> messages of the contract.

Source: the contract's common.proto and scheduling.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from berth_sdk.cycle_state import TrialRef
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import handle_pb2
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from berth_sdk.pod import Pod
from berth_sdk.pod_group import (
    COMPOSITE_POD_GROUP,
    COSCHEDULING,
    POD_GROUP,
    Assignment,
    GroupCondition,
    GroupView,
    LiveGroup,
    LiveMembers,
    PodGroup,
    PodGroupReader,
    group_key,
)
from berth_sdk.wire import records as wire

_PREEMPTS = "PreemptLowerPriority"
_KINDS_OF_PODS = {kind.lower(): kind for kind in (POD_GROUP, COSCHEDULING)}
"""The kinds of groups that have pods, as keys of groups spell them."""


def encode_pod_group(group: PodGroup) -> pb.PodGroupSummary:
    """Return a group as a message, without its object."""
    message = pb.PodGroupSummary(
        kind=group.kind,
        ref=wire.encode_ref(group.ref),
        generation=group.generation,
        labels=group.labels,
        annotations=group.annotations,
        gang=group.is_gang,
        min_count=group.min_count,
        priority=group.priority,
        preemption_policy=group.preemption_policy,
        disrupts_all=group.disrupts_all,
        topology_key=group.topology_key,
        parent=group.parent_key.rpartition("/")[2],
        claims=[pb.PodGroupClaim(name=name, resource_claim=claim) for name, claim in group.claims],
        conditions=[
            pb.PodGroupCondition(
                type=one.type,
                status=one.status,
                reason=one.reason,
                message=one.message,
                observed_generation=one.observed_generation,
            )
            for one in group.conditions
        ],
    )
    if group.created_s is not None:
        message.created_at.CopyFrom(wire.encode_time(group.created_s))
    if group.min_resources is not None:
        message.min_resources.CopyFrom(pb.PodGroupResources(amounts=group.min_resources))
    if group.wait_s is not None:
        message.schedule_timeout.CopyFrom(wire.encode_duration(group.wait_s))
    return message


def decode_pod_group(message: pb.PodGroupSummary, item: pb.KubeObject | None = None) -> PodGroup:
    """Return a group. `item`: its object; None: it was not sent."""
    namespace = message.ref.namespace
    return PodGroup(
        kind=message.kind or POD_GROUP,
        namespace=namespace,
        name=message.ref.name,
        uid=message.ref.uid,
        resource_version=message.ref.resource_version,
        generation=message.generation,
        created_s=wire.decode_time(message.created_at) if message.HasField("created_at") else None,
        labels=wire.plain(message.labels),
        annotations=wire.plain(message.annotations),
        is_gang=message.gang,
        min_count=message.min_count or 1,
        priority=message.priority,
        preemption_policy=message.preemption_policy or _PREEMPTS,
        disrupts_all=message.disrupts_all,
        topology_key=message.topology_key,
        parent_key=group_key(COMPOSITE_POD_GROUP, namespace, message.parent) if message.parent else "",
        min_resources=(
            wire.plain(message.min_resources.amounts) if message.HasField("min_resources") else None
        ),
        wait_s=(
            message.schedule_timeout.ToNanoseconds() / 1e9 if message.HasField("schedule_timeout") else None
        ),
        claims=tuple((claim.name, claim.resource_claim) for claim in message.claims),
        conditions=tuple(
            GroupCondition(
                type=one.type,
                status=one.status,
                reason=one.reason,
                message=one.message,
                observed_generation=one.observed_generation,
            )
            for one in message.conditions
        ),
        object=None if item is None else wire.decode_object(item),
    )


def encode_group(group: GroupView, *, whole: bool) -> pb.CycleGroup:
    """Return the complete group of a cycle. `whole`: with the objects of the group and of its pods."""
    message = pb.CycleGroup(
        summary=encode_pod_group(group.group),
        pods=[
            pb.CyclePod(summary=wire.encode_pod(pod), object=_object(pod, whole), complete=True)
            for pod in group.pods
        ],
        scheduled=[
            pb.PodState(pod=wire.encode_pod(pod), node_name=pod.node_name, object=_object(pod, whole))
            for pod in group.scheduled
        ],
        children=[encode_group(child, whole=whole) for child in group.children],
        complete=True,
    )
    if whole and group.group.object is not None:
        message.object.CopyFrom(wire.encode_object(group.group.object))
    return message


def decode_group(message: pb.CycleGroup) -> GroupView:
    """Return the group of a cycle. `message`: a complete one."""
    return GroupView(
        decode_pod_group(message.summary, message.object if message.HasField("object") else None),
        tuple(wire.decode_pod(pod.summary, item=_item(pod)) for pod in message.pods),
        tuple(
            wire.decode_pod(state.pod, node_name=state.node_name, item=_item(state))
            for state in message.scheduled
        ),
        tuple(decode_group(child) for child in message.children),
    )


def encode_live_group(
    groups: PodGroupReader, key: str, *, with_objects: bool
) -> handle_pb2.ReadPodGroupResponse:
    """Return one group as the host knows it now. `with_objects`: with the objects of the members."""
    group, members = groups.object(key), groups.state(key)
    message = handle_pb2.ReadPodGroupResponse(
        known=members is not None, child_keys=[child.key for child in groups.children(key)]
    )
    if group is not None:
        message.summary.CopyFrom(encode_pod_group(group))
    if members is not None:
        for pod in sorted(members.all.values(), key=lambda pod: pod.name):
            state = message.members.add(node_name=pod.node_name, assumed=pod.uid in members.assumed)
            state.pod.CopyFrom(wire.encode_pod(pod))
            if with_objects and pod.object is not None:
                state.object.CopyFrom(wire.encode_object(pod.object))
    return message


def decode_live_group(message: handle_pb2.ReadPodGroupResponse) -> LiveGroup:
    """Return what `encode_live_group` wrote."""
    members = LiveMembers() if message.known else None
    if members is not None:
        for state in message.members:
            pod = wire.decode_pod(state.pod, node_name=state.node_name, item=_item(state))
            members.put(pod, is_assumed=state.assumed)
    group = decode_pod_group(message.summary) if message.HasField("summary") else None
    return LiveGroup(group, members, tuple(message.child_keys))


def members_of(group: GroupView) -> dict[str, Pod]:
    """Return the pods to place of a group and of the groups in it, by uid."""
    found = {pod.uid: pod for pod in group.pods}
    for child in group.children:
        found.update(members_of(child))
    return found


def encode_assignments(assignments: Iterable[Assignment]) -> list[spb.PlacementAssignment]:
    """Return nodes of pods as messages."""
    return [
        spb.PlacementAssignment(pod=_bare_ref(one.pod.ref), node_name=one.node_name) for one in assignments
    ]


def decode_assignments(
    messages: Sequence[spb.PlacementAssignment], members: Mapping[str, Pod]
) -> tuple[Assignment, ...]:
    """Return nodes of pods. A pod that is not in `members` (by uid) has nothing but its ref."""
    return tuple(
        Assignment(
            members.get(one.pod.uid) or Pod(name=one.pod.name, namespace=one.pod.namespace, uid=one.pod.uid),
            one.node_name,
        )
        for one in messages
    )


def encode_trial(trial: TrialRef) -> spb.ReservationTrial:
    """Return the trial of a reservation as a message."""
    kind, namespace, name = trial.group.split("/", 2)
    return spb.ReservationTrial(
        group=pb.ObjectRef(namespace=namespace, name=name),
        placement=trial.placement,
        number=trial.number,
        tentative=trial.tentative,
        group_kind=_KINDS_OF_PODS[kind],
    )


def decode_trial(message: spb.ReservationTrial) -> TrialRef:
    """Return the trial of a reservation."""
    group = message.group
    return TrialRef(
        group_key(message.group_kind or POD_GROUP, group.namespace, group.name),
        message.placement,
        message.number,
        message.tentative,
    )


def _bare_ref(ref: ObjectRef) -> pb.ObjectRef:
    return pb.ObjectRef(namespace=ref.namespace, name=ref.name, uid=ref.uid)


def _object(pod: Pod, whole: bool) -> pb.KubeObject | None:
    return wire.encode_object(pod.object) if whole and pod.object is not None else None


def _item(message: pb.CyclePod | pb.PodState) -> KubeObject | None:
    return wire.decode_object(message.object) if message.HasField("object") else None
