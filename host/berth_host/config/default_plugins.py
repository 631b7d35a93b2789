"""The one table of default plugins: their points, their weights, their arguments.

Read by the configuration (default profile, argument kinds) and by `simulate` (to tell which of them this
build has). The plugins themselves are in `berth_plugins`, and their classes name the events that may help
the pods that they reject.

The table is of kube-scheduler 1.37; `emulation` has what differs in older versions.

Source: kube-scheduler v1.37 `pkg/scheduler/apis/config/v1/default_plugins.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from berth_sdk.extension_points import ExtensionPoint

LISTED_POINTS: Final = tuple(point for point in ExtensionPoint if point.assembled)
"""The points with a list in KubeSchedulerConfiguration, in the contract's order."""
POINT_INTERFACES: Final[Mapping[str, str]] = {
    point.config_name: f"{point.kube_name}Plugin"
    for point in sorted(LISTED_POINTS, key=lambda point: point.assembled)
}
"""Every extension point as KubeSchedulerConfiguration spells it, with the name that kube-scheduler's
messages use for it. The order is the one in which a profile is assembled, so the first error agrees."""

MULTI_POINT: Final = "multiPoint"
"""The list whose plugins take part at all their points."""
EXTENSION_POINTS: Final[tuple[str, ...]] = tuple(POINT_INTERFACES)

PLACEMENT_FEASIBLE: Final = ExtensionPoint.PLACEMENT_FEASIBLE.config_name
"""The point for which KubeSchedulerConfiguration has a list since 1.38. Before, a plugin that has the point
takes part in it if the profile enables the plugin at multiPoint or at another point. In kube-scheduler,
GangScheduling alone does.
"""

EXTENDER: Final = "Extender"
"""The name under which a pod counts as rejected by extenders. No plugin has this name beside extenders.
Source: kube-scheduler `framework/interface.go` (ExtenderName), v1.36.
"""

