"""The table of the differences between versions of kube-scheduler, and between the newest one and this build.

Without an emulated version, berth decides as kube-scheduler `DEFAULT_VERSION` does, and mends faults of that
version. A host that emulates a version decides as that version does. Each row of `DIFFERENCES` is one
behaviour of plugins, with the first version that has it. A plugin reads a row as a feature gate, from its
arguments. `Emulation` has what the host itself needs of a version: the default plugins, the feature gates,
the events of hints. Read by `loading` and `queue.wiring`. This table is the only place that knows versions.

Source: kube-scheduler v1.36.2, v1.37.2 and v1.38.0-beta.0; kubernetes 139161 and 140831 (mended in 1.37),
141953 (mended in 1.38).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from berth_sdk.events import EventInterest, Hint

from berth_host.config.default_plugins import DEFAULT_PLUGINS, PLACEMENT_FEASIBLE, DefaultPlugin
from berth_host.config.defaulting import PLACEMENTS_TO_SCORE
from berth_host.config.errors import ConfigurationError, FieldErrorType, Finding, nearest
from berth_host.config.gate_tables import (
    KNOWN_GATES,
    KNOWN_GATES_1_36,
    KNOWN_GATES_1_38,
    PART_OF,
    FeatureGate,
    RemovedGate,
)
from berth_host.config.host_rules import RULES_1_36, RULES_1_37, RULES_1_38, HostRules
from berth_host.metrics import families, group_families
from berth_host.metrics.family import Family
from berth_host.metrics.group_families import GROUP_FAMILIES

VERSIONS: Final = ("1.36", "1.37", "1.38")
"""The versions that can be emulated, oldest first."""
DEFAULT_VERSION: Final = "1.37"
"""The version that a host without an emulated version follows. `berth check-config FILE --emulated-version
VERSION --against DEFAULT_VERSION` lists what a change of this constant changes."""
MEND: Final = "mend"
"""In place of a version: no version has the behaviour, this build mends a fault of all of them."""
_ASK: Final = Hint.ASK_PLUGIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A behaviour that not all versions have.

    `since`: the first version with the behaviour, or MEND. `mends`: a host that emulates no version has the
    behaviour, whatever its version. `readers`: the default plugins that are told when the behaviour is off.
    `rule`: the field of HostRules that is False when a behaviour of the host is off; empty for a behaviour of
    plugins. `summary`: the behaviour, for the reference pages. `source`: where it comes from.
    """

    name: str
    since: str
    mends: bool = False
    readers: frozenset[str] = frozenset()
    rule: str = ""
    summary: str
    source: str

    def is_in(self, version: str) -> bool:
        """Return True if `version` of kube-scheduler has the behaviour."""
        return self.since != MEND and VERSIONS.index(self.since) <= VERSIONS.index(version)

    def is_mended(self, version: str) -> bool:
        """Return True if a host that follows `version` without emulating it has the behaviour."""
        return self.mends or self.since == MEND or self.is_in(version)


EXACT_HINTS: Final = "ExactQueueingHints"
_ABSENT_1_37: Final = frozenset({f"plugins.{PLACEMENT_FEASIBLE}", PLACEMENTS_TO_SCORE})
"""The fields that 1.38 added."""

