"""Absent fields get kube-scheduler's defaults; the default plugins are merged into every profile.

Called by the loader between decoding and validation.
Source: `pkg/scheduler/apis/config/v1/defaults.go`, `default_plugins.go`, v1.38.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from berth_host.config.decoding.args_v1 import ARGS_OF_BERTH, ARGS_TYPES, default_args
from berth_host.config.decoding.go_types import json_fields
from berth_host.config.decoding.scheduler_v1 import DecodedScheduler, PluginConfig
from berth_host.config.decoding.types_v1 import (
    ClientConnection,
    KubeSchedulerConfiguration,
    LeaderElection,
    PluginSetV1,
    PluginsV1,
    ProfileV1,
)
from berth_host.config.default_plugins import EXTENSION_POINTS, MULTI_POINT, DefaultPlugin
from berth_host.config.feature_gates import FeatureGates
from berth_host.config.source.node import Json

_DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"
PLACEMENTS_TO_SCORE: Final = "percentageOfPlacementsToScore"
PLACEMENTS_GATE: Final = "TopologyAwareWorkloadScheduling"
"""The gate without which `PLACEMENTS_TO_SCORE` may not be set."""


@dataclass(frozen=True, slots=True)
class PluginRef:
    """A plugin in a list, by name. Weight 0: none given."""

    name: str
    weight: int = 0


@dataclass(frozen=True, slots=True)
class PluginSet:
    """The plugins enabled and disabled at a point, defaults included."""

    enabled: tuple[PluginRef, ...] = ()
    disabled: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        """Return the object that `/configz` shows, without empty lists."""
        result: dict[str, Json] = {}
        if self.enabled:
            result["enabled"] = [{"name": ref.name, "weight": ref.weight} for ref in self.enabled]
        if self.disabled:
            result["disabled"] = [{"name": name, "weight": 0} for name in self.disabled]
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultedProfile:
    """A profile with all defaults. `plugins` has every point and "multiPoint"."""

    scheduler_name: str
    percentage_of_nodes_to_score: int | None
    percentage_of_placements_to_score: int | None
    plugins: Mapping[str, PluginSet]
    plugin_config: tuple[PluginConfig, ...]

    def merged_plugins(self) -> dict[str, Json]:
        """Return the plugin sets as JSON, before multiPoint is expanded; empty points are left out."""
        sets = {point: plugin_set.to_json() for point, plugin_set in self.plugins.items()}
        return {point: shown for point, shown in sets.items() if shown}


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultedScheduler:
    """A document with all defaults; `config.profiles` is superseded by `profiles`."""

    config: KubeSchedulerConfiguration
    profiles: tuple[DefaultedProfile, ...]


def apply_defaults(
    decoded: DecodedScheduler,
    gates: FeatureGates,
    plugins: Sequence[DefaultPlugin],
    absent_fields: frozenset[str] = frozenset(),
) -> DefaultedScheduler:
    """Fill in everything that the file leaves open. `plugins`: the default plugins in their order.
    `absent_fields`: as in `Emulation`; these get no default.
    """
    config = decoded.config
    placements = config.percentage_of_placements_to_score
    if placements is None and PLACEMENTS_TO_SCORE not in absent_fields and gates.is_enabled(PLACEMENTS_GATE):
        placements = 0
    profiles = config.profiles or (ProfileV1(),)
    plugin_config = decoded.plugin_config or ((),)
    if len(profiles) == 1 and profiles[0].scheduler_name is None:
        profiles = (replace(profiles[0], scheduler_name=_DEFAULT_SCHEDULER_NAME),)
    is_profiling = config.enable_profiling is not False
    is_contention_profiling = config.enable_contention_profiling
    if is_contention_profiling is None:
        is_contention_profiling = is_profiling
    return DefaultedScheduler(
        config=replace(
            config,
            parallelism=_given(config.parallelism, 16),
            leader_election=_default_leader_election(config.leader_election),
            client_connection=_default_client_connection(config.client_connection),
            enable_profiling=is_profiling,
            enable_contention_profiling=is_contention_profiling,
            percentage_of_nodes_to_score=_given(config.percentage_of_nodes_to_score, 0),
            percentage_of_placements_to_score=placements,
            pod_initial_backoff_s=_given(config.pod_initial_backoff_s, 1),
            pod_max_backoff_s=_given(config.pod_max_backoff_s, 10),
            profiles=None,
        ),
        profiles=tuple(
            _default_profile(profile, entries, gates, plugins)
            for profile, entries in zip(profiles, plugin_config, strict=True)
        ),
    )


def _given(value: int | None, default: int) -> int:
    return default if value is None else value


def _default_leader_election(given: LeaderElection) -> LeaderElection:
    return LeaderElection(
        leader_elect=given.leader_elect is not False,
        lease_duration_s=given.lease_duration_s or 15.0,
        renew_deadline_s=given.renew_deadline_s or 10.0,
        retry_period_s=given.retry_period_s or 2.0,
        resource_lock=given.resource_lock or "leases",
        resource_name=given.resource_name or "kube-scheduler",
        resource_namespace=given.resource_namespace or "kube-system",
    )


def _default_client_connection(given: ClientConnection) -> ClientConnection:
    return replace(
        given,
        content_type=given.content_type or "application/vnd.kubernetes.protobuf",
        qps=given.qps or 50.0,
        burst=given.burst or 100,
    )


def _default_profile(
    profile: ProfileV1,
    entries: tuple[PluginConfig, ...],
    gates: FeatureGates,
    default_plugins: Sequence[DefaultPlugin],
) -> DefaultedProfile:
    plugins = _merge_plugins(profile.plugins or PluginsV1(), gates, default_plugins)
    given = tuple(_default_entry(entry, gates) for entry in entries)
    given_names = {entry.name for entry in given}
    enabled = {ref.name for plugin_set in plugins.values() for ref in plugin_set.enabled}
    added = tuple(
        _default_entry(PluginConfig(name=name, typed=ARGS_TYPES[f"{name}Args"]()), gates)
        for name in sorted(enabled - given_names)
        if f"{name}Args" in ARGS_TYPES.keys() - ARGS_OF_BERTH
    )
    return DefaultedProfile(
        scheduler_name=profile.scheduler_name or "",
        percentage_of_nodes_to_score=profile.percentage_of_nodes_to_score,
        percentage_of_placements_to_score=profile.percentage_of_placements_to_score,
        plugins=plugins,
        plugin_config=given + added,
    )


def _default_entry(entry: PluginConfig, gates: FeatureGates) -> PluginConfig:
    if entry.typed is None:
        return entry
    return entry.with_typed(default_args(entry.typed, f"{entry.name}Args", gates))


def _merge_plugins(
    given: PluginsV1, gates: FeatureGates, default_plugins: Sequence[DefaultPlugin]
) -> dict[str, PluginSet]:
    fields = json_fields(PluginsV1)
    sets = {point: getattr(given, fields[point].attribute) for point in (MULTI_POINT, *EXTENSION_POINTS)}
    defaults = {MULTI_POINT: tuple(_default_refs(gates, default_plugins))}
    return {
        point: _merge(defaults.get(point, ()), plugin_set, tuple(_default_off(gates, default_plugins, point)))
        for point, plugin_set in sets.items()
    }


def _default_off(gates: FeatureGates, default_plugins: Sequence[DefaultPlugin], point: str) -> Iterable[str]:
    """Yield the plugins that the default profile disables at a point."""
    for plugin in default_plugins:
        for gated, gate in plugin.gated_points:
            if gated == point and not gates.is_enabled(gate):
                yield plugin.name


def _default_refs(gates: FeatureGates, default_plugins: Sequence[DefaultPlugin]) -> Iterable[PluginRef]:
    for plugin in default_plugins:
        if plugin.feature_gate is None or gates.is_enabled(plugin.feature_gate):
            yield PluginRef(plugin.name, plugin.weight)


def _merge(defaults: tuple[PluginRef, ...], given: PluginSetV1, off: tuple[str, ...]) -> PluginSet:
    """Merge one point. A default that is named keeps its place but takes the given weight; a repeated
    name survives here and is refused when the profile is built. `off`: what the default profile disables.
    """
    disabled = (*(plugin.name for plugin in given.disabled or ()), *off)
    custom = [PluginRef(plugin.name, plugin.weight or 0) for plugin in given.enabled or ()]
    last_index = {ref.name: index for index, ref in enumerate(custom)}
    enabled: list[PluginRef] = []
    replacing: set[int] = set()
    for default in defaults if "*" not in disabled else ():
        if default.name in disabled:
            continue
        index = last_index.get(default.name)
        if index is not None:
            replacing.add(index)
        enabled.append(default if index is None else custom[index])
    enabled += [ref for index, ref in enumerate(custom) if index not in replacing]
    return PluginSet(tuple(enabled), disabled)