WEIGHTED_POINTS: Final[Mapping[str, str]] = {
    point.part_of.config_name: point.part_of.name.lower().replace("_", " ")
    for point in ExtensionPoint
    if point.part_of is not None
}
"""The points at which a plugin has a weight, with the name in kube-scheduler's messages about weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultPlugin:
    """One plugin of kube-scheduler's own registry.

    `points` are spelled as in KubeSchedulerConfiguration. `weight` is the one in the default profile,
    0 where none is listed (a score plugin then counts 1). `args_kind` names its argument type, None if
    it takes none. `feature_gate`: it belongs to the default profile only while that gate is on.
    `reads_gates`: gates that change its behaviour; it gets the ones that are not at their default.
    `gated_points`: by point, the gate without which the default profile disables the plugin there.
    `narrows`: the kinds of objects whose events kube-scheduler narrows to the pods that the plugin names.
    """

    name: str
    points: frozenset[str]
    weight: int = 0
    args_kind: str | None = None
    feature_gate: str | None = None
    reads_gates: tuple[str, ...] = ()
    gated_points: tuple[tuple[str, str], ...] = ()
    narrows: tuple[str, ...] = ()


FIT: Final = "NodeResourcesFit"
"""The plugin whose arguments say which resources others count, as KubeSchedulerConfiguration's types say."""
DEFAULT_PLUGINS: Final[tuple[DefaultPlugin, ...]] = (
    DefaultPlugin(name="SchedulingGates", points=frozenset({"preEnqueue"})),
    DefaultPlugin(name="PrioritySort", points=frozenset({"queueSort"})),
    DefaultPlugin(name="NodeName", points=frozenset({"preFilter", "filter"})),
    DefaultPlugin(name="NodeUnschedulable", points=frozenset({"preFilter", "filter"})),
    DefaultPlugin(
        name="TaintToleration",
        points=frozenset({"preFilter", "filter", "preScore", "score"}),
        weight=3,
        reads_gates=("TaintTolerationComparisonOperators",),
    ),
    DefaultPlugin(
        name="NodeAffinity",
        points=frozenset({"preFilter", "filter", "preScore", "score"}),
        weight=2,
        args_kind="NodeAffinityArgs",
    ),
    DefaultPlugin(name="NodePorts", points=frozenset({"preFilter", "filter"})),
    DefaultPlugin(
        name=FIT,
        points=frozenset({"preFilter", "filter", "preScore", "score", "placementScore"}),
        weight=1,
        args_kind="NodeResourcesFitArgs",
    ),
    DefaultPlugin(name="VolumeRestrictions", points=frozenset({"preFilter", "filter"})),
    DefaultPlugin(
        name="NodeVolumeLimits",
        points=frozenset({"preFilter", "filter"}),
        reads_gates=("VolumeLimitScaling",),
    ),
    DefaultPlugin(
        name="VolumeBinding",
        points=frozenset({"preFilter", "filter", "preScore", "score", "reserve", "preBind"}),
        args_kind="VolumeBindingArgs",
        reads_gates=("StorageCapacityScoring",),
    ),
    DefaultPlugin(name="VolumeZone", points=frozenset({"preFilter", "filter"})),
    DefaultPlugin(
        name="PodTopologySpread",
        points=frozenset({"preFilter", "filter", "preScore", "score"}),
        weight=2,
        args_kind="PodTopologySpreadArgs",
        reads_gates=(
            "MatchLabelKeysInPodTopologySpread",
            "TaintTolerationComparisonOperators",
        ),
    ),
    DefaultPlugin(
        name="InterPodAffinity",
        points=frozenset({"preFilter", "filter", "preScore", "score"}),
        weight=2,
        args_kind="InterPodAffinityArgs",
    ),
    DefaultPlugin(
        name="DynamicResources",
        points=frozenset(
            {
                *("preEnqueue", "preFilter", "filter", "postFilter", "podGroupPostFilter"),
                *("score", "reserve", "preBind"),
            }
        ),
        weight=2,
        args_kind="DynamicResourcesArgs",
        feature_gate="DynamicResourceAllocation",
        reads_gates=(
            "DRADeviceBindingConditions",
            "DRADeviceTaintRules",
            "DRAFractionalCapacityRange",
            "DRAResourceClaimDeviceStatus",
            "DRASchedulerFilterTimeout",
            "DRAWorkloadResourceClaims",
            "TopologyAwareWorkloadScheduling",
        ),
        narrows=("resource.k8s.io/ResourceClaim",),
    ),
    DefaultPlugin(
        name="DefaultPreemption",
        points=frozenset({"postFilter", "preEnqueue", "podGroupPostFilter"}),
        args_kind="DefaultPreemptionArgs",
    ),
    DefaultPlugin(
        name="NodeResourcesBalancedAllocation",
        points=frozenset({"preScore", "score"}),
        weight=1,
        args_kind="NodeResourcesBalancedAllocationArgs",
    ),
    DefaultPlugin(name="ImageLocality", points=frozenset({"score"}), weight=1),
    DefaultPlugin(name="DefaultBinder", points=frozenset({"bind"})),
    DefaultPlugin(
        name="NodeDeclaredFeatures",
        points=frozenset({"preFilter", "filter"}),
        feature_gate="NodeDeclaredFeatures",
    ),
    DefaultPlugin(
        name="GangScheduling",
        points=frozenset({"preEnqueue", "permit", "placementFeasible"}),
        args_kind="GangSchedulingArgs",
        feature_gate="GenericWorkload",
        reads_gates=("CompositePodGroup",),
    ),
    DefaultPlugin(
        name="TopologyPlacementGenerator",
        points=frozenset({"placementGenerate"}),
        feature_gate="TopologyAwareWorkloadScheduling",
    ),
    DefaultPlugin(
        name="PodGroupPodsCount",
        points=frozenset({"placementScore"}),
        weight=1,
        feature_gate="TopologyAwareWorkloadScheduling",
    ),
)
"""All default plugins in multiPoint order, which is the order in which they run."""

DEFAULT_PLUGINS_BY_NAME: Final[Mapping[str, DefaultPlugin]] = {
    plugin.name: plugin for plugin in DEFAULT_PLUGINS
}

ARGS_KINDS: Final[frozenset[str]] = frozenset(
    plugin.args_kind for plugin in DEFAULT_PLUGINS if plugin.args_kind is not None
)
"""The argument types that are decoded and checked; other plugins' arguments are passed on as they are."""
