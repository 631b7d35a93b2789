"""Checks the arguments of the default plugins.

`check_args` is part of configuration validation; `check_fit_args` belongs to the construction of
NodeResourcesFit, where kube-scheduler 1.36 runs it.
Source: `pkg/scheduler/apis/config/validation/validation_pluginargs.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from berth_sdk.duration import format_seconds
from berth_sdk.gang_policy import REPAIR_ARG, REPAIRS, problems_of

from berth_host.config.checks.names import check_label_name
from berth_host.config.checks.selectors import check_node_affinity
from berth_host.config.decoding.args_v1 import (
    MAX_CUSTOM_SCORE,
    DefaultPreemptionArgsV1,
    DynamicResourcesArgsV1,
    GangSchedulingArgsV1,
    InterPodAffinityArgsV1,
    NodeAffinityArgsV1,
    NodeResourcesBalancedAllocationArgsV1,
    NodeResourcesFitArgsV1,
    PluginArgs,
    PodTopologySpreadArgsV1,
    ScoringStrategyV1,
    ShapePointV1,
    VolumeBindingArgsV1,
)
from berth_host.config.decoding.core_v1 import TopologySpreadConstraintV1
from berth_host.config.decoding.go_types import encode_struct
from berth_host.config.errors import (
    Finding,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    without_repeats,
)
from berth_host.config.feature_gates import FeatureGates
from berth_host.config.source.node import child

_STRATEGIES: Final = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
_DEFAULTING_TYPES: Final = ("System", "List")
_SPREAD_ACTIONS: Final = ("DoNotSchedule", "ScheduleAnyway")
_MIN_BINDING_TIMEOUT_S: Final = 1.0


def check_args(path: str, args: PluginArgs, gates: FeatureGates) -> list[Finding]:
    """Return the findings about defaulted arguments; none for NodeResourcesFit, see `check_fit_args`."""
    match args:
        case DefaultPreemptionArgsV1():
            findings = _check_default_preemption(path, args)
        case InterPodAffinityArgsV1(hard_pod_affinity_weight=weight):
            is_valid = weight is not None and 0 <= weight <= 100
            where = child(path, "hardPodAffinityWeight")
            findings = [] if is_valid else [invalid(where, weight, "not in valid range [0, 100]")]
        case NodeAffinityArgsV1(added_affinity=affinity):
            findings = check_node_affinity(child(path, "addedAffinity"), affinity) if affinity else []
        case NodeResourcesBalancedAllocationArgsV1():
            findings = _check_balanced_allocation(child(path, "resources"), args)
        case PodTopologySpreadArgsV1():
            findings = _check_topology_spread(path, args)
        case VolumeBindingArgsV1():
            findings = _check_volume_binding(path, args, gates)
        case DynamicResourcesArgsV1():
            findings = _check_dynamic_resources(path, args, gates)
        case GangSchedulingArgsV1():
            findings = _check_gang_scheduling(path, args)
        case NodeResourcesFitArgsV1():
            findings = []
    return without_repeats(findings)


def check_fit_args(path: str, args: NodeResourcesFitArgsV1) -> list[Finding]:
    """Return the findings about NodeResourcesFit's arguments, when the plugin is built."""
    findings = []
    for index, name in enumerate(args.ignored_resources or ()):
        findings += check_label_name(f"{child(path, 'ignoredResources')}[{index}]", name)
    for index, group in enumerate(args.ignored_resource_groups or ()):
        where = f"{child(path, 'ignoredResourceGroups')}[{index}]"
        if "/" in group:
            findings.append(invalid(where, group, "resource group name can't contain '/'"))
        findings += check_label_name(where, group)
    if args.scoring_strategy is not None:
        findings += _check_strategy(child(path, "scoringStrategy"), args.scoring_strategy)
    return without_repeats(findings)


def _check_strategy(path: str, strategy: ScoringStrategyV1) -> list[Finding]:
    findings = []
    if strategy.type not in _STRATEGIES:
        findings.append(not_supported(f"{path}.type", strategy.type, _STRATEGIES))
    for index, resource in enumerate(strategy.resources or ()):
        if not 0 < resource.weight <= 100:
            message = f"resource weight of {resource.name} not in valid range (0, 100]"
            findings.append(invalid(f"{path}.resources[{index}].weight", resource.weight, message))
    where = f"{path}.requestedToCapacityRatio"
    ratio = strategy.requested_to_capacity_ratio
    if strategy.type != "RequestedToCapacityRatio":
        if ratio is not None:
            message = "must be nil when type is not RequestedToCapacityRatio"
            findings.append(forbidden(where, message))
    elif ratio is None:
        findings.append(required(where, "must be specified when type is RequestedToCapacityRatio"))
    else:
        findings += _check_shape(f"{where}.shape", ratio.shape or ())
    return findings


def _check_shape(path: str, shape: Sequence[ShapePointV1]) -> list[Finding]:
    if not shape:
        return [required(path, "at least one point must be specified")]
    findings = []
    for index in range(1, len(shape)):
        if shape[index - 1].utilization >= shape[index].utilization:
            where = f"{path}[{index}].utilization"
            message = "values must be sorted in increasing order"
            findings.append(invalid(where, shape[index].utilization, message))
            break
    for index, point in enumerate(shape):
        if not 0 <= point.utilization <= 100:
            where = f"{path}[{index}].utilization"
            findings.append(invalid(where, point.utilization, "not in valid range [0, 100]"))
        if not 0 <= point.score <= MAX_CUSTOM_SCORE:
            message = f"not in valid range [0, {MAX_CUSTOM_SCORE}]"
            findings.append(invalid(f"{path}[{index}].score", point.score, message))
    return findings


