"""`managedResources` of plugins: the extended resources that a plugin accounts for.

The plugin is called only about pods that want one of these resources. NodeResourcesFit leaves those with
`ignoredByScheduler` to the plugin, in every profile in which the plugin filters. So such a resource is
refused wherever a pod could get it while nobody counts it. Called by the checks of BerthConfiguration, by the
loader and by the building of profiles.
Source: KEP-1819 (ManagedResources), kube-scheduler `apis/config/validation/validation.go`
(validateExtenders), v1.36.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from berth_host.config.berth.configuration import BerthPlugin
from berth_host.config.berth.points import FailurePolicy
from berth_host.config.checks.names import check_extended_resource_name
from berth_host.config.decoding.args_v1 import NodeResourcesFitArgsV1
from berth_host.config.decoding.scheduler_v1 import PluginConfig
from berth_host.config.decoding.types_v1 import Extender
from berth_host.config.default_plugins import FIT
from berth_host.config.defaulting import DefaultedProfile
from berth_host.config.errors import Finding, forbidden, invalid

_JUDGING: Final = ("filter", "simulateFilter")
"""The points at which nodes are judged. Without settings of its own simulateFilter has those of filter. It
judges the nodes to which other pods are nominated.
"""
_CURE: Final = f"or leave ignoredByScheduler out, so that {FIT} counts the resource"


def check_managed_resources(plugins: Sequence[BerthPlugin]) -> list[Finding]:
    """Return the errors in `managedResources` of all plugins of a BerthConfiguration."""
    findings = []
    managers: dict[str, str] = {}
    for index, plugin in enumerate(plugins):
        path = f"plugins[{index}]"
        for position, resource in enumerate(plugin.managed_resources):
            where = f"{path}.managedResources[{position}].name"
            findings += check_extended_resource_name(where, resource.name)
            if resource.name in managers:
                message = (
                    f'plugin "{managers[resource.name]}" manages this resource already: '
                    "a resource has one manager, so name it once"
                )
                findings.append(invalid(where, resource.name, message))
            managers.setdefault(resource.name, plugin.name)
        if plugin.managed_names and plugin.scope.resources:
            message = (
                "managedResources already limits the plugin to the pods that want these resources: "
                "leave scope.resources out"
            )
            findings.append(forbidden(f"{path}.scope.resources", message))
        if plugin.left_to_it:
            findings += _check_is_always_asked(path, plugin)
    return findings


def _check_is_always_asked(path: str, plugin: BerthPlugin) -> Iterator[Finding]:
    """Yield an error per setting that places a pod without the plugin's Filter.

    Nobody would count what such a pod takes of the resource.
    """
    names = ", ".join(plugin.left_to_it)
    lost = f"nobody would count {names} of"
    if plugin.name == FIT:
        message = f"{FIT} cannot leave a resource to itself: leave ignoredByScheduler out"
        yield forbidden(f"{path}.managedResources", message)
    for point in _JUDGING:
        policy = plugin.points[point].policy if point in plugin.points else None
        if policy is FailurePolicy.IGNORE:
            message = f"{lost} the pods for which the call fails: write policy: Fail, {_CURE}"
            yield forbidden(f"{path}.points.{point}.policy", message)
        elif not plugin.required and policy is None and (point in plugin.points or point == "filter"):
            message = f"{lost} pods while the plugin is absent: write points.{point}.policy: Fail, {_CURE}"
            yield forbidden(f"{path}.required", message)
    for name, selector in (
        ("namespaceSelector", plugin.scope.namespace_selector),
        ("podSelector", plugin.scope.pod_selector),
    ):
        if selector is not None:
            message = f"{lost} the pods that are not selected: leave {name} out, {_CURE}"
            yield forbidden(f"{path}.scope.{name}", message)


def check_managers(plugins: Sequence[BerthPlugin], extenders: Sequence[Extender]) -> list[Finding]:
    """Return an error for each resource that both a plugin and an extender manage.

    The paths begin at BerthConfiguration.
    """
    of_extenders = {
        resource.name: index
        for index, extender in enumerate(extenders)
        for resource in extender.managed_resources
    }
    return [
        invalid(
            f"plugins[{index}].managedResources[{position}].name",
            resource.name,
            f"extenders[{of_extenders[resource.name]}] manages this resource already: a resource has one "
            "manager, so leave it out in one of the two places",
        )
        for index, plugin in enumerate(plugins)
        for position, resource in enumerate(plugin.managed_resources)
        if resource.name in of_extenders
    ]


def why_without_filter(plugin: BerthPlugin) -> str:
    """Return the error about a plugin that manages resources and has no Filter, as the end of a sentence."""
    return (
        f"does not implement filter, but manages {', '.join(plugin.managed_names)}: "
        "give the plugin that method, or leave managedResources out in its BerthConfiguration"
    )


def why_not_at_filter(plugin: BerthPlugin) -> str:
    """Return the error about a plugin that a profile enables without Filter, as the end of a sentence."""
    return (
        f"manages {', '.join(plugin.managed_names)}, but the profile does not enable it at filter: "
        "add it to plugins.filter, or leave managedResources out in its BerthConfiguration"
    )


def resources_left_to(plugins: Sequence[BerthPlugin], filters: Collection[str]) -> list[str]:
    """Return the resources that NodeResourcesFit leaves to plugins, in the file's order.

    `filters`: the names of a profile's Filter plugins.
    """
    return [name for plugin in plugins if plugin.name in filters for name in plugin.left_to_it]


def with_ignored(profile: DefaultedProfile, names: Sequence[str]) -> DefaultedProfile:
    """Return the profile with `names` added to `ignoredResources` of NodeResourcesFit."""
    if not names:
        return profile
    entries = tuple(_with_ignored(entry, names) for entry in profile.plugin_config)
    return replace(profile, plugin_config=entries)


def _with_ignored(entry: PluginConfig, names: Sequence[str]) -> PluginConfig:
    if not isinstance(entry.typed, NodeResourcesFitArgsV1):
        return entry
    ignored = dict.fromkeys((*(entry.typed.ignored_resources or ()), *names))
    return entry.with_typed(replace(entry.typed, ignored_resources=tuple(ignored)))
