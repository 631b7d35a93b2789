"""The loaded configuration, as the rest of the host sees it: no versions, nothing absent.

Built by `loading`, read by `app`, `check-config` and everything that `app` composes. Times are in
seconds. Plugin arguments stay JSON, because only the plugin knows their meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from berth_sdk.gang_policy import GANG_SCHEDULING, GangPolicy

from berth_host.config.berth.configuration import BerthConfiguration
from berth_host.config.decoding.scheduler_v1 import PluginConfig
from berth_host.config.decoding.types_v1 import KubeSchedulerConfiguration
from berth_host.config.default_plugins import FIT
from berth_host.config.emulation import NO_EMULATION, Emulation
from berth_host.config.feature_gates import FeatureGates
from berth_host.config.source.node import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class EnabledPlugin:
    """A plugin at a point. `weight` is 0 at points that do not score."""

    name: str
    weight: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedProfile:
    """One scheduler name with the plugins that run for it.

    `plugins`: by point, spelled as in KubeSchedulerConfiguration, in the order in which they run; points
    without plugins are absent. `plugin_args`: the arguments of each plugin that runs, defaults included.
    `percentage_of_nodes_to_score`, `percentage_of_placements_to_score` None: the global value counts.
    `merged_plugins` and `plugin_config` are the profile before expansion, `framework_plugin_config` the
    arguments that the plugins get, sorted by name.
    """

    scheduler_name: str
    percentage_of_nodes_to_score: int | None
    percentage_of_placements_to_score: int | None
    plugins: Mapping[str, tuple[EnabledPlugin, ...]]
    plugin_args: Mapping[str, Json]
    merged_plugins: Mapping[str, Json]
    plugin_config: tuple[PluginConfig, ...]
    framework_plugin_config: tuple[PluginConfig, ...]

    def plugins_at(self, point: str) -> tuple[EnabledPlugin, ...]:
        """Return the plugins of a point, none if it has none."""
        return self.plugins.get(point, ())

    @property
    def gang_policy(self) -> GangPolicy:
        """The settings of groups that the arguments of GangScheduling have, whether or not the profile
        enables it: they count for groups of every kind.
        """
        given = [entry.args for entry in self.plugin_config if entry.name == GANG_SCHEDULING]
        args = given[-1] if given else None
        return GangPolicy.of(args if isinstance(args, Mapping) else {})

    @property
    def ignored_resources(self) -> tuple[frozenset[str], frozenset[str]]:
        """The extended resources, and the domains of extended resources, that the profile leaves to others by
        the arguments of NodeResourcesFit.
        """
        args = self.plugin_args.get(FIT)
        given = args if isinstance(args, Mapping) else {}
        return _texts(given.get("ignoredResources")), _texts(given.get("ignoredResourceGroups"))

    @property
    def plugin_names(self) -> frozenset[str]:
        """All plugins that run at any point."""
        return frozenset(plugin.name for listed in self.plugins.values() for plugin in listed)


def _texts(value: object) -> frozenset[str]:
    return frozenset(map(str, value)) if isinstance(value, Sequence) else frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfiguration:
    """A whole configuration. `scheduler_json` is the defaulted first document without its profiles.

    `scheduler`: the first document after its defaults, whose profiles `profiles` stands in for.
    `document` is the first document as it was decoded, before any default. `berth_document` is berth's own
    document in the same file. `converted_from` is the older form of the first document, None for v1.
    `emulation`: the mended behaviours that are off. `gates`: the feature gates in effect.
    """

    scheduler: KubeSchedulerConfiguration
    profiles: tuple[ResolvedProfile, ...]
    berth: BerthConfiguration
    warnings: tuple[str, ...]
    scheduler_json: Mapping[str, Json]
    document: Mapping[str, Json]
    gates: FeatureGates
    berth_document: Mapping[str, Json] | None = None
    converted_from: str | None = None
    emulation: Emulation = NO_EMULATION

    def profile(self, scheduler_name: str) -> ResolvedProfile | None:
        """Return the profile of a scheduler name, None if it is another scheduler's."""
        return next((p for p in self.profiles if p.scheduler_name == scheduler_name), None)
