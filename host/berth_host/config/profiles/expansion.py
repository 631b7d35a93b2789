"""One profile -> the plugins that run at every point, in order, with weights. Called by `building`.

Explicit entries of a point come first where they override multiPoint, then multiPoint's entries, then the
other explicit ones. Source: `pkg/scheduler/framework/runtime/framework.go` (NewFramework), v1.38.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from berth_host.config.configuration import EnabledPlugin
from berth_host.config.default_plugins import (
    EXTENSION_POINTS,
    MULTI_POINT,
    PLACEMENT_FEASIBLE,
    POINT_INTERFACES,
    WEIGHTED_POINTS,
)
from berth_host.config.defaulting import DefaultedProfile, PluginRef, PluginSet
from berth_host.config.errors import Finding, nearest

_MAX_SCORE: Final = 100
_MAX_TOTAL: Final = 2**63 - 1


class ProfileError(Exception):
    """A profile cannot be built. Attribute: finding, with a path relative to the profile."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.text)
        self.finding = finding


def expand_plugins(
    profile: DefaultedProfile,
    points_by_plugin: Mapping[str, frozenset[str]],
    *,
    lists_placement_feasible: bool = True,
) -> dict[str, tuple[EnabledPlugin, ...]]:
    """Return the plugins of every point; points without any are left out.

    `points_by_plugin` are all plugins that exist, with the points they implement.
    `lists_placement_feasible`: False for versions before 1.38, which have no list for that point, and allow
    one generator of placements only. Raises ProfileError.
    """
    return _Expansion(profile, points_by_plugin, lists_placement_feasible).result()


class _Expansion:
    """The steps of kube-scheduler's NewFramework, in its order, so that the first error is the same."""

    def __init__(
        self,
        profile: DefaultedProfile,
        points_by_plugin: Mapping[str, frozenset[str]],
        lists_placement_feasible: bool,
    ) -> None:
        self._without_list = () if lists_placement_feasible else (PLACEMENT_FEASIBLE,)
        self._listed = tuple(point for point in EXTENSION_POINTS if point not in self._without_list)
        self._profile = profile
        self._known = points_by_plugin
        self._multi_point = profile.plugins[MULTI_POINT].enabled

    def result(self) -> dict[str, tuple[EnabledPlugin, ...]]:
        for point in self._listed:
            self._check_explicit(point, self._profile.plugins[point].enabled)
        names = {point: self._expand(point, self._profile.plugins[point]) for point in self._listed}
        self._check_counts(names)
        for point in self._without_list:
            names[point] = self._unlisted(point, names)
        weights = {point: self._weights(point) for point in EXTENSION_POINTS if point in WEIGHTED_POINTS}
        return {
            point: tuple(
                EnabledPlugin(name=name, weight=weights[point][name] if point in weights else 0)
                for name in listed
            )
            for point, listed in names.items()
            if listed
        }

    def _check_explicit(self, point: str, enabled: Sequence[PluginRef]) -> None:
        seen: set[str] = set()
        for index, ref in enumerate(enabled):
            where = f"plugins.{point}.enabled[{index}]"
            if ref.name not in self._known:
                raise self._does_not_exist(point, ref.name, where)
            if point not in self._known[ref.name]:
                message = f'plugin "{ref.name}" does not extend {POINT_INTERFACES[point]} plugin'
                raise ProfileError(Finding(message, field=where))
            if ref.name in seen:
                raise self._registered_twice(point, ref.name, where)
            seen.add(ref.name)

    def _expand(self, point: str, plugin_set: PluginSet) -> list[str]:
        explicit = [ref.name for ref in plugin_set.enabled]
        if "*" in plugin_set.disabled or not self._multi_point:
            return explicit
        overridden: list[str] = []
        added: list[str] = []
        for ref in self._multi_point:
            # By name: the index in the merged list is not the one in the file.
            where = f"plugins.multiPoint.enabled[{ref.name}]"
            if ref.name not in self._known:
                raise self._does_not_exist(point, ref.name, where)
            if point not in self._known[ref.name] or ref.name in plugin_set.disabled:
                continue
            if ref.name in explicit:
                overridden.append(ref.name)
            elif ref.name in added:
                raise self._registered_twice(point, ref.name, where)
            else:
                added.append(ref.name)
        first = [name for name in explicit if name in overridden]
        return [*first, *added, *(name for name in explicit if name not in overridden)]

    def _unlisted(self, point: str, names: Mapping[str, Sequence[str]]) -> list[str]:
        """Return the enabled plugins that have a point without a list, those of multiPoint first."""
        disabled = self._profile.plugins[MULTI_POINT].disabled
        of_multi_point = [ref.name for ref in self._multi_point if ref.name not in disabled]
        enabled = [name for listed in names.values() for name in listed]
        return [
            name
            for name in dict.fromkeys((*of_multi_point, *enabled))
            if point in self._known.get(name, frozenset())
        ]

    def _check_counts(self, names: Mapping[str, Sequence[str]]) -> None:
        profile = f'for profile with scheduler name "{self._profile.scheduler_name}"'
        if len(names["queueSort"]) != 1:
            message = f"only one queue sort plugin required {profile}, but got {len(names['queueSort'])}"
            raise ProfileError(Finding(message, field="plugins.queueSort"))
        if not names["bind"]:
            raise ProfileError(Finding(f"at least one bind plugin is needed {profile}", field="plugins.bind"))
        if self._without_list and len(names["placementGenerate"]) > 1:
            message = "at most one placement generate plugin is allowed"
            raise ProfileError(Finding(f"{message} {profile}", field="plugins.placementGenerate"))

    def _weights(self, point: str) -> dict[str, int]:
        """Weights by name: the point's own entry counts before multiPoint's; 0 means 1.

        Plugins that are disabled at the point count for the total as well, as in kube-scheduler.
        """
        weights: dict[str, int] = {}
        total = 0
        for ref in (*self._profile.plugins[point].enabled, *self._multi_point):
            # The name of an unknown plugin gets here only if every point disables multiPoint's expansion.
            if point not in self._known.get(ref.name, ()) or ref.name in weights:
                continue
            weights[ref.name] = ref.weight or 1
            score = weights[ref.name] * _MAX_SCORE
            # The sum wraps around as Go's int64 does: so a negative weight is an "overflow".
            if score > _wrap(_MAX_TOTAL - total):
                message = f"{WEIGHTED_POINTS[point]} plugins: total score of Score plugins could overflow"
                raise ProfileError(Finding(message, field=f"plugins.{point}"))
            total = _wrap(total + score)
        return weights

    def _does_not_exist(self, point: str, name: str, where: str) -> ProfileError:
        message = (
            f'{POINT_INTERFACES[point]} "{name}" does not exist: it is no default plugin; say where it runs '
            f"in a BerthConfiguration, install its package, or name it to check-config "
            f"(--plugin {name}={point})"
        )
        return ProfileError(Finding(message, field=where, suggestion=nearest(name, self._known)))

    def _registered_twice(self, point: str, name: str, where: str) -> ProfileError:
        message = f'plugin "{name}" already registered as "{POINT_INTERFACES[point]}"'
        return ProfileError(Finding(message, field=where))


def _wrap(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63