DIFFERENCES: Final[tuple[Difference, ...]] = (
    Difference(
        name="ImageVolumesCountAsImages",
        since="1.37",
        readers=frozenset({"ImageLocality"}),
        summary="The number of image volumes counts in the size that gives the highest score.",
        source="kubernetes 138951",
    ),
    Difference(
        name="AnyAntiAffinityTermHints",
        since="1.37",
        readers=frozenset({"InterPodAffinity"}),
        summary=(
            "A change of a pod that matched one of several anti-affinity terms requeues the pods that "
            "it kept away."
        ),
        source="kubernetes 139161",
    ),
    Difference(
        name="PreemptionNamesPlacement",
        since="1.37",
        readers=frozenset({"DefaultPreemption"}),
        summary="The message of a successful preemption names the node and the number of victims.",
        source="kubernetes 140180",
    ),
    Difference(
        name="SilentDeallocation",
        since="1.37",
        readers=frozenset({"DynamicResources"}),
        summary="PostFilter of DynamicResources gives no reason where it has no claim to deallocate.",
        source="`dynamicresources/dynamicresources.go`, PostFilter",
    ),
    Difference(
        name="StrictDeviceAmounts",
        since="1.37",
        readers=frozenset({"DynamicResources"}),
        summary="A count or an amount of devices that cannot be counted ends the attempt with an error.",
        source="kubernetes 141922, 140161",
    ),
    Difference(
        name="AllDevicesWithoutRoom",
        since="1.37",
        readers=frozenset({"DynamicResources"}),
        summary="A request for all devices needs also those whose capacity is used up.",
        source="`structured/internal/incubating/allocator_incubating.go`, validateDeviceRequest",
    ),
    Difference(
        name="LocalCounterSlices",
        since="1.37",
        readers=frozenset({"DynamicResources"}),
        summary="A ResourceSlice with shared counters counts only for the nodes that it names.",
        source="`structured/internal/incubating/pools_incubating.go`, GatherPools",
    ),
    Difference(
        name="SingleDeviceConfig",
        since="1.37",
        readers=frozenset({"DynamicResources"}),
        summary="A configuration for several requests of a claim is in the allocation once.",
        source="`structured/internal/incubating/allocator_incubating.go`, Allocate",
    ),
    Difference(
        name="ExactNamespaceSelectors",
        since="1.37",
        readers=frozenset({"InterPodAffinity"}),
        summary="The namespace selector of an affinity term selects only the namespaces that it matches.",
        source="`interpodaffinity/plugin.go`, mergeAffinityTermNamespacesIfNotEmpty",
    ),
    Difference(
        name="TotalsOfResizes",
        since="1.37",
        rule="counts_totals_of_resizes",
        summary="A pod that is resized counts with the most of its totals, not of each container.",
        source="kubernetes 140047, 140646",
    ),
    Difference(
        name="BrokenBudgetEndsCount",
        since="1.37",
        rule="ends_count_at_broken_budget",
        summary="A victim that breaks a PodDisruptionBudget does not count in the budgets after it.",
        source="`framework/preemption/util.go`, FilterVictimsWithPDBViolation",
    ),
    Difference(
        name="EmptyBudgetSelectors",
        since="1.38",
        mends=True,
        rule="counts_empty_budgets",
        summary="An empty selector of a PodDisruptionBudget covers every pod of the namespace; pods without"
        " labels count.",
        source="kubernetes 141785",
    ),
    Difference(
        name="EmptySpreadSelectors",
        since="1.38",
        mends=True,
        readers=frozenset({"PodTopologySpread"}),
        summary="An empty `labelSelector` of a topology spread constraint counts every pod of the namespace.",
        source="kubernetes 141340",
    ),
    Difference(
        name="NamespaceLabelsInHints",
        since="1.38",
        mends=True,
        readers=frozenset({"InterPodAffinity"}),
        summary="Hints about pods read the labels of namespaces; a pod of an unknown namespace requeues.",
        source="kubernetes 141953",
    ),
    Difference(
        name="ShrunkNominatedNodes",
        since="1.38",
        readers=frozenset({"NodeResourcesFit"}),
        summary="A nominated node that shrinks below the pod requeues the pod, which may preempt elsewhere.",
        source="`noderesources/fit.go`, isSchedulableAfterNodeChange",
    ),
    Difference(
        name="QuorumOfTrees",
        since="1.38",
        readers=frozenset({"GangScheduling"}),
        summary="The quorum of a tree of pod groups is judged before its members have nodes; no member waits"
        " at Permit.",
        source="`gangscheduling/gangscheduling.go`, `gangscheduling/hierarchy_tracker.go`",
    ),
    Difference(
        name="NamedTopologyDomains",
        since="1.38",
        readers=frozenset({"TopologyPlacementGenerator"}),
        summary="Nodes whose topology label is empty make no domain for a pod group.",
        source="`topologyaware/topology_placement.go`",
    ),
    Difference(
        name="PodGroupTrees",
        since="1.38",
        rule="judges_group_trees",
        summary="Trees of pod groups are checked and have conditions, placements are tried in part, and the"
        " preemption of a group ranks nodes by their victims.",
        source="`algorithm_podgroup.go`, `schedule_one_podgroup.go`, `framework/preemption`",
    ),
    Difference(
        name="PodLevelScores",
        since="1.38",
        rule="scores_pod_level",
        summary="The score of NodeResourcesFit counts what the pod as a whole requests (`spec.resources`).",
        source="`noderesources/fit.go`, getScorer",
    ),
    Difference(
        name="VictimsByUid",
        since="1.38",
        rule="orders_victims_by_uid",
        summary="Of victims with equal priority and start, the one with the smaller UID is more important.",
        source="`framework/preemption/util.go`, podIdentityLess",
    ),
    Difference(
        name="NodesWithoutVictims",
        since="1.38",
        rule="offers_nodes_without_victims",
        summary="Preempting extenders get nodes without victims too; without extenders, such a node is no"
        " error.",
        source="kubernetes 135486",
    ),
    Difference(
        name="PreemptionEndsWithDeletion",
        since="1.38",
        rule="ends_preemption_with_deletion",
        summary="A preemption ends with its last deletion, not when the watch shows that the victims leave.",
        source="`framework/preemption/executor.go`, prepareCandidateAsync",
    ),
    Difference(
        name="AllDevicesByNode",
        since="1.38",
        mends=True,
        readers=frozenset({"DynamicResources"}),
        summary="For a request for all devices, a pool that is updated or invalid excludes its nodes,"
        " and does not end the attempt.",
        source="kubernetes 141898",
    ),
    Difference(
        name="SharesExcludeWholeUse",
        since="1.38",
        mends=True,
        readers=frozenset({"DynamicResources"}),
        summary="A device with a live share is not allocated as a whole after its slice forbade shares.",
        source="kubernetes 140798",
    ),
    Difference(
        name="FullCapacityNames",
        since="1.38",
        mends=True,
        readers=frozenset({"DynamicResources"}),
        summary="A capacity of a device is the same with the name of its driver and without it.",
        source="kubernetes 142202",
    ),
    Difference(
        name="PositiveCapacityRequests",
        since="1.38",
        mends=True,
        readers=frozenset({"DynamicResources"}),
        summary="A request for a negative capacity ends the attempt; the policy rounded it up.",
        source="`structured/internal/incubating/consumable_capacity.go`, calculateConsumedCapacity",
    ),
    Difference(
        name="PositiveStoredShares",
        since="1.38",
        readers=frozenset({"DynamicResources"}),
        summary="A claim with a negative `consumedCapacity` ends the attempts of pods that need devices; it"
        " added room to its device.",
        source="kubernetes 140468",
    ),
    Difference(
        name="VersionsWithoutBuild",
        since="1.38",
        mends=True,
        readers=frozenset({"DynamicResources"}),
        summary="Constraints take versions that differ in their build part as equal.",
        source="`structured/internal/incubating/constraint.go`, matchesAttribute",
    ),
    Difference(
        name="ExactScores",
        since="1.38",
        mends=True,
        readers=frozenset({"NodeResourcesFit"}),
        summary="Scores of amounts that leave int64 when they are added or multiplied are exact.",
        source="`noderesources/requested_to_capacity_ratio.go`, scaledFraction",
    ),
    Difference(
        name="ExactVolumeSizes",
        since="1.38",
        mends=True,
        readers=frozenset({"VolumeBinding"}),
        summary="The size of a claim and a CSIStorageCapacity compare exactly, at 2^63 bytes and more too.",
        source="kubernetes 142088",
    ),
    Difference(
        name="AttachedVolumesCountOnce",
        since=MEND,
        readers=frozenset({"NodeVolumeLimits"}),
        summary="A volume that is still attached to a node counts once, not as attached and as new.",
        source="`nodevolumelimits/csi.go`, Filter",
    ),
    Difference(
        name="LookBeforeBinding",
        since=MEND,
        rule="looks_before_binding",
        summary="A pod whose node others filled after the choice is not bound: it goes back to the queue.",
        source="`schedule_one.go`, bindingCycle",
    ),
    Difference(
        name=EXACT_HINTS,
        since=MEND,
        readers=frozenset(
            {
                "DynamicResources",
                "InterPodAffinity",
                "NodeAffinity",
                "NodeResourcesFit",
                "NodeVolumeLimits",
                "PodTopologySpread",
                "VolumeBinding",
                "VolumeRestrictions",
            }
        ),
        summary="Every change that turns a plugin's Filter from no to yes requeues the pods it rejected.",
        source="kubernetes 139161, 140831, 141953",
    ),
)
"""All rows, oldest version first, mends last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulation:
    """The facts about one version.

    `follows`: the version of kube-scheduler that the host decides like. `version`: the same, empty without
    emulation. `off`: the rows that the host does not have. `plugins`: the default plugins in their order.
    `gates`: all feature gates, by name. `removed_gates`: those that only older versions have. `events`: by
    plugin, the events that the plugin of that version registers for, in place of those of the class. `rules`:
    what the host itself does. `metrics`: by name, the metric families that are described otherwise than in
    `metrics.families`; None: not shown. `absent_fields`: the ends of the paths of fields that the version's
    KubeSchedulerConfiguration does not have.
    """

    follows: str
    version: str = ""
    off: tuple[Difference, ...] = ()
    plugins: tuple[DefaultPlugin, ...] = DEFAULT_PLUGINS
    gates: Mapping[str, FeatureGate] = field(default_factory=lambda: KNOWN_GATES)
    removed_gates: Mapping[str, RemovedGate] = field(default_factory=dict)
    events: Mapping[str, tuple[EventInterest, ...]] = field(default_factory=dict)
    rules: HostRules = RULES_1_37
    metrics: Mapping[str, Family | None] = field(default_factory=lambda: METRICS_1_37)
    absent_fields: frozenset[str] = _ABSENT_1_37

    @property
    def lists_placement_feasible(self) -> bool:
        """True if a profile has a list of plugins for the point placementFeasible."""
        return f"plugins.{PLACEMENT_FEASIBLE}" not in self.absent_fields

    def told_to(self, plugin: str) -> dict[str, bool]:
        """Return the rows that `plugin` reads and that are off, as feature gates."""
        return {row.name: False for row in self.off if plugin in row.readers}


def _without(version: str) -> tuple[Difference, ...]:
    return tuple(row for row in DIFFERENCES if not row.is_in(version))


# Plugins, feature gates, events, rules and metrics: DEFAULT_PLUGINS, KNOWN_GATES, the classes, HostRules and
# `metrics.families` say 1.37's. What follows is what differs in the other versions.

_POINTS_1_36: Final[Mapping[str, frozenset[str]]] = {
    "NodeName": frozenset({"filter"}),
    "NodeUnschedulable": frozenset({"filter"}),
    "TaintToleration": frozenset({"filter", "preScore", "score"}),
    "DynamicResources": frozenset(
        {"preEnqueue", "preFilter", "filter", "postFilter", "score", "reserve", "preBind"}
    ),
    "DefaultPreemption": frozenset({"postFilter", "preEnqueue"}),
    "GangScheduling": frozenset({"preEnqueue", "permit"}),
}
_POINTS_1_38: Final[Mapping[str, frozenset[str]]] = {
    "DefaultPreemption": frozenset({"postFilter", "preEnqueue", "reserve", "podGroupPostFilter"}),
    "GangScheduling": frozenset({"preEnqueue", PLACEMENT_FEASIBLE}),
}
_GATED_POINTS_1_38: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "DefaultPreemption": (("reserve", "GenericWorkload"),),
}
_GATES_OF_PLUGINS_1_36: Final = {"GangScheduling": "GangScheduling"}
_FIRST_1_36: Final = ("SchedulingGates", "PrioritySort", "NodeUnschedulable", "NodeName")
"""The plugins at the top of the default order; the others follow as in 1.37."""
_UNMENDED_EVENTS: Final[Mapping[str, tuple[EventInterest, ...]]] = {
    "VolumeBinding": (
        EventInterest("storage.k8s.io/StorageClass", ("add", "update"), _ASK),
        EventInterest("PersistentVolumeClaim", ("add", "update"), _ASK),
        EventInterest("PersistentVolume", ("add", "update")),
        EventInterest("Node", ("add", "update.labels")),
        EventInterest("storage.k8s.io/CSINode", ("add", "update"), _ASK),
        EventInterest("storage.k8s.io/CSIDriver", ("update",), _ASK),
        EventInterest("storage.k8s.io/CSIStorageCapacity", ("add", "update"), _ASK),
    ),
}
"""The events of both versions for plugins whose hints this build mends."""
_EVENTS_1_37: Final[Mapping[str, tuple[EventInterest, ...]]] = {
    **_UNMENDED_EVENTS,
    "InterPodAffinity": (
        EventInterest("AssignedPod", ("add", "update.labels", "delete"), _ASK),
        EventInterest("TargetPod", ("update.labels",), _ASK),
        EventInterest("Node", ("add", "update.labels"), _ASK),
    ),
    "PodTopologySpread": (
        EventInterest("AssignedPod", ("add", "update.labels", "delete"), _ASK),
        EventInterest("TargetPod", ("update.labels", "update.tolerations"), _ASK),
        EventInterest("Node", ("add", "delete", "update.labels", "update.taints"), _ASK),
    ),
    "VolumeRestrictions": (
        EventInterest("AssignedPod", ("delete",), _ASK),
        EventInterest("Node", ("add",)),
        EventInterest("PersistentVolumeClaim", ("add",), _ASK),
    ),
    "NodeVolumeLimits": (
        EventInterest("storage.k8s.io/CSINode", ("add",)),
        EventInterest("storage.k8s.io/CSINode", ("update",), _ASK),
        EventInterest("AssignedPod", ("delete",), _ASK),
        EventInterest("PersistentVolumeClaim", ("add",), _ASK),
        EventInterest("storage.k8s.io/VolumeAttachment", ("delete",), _ASK),
    ),
    "GangScheduling": (
        EventInterest("UnscheduledPod", ("add",), _ASK),
        EventInterest("AssignedPod", ("add",), _ASK),
        EventInterest("scheduling.k8s.io/PodGroup", ("add", "update"), _ASK),
        EventInterest("scheduling.k8s.io/CompositePodGroup", ("add",), _ASK),
    ),
    "DynamicResources": (
        EventInterest("Node", ("add", "update.labels", "update.allocatable")),
        EventInterest("resource.k8s.io/ResourceClaim", ("add", "update", "delete"), _ASK),
        EventInterest("TargetPod", ("update.generatedResourceClaim",), _ASK),
        EventInterest("resource.k8s.io/DeviceClass", ("add", "update")),
        EventInterest("resource.k8s.io/ResourceSlice", ("add", "update")),
        EventInterest("resource.k8s.io/DeviceTaintRule", ("add", "update", "delete")),
    ),
}
_EVENTS_1_38: Final[Mapping[str, tuple[EventInterest, ...]]] = {
    name: events for name, events in _EVENTS_1_37.items() if name != "GangScheduling"
}
_EVENTS_1_36: Final[Mapping[str, tuple[EventInterest, ...]]] = {
    **_UNMENDED_EVENTS,
    "SchedulingGates": (EventInterest("Pod", ("update.schedulingGates",), _ASK),),
    "NodeUnschedulable": (
        EventInterest("Node", ("add", "update.taints"), _ASK),
        EventInterest("Pod", ("update.tolerations",), _ASK),
    ),
    "TaintToleration": (
        EventInterest("Node", ("add", "update.taints"), _ASK),
        EventInterest("Pod", ("update.tolerations",), _ASK),
    ),
    "NodePorts": (
        EventInterest("Pod", ("delete",), _ASK),
        EventInterest("Node", ("add",)),
    ),
    "NodeResourcesFit": (
        EventInterest("Pod", ("delete", "update.scaleDown"), _ASK),
        EventInterest("Node", ("add", "update.allocatable"), _ASK),
        EventInterest("resource.k8s.io/DeviceClass", ("add", "update"), _ASK),
    ),
    "NodeDeclaredFeatures": (
        EventInterest("Node", ("add", "update.declaredFeatures"), _ASK),
        EventInterest("Pod", ("update",), _ASK),
    ),
    "DefaultPreemption": (EventInterest("Pod", ("delete",), _ASK),),
    "InterPodAffinity": (
        EventInterest("Pod", ("add", "update.labels", "delete"), _ASK),
        EventInterest("Node", ("add", "update.labels"), _ASK),
    ),
    "PodTopologySpread": (
        EventInterest("Pod", ("add", "update.labels", "update.tolerations", "delete"), _ASK),
        EventInterest("Node", ("add", "delete", "update.labels", "update.taints"), _ASK),
    ),
    "VolumeRestrictions": (
        EventInterest("Pod", ("delete",), _ASK),
        EventInterest("PersistentVolumeClaim", ("add",), _ASK),
        EventInterest("Node", ("add",)),
    ),
    "NodeVolumeLimits": (
        EventInterest("storage.k8s.io/CSINode", ("add",)),
        EventInterest("storage.k8s.io/CSINode", ("update",), _ASK),
        EventInterest("Pod", ("delete",), _ASK),
        EventInterest("PersistentVolumeClaim", ("add",), _ASK),
        EventInterest("storage.k8s.io/VolumeAttachment", ("delete",), _ASK),
    ),
    "DynamicResources": (
        EventInterest("Node", ("add", "update.labels", "update.allocatable")),
        EventInterest("resource.k8s.io/ResourceClaim", ("add", "update"), _ASK),
        EventInterest("Pod", ("update.generatedResourceClaim",), _ASK),
        EventInterest("resource.k8s.io/DeviceClass", ("add", "update")),
        EventInterest("resource.k8s.io/ResourceSlice", ("add", "update")),
    ),
}

_LABELS_1_37: Final[Mapping[Family, str]] = {
    families.INCOMING_ENTITIES: "event queue type",
    families.QUEUED_ENTITIES: "queue type",
    group_families.GROUP_ATTEMPTS: "profile result",
    group_families.GROUP_ALGORITHM: "",
    group_families.GROUP_DURATION: "profile result",
    group_families.PREEMPTION_DISRUPTIONS: "preemptor",
    group_families.WORKLOAD_PREEMPTIONS: "result",
    group_families.WORKLOAD_VICTIMS: "",
    group_families.PLACEMENTS: "profile",
    group_families.PLACEMENT_EVALUATIONS: "profile result",
    group_families.PLACEMENT_DURATION: "profile result",
}
"""The labels of families before 1.38."""
METRICS_1_38: Final[Mapping[str, Family | None]] = {families.CLAIM_CREATES_1_36.name: None}
METRICS_1_37: Final[Mapping[str, Family | None]] = {
    **METRICS_1_38,
    **{family.name: replace(family, labels=tuple(labels.split())) for family, labels in _LABELS_1_37.items()},
}
_METRICS_1_36: Final[Mapping[str, Family | None]] = {
    **{name: family for name, family in METRICS_1_37.items() if family is not None},
    **dict.fromkeys(
        family.name
        for family in (
            families.BATCH_RESCORE,
            families.BATCH_RESCORES,
            families.CLAIM_CREATES,
            families.INCOMING_ENTITIES,
            families.PRE_HINTS,
            families.QUEUED_ENTITIES,
            *(family for family in GROUP_FAMILIES if "podgroup" not in family.name),
        )
    ),
    families.ALGORITHM_DURATION.name: replace(families.ALGORITHM_DURATION, stability="ALPHA"),
    families.PLUGIN_EXECUTION.name: replace(families.PLUGIN_EXECUTION, stability="ALPHA"),
    families.PREEMPTION_TASK_DURATION.name: replace(families.PREEMPTION_TASK_DURATION, deprecated_since=""),
}


def _plugins_1_36() -> tuple[DefaultPlugin, ...]:
    by_name = {
        plugin.name: replace(
            plugin,
            points=_POINTS_1_36.get(plugin.name, plugin.points),
            feature_gate=_GATES_OF_PLUGINS_1_36.get(plugin.name, plugin.feature_gate),
        )
        for plugin in DEFAULT_PLUGINS
    }
    first = [by_name.pop(name) for name in _FIRST_1_36]
    return (*first, *by_name.values())


def _plugins_1_38() -> tuple[DefaultPlugin, ...]:
    return tuple(
        replace(
            plugin,
            points=_POINTS_1_38.get(plugin.name, plugin.points),
            gated_points=_GATED_POINTS_1_38.get(plugin.name, ()),
            feature_gate=plugin.feature_gate if plugin.feature_gate in KNOWN_GATES_1_38 else None,
        )
        for plugin in DEFAULT_PLUGINS
    )


def _removed(
    since: str, before: Mapping[str, FeatureGate], after: Mapping[str, FeatureGate]
) -> dict[str, RemovedGate]:
    return {
        name: RemovedGate(since, gate.default, PART_OF.get(name))
        for name, gate in before.items()
        if name not in after
    }


def _ruled(rules: HostRules, off: tuple[Difference, ...]) -> HostRules:
    """Return the rules with the behaviours that are not off."""
    changes: dict[str, Any] = {row.rule: row not in off for row in DIFFERENCES if row.rule}
    return replace(rules, **changes)


EMULATIONS: Final[Mapping[str, Emulation]] = {
    "1.36": Emulation(
        version="1.36",
        follows="1.36",
        off=_without("1.36"),
        plugins=_plugins_1_36(),
        gates=KNOWN_GATES_1_36,
        events=_EVENTS_1_36,
        rules=_ruled(RULES_1_36, _without("1.36")),
        metrics=_METRICS_1_36,
        absent_fields=_ABSENT_1_37 | {"plugins.podGroupPostFilter"},
    ),
    "1.37": Emulation(
        version="1.37",
        follows="1.37",
        off=_without("1.37"),
        removed_gates=_removed("1.37", KNOWN_GATES_1_36, KNOWN_GATES),
        events=_EVENTS_1_37,
        rules=_ruled(RULES_1_37, _without("1.37")),
    ),
    "1.38": Emulation(
        version="1.38",
        follows="1.38",
        off=_without("1.38"),
        plugins=_plugins_1_38(),
        gates=KNOWN_GATES_1_38,
        removed_gates={
            **_removed("1.37", KNOWN_GATES_1_36, KNOWN_GATES),
            **_removed("1.38", KNOWN_GATES, KNOWN_GATES_1_38),
        },
        events=_EVENTS_1_38,
        rules=_ruled(RULES_1_38, _without("1.38")),
        metrics=METRICS_1_38,
        absent_fields=frozenset(),
    ),
}


def without_emulation(version: str) -> Emulation:
    """Return the facts of a host that follows a version and mends its faults."""
    followed = EMULATIONS[version]
    off = tuple(row for row in DIFFERENCES if not row.is_mended(version))
    return replace(followed, version="", off=off, events={}, rules=_ruled(followed.rules, off))


NO_EMULATION: Final = without_emulation(DEFAULT_VERSION)


def emulation_of(version: str, *, source: str) -> Emulation:
    """Return the differences of a version such as `1.36`; of an empty one: none.

    Raises ConfigurationError for a version that is not in the table.
    """
    if not version:
        return NO_EMULATION
    found = EMULATIONS.get(version)
    if found is None:
        known = ", ".join(EMULATIONS)
        finding = Finding(
            f"cannot emulate kube-scheduler {version}: use one of {known}",
            field="emulatedVersion",
            type=FieldErrorType.NOT_SUPPORTED,
            suggestion=nearest(version, EMULATIONS),
        )
        raise ConfigurationError("validation", [finding], source=source)
    return found
