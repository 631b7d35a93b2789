"""The one table of default plugins: their points, their weights, the events that wake the pods they reject.

Read by the configuration (default profile, argument kinds), by the queue (registered events) and by
`simulate` (which of them this build has). Facts only: the plugins themselves live in `berth_plugins`.

Source: kube-scheduler v1.36 `pkg/scheduler/apis/config/v1/default_plugins.go`, and each plugin's
`EventsToRegister` under `pkg/scheduler/framework/plugins`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

POINT_INTERFACES: Final[Mapping[str, str]] = {
    "preFilter": "PreFilterPlugin",
    "filter": "FilterPlugin",
    "postFilter": "PostFilterPlugin",
    "reserve": "ReservePlugin",
    "preScore": "PreScorePlugin",
    "score": "ScorePlugin",
    "preBind": "PreBindPlugin",
    "bind": "BindPlugin",
    "postBind": "PostBindPlugin",
    "permit": "PermitPlugin",
    "preEnqueue": "PreEnqueuePlugin",
    "queueSort": "QueueSortPlugin",
    "placementGenerate": "PlacementGeneratePlugin",
    "placementScore": "PlacementScorePlugin",
}
"""Every extension point as KubeSchedulerConfiguration spells it, with the name that kube-scheduler's
messages use for it. The order is the one in which a profile is assembled, so the first error agrees."""

EXTENSION_POINTS: Final[tuple[str, ...]] = tuple(POINT_INTERFACES)

WEIGHTED_POINTS: Final[frozenset[str]] = frozenset({"score", "placementScore"})
"""The points at which a plugin has a weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRegistration:
    """Changes of one resource that may make a rejected pod schedulable.

    `actions` are the words of the contract (`add`, `update.labels`, ...); `update` is a change of any
    kind. `has_hint`: the plugin's hint function decides, otherwise every such event requeues the pod.
    """

    resource: str
    actions: tuple[str, ...]
    has_hint: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultPlugin:
    """One plugin of kube-scheduler's own registry.

    `points` are spelled as in KubeSchedulerConfiguration. `weight` is the one in the default profile,
    0 where none is listed (a score plugin then counts 1). `args_kind` names its argument type, None if
    it takes none. `feature_gate`: it belongs to the default profile only while that gate is on.
    `reads_gates`: gates that change its behaviour; it gets the ones that are not at their default.
    """

    name: str
    points: frozenset[str]
    weight: int = 0
    args_kind: str | None = None
    events: tuple[EventRegistration, ...] = ()
    feature_gate: str | None = None
    reads_gates: tuple[str, ...] = ()


def _hint(resource: str, *actions: str) -> EventRegistration:
    return EventRegistration(resource=resource, actions=actions, has_hint=True)


def _always(resource: str, *actions: str) -> EventRegistration:
    return EventRegistration(resource=resource, actions=actions, has_hint=False)


# kube-scheduler registers every plugin that waits for new nodes for node taints as well, without a
# hint: a node may be added tainted and untainted later (framework/interface.go, EnqueueExtensions).
_TAINTS_OF_NEW_NODES: Final = _always("Node", "update.taints")

_CSI_NODE: Final = "storage.k8s.io/CSINode"
_CSI_DRIVER: Final = "storage.k8s.io/CSIDriver"
_CSI_CAPACITY: Final = "storage.k8s.io/CSIStorageCapacity"
_STORAGE_CLASS: Final = "storage.k8s.io/StorageClass"
_ATTACHMENT: Final = "storage.k8s.io/VolumeAttachment"
_CLAIM: Final = "resource.k8s.io/ResourceClaim"
_SLICE: Final = "resource.k8s.io/ResourceSlice"
_DEVICE_CLASS: Final = "resource.k8s.io/DeviceClass"
_PVC: Final = "PersistentVolumeClaim"
_PV: Final = "PersistentVolume"

