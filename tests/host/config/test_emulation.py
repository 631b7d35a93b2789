"""The versions that can be emulated: what their rows may say, and what reaches plugins and the queue."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.config.default_plugins import DEFAULT_PLUGINS_BY_NAME
from berth_host.config.emulation import (
    DEFAULT_VERSION,
    DIFFERENCES,
    EMULATIONS,
    MEND,
    NO_EMULATION,
    VERSIONS,
    emulation_of,
    without_emulation,
)
from berth_host.config.errors import ConfigurationError
from berth_host.config.loading import default_configuration
from berth_host.plugins.registry import ClassRegistry
from berth_host.queue.registrations import registrations_of


def test_no_version_means_every_mend() -> None:
    assert emulation_of("", source="test") is NO_EMULATION
    assert NO_EMULATION.told_to("InterPodAffinity") == {}


def test_unknown_version_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ConfigurationError, match=r"cannot emulate kube-scheduler 1\.35: use one of 1\.36, 1\.37, 1\.38"
    ):
        emulation_of("1.35", source="test")


@pytest.mark.parametrize("version", EMULATIONS)
def test_rows_name_default_plugins_and_differ_from_their_classes(version: str) -> None:
    emulation = EMULATIONS[version]
    assert emulation.version == version
    registry = ClassRegistry()
    for plugin, events in emulation.events.items():
        cls = registry.find(plugin)
        assert plugin in DEFAULT_PLUGINS_BY_NAME
        assert cls is not None
        own = registrations_of(cls.events)  # type: ignore[attr-defined]
        assert set(registrations_of(events)) != set(own), f"{plugin}: the row says what the class says"


def gates_told(emulated_version: str) -> dict[str, Any]:
    """By plugin the feature gates in its arguments, with the gates that bring all default plugins."""
    plugins = emulation_of(emulated_version, source="test").plugins
    gates = {"GenericWorkload": True}
    gates |= {plugin.feature_gate: True for plugin in plugins if plugin.feature_gate}
    loaded = default_configuration(emulated_version=emulated_version, feature_gates=gates)
    args: dict[str, Any] = dict(loaded.profiles[0].plugin_args)
    told = {name: value.get("featureGates", {}) for name, value in args.items()}
    rows = {row.name for row in DIFFERENCES}
    return {
        name: found
        for name, value in told.items()
        if (found := {gate: on for gate, on in value.items() if gate in rows})
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_plugins_are_told_the_behaviours_that_the_version_does_not_have(version: str) -> None:
    told = gates_told(version)
    known = {plugin.name for plugin in EMULATIONS[version].plugins}
    for row in DIFFERENCES:
        has_row = row.since != MEND and row.since <= version
        assert {name for name, gates in told.items() if row.name in gates} == (
            set() if has_row else row.readers & known
        )
        assert all(gates.get(row.name, False) is False for gates in told.values())


def test_no_emulation_tells_plugins_only_what_later_versions_have() -> None:
    later = [row for row in DIFFERENCES if not row.is_mended(DEFAULT_VERSION)]
    told = gates_told("")
    assert {(name, gate) for name, gates in told.items() for gate in gates} == {
        (reader, row.name) for row in later for reader in row.readers
    }
    assert not any(on for gates in told.values() for on in gates.values())


def test_rows_have_names_and_readers_of_their_own() -> None:
    assert len({row.name for row in DIFFERENCES}) == len(DIFFERENCES)
    assert all(row.since in (*VERSIONS, MEND) for row in DIFFERENCES)
    assert all(bool(row.readers) is not bool(row.rule) for row in DIFFERENCES)
    assert all(row.readers <= DEFAULT_PLUGINS_BY_NAME.keys() for row in DIFFERENCES)


@pytest.mark.parametrize("version", ["", *VERSIONS])
def test_rules_of_the_host_follow_the_table(version: str) -> None:
    rules = emulation_of(version, source="test").rules
    for row in DIFFERENCES:
        if row.rule:
            has_row = row.is_in(version) if version else row.is_mended(DEFAULT_VERSION)
            assert getattr(rules, row.rule) is has_row, row.name


def test_without_emulation_the_host_follows_the_default_version_and_mends_it() -> None:
    assert without_emulation(DEFAULT_VERSION) == NO_EMULATION
    assert NO_EMULATION.follows == DEFAULT_VERSION
    assert not NO_EMULATION.version
    assert EMULATIONS[DEFAULT_VERSION].gates is NO_EMULATION.gates
    for row in DIFFERENCES:
        later = row.since != MEND and row.since > DEFAULT_VERSION
        assert (row in NO_EMULATION.off) is (later and not row.mends), row.name


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_can_be_the_default(version: str) -> None:
    facts = without_emulation(version)
    assert facts.gates is EMULATIONS[version].gates
    assert facts.plugins is EMULATIONS[version].plugins
    assert facts.events == {}
    assert {row for row in DIFFERENCES if row.since == MEND} & set(facts.off) == set()
    assert facts.rules.looks_before_binding


def points_of(plugin: str, emulated_version: str) -> list[str]:
    """The points at which the default profile calls a plugin."""
    (profile,) = default_configuration(emulated_version=emulated_version).profiles
    return sorted(point for point, refs in profile.plugins.items() if plugin in {ref.name for ref in refs})


def filters_of(emulated_version: str) -> list[str]:
    """The Filter plugins of the default profile, in order."""
    (profile,) = default_configuration(emulated_version=emulated_version).profiles
    return [ref.name for ref in profile.plugins["filter"]]


def test_default_order_is_that_of_the_version() -> None:
    assert filters_of("1.36")[:3] == ["NodeUnschedulable", "NodeName", "TaintToleration"]
    for version in ("1.37", ""):
        assert filters_of(version)[:3] == ["NodeName", "NodeUnschedulable", "TaintToleration"]
        assert filters_of(version)[3:] == filters_of("1.36")[3:]


@pytest.mark.parametrize("plugin", ["NodeName", "NodeUnschedulable", "TaintToleration"])
def test_plugin_takes_part_in_pre_filter_since_1_37(plugin: str) -> None:
    assert "preFilter" not in points_of(plugin, "1.36")
    assert set(points_of(plugin, "1.37")) == {"preFilter", *points_of(plugin, "1.36")}
    assert points_of(plugin, "") == points_of(plugin, "1.37")
