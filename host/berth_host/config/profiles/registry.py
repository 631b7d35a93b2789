"""All plugins that exist, with their points: default ones, registered ones, and BerthConfiguration's.

Called by the loader before profiles are built. Source: `pkg/scheduler/framework/runtime/registry.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from berth_sdk.gang_policy import COSCHEDULING_PLUGIN, GANG_SCHEDULING

from berth_host.config.berth.configuration import BerthConfiguration, BerthPlugin
from berth_host.config.berth.points import POINT_RULES
from berth_host.config.default_plugins import (
    DEFAULT_PLUGINS_BY_NAME,
    EXTENSION_POINTS,
    MULTI_POINT,
    DefaultPlugin,
)
from berth_host.config.defaulting import DefaultedProfile
from berth_host.config.errors import Finding, nearest
from berth_host.config.profiles.expansion import ProfileError

UNTIL_ATTACHED: Final = "which ones it implements is known when it is attached"
"""The end of the warning about a served plugin. A command that attaches plugins leaves the warning out."""
_OF_MULTI_POINT: Final = frozenset(EXTENSION_POINTS) - {"queueSort", "placementGenerate"}
"""The points at which a served plugin may be called that a profile enables at multiPoint. A profile has one
plugin at queueSort and at most one at placementGenerate, so the profile names the plugin there.
"""
_ALSO_READ_BY: Final[Mapping[str, tuple[str, ...]]] = {GANG_SCHEDULING: (COSCHEDULING_PLUGIN,)}
"""Plugins whose groups follow the arguments of another plugin, by that plugin; see `gang_policy`."""


@dataclass(frozen=True, slots=True)
class PluginRegistry:
    """`points_by_plugin`: spelled as in KubeSchedulerConfiguration; empty while a plugin's are unknown."""

    points_by_plugin: Mapping[str, frozenset[str]]
    warnings: tuple[str, ...] = ()


def plugin_registry(
    profiles: Sequence[DefaultedProfile],
    registered: Mapping[str, frozenset[str]],
    berth: BerthConfiguration,
    default_plugins: Sequence[DefaultPlugin],
) -> PluginRegistry:
    """Merge all sources. A plugin of BerthConfiguration that is not registered implements the points that
    the file names for it, and those at which a profile enables it; at multiPoint any of them, as the plugin
    says itself when it is attached.

    Raises ProfileError for a name that exists already, ValueError for a point that does not exist.
    """
    points = {plugin.name: plugin.points for plugin in default_plugins}
    _check_registered(registered, berth)
    points |= registered
    guessed = [plugin for plugin in berth.plugins if plugin.name not in points]
    for plugin in guessed:
        points[plugin.name] = _points_named(plugin) | frozenset(_points_enabled(profiles, plugin.name))
        if any(_is_listed(profile, MULTI_POINT, plugin.name) for profile in profiles):
            points[plugin.name] |= _OF_MULTI_POINT
    warnings = (
        *_profile_warnings(profiles, points),
        *_guess_warnings(guessed, points),
        *_berth_warnings(profiles, berth),
    )
    return PluginRegistry(points, warnings)


def _check_registered(registered: Mapping[str, frozenset[str]], berth: BerthConfiguration) -> None:
    for name, points in registered.items():
        for point in points:
            if point not in EXTENSION_POINTS:
                cure = nearest(point, EXTENSION_POINTS) or ", ".join(EXTENSION_POINTS)
                raise ValueError(f'plugin "{name}": no extension point "{point}"; did you mean {cure}?')
        if name in DEFAULT_PLUGINS_BY_NAME and berth.plugin(name) is None:
            raise ProfileError(Finding(f"a plugin named {name} already exists", field="profiles"))


def _points_named(plugin: BerthPlugin) -> frozenset[str]:
    points = (POINT_RULES[point].config_point for point in plugin.points)
    return frozenset(point for point in points if point is not None)


def _points_enabled(profiles: Sequence[DefaultedProfile], name: str) -> Iterator[str]:
    for profile in profiles:
        for point in EXTENSION_POINTS:
            if _is_listed(profile, point, name):
                yield point


