"""Feature gates: defaults, stages, locks, and what they need."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from berth_host.config.errors import ConfigurationError
from berth_host.config.feature_gates import resolve_feature_gates
from berth_host.config.gate_tables import FEATURE_GATES, KNOWN_GATES, KNOWN_GATES_1_36, FeatureGate, Stage
from berth_host.config.loading import default_configuration
from berth_host.config.unread_gates import UNREAD_GATES, unread_warnings
from berth_host.plugins.registry import ClassRegistry

GOLDEN: Final = Path(__file__).parent / "golden"
RECORDED: Final[dict[str, tuple[Mapping[str, FeatureGate], dict[str, Any]]]] = {
    version: (known, json.loads((GOLDEN / file).read_text())["gates"])
    for version, known, file in (
        ("1.37", KNOWN_GATES, "feature_gates_1_37.json"),
        ("1.36", KNOWN_GATES_1_36, "feature_gates.json"),
    )
}
"""By version: its gates, and what kube-scheduler 1.37.2 or 1.36.2 answered; see
tests/cluster/record_feature_gates.py.
"""


def test_given_gates_are_merged_over_the_defaults() -> None:
    gates = resolve_feature_gates({"StorageCapacityScoring": False}, source="f")
    assert not gates.is_enabled("StorageCapacityScoring")
    assert gates.is_enabled("VolumeLimitScaling")
    assert not gates.is_enabled("GenericWorkload")
    assert gates.warnings == ()


def test_all_of_a_stage_can_be_switched_and_single_gates_still_win() -> None:
    gates = resolve_feature_gates(
        {"AllBeta": False, "PodLevelResources": True, "AllAlpha": False}, source="f"
    )
    assert gates.is_enabled("PodLevelResources")
    assert not gates.is_enabled("DRASchedulerFilterTimeout")
    assert not gates.is_enabled("SchedulerPreQueueingHints")
    assert gates.is_enabled("DynamicResourceAllocation")


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        (("TopologyAwareWorkloadScheduling",), "GenericWorkload"),
        (("PodGroupPreemptionPolicy",), "GenericWorkload"),
        (("DRAWorkloadResourceClaims",), "GenericWorkload"),
        (("WorkloadWithJob",), "GenericWorkload"),
        (("CompositePodGroup",), "GenericWorkload TopologyAwareWorkloadScheduling"),
        (("CompositePodGroup", "GenericWorkload"), "TopologyAwareWorkloadScheduling"),
    ],
    ids=str,
)
def test_gate_that_needs_another_one_is_refused(given: tuple[str, ...], missing: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve_feature_gates(dict.fromkeys(given, True), source="f")
    assert f"{given[0]} is enabled, but depends on features that are disabled: [{missing}]" in (
        caught.value.text
    )


def test_all_gates_of_pod_groups_may_be_on_together() -> None:
    names = (
        *("GenericWorkload", "TopologyAwareWorkloadScheduling", "CompositePodGroup"),
        *("PodGroupPreemptionPolicy", "DRAWorkloadResourceClaims"),
    )
    gates = resolve_feature_gates(dict.fromkeys(names, True), source="f")
    assert all(map(gates.is_enabled, names))


def test_gate_that_a_version_removed_is_refused_with_the_version_that_removed_it() -> None:
    given = {"DynamicResourceAllocation": True, "PodGroupPreemptionPolicy": True, "SidecarContainers": True}
    with pytest.raises(ConfigurationError) as caught:
        default_configuration(emulated_version="1.38", feature_gates=given)
    for text in (
        "unrecognized feature gate: DynamicResourceAllocation: kube-scheduler 1.38 removed it, and decides"
        " as if it were true; leave it out",
        "unrecognized feature gate: PodGroupPreemptionPolicy: kube-scheduler 1.38 removed it, and decides"
        " as GenericWorkload says; leave it out",
        "unrecognized feature gate: SidecarContainers: kube-scheduler 1.37 removed it, and decides"
        " as if it were true; leave it out",
    ):
        assert text in caught.value.text


def test_removed_gate_keeps_its_behaviour() -> None:
    gates = default_configuration(emulated_version="1.38").gates
    assert gates.is_enabled("DynamicResourceAllocation")
    assert not gates.is_enabled("PodGroupPreemptionPolicy")
    groups = default_configuration(emulated_version="1.38", feature_gates={"GenericWorkload": True}).gates
    assert groups.is_enabled("PodGroupPreemptionPolicy")


def test_gate_that_1_38_locked_can_be_set_to_its_value_only() -> None:
    default_configuration(emulated_version="1.38", feature_gates={"DRADeviceBindingConditions": True})
    with pytest.raises(
        ConfigurationError,
        match="cannot set feature gate DRADeviceBindingConditions to false, feature is locked to true",
    ):
        default_configuration(emulated_version="1.38", feature_gates={"DRADeviceBindingConditions": False})
    default_configuration(feature_gates={"DRADeviceBindingConditions": False})


def test_gates_of_parts_of_devices_are_general_in_1_38_and_locked_later() -> None:
    """kube_features.go of v1.38.0-beta.0 locks both in 1.39."""
    configuration = default_configuration(
        emulated_version="1.38", feature_gates={"DRAFractionalCapacityRange": False}
    )
    assert not configuration.gates.is_enabled("DRAFractionalCapacityRange")
    assert configuration.gates.is_enabled("DRAConsumableCapacity")
    with pytest.raises(ConfigurationError, match="DRAFractionalCapacityRange"):
        default_configuration(emulated_version="1.38", feature_gates={"DRAConsumableCapacity": False})
    both = {"DRAConsumableCapacity": False, "DRAFractionalCapacityRange": False}
    warnings = default_configuration(emulated_version="1.38", feature_gates=both).gates.warnings
    assert [text.split(":")[0] for text in warnings] == [
        "feature gate DRAConsumableCapacity is GA",
        "feature gate DRAFractionalCapacityRange is GA",
    ]


_ALPHA_OFF = FeatureGate(False, Stage.ALPHA)
_BETA_ON = FeatureGate(True, Stage.BETA)
_GA = FeatureGate(True, Stage.GA)
_LOCKED = FeatureGate(True, Stage.GA, is_locked=True)


@pytest.mark.parametrize(
    ("name", "in_1_36", "in_1_37"),
    [
        ("GenericWorkload", _ALPHA_OFF, FeatureGate(False, Stage.BETA)),
        ("GangScheduling", FeatureGate(False, Stage.ALPHA, requires=("GenericWorkload",)), None),
        ("WorkloadAwarePreemption", FeatureGate(False, Stage.ALPHA, requires=("GangScheduling",)), None),
        ("StorageCapacityScoring", _ALPHA_OFF, _BETA_ON),
        ("VolumeLimitScaling", _ALPHA_OFF, _BETA_ON),
        ("DRADeviceTaints", _BETA_ON, _GA),
        ("DRAExtendedResource", _BETA_ON, _LOCKED),
        ("DRAResourceClaimDeviceStatus", _BETA_ON, _LOCKED),
        ("NodeDeclaredFeatures", _BETA_ON, _LOCKED),
        ("DRAPrioritizedList", _GA, _LOCKED),
        ("DRADerivedAttributes", None, _ALPHA_OFF),
        ("DRAOptionalNodeOperations", None, _ALPHA_OFF),
        ("SchedulerPreQueueingHints", None, _ALPHA_OFF),
        ("InterPodAffinityHostnameFastPath", None, _ALPHA_OFF),
        ("InPlacePodVerticalScalingSchedulerPreemption", None, _ALPHA_OFF),
        ("SchedulerQueueingHints", _LOCKED, None),
        ("SidecarContainers", _LOCKED, None),
        ("SchedulerAsyncPreemption", _BETA_ON, _BETA_ON),
        ("SchedulerPopFromBackoffQ", _BETA_ON, _BETA_ON),
        ("OpportunisticBatching", _BETA_ON, _BETA_ON),
        ("NominatedNodeNameForExpectation", _BETA_ON, _BETA_ON),
        ("ClearingNominatedNodeNameAfterBinding", _BETA_ON, _BETA_ON),
        ("SchedulerAsyncAPICalls", FeatureGate(False, Stage.BETA), FeatureGate(False, Stage.BETA)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_gate_has_the_stage_default_and_lock_of_its_version(
    name: str, in_1_36: FeatureGate | None, in_1_37: FeatureGate | None
) -> None:
    assert KNOWN_GATES_1_36.get(name) == in_1_36
    assert KNOWN_GATES.get(name) == in_1_37


def test_gate_that_a_version_does_not_have_is_off_there_and_unknown() -> None:
    gates = resolve_feature_gates({}, source="f", known=KNOWN_GATES_1_36)
    assert not gates.is_enabled("CompositePodGroup")
    with pytest.raises(ConfigurationError, match="unrecognized feature gate: CompositePodGroup"):
        resolve_feature_gates({"CompositePodGroup": True}, source="f", known=KNOWN_GATES_1_36)
    with pytest.raises(ConfigurationError, match="unrecognized feature gate: GangScheduling"):
        resolve_feature_gates({"GangScheduling": True}, source="f")


def test_gates_that_will_go_are_warned_of() -> None:
    gates = resolve_feature_gates({"DRADeviceTaints": True, "KMSv1": True}, source="f")
    assert [text.split(":")[0] for text in gates.warnings] == [
        "feature gate DRADeviceTaints is GA",
        "feature gate KMSv1 is DEPRECATED",
    ]


@pytest.mark.parametrize("version", RECORDED)
def test_stages_and_defaults_are_those_of_kube_scheduler(version: str) -> None:
    known, recorded = RECORDED[version]
    switches = {"AllAlpha", "AllBeta"}
    assert {name: (gate.stage.value, gate.default) for name, gate in known.items()} == {
        name: (gate["stage"], gate["default"]) for name, gate in recorded.items() if name not in switches
    }


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("version", RECORDED)
def test_every_gate_is_taken_or_refused_as_by_kube_scheduler(version: str, value: bool) -> None:
    """Each gate alone, set to `value`; of several errors kube-scheduler's order is by chance."""
    known, recorded = RECORDED[version]
    differing = {}
    for name, gate in recorded.items():
        said = gate[str(value).lower()]
        try:
            warnings = resolve_feature_gates({name: value}, source="f", known=known).warnings
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
        given = {"GenericWorkloa": True, "DynamicResourceAllocation": False}
        resolve_feature_gates(given, source="cmd")
    assert caught.value.text.splitlines() == [
        "cmd: featureGates[GenericWorkloa]: unrecognized feature gate: GenericWorkloa "
        '(did you mean "GenericWorkload"?)',
        "cmd: featureGates[DynamicResourceAllocation]: cannot set feature gate DynamicResourceAllocation "
        "to false, feature is locked to true",
    ]