DEFAULT_PLUGINS: Final[tuple[DefaultPlugin, ...]] = (
    DefaultPlugin(
        name="SchedulingGates",
        points=frozenset({"preEnqueue"}),
        events=(_hint("Pod", "update.schedulingGates"),),
    ),
    DefaultPlugin(name="PrioritySort", points=frozenset({"queueSort"})),
    DefaultPlugin(
        name="NodeUnschedulable",
        points=frozenset({"filter"}),
        events=(_hint("Node", "add", "update.taints"), _hint("Pod", "update.tolerations")),
    ),
    DefaultPlugin(
        name="NodeName",
        points=frozenset({"filter"}),
        events=(_always("Node", "add"), _TAINTS_OF_NEW_NODES),
    ),
    DefaultPlugin(
        name="TaintToleration",
        points=frozenset({"filter", "preScore", "score"}),
        weight=3,
        reads_gates=("TaintTolerationComparisonOperators",),
        events=(_hint("Node", "add", "update.taints"), _hint("Pod", "update.tolerations")),
    ),
    DefaultPlugin(
        name="NodeAffinity",
        points=frozenset({"preFilter", "filter", "preScore", "score"}),
        weight=2,
        args_kind="NodeAffinityArgs",
        events=(_hint("Node", "add", "update.labels"), _TAINTS_OF_NEW_NODES),
    ),
    DefaultPlugin(
        name="NodePorts",
        points=frozenset({"preFilter", "filter"}),
        events=(_hint("Pod", "delete"), _always("Node", "add"), _TAINTS_OF_NEW_NODES),
    ),
    DefaultPlugin(
        name="NodeResourcesFit",
        points=frozenset({"preFilter", "filter", "preScore", "score", "placementScore"}),
        weight=1,
        args_kind="NodeResourcesFitArgs",
        events=(
            _hint("Pod", "delete", "update.scaleDown"),
            _hint("Node", "add", "update.allocatable"),
            _hint(_DEVICE_CLASS, "add", "update"),
            _TAINTS_OF_NEW_NODES,
        ),
    ),
    DefaultPlugin(
        name="VolumeRestrictions",
        points=frozenset({"preFilter", "filter"}),
        events=(
            _hint("Pod", "delete"),
            _hint(_PVC, "add"),
            _always("Node", "add"),
            _TAINTS_OF_NEW_NODES,
        ),
    ),
    DefaultPlugin(
        name="NodeVolumeLimits",
        points=frozenset({"preFilter", "filter"}),
        events=(
            _always(_CSI_NODE, "add"),
            _hint(_CSI_NODE, "update"),
            _hint("Pod", "delete"),
            _hint(_PVC, "add"),
            _hint(_ATTACHMENT, "delete"),
        ),
    ),
    DefaultPlugin(
        name="VolumeBinding",
        points=frozenset({"preFilter", "filter", "preScore", "score", "reserve", "preBind"}),
        args_kind="VolumeBindingArgs",
        events=(
            _hint(_STORAGE_CLASS, "add", "update"),
            _hint(_PVC, "add", "update"),
            _always(_PV, "add", "update"),
            _always("Node", "add", "update.labels"),
            _hint(_CSI_NODE, "add", "update"),
            _hint(_CSI_DRIVER, "update"),
            _hint(_CSI_CAPACITY, "add", "update"),
            _TAINTS_OF_NEW_NODES,
        ),
    ),
    DefaultPlugin(
        name="VolumeZone",
        points=frozenset({"preFilter", "filter"}),
        events=(
            _hint(_STORAGE_CLASS, "add"),
            _always("Node", "add", "update.labels"),
            _hint(_PVC, "add", "update"),
            _hint(_PV, "add", "update"),
            _TAINTS_OF_NEW_NODES,
        ),
    ),
    DefaultPlugin(
        name="PodTopologySpread",
        points=frozenset({"preFilter", "filter", "preScore", "score"}),
        weight=2,
        args_kind="PodTopologySpreadArgs",
        reads_gates=(
            "MatchLabelKeysInPodTopologySpread",
            "TaintTolerationComparisonOperators",
        ),
        events=(
            _hint("Pod", "add", "update.labels", "update.tolerations", "delete"),
            _hint("Node", "add", "delete", "update.labels", "update.taints"),
        ),
    ),
    DefaultPlugin(
        name="InterPodAffinity",
        points=frozenset({"preFilter", "filter", "preScore", "score"}),
        weight=2,
        args_kind="InterPodAffinityArgs",
        events=(
            _hint("Pod", "add", "update.labels", "delete"),
            _hint("Node", "add", "update.labels"),
            _TAINTS_OF_NEW_NODES,
        ),
    ),
    DefaultPlugin(
        name="DynamicResources",
        points=frozenset({"preEnqueue", "preFilter", "filter", "postFilter", "score", "reserve", "preBind"}),
        weight=2,
        args_kind="DynamicResourcesArgs",
        events=(
            _always("Node", "add", "update.labels", "update.allocatable"),
            _hint(_CLAIM, "add", "update"),
            _hint("Pod", "update.generatedResourceClaim"),
            _always(_DEVICE_CLASS, "add", "update"),
            _always(_SLICE, "add", "update"),
            _TAINTS_OF_NEW_NODES,
        ),
        feature_gate="DynamicResourceAllocation",
    ),
    DefaultPlugin(
        name="DefaultPreemption",
        points=frozenset({"postFilter", "preEnqueue"}),
        args_kind="DefaultPreemptionArgs",
        # Its hint never says yes: the registration only lets a gated preemptor be looked at again.
        events=(_hint("Pod", "delete"),),
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
        events=(
            _hint("Node", "add", "update.declaredFeatures"),
            _hint("Pod", "update"),
            _TAINTS_OF_NEW_NODES,
        ),
        feature_gate="NodeDeclaredFeatures",
    ),
    DefaultPlugin(
        name="GangScheduling",
        points=frozenset({"preEnqueue", "permit"}),
        events=(_hint("Pod", "add"), _hint("scheduling.k8s.io/PodGroup", "add")),
        feature_gate="GangScheduling",
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
