"""The argument types of the default plugins, kubescheduler.config.k8s.io/v1, with their defaults.

Each type is a struct of the group; `kind` and `apiVersion` are always written. Fields that come from
core/v1 keep that API's tags. Source: `staging/src/k8s.io/kube-scheduler/config/v1/types_pluginargs.go`,
`pkg/scheduler/apis/config/v1/defaults.go`, v1.36.
"""

# RUF009 is off: json_field returns a dataclass field, and its default values are immutable.
# ruff: noqa: RUF009

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from berth_sdk.gang_policy import GRACE_ARG, HOLD_ROOM_ARG, REPAIR_ARG, TIMEOUT_ARG, GangPolicy

from berth_host.config.decoding.core_v1 import NodeAffinityV1, TopologySpreadConstraintV1
from berth_host.config.decoding.go_types import (
    BOOL,
    DURATION,
    INT32,
    INT64,
    STRING,
    json_field,
    pointer_to,
    slice_of,
    struct_of,
)
from berth_host.config.decoding.types_v1 import API_VERSION
from berth_host.config.feature_gates import FeatureGates

_FILTER_TIMEOUT_S: Final = 10.0
_BINDING_TIMEOUT_S: Final = 600.0
MAX_CUSTOM_SCORE: Final = 10
"""The highest score in a shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _TypeMeta:
    """`kind` and `apiVersion`, as every argument object may have them."""

    kind: str = json_field("kind", STRING, omit_empty=True)
    api_version: str = json_field("apiVersion", STRING, omit_empty=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultPreemptionArgsV1(_TypeMeta):
    """The arguments of DefaultPreemption: the number of candidate nodes that it looks at."""

    min_candidate_nodes_percentage: int | None = json_field(
        "minCandidateNodesPercentage", pointer_to(INT32), omit_empty=True
    )
    min_candidate_nodes_absolute: int | None = json_field(
        "minCandidateNodesAbsolute", pointer_to(INT32), omit_empty=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class InterPodAffinityArgsV1(_TypeMeta):
    """Weight of required terms of running pods, and whether their preferred ones count."""

    hard_pod_affinity_weight: int | None = json_field(
        "hardPodAffinityWeight", pointer_to(INT32), omit_empty=True
    )
    ignore_preferred_terms_of_existing_pods: bool = json_field("ignorePreferredTermsOfExistingPods", BOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAffinityArgsV1(_TypeMeta):
    """An affinity that all pods get."""

    added_affinity: NodeAffinityV1 | None = json_field(
        "addedAffinity", pointer_to(struct_of(NodeAffinityV1)), omit_empty=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSpecV1:
    """A resource and its weight."""

    name: str = json_field("name", STRING)
    weight: int = json_field("weight", INT64, omit_empty=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapePointV1:
    """A point of a score function."""

    utilization: int = json_field("utilization", INT32)
    score: int = json_field("score", INT32)


_RESOURCES = slice_of(struct_of(ResourceSpecV1))
_SHAPE = slice_of(struct_of(ShapePointV1))


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedToCapacityRatioV1:
    """The score function of the strategy of that name."""

    shape: tuple[ShapePointV1, ...] | None = json_field("shape", _SHAPE, omit_empty=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringStrategyV1:
    """The scoring strategy of NodeResourcesFit."""

    type: str = json_field("type", STRING, omit_empty=True)
    resources: tuple[ResourceSpecV1, ...] | None = json_field("resources", _RESOURCES, omit_empty=True)
    requested_to_capacity_ratio: RequestedToCapacityRatioV1 | None = json_field(
        "requestedToCapacityRatio", pointer_to(struct_of(RequestedToCapacityRatioV1)), omit_empty=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResourcesFitArgsV1(_TypeMeta):
    """The resources that NodeResourcesFit ignores, and its scoring."""

    ignored_resources: tuple[str, ...] | None = json_field(
        "ignoredResources", slice_of(STRING), omit_empty=True
    )
    ignored_resource_groups: tuple[str, ...] | None = json_field(
        "ignoredResourceGroups", slice_of(STRING), omit_empty=True
    )
    scoring_strategy: ScoringStrategyV1 | None = json_field(
        "scoringStrategy", pointer_to(struct_of(ScoringStrategyV1)), omit_empty=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResourcesBalancedAllocationArgsV1(_TypeMeta):
    """The resources to balance."""

    resources: tuple[ResourceSpecV1, ...] | None = json_field("resources", _RESOURCES, omit_empty=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTopologySpreadArgsV1(_TypeMeta):
    """The constraints of pods that have none of their own."""

    default_constraints: tuple[TopologySpreadConstraintV1, ...] | None = json_field(
        "defaultConstraints", slice_of(struct_of(TopologySpreadConstraintV1)), omit_empty=True
    )
    defaulting_type: str = json_field("defaultingType", STRING, omit_empty=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeBindingArgsV1(_TypeMeta):
    """The arguments of VolumeBinding: the wait for volumes, and the scoring of storage."""

    bind_timeout_seconds: int | None = json_field("bindTimeoutSeconds", pointer_to(INT64), omit_empty=True)
    shape: tuple[ShapePointV1, ...] | None = json_field("shape", _SHAPE, omit_empty=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicResourcesArgsV1(_TypeMeta):
    """Time limits of device allocation."""

    filter_timeout_s: float | None = json_field("filterTimeout", pointer_to(DURATION))
    binding_timeout_s: float | None = json_field("bindingTimeout", pointer_to(DURATION), omit_empty=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class GangSchedulingArgsV1(_TypeMeta):
    """The arguments of GangScheduling, which only berth has; see `berth_sdk.gang_policy`.

    `repair` "" is absent.
    """

    timeout_seconds: int | None = json_field(TIMEOUT_ARG, pointer_to(INT32), omit_empty=True)
    grace_seconds: int | None = json_field(GRACE_ARG, pointer_to(INT32), omit_empty=True)
    repair: str = json_field(REPAIR_ARG, STRING, omit_empty=True)
    hold_room: bool = json_field(HOLD_ROOM_ARG, BOOL)


PluginArgs: TypeAlias = (
    DefaultPreemptionArgsV1
    | InterPodAffinityArgsV1
    | NodeAffinityArgsV1
    | NodeResourcesFitArgsV1
    | NodeResourcesBalancedAllocationArgsV1
    | PodTopologySpreadArgsV1
    | VolumeBindingArgsV1
    | DynamicResourcesArgsV1
    | GangSchedulingArgsV1
)

ARGS_TYPES: Final[Mapping[str, type[PluginArgs]]] = {
    "DefaultPreemptionArgs": DefaultPreemptionArgsV1,
    "InterPodAffinityArgs": InterPodAffinityArgsV1,
    "NodeAffinityArgs": NodeAffinityArgsV1,
    "NodeResourcesFitArgs": NodeResourcesFitArgsV1,
    "NodeResourcesBalancedAllocationArgs": NodeResourcesBalancedAllocationArgsV1,
    "PodTopologySpreadArgs": PodTopologySpreadArgsV1,
    "VolumeBindingArgs": VolumeBindingArgsV1,
    "DynamicResourcesArgs": DynamicResourcesArgsV1,
    "GangSchedulingArgs": GangSchedulingArgsV1,
}
"""The argument types by kind."""
ARGS_OF_BERTH: Final = frozenset({"GangSchedulingArgs"})
"""The kinds that kube-scheduler does not have. A profile has such arguments only if the file gives them."""

_DEFAULT_RESOURCES: Final = (ResourceSpecV1(name="cpu", weight=1), ResourceSpecV1(name="memory", weight=1))


def default_args(args: PluginArgs, kind: str, gates: FeatureGates) -> PluginArgs:
    """Return the arguments with every absent field filled in, `kind` and `apiVersion` included."""
    args = replace(args, kind=kind, api_version=API_VERSION)
    match args:
        case DefaultPreemptionArgsV1(min_candidate_nodes_percentage=percentage):
            absolute = args.min_candidate_nodes_absolute
            return replace(
                args,
                min_candidate_nodes_percentage=10 if percentage is None else percentage,
                min_candidate_nodes_absolute=100 if absolute is None else absolute,
            )
        case InterPodAffinityArgsV1(hard_pod_affinity_weight=None):
            return replace(args, hard_pod_affinity_weight=1)
        case NodeResourcesFitArgsV1():
            strategy = args.scoring_strategy or ScoringStrategyV1(type="LeastAllocated")
            strategy = replace(strategy, resources=_with_weights(strategy.resources))
            return replace(args, scoring_strategy=strategy)
        case NodeResourcesBalancedAllocationArgsV1():
            return replace(args, resources=_with_weights(args.resources))
        case PodTopologySpreadArgsV1(defaulting_type=""):
            return replace(args, defaulting_type="System")
        case VolumeBindingArgsV1():
            return _default_volume_binding(args, gates)
        case DynamicResourcesArgsV1():
            return _default_dynamic_resources(args, gates)
        case GangSchedulingArgsV1():
            return _default_gang_scheduling(args)
        case _:
            return args


def _with_weights(resources: tuple[ResourceSpecV1, ...] | None) -> tuple[ResourceSpecV1, ...]:
    """Cpu and memory where nothing is listed; weight 0 is weight 1."""
    return tuple(
        replace(resource, weight=resource.weight or 1) for resource in resources or _DEFAULT_RESOURCES
    )


def _default_volume_binding(args: VolumeBindingArgsV1, gates: FeatureGates) -> VolumeBindingArgsV1:
    if args.bind_timeout_seconds is None:
        args = replace(args, bind_timeout_seconds=600)
    if not args.shape and gates.is_enabled("StorageCapacityScoring"):
        empty = ShapePointV1(utilization=0, score=MAX_CUSTOM_SCORE)
        full = ShapePointV1(utilization=100, score=0)
        args = replace(args, shape=(empty, full))
    return args


def _default_dynamic_resources(args: DynamicResourcesArgsV1, gates: FeatureGates) -> DynamicResourcesArgsV1:
    if args.filter_timeout_s is None and gates.is_enabled("DRASchedulerFilterTimeout"):
        args = replace(args, filter_timeout_s=_FILTER_TIMEOUT_S)
    if args.binding_timeout_s is None and gates.is_enabled("DRADeviceBindingConditions"):
        args = replace(args, binding_timeout_s=_BINDING_TIMEOUT_S)
    return args


def _default_gang_scheduling(args: GangSchedulingArgsV1) -> GangSchedulingArgsV1:
    default = GangPolicy()
    timeout_s, grace_s = args.timeout_seconds, args.grace_seconds
    return replace(
        args,
        timeout_seconds=int(default.timeout_s) if timeout_s is None else timeout_s,
        grace_seconds=int(default.grace_s) if grace_s is None else grace_s,
        repair=args.repair or str(default.repair),
    )
