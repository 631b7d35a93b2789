"""The differences that another version makes to one configuration. Called by `berth check-config`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from berth_host.config.configuration import EnabledPlugin, LoadedConfiguration
from berth_host.config.default_plugins import WEIGHTED_POINTS
from berth_host.config.emulation import DIFFERENCES, Difference, Emulation
from berth_host.config.gate_tables import FEATURE_GATES, FeatureGate
from berth_host.config.source.node import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionsCompared:
    """The differences between two versions for one file. `behaviours`: rows of the table, True for those that
    the first version alone has. `gates`: texts by gate. `settings`: (value, other value) by field; None: the
    version does not have the field. `points`: the plugins that run, by profile and point.
    """

    version: str
    against: str
    behaviours: tuple[tuple[Difference, bool], ...] = ()
    gates: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, tuple[Json, Json]] = field(default_factory=dict)
    points: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=dict)

    @staticmethod
    def of(one: LoadedConfiguration, other: LoadedConfiguration) -> VersionsCompared:
        """Compare a file as it was loaded for two versions."""
        return VersionsCompared(
            version=_name(one.emulation),
            against=_name(other.emulation),
            behaviours=tuple(_behaviours(one.emulation, other.emulation)),
            gates=dict(_gates(one.emulation, other.emulation)),
            settings=dict(_settings(one.scheduler_json, other.scheduler_json)),
            points=dict(_points(one, other)),
        )

    def to_json(self) -> dict[str, Json]:
        """Return the differences as JSON."""
        behaviours: list[Json] = [
            {
                "name": row.name,
                "summary": row.summary,
                "plugins": list[Json](sorted(row.readers)),
                "only": self.version if is_first else self.against,
            }
            for row, is_first in self.behaviours
        ]
        points: list[Json] = [
            {"schedulerName": profile, "point": point, self.version: mine, self.against: theirs}
            for (profile, point), (mine, theirs) in self.points.items()
        ]
        settings: dict[str, Json] = {
            name: {self.version: mine, self.against: theirs} for name, (mine, theirs) in self.settings.items()
        }
        return {
            "against": self.against,
            "behaviours": behaviours,
            "featureGates": dict[str, Json](self.gates),
            "settings": settings,
            "points": points,
        }

    def lines(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Yield the sections of the report: a heading, and texts by label. Empty sections are left out."""
        for is_first, version in ((True, self.version), (False, self.against)):
            rows = {row.name: row.summary for row, first in self.behaviours if first is is_first}
            if rows:
                yield f"only {version}", rows
        if self.gates:
            yield f"feature gates that differ in {self.against}", self.gates
        if self.settings:
            yield (
                f"settings that differ in {self.against}",
                {
                    name: f"{_shown(mine)}; {self.against}: {_shown(theirs)}"
                    for name, (mine, theirs) in self.settings.items()
                },
            )
        by_profile: dict[str, dict[str, str]] = {}
        for (profile, point), (mine, theirs) in self.points.items():
            by_profile.setdefault(profile, {})[point] = (
                f"{mine or 'none'}; {self.against}: {theirs or 'none'}"
            )
        for profile, rows in by_profile.items():
            yield f"plugins of profile {profile} that differ in {self.against}", rows


def _name(emulation: Emulation) -> str:
    return emulation.version or f"{emulation.follows} with corrections"


def _behaviours(one: Emulation, other: Emulation) -> Iterator[tuple[Difference, bool]]:
    for row in DIFFERENCES:
        is_in_one, is_in_other = row not in one.off, row not in other.off
        if is_in_one is not is_in_other:
            yield row, is_in_one


def _gates(one: Emulation, other: Emulation) -> Iterator[tuple[str, str]]:
    for name in sorted(FEATURE_GATES):
        mine, theirs = one.gates.get(name), other.gates.get(name)
        if mine == theirs or (mine is not None and theirs is not None and _told(mine) == _told(theirs)):
            continue
        if mine is None:
            gone = one.removed_gates.get(name)
            yield name, "not there yet" if gone is None else f"removed in {gone.since}: naming it is an error"
        else:
            before = "not there" if theirs is None else _told(theirs)
            yield name, f"{_told(mine)}; {other.follows}: {before}"


def _told(gate: FeatureGate) -> str:
    state = "on" if gate.default else "off"
    return f"{gate.stage.value}, {state}{', locked' if gate.is_locked else ''}"


def _settings(one: Mapping[str, Json], other: Mapping[str, Json]) -> Iterator[tuple[str, tuple[Json, Json]]]:
    for name in dict.fromkeys((*one, *other)):
        if one.get(name) != other.get(name):
            yield name, (one.get(name), other.get(name))


def _points(
    one: LoadedConfiguration, other: LoadedConfiguration
) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    for profile in one.profiles:
        theirs = other.profile(profile.scheduler_name)
        if theirs is None:
            continue
        for point in dict.fromkeys((*profile.plugins, *theirs.plugins)):
            pair = _listed(point, profile.plugins_at(point)), _listed(point, theirs.plugins_at(point))
            if pair[0] != pair[1]:
                yield (profile.scheduler_name, point), pair


def _listed(point: str, plugins: Iterable[EnabledPlugin]) -> str:
    weighted = point in WEIGHTED_POINTS
    return ", ".join(f"{one.name} x{one.weight}" if weighted else one.name for one in plugins)


def _shown(value: Json) -> str:
    return "not set" if value is None else str(value)
