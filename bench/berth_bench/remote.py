"""`--remote PLUGIN`: change a configuration so that plugins run in processes of their own.

Each plugin becomes a child that the host starts (`berth-sdk serve`) and calls over a Unix socket. It is
required, because a run without it would be faster for the wrong reason.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from berth_host.config.berth.configuration import BerthPlugin
from berth_host.config.configuration import EnabledPlugin, LoadedConfiguration, ResolvedProfile
from berth_host.config.default_plugins import EXTENSION_POINTS
from berth_host.errors.plugins import PluginLoadError
from berth_host.plugins.registry import ClassRegistry, load_class, points_of_class

_MAIN = ("__main__", "__mp_main__")
_NAMED_ONCE = "queueSort"
_SCORE = "score"


def with_remote(
    configuration: LoadedConfiguration, names: Sequence[str], plugins: Mapping[str, type]
) -> LoadedConfiguration:
    """Return the configuration with these plugins served. `names`: plugins that a profile enables, or
    `module:Class`, which is enabled in every profile at all extension points of the class. Raises
    PluginLoadError for any other name.
    """
    for name in names:
        configuration = _moved(configuration, name, plugins)
    return configuration


def _moved(
    configuration: LoadedConfiguration, given: str, plugins: Mapping[str, type]
) -> LoadedConfiguration:
    name, served = given, given
    profiles = configuration.profiles
    if ":" in given:
        name = given.partition(":")[2]
        profiles = tuple(_enabled(profile, name, given) for profile in profiles)
    elif not any(given in profile.plugin_names for profile in profiles):
        known = ", ".join(sorted({one for profile in profiles for one in profile.plugin_names}))
        raise PluginLoadError(given, "--remote", f"no profile enables it; enabled are {known}")
    else:
        served = _where(configuration, name, plugins)
    own = configuration.berth.plugin(name)
    if own is not None and own.in_process is None:
        return replace(configuration, profiles=profiles)  # already a served plugin
    moved = replace(
        own or BerthPlugin(name=name),
        command=(sys.executable, "-m", "berth_sdk", "serve", served),
        in_process=None,
        required=True,
    )
    others = tuple(plugin for plugin in configuration.berth.plugins if plugin.name != name)
    berth = replace(configuration.berth, plugins=(*others, moved))
    return replace(configuration, profiles=profiles, berth=berth)


def _where(configuration: LoadedConfiguration, name: str, plugins: Mapping[str, type]) -> str:
    """Return the argument by which `berth-sdk serve` finds the class of a plugin that is in-process now."""
    own = configuration.berth.plugin(name)
    if own is not None:
        return own.in_process or name
    cls = plugins.get(name)
    if cls is not None:
        if cls.__module__ in _MAIN:
            raise PluginLoadError(name, "--remote", "its class is not in a module that can be imported")
        return f"{cls.__module__}:{cls.__qualname__}"
    if ClassRegistry(plugins).find(name) is None:
        raise PluginLoadError(name, "--remote", "this build does not have it")
    return name


def _enabled(profile: ResolvedProfile, name: str, where: str) -> ResolvedProfile:
    if name in profile.plugin_names:
        return profile
    points = points_of_class(name, load_class(name, where))
    if _NAMED_ONCE in points:
        raise PluginLoadError(name, where, "there is only one QueueSort plugin: name yours in --config")
    listed = {
        point: (
            *profile.plugins_at(point),
            *([EnabledPlugin(name=name, weight=1 if point == _SCORE else 0)] if point in points else ()),
        )
        for point in EXTENSION_POINTS
    }
    return replace(profile, plugins={point: found for point, found in listed.items() if found})
