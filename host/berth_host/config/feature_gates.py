"""The feature gates in effect: the defaults of a version of kube-scheduler with the given gates on top.

Given gates are checked and merged here, by the loader; defaulting, validation and the default plugin
table then call `is_enabled`. A gate that bears on no scheduling is accepted and has no effect, as a command
line of kube-scheduler's may name it all the same. So is one of `unread_gates`, with a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from berth_host.config.errors import ConfigurationError, FieldErrorType, Finding, nearest
from berth_host.config.gate_tables import FEATURE_GATES, KNOWN_GATES, FeatureGate, RemovedGate, Stage
from berth_host.config.unread_gates import unread_warnings

_NONE_REMOVED: Final[Mapping[str, RemovedGate]] = {}
_ALL_OF_STAGE: Final[Mapping[str, Stage]] = {"AllAlpha": Stage.ALPHA, "AllBeta": Stage.BETA}


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """The gates in effect: the defaults with the given ones on top. `warnings`: given gates that a later
    release removes. `without_effect`: warnings about values that change nothing (`unread_gates`)."""

    values: Mapping[str, bool]
    warnings: tuple[str, ...] = ()
    without_effect: tuple[str, ...] = ()

    def is_enabled(self, gate: str) -> bool:
        """Return True if a gate of `FEATURE_GATES` or of the version is on. A gate that the version does not
        have yet is off; one that it has no longer is as it was left.
        """
        return self.values[gate]

    def without(self, gates: Iterable[str]) -> FeatureGates:
        """Return the gates with these off, whatever was given."""
        return replace(self, values={**self.values, **dict.fromkeys(gates, False)})


def resolve_feature_gates(
    given: Mapping[str, bool],
    *,
    source: str,
    known: Mapping[str, FeatureGate] = KNOWN_GATES,
    removed: Mapping[str, RemovedGate] = _NONE_REMOVED,
) -> FeatureGates:
    """Merge given gates over the defaults of `known`, all gates of a version of kube-scheduler.

    `removed`: the gates that the version has no longer.

    `AllAlpha` and `AllBeta` stand for all gates of that stage. Raises ConfigurationError for an unknown gate,
    a gate whose value is locked, and a gate that is on while a gate that it depends on is off.
    """
    findings = [*_unknown(given, known, removed), *_locked(given, known)]
    if findings:
        raise ConfigurationError("featureGates", findings, source=source)
    values = dict.fromkeys(FEATURE_GATES, False)
    values |= {name: gate.value for name, gate in removed.items()}
    values |= {name: gate.default for name, gate in known.items()}
    for name, stage in _ALL_OF_STAGE.items():
        if name in given:
            values |= {
                gate_name: given[name]
                for gate_name, gate in known.items()
                if gate.stage is stage and not gate.is_locked
            }
    values |= {name: value for name, value in given.items() if name in known}
    values |= {name: values[gate.part_of] for name, gate in removed.items() if gate.part_of is not None}
    findings = _missing_requirements(values, known)
    if findings:
        raise ConfigurationError("featureGates", findings, source=source)
    defaults = {name: gate.default for name, gate in known.items()}
    return FeatureGates(values, tuple(_leaving(given, known)), tuple(unread_warnings(values, defaults)))


def _unknown(
    given: Mapping[str, bool], gates: Mapping[str, FeatureGate], removed: Mapping[str, RemovedGate]
) -> list[Finding]:
    known = (*gates, *_ALL_OF_STAGE)
    return [
        Finding(
            f"unrecognized feature gate: {name}{_removal(removed.get(name))}",
            field=f"featureGates[{name}]",
            type=FieldErrorType.NOT_SUPPORTED,
            suggestion=None if name in removed else nearest(name, known),
        )
        for name in given
        if name not in known
    ]


def _removal(gate: RemovedGate | None) -> str:
    if gate is None:
        return ""
    kept = f"as if it were {str(gate.value).lower()}" if gate.part_of is None else f"as {gate.part_of} says"
    return f": kube-scheduler {gate.since} removed it, and decides {kept}; leave it out"


def _locked(given: Mapping[str, bool], known: Mapping[str, FeatureGate]) -> list[Finding]:
    return [
        Finding(
            f"cannot set feature gate {name} to {str(value).lower()}, "
            f"feature is locked to {str(known[name].default).lower()}",
            field=f"featureGates[{name}]",
            type=FieldErrorType.INVALID,
        )
        for name, value in given.items()
        if name in known and known[name].is_locked and value != known[name].default
    ]


def _missing_requirements(values: Mapping[str, bool], known: Mapping[str, FeatureGate]) -> list[Finding]:
    found = []
    for name, gate in known.items():
        off = [required for required in gate.requires if not values[required]]
        if values[name] and off:
            text = f"{name} is enabled, but depends on features that are disabled: [{' '.join(off)}]"
            found.append(Finding(text, field=f"featureGates[{name}]", type=FieldErrorType.INVALID))
    return found


def _leaving(given: Mapping[str, bool], known: Mapping[str, FeatureGate]) -> list[str]:
    """GA and deprecated gates go away in a later release, with everything that names them."""
    return [
        f"feature gate {name} is {gate.stage.value}: it will be removed in a future release, do not set it"
        for name in given
        if (gate := known.get(name)) is not None and gate.stage in (Stage.GA, Stage.DEPRECATED)
    ]
