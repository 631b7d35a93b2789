"""Feature gates: defaults, stages, locks, and what they need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from berth_host.config.errors import ConfigurationError
from berth_host.config.feature_gates import KNOWN_GATES, resolve_feature_gates

RECORDED: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "golden/feature_gates.json").read_text()
)["gates"]
"""What kube-scheduler 1.36.2 answered; see tests/cluster/record_feature_gates.py."""


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


def test_gate_that_needs_another_one_is_refused() -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve_feature_gates({"GangScheduling": True}, source="f")
    assert "GangScheduling is enabled, but depends on features that are disabled: [GenericWorkload]" in (
        caught.value.text
    )


def test_gates_that_will_go_are_warned_of() -> None:
    gates = resolve_feature_gates({"DRAPrioritizedList": False, "KMSv1": True}, source="f")
    assert [text.split(":")[0] for text in gates.warnings] == [
        "feature gate DRAPrioritizedList is GA",
        "feature gate KMSv1 is DEPRECATED",
    ]


def test_stages_and_defaults_are_those_of_kube_scheduler() -> None:
    switches = {"AllAlpha", "AllBeta"}
    assert {name: (gate.stage.value, gate.default) for name, gate in KNOWN_GATES.items()} == {
        name: (gate["stage"], gate["default"]) for name, gate in RECORDED.items() if name not in switches
    }


@pytest.mark.parametrize("value", [True, False])
def test_every_gate_is_taken_or_refused_as_by_kube_scheduler(value: bool) -> None:
    """Each gate alone, set to `value`; of several errors kube-scheduler's order is by chance."""
    differing = {}
    for name, gate in RECORDED.items():
        said = gate[str(value).lower()]
        try:
            warnings = resolve_feature_gates({name: value}, source="f").warnings
            errors: list[str] = []
        except ConfigurationError as err:
            warnings = ()
            errors = [finding.message for finding in err.findings]
        expected = said.strip("[").replace("]]", "]").split("], ")
        wanted = sorted(
            text if text.endswith("]") or "depends" not in text else text + "]" for text in expected
        )
        if sorted(errors) != [text for text in wanted if text] or (
            not said and bool(warnings) != bool(gate["warns"])
        ):
            differing[name] = (errors, said, warnings)
    assert not differing


def test_unknown_and_locked_gates_are_refused() -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve_feature_gates({"GangSchedulin": True, "DynamicResourceAllocation": False}, source="cmd")
    assert caught.value.text.splitlines() == [
        "cmd: featureGates[GangSchedulin]: unrecognized feature gate: GangSchedulin "
        '(did you mean "GangScheduling"?)',
        "cmd: featureGates[DynamicResourceAllocation]: cannot set feature gate DynamicResourceAllocation "
        "to false, feature is locked to true",
    ]


def test_gates_need_gates_that_exist() -> None:
    assert all(required in KNOWN_GATES for gate in KNOWN_GATES.values() for required in gate.requires)
