"""Arguments of default plugins: what is rejected where, gates included."""

from __future__ import annotations

import pytest
from berth_host.config.checks.plugin_args import check_args, check_fit_args
from berth_host.config.decoding.args_v1 import ARGS_TYPES, NodeResourcesFitArgsV1, PluginArgs, default_args
from berth_host.config.decoding.go_types import Context, decode_value, struct_of
from berth_host.config.feature_gates import resolve_feature_gates
from berth_host.config.source.yaml_reader import read_yaml


def args_of(kind: str, text: str, **gates: bool) -> PluginArgs:
    context = Context(is_yaml=True)
    decoded = decode_value(struct_of(ARGS_TYPES[kind]), read_yaml(text).root, "", context)
    assert context.findings == []
    args: PluginArgs = default_args(decoded, kind, resolve_feature_gates(gates, source="test"))
    return args


def findings_of(kind: str, text: str, **gates: bool) -> list[tuple[str, str]]:
    resolved = resolve_feature_gates(gates, source="test")
    found = check_args("", args_of(kind, text, **gates), resolved)
    return [(str(finding.type).removeprefix("FieldValue"), finding.field) for finding in found]


@pytest.mark.parametrize("kind", sorted(ARGS_TYPES))
def test_defaults_are_valid(kind: str) -> None:
    assert findings_of(kind, "{}") == []


@pytest.mark.parametrize(
    ("kind", "text", "want"),
    [
        pytest.param(
            "DefaultPreemptionArgs",
            "{minCandidateNodesPercentage: 101, minCandidateNodesAbsolute: -1}",
            [("Invalid", "minCandidateNodesPercentage"), ("Invalid", "minCandidateNodesAbsolute")],
            id="preemption out of range",
        ),
        pytest.param("DefaultPreemptionArgs", "{minCandidateNodesPercentage: 0}", [], id="one may be zero"),
        pytest.param(
            "InterPodAffinityArgs",
            "{hardPodAffinityWeight: -1}",
            [("Invalid", "hardPodAffinityWeight")],
            id="affinity weight",
        ),
        pytest.param(
            "NodeResourcesBalancedAllocationArgs",
            "{resources: [{name: a}, {name: a, weight: 2}]}",
            [("Duplicate", "resources[1].name"), ("Invalid", "resources[1].weight")],
            id="balanced: duplicate and weight",
        ),
        pytest.param(
            "PodTopologySpreadArgs",
            "{defaultingType: Lst, defaultConstraints:"
            " [{maxSkew: 1, topologyKey: 'a b', whenUnsatisfiable: ''}]}",
            [
                ("NotSupported", "defaultingType"),
                ("Invalid", "defaultConstraints[0].topologyKey"),
                ("Required", "defaultConstraints[0].whenUnsatisfiable"),
            ],
            id="spread: type, key, action",
        ),
        pytest.param("VolumeBindingArgs", "{bindTimeoutSeconds: 0}", [], id="no waiting for volumes"),
        pytest.param(
            "DynamicResourcesArgs",
            "{filterTimeout: 0s, bindingTimeout: 999ms}",
            [("Invalid", "bindingTimeout")],
            id="binding timeout below a second",
        ),
        pytest.param(
            "GangSchedulingArgs",
            "{timeoutSeconds: 0, graceSeconds: -1, repair: evict}",
            [("Invalid", "timeoutSeconds"), ("Invalid", "graceSeconds"), ("NotSupported", "repair")],
            id="gangs: times and repair",
        ),
        pytest.param("GangSchedulingArgs", "{graceSeconds: 0, repair: Evict}", [], id="gangs: no grace"),
        pytest.param(
            "NodeResourcesFitArgs",
            "{scoringStrategy: {type: Best}}",
            [],
            id="fit is not looked at here",
        ),
    ],
)
def test_rejected_fields(kind: str, text: str, want: list[tuple[str, str]]) -> None:
    assert findings_of(kind, text) == want


def test_empty_shape_is_a_shape_where_the_gate_is_off() -> None:
    assert findings_of("VolumeBindingArgs", "{shape: []}", StorageCapacityScoring=False) == [
        ("Invalid", "shape")
    ]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("{shape: []}", []),
        (
            "{shape: [{utilization: 50, score: 11}, {utilization: 50, score: 0},"
            " {utilization: 101, score: -1}]}",
            [
                ("Invalid", "shape[1].utilization"),
                ("Invalid", "shape[0].score"),
                ("Invalid", "shape[2].utilization"),
                ("Invalid", "shape[2].score"),
            ],
        ),
    ],
)
def test_shape_of_volume_binding_with_its_gate_on(text: str, want: list[tuple[str, str]]) -> None:
    assert findings_of("VolumeBindingArgs", text, StorageCapacityScoring=True) == want


def test_timeouts_are_forbidden_while_their_gates_are_off() -> None:
    gates = {"DRASchedulerFilterTimeout": False, "DRADeviceBindingConditions": False}
    assert findings_of("DynamicResourcesArgs", "{}", **gates) == []
    assert findings_of("DynamicResourcesArgs", "{filterTimeout: 1s, bindingTimeout: 1m}", **gates) == [
        ("Forbidden", "filterTimeout"),
        ("Forbidden", "bindingTimeout"),
    ]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("{}", []),
        (
            "{ignoredResources: ['a b'], ignoredResourceGroups: [a/b]}",
            ["ignoredResources[0]", "ignoredResourceGroups[0]"],
        ),
        ("{scoringStrategy: {}}", ["scoringStrategy.type"]),
        (
            "{scoringStrategy: {type: MostAllocated,"
            " resources: [{name: cpu, weight: 101}, {name: x, weight: -1}]}}",
            ["scoringStrategy.resources[0].weight", "scoringStrategy.resources[1].weight"],
        ),
        (
            "{scoringStrategy: {type: LeastAllocated, requestedToCapacityRatio: {}}}",
            ["scoringStrategy.requestedToCapacityRatio"],
        ),
        (
            "{scoringStrategy: {type: RequestedToCapacityRatio}}",
            ["scoringStrategy.requestedToCapacityRatio"],
        ),
        (
            "{scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {}}}",
            ["scoringStrategy.requestedToCapacityRatio.shape"],
        ),
    ],
)
def test_fit_arguments(text: str, want: list[str]) -> None:
    args = args_of("NodeResourcesFitArgs", text)
    assert isinstance(args, NodeResourcesFitArgsV1)
    assert [finding.field for finding in check_fit_args("", args)] == want
