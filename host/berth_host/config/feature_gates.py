"""Feature gates of kube-scheduler 1.36 that bear on scheduling, with their defaults.

Given gates are checked and merged here, by the loader; defaulting, validation and the default plugin
table then ask `is_enabled`. Gates that change no configuration are known too, so that a command line
of kube-scheduler's is understood. Source: `pkg/features/kube_features.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from berth_host.config.errors import ConfigurationError, FieldErrorType, Finding, nearest


class Stage(StrEnum):
    """How settled a feature is."""

    ALPHA = "ALPHA"
    BETA = "BETA"
    GA = "GA"


@dataclass(frozen=True, slots=True)
class FeatureGate:
    """One gate: its default, its stage, and whether the default can no longer be changed."""

    default: bool
    stage: Stage
    is_locked: bool = False
    requires: tuple[str, ...] = ()


_ALPHA_OFF: Final = FeatureGate(False, Stage.ALPHA)
_BETA_ON: Final = FeatureGate(True, Stage.BETA)
_BETA_OFF: Final = FeatureGate(False, Stage.BETA)
_GA: Final = FeatureGate(True, Stage.GA)
_GA_LOCKED: Final = FeatureGate(True, Stage.GA, is_locked=True)

FEATURE_GATES: Final[Mapping[str, FeatureGate]] = {
    "ClearingNominatedNodeNameAfterBinding": _BETA_ON,
    "DRAAdminAccess": _BETA_ON,
    "DRAConsumableCapacity": _BETA_ON,
    "DRADeviceBindingConditions": FeatureGate(True, Stage.BETA, requires=("DRAResourceClaimDeviceStatus",)),
    "DRADeviceTaints": _BETA_ON,
    "DRAExtendedResource": _BETA_ON,
    "DRANodeAllocatableResources": _ALPHA_OFF,
    "DRAPartitionableDevices": _BETA_ON,
    "DRAPrioritizedList": _BETA_ON,
    "DRAResourceClaimDeviceStatus": _BETA_ON,
    "DRASchedulerFilterTimeout": _BETA_ON,
    "DynamicResourceAllocation": _GA_LOCKED,
    "GangScheduling": FeatureGate(False, Stage.ALPHA, requires=("GenericWorkload",)),
    "GenericWorkload": _ALPHA_OFF,
    "InPlacePodLevelResourcesVerticalScaling": _BETA_ON,
    "InPlacePodVerticalScaling": _GA,
    "MatchLabelKeysInPodTopologySpread": _BETA_ON,
    "MatchLabelKeysInPodTopologySpreadSelectorMerge": _BETA_ON,
    "NodeDeclaredFeatures": _BETA_ON,
    "NodeInclusionPolicyInPodTopologySpread": _GA,
    "NominatedNodeNameForExpectation": _BETA_ON,
    "OpportunisticBatching": _BETA_ON,
    "PodLevelResources": _BETA_ON,
    "SchedulerAsyncAPICalls": _BETA_OFF,
    "SchedulerAsyncPreemption": _BETA_ON,
    "SchedulerPopFromBackoffQ": _BETA_ON,
    "SchedulerQueueingHints": _GA_LOCKED,
    "StorageCapacityScoring": _ALPHA_OFF,
    "TaintTolerationComparisonOperators": _ALPHA_OFF,
    "TopologyAwareWorkloadScheduling": FeatureGate(False, Stage.ALPHA, requires=("GenericWorkload",)),
    "VolumeLimitScaling": _ALPHA_OFF,
    "WorkloadAwarePreemption": FeatureGate(False, Stage.ALPHA, requires=("GangScheduling",)),
}

_ALL_OF_STAGE: Final[Mapping[str, Stage]] = {"AllAlpha": Stage.ALPHA, "AllBeta": Stage.BETA}


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """The gates in effect: the defaults with the given ones on top. `warnings` name odd combinations."""

    values: Mapping[str, bool]
    warnings: tuple[str, ...] = ()

    def is_enabled(self, gate: str) -> bool:
        """Whether a gate of the table is on."""
        return self.values[gate]


def resolve_feature_gates(given: Mapping[str, bool], *, source: str) -> FeatureGates:
    """Merge given gates over the defaults; `AllAlpha` and `AllBeta` stand for all of their stage.

    Raises ConfigurationError for a gate that nobody knows or one whose value is locked.
    """
    findings = [*_unknown(given), *_locked(given)]
    if findings:
        raise ConfigurationError("validation", findings, source=source)
    values = {name: gate.default for name, gate in FEATURE_GATES.items()}
    for name, stage in _ALL_OF_STAGE.items():
        if name in given:
            values |= {
                gate_name: given[name]
                for gate_name, gate in FEATURE_GATES.items()
                if gate.stage is stage and not gate.is_locked
            }
    values |= {name: value for name, value in given.items() if name in FEATURE_GATES}
    return FeatureGates(values, tuple(_missing_requirements(values)))


def _unknown(given: Mapping[str, bool]) -> list[Finding]:
    known = (*FEATURE_GATES, *_ALL_OF_STAGE)
    return [
        Finding(
            f"unrecognized feature gate: {name}",
            field=f"featureGates[{name}]",
            type=FieldErrorType.NOT_SUPPORTED,
            suggestion=nearest(name, known),
        )
        for name in given
        if name not in known
    ]


def _locked(given: Mapping[str, bool]) -> list[Finding]:
    return [
        Finding(
            f"cannot set feature gate {name} to {str(value).lower()}, "
            f"feature is locked to {str(FEATURE_GATES[name].default).lower()}",
            field=f"featureGates[{name}]",
            type=FieldErrorType.INVALID,
        )
        for name, value in given.items()
        if name in FEATURE_GATES and FEATURE_GATES[name].is_locked and value != FEATURE_GATES[name].default
    ]


def _missing_requirements(values: Mapping[str, bool]) -> list[str]:
    return [
        f"feature gate {name} is on, but needs {required}, which is off"
        for name, gate in FEATURE_GATES.items()
        for required in gate.requires
        if values[name] and not values[required]
    ]
