"""Pod groups: the records of PodGroup and CompositePodGroup objects, and what a plugin gets of a group.

The host makes a `PodGroup` once, when it reads the object. The other records belong to one cycle of a group.
Source: `k8s.io/api` scheduling/v1beta1 (PodGroup; CompositePodGroup since 1.38) and v1alpha3
(CompositePodGroup), and kube-scheduler `framework/interface.go` (PodGroupInfo, Placement), v1.37 and v1.38.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from berth_sdk.errors import ObjectError, QuantityError
from berth_sdk.kube_object import KubeObject, ObjectRef, object_ref
from berth_sdk.parsing.object_fields import integer, items, mapping, strings
from berth_sdk.pod import Pod, timestamp
from berth_sdk.quantity import nano_value, resource_units
from berth_sdk.tables import NodeTable

POD_GROUP: Final = "PodGroup"
COMPOSITE_POD_GROUP: Final = "CompositePodGroup"
COSCHEDULING: Final = "PodGroup.scheduling.x-k8s.io"
"""The kind of a PodGroup of scheduler-plugins' coscheduling (`scheduling.x-k8s.io/v1alpha1`)."""
INITIALLY_SCHEDULED: Final = "PodGroupInitiallyScheduled"
"""The type of the condition that the scheduler writes to the status of a PodGroup."""
COMPOSITE_INITIALLY_SCHEDULED: Final = "CompositePodGroupInitiallyScheduled"
"""The type of the condition that the scheduler writes to the status of a CompositePodGroup, since 1.38."""
NEVER: Final = "Never"
_PREEMPT_LOWER: Final = "PreemptLowerPriority"
_COSCHEDULING_GROUP: Final = "scheduling.x-k8s.io/"
_MIN_FIELD: Final = {POD_GROUP: "minCount", COMPOSITE_POD_GROUP: "minGroupCount"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCondition:
    """One condition of a group's status. `observed_generation`: 0 where it is not set."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    observed_generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    """A PodGroup, or a CompositePodGroup, which groups of pods or further composite groups name as parent.

    - `kind`: `PodGroup`, `CompositePodGroup`, or COSCHEDULING for a PodGroup of that API.
    - `generation`: metadata.generation.
    - `created_s`: Unix seconds; None where the object has no creation time.
    - `min_count`: the members (of a CompositePodGroup: the child groups) that a gang needs; 1 for the basic
      policy.
    - `priority`: spec.priority, 0 if unset. `preemption_policy`: PreemptLowerPriority if unset. A PodGroup of
      coscheduling has neither: its members' count. `states_policy`: True if the policy is set.
    - `disrupts_all`: True if preemption evicts all pods of the group or none. `disrupts_single`: True if the
      group says that preemption may evict single pods, which is also the default.
    - `workload_name`: spec.workloadRef.workloadName; "" for none.
    - `topology_key`: the node label of the topology constraint; "" for none.
    - `parent_key`: the key of the CompositePodGroup that this group belongs to; "" for none.
    - `min_resources`, `wait_s`: minResources in the units of `Pod.requests`, and scheduleTimeoutSeconds, of a
      PodGroup of coscheduling. None: not set.
    - `claims`: (name in the spec, ResourceClaim; "" while the claim is not made) of each shared claim.
    - `object`: None where only the record is known.
    """

    kind: str = POD_GROUP
    namespace: str = "default"
    name: str
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    created_s: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    is_gang: bool = False
    min_count: int = 1
    priority: int = 0
    preemption_policy: str = _PREEMPT_LOWER
    states_policy: bool = False
    disrupts_all: bool = False
    disrupts_single: bool = False
    workload_name: str = ""
    topology_key: str = ""
    parent_key: str = ""
    min_resources: Mapping[str, int] | None = None
    wait_s: float | None = None
    claims: tuple[tuple[str, str], ...] = ()
    conditions: tuple[GroupCondition, ...] = ()
    object: KubeObject | None = field(default=None, repr=False, compare=False)
    _key: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # The queue reads the key several times for each member that arrives.
        object.__setattr__(self, "_key", group_key(self.kind, self.namespace, self.name))

    @property
    def key(self) -> str:
        """`podgroup/<namespace>/<name>`; other kinds begin with their own name in small letters."""
        return self._key

    @property
    def ref(self) -> ObjectRef:
        """The reference that the contract and the API use."""
        return object_ref(
            name=self.name, namespace=self.namespace, uid=self.uid, resource_version=self.resource_version
        )

    @property
    def is_composite(self) -> bool:
        """True for a CompositePodGroup."""
        return self.kind == COMPOSITE_POD_GROUP

    @property
    def is_coscheduling(self) -> bool:
        """True for a PodGroup of coscheduling."""
        return self.kind == COSCHEDULING

    @property
    def api_kind(self) -> str:
        """The kind of the API object, as texts and Events name it: `PodGroup` or `CompositePodGroup`."""
        return POD_GROUP if self.is_coscheduling else self.kind

    def priority_among(self, pods: Iterable[Pod]) -> int:
        """Return the group's priority; of a PodGroup of coscheduling, which has none, the highest of `pods`,
        0 without pods.
        """
        if self.is_coscheduling:
            return max((pod.priority for pod in pods), default=0)
        return self.priority

    @property
    def never_preempts(self) -> bool:
        """True if the preemption policy is Never."""
        return self.preemption_policy == NEVER

    @property
    def condition_type(self) -> str:
        """The type of the condition that says whether the group had its places once."""
        return COMPOSITE_INITIALLY_SCHEDULED if self.is_composite else INITIALLY_SCHEDULED

    def condition(self, type: str) -> GroupCondition | None:
        """Return the condition of a type; None if the status has none."""
        return next((one for one in self.conditions if one.type == type), None)

    @staticmethod
    def key_of(kind: str, ref: ObjectRef) -> str:
        """Return the key of the group with this reference."""
        return group_key(kind, ref.namespace or "default", ref.name)

    @staticmethod
    def of(source: KubeObject | Mapping[str, Any]) -> PodGroup:
        """Read a PodGroup or CompositePodGroup (scheduling.k8s.io/v1beta1, v1alpha3) or a PodGroup of
        coscheduling (scheduling.x-k8s.io/v1alpha1).

        Raises ObjectError with the path of a malformed field.
        """
        kube_object = source if isinstance(source, KubeObject) else KubeObject.of(source)
        raw = kube_object.parsed
        kind = kube_object.kind or raw.get("kind") or ""
        if kind not in _MIN_FIELD:
            raise ObjectError("kind", f"{kind!r} is neither {POD_GROUP} nor {COMPOSITE_POD_GROUP}")
        if (kube_object.api_version or raw.get("apiVersion") or "").startswith(_COSCHEDULING_GROUP):
            return _coscheduling(kube_object)
        metadata, spec, status = mapping(raw, "metadata"), mapping(raw, "spec"), mapping(raw, "status")
        namespace = _text(metadata, "metadata", "namespace") or "default"
        parent = _text(spec, "spec", "parentCompositePodGroupName")
        is_gang, min_count = _policy(kind, spec)
        constraints = items(mapping(spec, "schedulingConstraints"), "topology")
        return PodGroup(
            kind=kind,
            namespace=namespace,
            name=_text(metadata, "metadata", "name"),
            uid=_text(metadata, "metadata", "uid"),
            resource_version=_text(metadata, "metadata", "resourceVersion"),
            generation=integer(metadata.get("generation"), "metadata.generation"),
            created_s=timestamp(metadata.get("creationTimestamp")),
            labels=strings(metadata, "metadata", "labels"),
            annotations=strings(metadata, "metadata", "annotations"),
            is_gang=is_gang,
            min_count=min_count,
            priority=integer(spec.get("priority"), "spec.priority"),
            preemption_policy=_text(spec, "spec", "preemptionPolicy") or _PREEMPT_LOWER,
            states_policy=spec.get("preemptionPolicy") is not None,
            disrupts_all=mapping(spec, "disruptionMode").get("all") is not None,
            disrupts_single=mapping(spec, "disruptionMode").get("single") is not None,
            workload_name=_text(mapping(spec, "workloadRef"), "spec.workloadRef", "workloadName"),
            topology_key=_text(constraints[0], "spec.schedulingConstraints.topology[0]", "key")
            if constraints
            else "",
            parent_key=group_key(COMPOSITE_POD_GROUP, namespace, parent) if parent else "",
            claims=_claims(spec, status),
            conditions=tuple(_condition(one) for one in items(status, "conditions")),
            object=kube_object,
        )


def group_key(kind: str, namespace: str, name: str) -> str:
    """Return the key of a group.

    >>> group_key("PodGroup", "default", "train")
    'podgroup/default/train'
    """
    return f"{kind.lower()}/{namespace}/{name}"


@dataclass(frozen=True, slots=True)
class Placement:
    """Nodes on which a group may be placed as a whole. `name`: the value of the topology label, or "" for all
    nodes.
    """

    name: str
    nodes: NodeTable


@dataclass(frozen=True, slots=True)
class PlacementProgress:
    """The progress of a group's cycle. `remaining`: members (or child groups) that were not tried yet;
    `scheduled`: those that have a node, bound ones included. `unschedulable`: those that this trial found no
    node for.
    """

    remaining: int
    scheduled: int
    unschedulable: int = 0


@dataclass(frozen=True, slots=True)
class Assignment:
    """A node that a group's cycle chose for a member."""

    pod: Pod
    node_name: str


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group as a cycle sees it.

    - `pods`: the members to place, in the order in which the cycle tries them.
    - `scheduled`: the members that have a node already.
    - `children`: the child groups of a CompositePodGroup, by creation time and name.
    """

    group: PodGroup
    pods: tuple[Pod, ...] = ()
    scheduled: tuple[Pod, ...] = ()
    children: tuple[GroupView, ...] = ()

    @property
    def priority(self) -> int:
        """The group's priority; of a PodGroup of coscheduling the highest one of `pods`."""
        return self.group.priority_among(self.pods)


class GroupMembers(Protocol):
    """The members of one group now, by uid. A plugin must not change them.

    `all`: every member, also gated, waiting and terminating ones. `assumed`: members that have a node for
    which the watch has not shown the binding yet. `assigned`: bound members.
    """

    @property
    def all(self) -> Mapping[str, Pod]:
        """Every member."""
        ...

    @property
    def unscheduled(self) -> Mapping[str, Pod]:
        """The members without a node."""
        ...

    @property
    def assumed(self) -> Mapping[str, Pod]:
        """The members with a node whose binding is not known yet."""
        ...

    @property
    def assigned(self) -> Mapping[str, Pod]:
        """The bound members."""
        ...

    @property
    def scheduled_count(self) -> int:
        """The number of assumed and assigned members."""
        ...


class PodGroupReader(Protocol):
    """Groups and their members as the host knows them now (`Handle.pod_groups`). Keys: see `PodGroup.key`."""

    def object(self, key: str) -> PodGroup | None:
        """Return the object of a group; None if there is none."""
        ...

    def state(self, key: str) -> GroupMembers | None:
        """Return the members of a group; None if there is neither a member nor an object."""
        ...

    def root(self, key: str) -> PodGroup | None:
        """Return the group at the top of a group's tree, which is the group itself if it has no parent.

        None while the object of one of the groups is missing.
        """
        ...

    def children(self, key: str) -> Sequence[PodGroup]:
        """Return the child groups of a CompositePodGroup, by creation time, then name."""
        ...


@dataclass(slots=True)
class LiveMembers:
    """Implements `GroupMembers`: the members of one group by uid."""

    all: dict[str, Pod] = field(default_factory=dict)
    unscheduled: dict[str, Pod] = field(default_factory=dict)
    assumed: dict[str, Pod] = field(default_factory=dict)
    assigned: dict[str, Pod] = field(default_factory=dict)

    @property
    def scheduled_count(self) -> int:
        """The number of assumed and assigned members."""
        return len(self.assumed) + len(self.assigned)

    def put(self, pod: Pod, *, is_assumed: bool = False) -> None:
        """Add or replace a member. A pod with a node counts as bound, unless it `is_assumed`."""
        self.remove(pod.uid)
        self.all[pod.uid] = pod
        if not pod.node_name:
            self.unscheduled[pod.uid] = pod
        elif is_assumed:
            self.assumed[pod.uid] = pod
        else:
            self.assigned[pod.uid] = pod

    def remove(self, uid: str) -> None:
        """Remove a member, if it is there."""
        for part in (self.all, self.unscheduled, self.assumed, self.assigned):
            part.pop(uid, None)


@dataclass(frozen=True, slots=True)
class LiveGroup:
    """One group as the host knows it at one moment. `children`: the keys of its child groups, in order.

    `group` None: there is no object. `members` None: there is no member either.
    """

    group: PodGroup | None
    members: LiveMembers | None
    children: tuple[str, ...] = ()


def _text(parent: Mapping[str, Any], path: str, key: str) -> str:
    value = parent.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ObjectError(f"{path}.{key}", f"must be a string, not {type(value).__name__}")
    return value


def _policy(kind: str, spec: Mapping[str, Any]) -> tuple[bool, int]:
    """Return (True, the minimum) of a gang, and (False, 1) of the basic policy."""
    policy = mapping(spec, "schedulingPolicy")
    if policy.get("gang") is None:
        return False, 1
    name = _MIN_FIELD[kind]
    return True, integer(mapping(policy, "gang").get(name), f"spec.schedulingPolicy.gang.{name}")


def _claims(spec: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    made = {one.get("name"): one.get("resourceClaimName") for one in items(status, "resourceClaimStatuses")}
    return tuple(
        (
            _text(one, f"spec.resourceClaims[{at}]", "name"),
            one.get("resourceClaimName") or made.get(one.get("name")) or "",
        )
        for at, one in enumerate(items(spec, "resourceClaims"))
    )


def _condition(one: Mapping[str, Any]) -> GroupCondition:
    return GroupCondition(
        type=_text(one, "status.conditions", "type"),
        status=_text(one, "status.conditions", "status"),
        reason=_text(one, "status.conditions", "reason"),
        message=_text(one, "status.conditions", "message"),
        observed_generation=integer(one.get("observedGeneration"), "status.conditions.observedGeneration"),
    )


def _coscheduling(kube_object: KubeObject) -> PodGroup:
    raw = kube_object.parsed
    metadata, spec = mapping(raw, "metadata"), mapping(raw, "spec")
    min_member = integer(spec.get("minMember"), "spec.minMember")
    wait_s = spec.get("scheduleTimeoutSeconds")
    return PodGroup(
        kind=COSCHEDULING,
        namespace=_text(metadata, "metadata", "namespace") or "default",
        name=_text(metadata, "metadata", "name"),
        uid=_text(metadata, "metadata", "uid"),
        resource_version=_text(metadata, "metadata", "resourceVersion"),
        generation=integer(metadata.get("generation"), "metadata.generation"),
        created_s=timestamp(metadata.get("creationTimestamp")),
        labels=strings(metadata, "metadata", "labels"),
        annotations=strings(metadata, "metadata", "annotations"),
        is_gang=min_member > 0,
        min_count=max(min_member, 1),
        min_resources=_min_resources(spec),
        wait_s=None if wait_s is None else float(integer(wait_s, "spec.scheduleTimeoutSeconds")),
        object=kube_object,
    )


def _min_resources(spec: Mapping[str, Any]) -> Mapping[str, int] | None:
    if spec.get("minResources") is None:
        return None
    found: dict[str, int] = {}
    for resource, amount in mapping(spec, "minResources").items():
        try:
            found[resource] = resource_units(resource, nano_value(amount))
        except QuantityError as err:
            raise ObjectError(f"spec.minResources.{resource}", str(err)) from err
    return found