def _check_default_preemption(path: str, args: DefaultPreemptionArgsV1) -> list[Finding]:
    percentage, absolute = args.min_candidate_nodes_percentage or 0, args.min_candidate_nodes_absolute or 0
    percentage_path = child(path, "minCandidateNodesPercentage")
    absolute_path = child(path, "minCandidateNodesAbsolute")
    findings = []
    if not 0 <= percentage <= 100:
        findings.append(invalid(percentage_path, percentage, "not in valid range [0, 100]"))
    if absolute < 0:
        findings.append(invalid(absolute_path, absolute, "not in valid range [0, inf)"))
    if percentage == absolute == 0:
        message = "cannot be zero at the same time as"
        findings.append(invalid(percentage_path, 0, f"{message} minCandidateNodesAbsolute"))
        findings.append(invalid(absolute_path, 0, f"{message} minCandidateNodesPercentage"))
    return findings


def _check_balanced_allocation(path: str, args: NodeResourcesBalancedAllocationArgsV1) -> list[Finding]:
    findings: list[Finding] = []
    seen: set[str] = set()
    for index, resource in enumerate(args.resources or ()):
        if resource.name in seen:
            findings.append(duplicate(f"{path}[{index}].name", resource.name))
        seen.add(resource.name)
        if resource.weight != 1:
            findings.append(invalid(f"{path}[{index}].weight", resource.weight, "must be 1"))
    return findings


def _check_topology_spread(path: str, args: PodTopologySpreadArgsV1) -> list[Finding]:
    findings = []
    constraints = args.default_constraints or ()
    where = child(path, "defaultingType")
    if args.defaulting_type not in _DEFAULTING_TYPES:
        findings.append(not_supported(where, args.defaulting_type, _DEFAULTING_TYPES))
    elif args.defaulting_type == "System" and constraints:
        findings.append(invalid(where, args.defaulting_type, "when .defaultConstraints are not empty"))
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(constraints):
        where = f"{child(path, 'defaultConstraints')}[{index}]"
        findings += _check_constraint(where, constraint)
        identity = (constraint.topology_key, constraint.when_unsatisfiable)
        if identity in seen:
            findings.append(duplicate(where, f"{{{identity[0]}, {identity[1]}}}"))
        seen.add(identity)
    return findings


def _check_constraint(path: str, constraint: TopologySpreadConstraintV1) -> list[Finding]:
    findings = []
    if constraint.max_skew <= 0:
        findings.append(invalid(f"{path}.maxSkew", constraint.max_skew, "not in valid range (0, inf)"))
    if not constraint.topology_key:
        findings.append(required(f"{path}.topologyKey", "can not be empty"))
    else:
        findings += check_label_name(f"{path}.topologyKey", constraint.topology_key)
    action = constraint.when_unsatisfiable
    if not action:
        findings.append(required(f"{path}.whenUnsatisfiable", "can not be empty"))
    elif action not in _SPREAD_ACTIONS:
        findings.append(not_supported(f"{path}.whenUnsatisfiable", action, _SPREAD_ACTIONS))
    if constraint.label_selector is not None:
        message = "constraint must not define a selector, as they deduced for each pod"
        findings.append(forbidden(f"{path}.labelSelector", message))
    return findings


def _check_volume_binding(path: str, args: VolumeBindingArgsV1, gates: FeatureGates) -> list[Finding]:
    findings = []
    if (args.bind_timeout_seconds or 0) < 0:
        message = "invalid BindTimeoutSeconds, should not be a negative value"
        findings.append(invalid(child(path, "bindTimeoutSeconds"), args.bind_timeout_seconds, message))
    where = child(path, "shape")
    if gates.is_enabled("StorageCapacityScoring"):
        findings += _check_shape(where, args.shape or ())
    elif args.shape is not None:
        points = [{"Utilization": point.utilization, "Score": point.score} for point in args.shape]
        message = "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring"
        findings.append(invalid(where, points, message))
    return findings


def _check_dynamic_resources(path: str, args: DynamicResourcesArgsV1, gates: FeatureGates) -> list[Finding]:
    findings = []
    where, timeout = child(path, "filterTimeout"), args.filter_timeout_s
    if timeout is not None and not gates.is_enabled("DRASchedulerFilterTimeout"):
        findings.append(forbidden(where, "DRASchedulingFilterTimeout feature gate is disabled"))
    elif timeout is not None and timeout < 0:
        findings.append(invalid(where, format_seconds(timeout), "must be zero or positive"))
    where, timeout = child(path, "bindingTimeout"), args.binding_timeout_s
    has_binding_timeout = all(
        gates.is_enabled(gate) for gate in ("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus")
    )
    if timeout is not None and not has_binding_timeout:
        message = "DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate is disabled"
        findings.append(forbidden(where, message))
    elif timeout is not None and timeout < _MIN_BINDING_TIMEOUT_S:
        findings.append(invalid(where, format_seconds(timeout), "must be at least 1 second"))
    return findings


def _check_gang_scheduling(path: str, args: GangSchedulingArgsV1) -> list[Finding]:
    return [
        not_supported(child(path, name), str(value), REPAIRS)
        if name == REPAIR_ARG
        else invalid(child(path, name), value, why)
        for name, value, why in problems_of(encode_struct(args))
    ]
