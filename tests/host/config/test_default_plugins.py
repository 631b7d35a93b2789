"""The table of default plugins agrees with itself and with the words of the contract."""

from __future__ import annotations

from berth_host.config.decoding.args_v1 import ARGS_TYPES
from berth_host.config.default_plugins import (
    ARGS_KINDS,
    DEFAULT_PLUGINS,
    DEFAULT_PLUGINS_BY_NAME,
    EXTENSION_POINTS,
)
from berth_host.config.gate_tables import FEATURE_GATES
from berth_sdk.extension_points import ExtensionPoint


def test_names_are_unique_and_points_exist() -> None:
    assert len(DEFAULT_PLUGINS_BY_NAME) == len(DEFAULT_PLUGINS) == 23
    assert all(plugin.points <= set(EXTENSION_POINTS) for plugin in DEFAULT_PLUGINS)


def test_points_cover_those_of_the_contract() -> None:
    # A configuration has no list for the second steps of scoring.
    contract = {point.config_name for point in ExtensionPoint} - {"normalizeScore", "normalizePlacementScore"}
    assert set(EXTENSION_POINTS) == contract


def test_kinds_of_arguments_are_named_after_their_plugins() -> None:
    kinds = {plugin.name: plugin.args_kind for plugin in DEFAULT_PLUGINS if plugin.args_kind is not None}
    assert all(kind == f"{name}Args" for name, kind in kinds.items())
    assert set(ARGS_TYPES) == ARGS_KINDS


def test_gates_exist() -> None:
    gates = {plugin.feature_gate for plugin in DEFAULT_PLUGINS} - {None}
    assert gates <= set(FEATURE_GATES)


def test_only_scoring_plugins_have_weights() -> None:
    weighted = {plugin.name for plugin in DEFAULT_PLUGINS if plugin.weight}
    scoring = {plugin.name for plugin in DEFAULT_PLUGINS if plugin.points & {"score", "placementScore"}}
    assert scoring - weighted == {"VolumeBinding"}
    assert weighted <= scoring