def _is_listed(profile: DefaultedProfile, point: str, name: str) -> bool:
    return any(ref.name == name for ref in profile.plugins[point].enabled)


def _is_enabled(profile: DefaultedProfile, name: str) -> bool:
    return any(ref.name == name for plugin_set in profile.plugins.values() for ref in plugin_set.enabled)


def _profile_warnings(
    profiles: Sequence[DefaultedProfile], points: Mapping[str, frozenset[str]]
) -> Iterator[str]:
    """Warn of settings that kube-scheduler accepts silently and that are usually mistakes."""
    for index, profile in enumerate(profiles):
        for point, plugin_set in profile.plugins.items():
            for name in plugin_set.disabled:
                if name != "*" and name not in points:
                    where = f"profiles[{index}].plugins.{point}.disabled"
                    yield f'{where}: there is no plugin "{name}" to disable{_cure(name, points)}'
        for position, entry in enumerate(profile.plugin_config):
            readers = (entry.name, *_ALSO_READ_BY.get(entry.name, ()))
            if not any(_is_enabled(profile, reader) for reader in readers):
                where = f"profiles[{index}].pluginConfig[{position}]"
                cure = "" if entry.name in points else _cure(entry.name, points)
                yield f'{where}: the profile does not enable "{entry.name}", its args are not used{cure}'


def _cure(name: str, known: Iterable[str]) -> str:
    suggestion = nearest(name, known)
    return f' (did you mean "{suggestion}"?)' if suggestion else ""


def _guess_warnings(guessed: Sequence[BerthPlugin], points: Mapping[str, frozenset[str]]) -> Iterator[str]:
    for plugin in guessed:
        if points[plugin.name]:
            is_open = points[plugin.name] >= _OF_MULTI_POINT
            named = ", ".join(point for point in EXTENSION_POINTS if point in points[plugin.name])
            names = "of multiPoint" if is_open else named
            yield f'plugin "{plugin.name}": the file gives it the points {names}; {UNTIL_ATTACHED}'


def _berth_warnings(profiles: Sequence[DefaultedProfile], berth: BerthConfiguration) -> Iterator[str]:
    for plugin in berth.plugins:
        if not any(_is_enabled(profile, plugin.name) for profile in profiles):
            yield f'plugin "{plugin.name}" of BerthConfiguration is enabled in no profile: it is never asked'
        else:
            yield from _managed_warnings(profiles, plugin)
        yield from _permit_warnings(profiles, plugin)
        for point in sorted(plugin.points):
            is_in_cycle = POINT_RULES[point].config_point in _CYCLE_POINTS
            if is_in_cycle and (plugin.settings(point).deadline_s or 0) > berth.cycle_budget_s:
                yield (
                    f'plugin "{plugin.name}": the deadline at {point} is longer than cycleBudget, '
                    "which cuts it short"
                )


def _managed_warnings(profiles: Sequence[DefaultedProfile], plugin: BerthPlugin) -> Iterator[str]:
    for profile in profiles:
        if plugin.managed_resources and not _is_enabled(profile, plugin.name):
            names = ", ".join(plugin.managed_names)
            yield (
                f'plugin "{plugin.name}" manages {names}, and profile "{profile.scheduler_name}" does not '
                "enable it: for pods of that profile NodeResourcesFit alone counts the resource"
            )


def _permit_warnings(profiles: Sequence[DefaultedProfile], plugin: BerthPlugin) -> Iterator[str]:
    enabled = {
        ref.name
        for profile in profiles
        for point in (MULTI_POINT, "permit")
        for ref in profile.plugins[point].enabled
    }
    for name in sorted(plugin.may_end_waits_of or ()):
        if name not in enabled:
            others = enabled - {plugin.name}
            yield (
                f'plugin "{plugin.name}": handle.permit names "{name}", which no profile enables at permit:'
                f" it holds no pods{_cure(name, others)}"
            )


_CYCLE_POINTS = frozenset({"preFilter", "filter", "postFilter", "preScore", "score", "reserve", "permit"})
