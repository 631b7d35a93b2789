"""The versions that can be emulated: what their rows may say, and what reaches plugins and the queue."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.config.default_plugins import DEFAULT_PLUGINS_BY_NAME
from berth_host.config.emulation import EMULATIONS, EXACT_HINTS, NO_EMULATION, READERS, emulation_of
from berth_host.config.errors import ConfigurationError
from berth_host.config.loading import default_configuration
from berth_host.plugins.registry import ClassRegistry
from berth_host.queue.registrations import registrations_of


def test_no_version_means_every_mend() -> None:
    assert emulation_of("", source="test") is NO_EMULATION
    assert NO_EMULATION.told_to("InterPodAffinity") == {}


def test_unknown_version_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"cannot emulate kube-scheduler 1\.35: use one of 1\.36"):
        emulation_of("1.35", source="test")


@pytest.mark.parametrize("version", EMULATIONS)
def test_rows_name_default_plugins_and_differ_from_their_classes(version: str) -> None:
    emulation = EMULATIONS[version]
    assert emulation.version == version
    assert emulation.off <= READERS.keys()
    registry = ClassRegistry()
    for plugin, events in emulation.events.items():
        cls = registry.find(plugin)
        assert plugin in DEFAULT_PLUGINS_BY_NAME
        assert cls is not None
        own = registrations_of(cls.events)  # type: ignore[attr-defined]
        assert set(registrations_of(events)) != set(own), f"{plugin}: the row says what the class says"


def gates_told(emulated_version: str) -> dict[str, Any]:
    """By plugin the feature gates in its arguments."""
    (profile,) = default_configuration(emulated_version=emulated_version).profiles
    args: dict[str, Any] = dict(profile.plugin_args)
    return {name: value["featureGates"] for name, value in args.items() if "featureGates" in value}


def test_plugins_are_told_the_mends_that_are_off() -> None:
    assert gates_told("1.36") == {name: {EXACT_HINTS: False} for name in READERS[EXACT_HINTS]}
    assert gates_told("") == {}