@pytest.mark.parametrize("known", [KNOWN_GATES, KNOWN_GATES_1_36], ids=["1.37", "1.36"])
def test_gates_need_gates_that_exist(known: dict[str, FeatureGate]) -> None:
    assert all(required in known for gate in known.values() for required in gate.requires)


def test_gates_that_bear_on_scheduling_are_known() -> None:
    assert FEATURE_GATES.items() <= KNOWN_GATES.items()


@pytest.mark.parametrize("gate", sorted(UNREAD_GATES))
def test_value_that_has_no_effect_is_said(gate: str) -> None:
    default = {**KNOWN_GATES_1_36, **KNOWN_GATES}[gate].default
    value = str(not default).lower()
    assert unread_warnings({gate: not default}, {gate: default}) == [
        f"feature gate {gate}={value} has no effect: {UNREAD_GATES[gate]}; leave the gate out"
    ]
    assert unread_warnings({gate: default}, {gate: default}) == []
    assert unread_warnings({gate: not default}, {}) == [], "the version does not have the gate"


def test_loaded_configuration_warns_of_a_gate_without_effect() -> None:
    loaded = default_configuration(
        registered=ClassRegistry().points(), feature_gates={"SchedulerPopFromBackoffQ": False}
    )
    (warning,) = loaded.warnings
    assert warning.startswith("feature gate SchedulerPopFromBackoffQ=false has no effect: ")


def test_gate_that_does_something_is_not_said_to_have_no_effect() -> None:
    given = {"GenericWorkload": True, "DRAWorkloadResourceClaims": True, "StorageCapacityScoring": False}
    assert resolve_feature_gates(given, source="f").without_effect == ()
