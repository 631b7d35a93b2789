"""Feature gates: defaults, stages, locks, and what they need."""

from __future__ import annotations

import pytest
from berth_host.config.errors import ConfigurationError
from berth_host.config.feature_gates import FEATURE_GATES, resolve_feature_gates


def test_given_gates_are_merged_over_the_defaults() -> None:
    gates = resolve_feature_gates({"StorageCapacityScoring": True}, source="f")
    assert gates.is_enabled("StorageCapacityScoring")
    assert gates.is_enabled("NodeDeclaredFeatures")
    assert not gates.is_enabled("GangScheduling")
    assert gates.warnings == ()


def test_all_of_a_stage_can_be_switched_and_single_gates_still_win() -> None:
    gates = resolve_feature_gates(
        {"AllBeta": False, "NodeDeclaredFeatures": True, "AllAlpha": True}, source="f"
    )
    assert gates.is_enabled("NodeDeclaredFeatures")
    assert not gates.is_enabled("DRASchedulerFilterTimeout")
    assert gates.is_enabled("GangScheduling")
    assert gates.is_enabled("DynamicResourceAllocation")


def test_gate_that_needs_another_one_is_named() -> None:
    gates = resolve_feature_gates({"GangScheduling": True}, source="f")
    assert gates.warnings == ("feature gate GangScheduling is on, but needs GenericWorkload, which is off",)


def test_unknown_and_locked_gates_are_refused() -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve_feature_gates({"GangSchedulin": True, "DynamicResourceAllocation": False}, source="cmd")
    assert caught.value.text.splitlines() == [
        "cmd: featureGates[GangSchedulin]: unrecognized feature gate: GangSchedulin "
        '(did you mean "GangScheduling"?)',
        "cmd: featureGates[DynamicResourceAllocation]: cannot set feature gate DynamicResourceAllocation "
        "to false, feature is locked to true",
    ]


def test_what_a_gate_needs_exists() -> None:
    assert all(required in FEATURE_GATES for gate in FEATURE_GATES.values() for required in gate.requires)
