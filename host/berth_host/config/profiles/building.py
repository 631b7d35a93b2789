"""Defaulted profiles -> resolved ones; extenders, and the arguments of every plugin, are checked.

The last step of loading. Source: `pkg/scheduler/scheduler.go` (New, buildExtenders),
`pkg/scheduler/profile/profile.go`, v1.36.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from berth_host.config.berth.configuration import BerthPlugin
from berth_host.config.berth.managed_resources import (
    resources_left_to,
    why_not_at_filter,
    why_without_filter,
    with_ignored,
)
from berth_host.config.checks.extender_tls import ExtenderTlsError, check_extender_tls
from berth_host.config.checks.plugin_args import check_fit_args
from berth_host.config.configuration import ResolvedProfile
from berth_host.config.decoding.args_v1 import NodeResourcesFitArgsV1
from berth_host.config.decoding.types_v1 import Extender
from berth_host.config.default_plugins import EXTENDER, FIT
from berth_host.config.defaulting import DefaultedProfile, DefaultedScheduler
from berth_host.config.errors import Finding
from berth_host.config.profiles.expansion import ProfileError, expand_plugins
from berth_host.config.profiles.registry import PluginRegistry
from berth_host.config.source.node import child


def build_profiles(
    defaulted: DefaultedScheduler,
    registry: PluginRegistry,
    plugins: Sequence[BerthPlugin] = (),
    *,
    lists_placement_feasible: bool = True,
) -> tuple[ResolvedProfile, ...]:
    """Resolve every profile. `plugins`: those of BerthConfiguration. `lists_placement_feasible`: as in
    `expand_plugins`.

    Raises ProfileError with a path from the top of the document.
    """
    profiles = _build_extenders(defaulted)
    resolved: list[ResolvedProfile] = []
    for index, profile in enumerate(profiles):
        try:
            if defaulted.config.extenders:
                _check_no_plugin_is_named_extender(profile)
            given = defaulted.profiles[index]
            resolved.append(
                _build_profile(
                    given, profile, registry, plugins, lists_placement_feasible=lists_placement_feasible
                )
            )
        except ProfileError as err:
            raise ProfileError(_in_profile(err.finding, index, profile.scheduler_name)) from err
        _check_same_queue_sort(resolved, index)
    return tuple(resolved)


def _in_profile(finding: Finding, index: int, scheduler_name: str) -> Finding:
    message = f"creating profile for scheduler name {scheduler_name}: {finding.message}"
    return replace(finding, message=message, field=child(f"profiles[{index}]", finding.field))


def _build_extenders(defaulted: DefaultedScheduler) -> tuple[DefaultedProfile, ...]:
    """Check the extenders; the resources they ignore replace `ignoredResources` of NodeResourcesFit."""
    extenders = defaulted.config.extenders
    for index, extender in enumerate(extenders):
        try:
            check_extender_tls(extender)
        except ExtenderTlsError as err:
            message = f"couldn't build extenders: {err}"
            raise ProfileError(Finding(message, field=f"extenders[{index}].tlsConfig")) from err
    ignored = _ignored_resources(extenders)
    if not ignored:
        return defaulted.profiles
    return tuple(_ignoring(profile, ignored) for profile in defaulted.profiles)


def _ignored_resources(extenders: Sequence[Extender]) -> tuple[str, ...]:
    return tuple(
        resource.name
        for extender in extenders
        for resource in extender.managed_resources
        if resource.ignored_by_scheduler
    )


def extender_warnings(defaulted: DefaultedScheduler) -> Iterator[str]:
    """Yield a warning for each resource that extenders take from NodeResourcesFit and may not count."""
    extenders = defaulted.config.extenders
    for index, extender in enumerate(extenders):
        left = ", ".join(_ignored_resources([extender]))
        if left and not extender.filter_verb:
            yield (
                f"extenders[{index}] has no filterVerb: nobody counts {left}, because NodeResourcesFit does "
                "not check it (ignoredByScheduler)"
            )
        elif left and extender.ignorable:
            yield (
                f"extenders[{index}] is ignorable: while it fails, nobody counts {left}, because "
                "NodeResourcesFit does not check it (ignoredByScheduler)"
            )
    ignored = _ignored_resources(extenders)
    for index, profile in enumerate(defaulted.profiles if ignored else ()):
        for entry in profile.plugin_config:
            given = entry.typed.ignored_resources if isinstance(entry.typed, NodeResourcesFitArgsV1) else ()
            lost = ", ".join(name for name in given or () if name not in ignored)
            if lost:
                yield (
                    f"profiles[{index}]: NodeResourcesFit checks {lost}, because the resources with "
                    "ignoredByScheduler of the extenders replace its ignoredResources"
                )


def _ignoring(profile: DefaultedProfile, ignored: tuple[str, ...]) -> DefaultedProfile:
    entries = [
        entry.with_typed(replace(entry.typed, ignored_resources=ignored))
        if isinstance(entry.typed, NodeResourcesFitArgsV1)
        else entry
        for entry in profile.plugin_config
    ]
    if not any(entry.name == FIT for entry in entries):
        message = "couldn't build extenders: can't find NodeResourcesFitArgs in plugin config"
        raise ProfileError(Finding(message, field="extenders"))
    return replace(profile, plugin_config=tuple(entries))


def _build_profile(
    given: DefaultedProfile,
    profile: DefaultedProfile,
    registry: PluginRegistry,
    plugins: Sequence[BerthPlugin],
    *,
    lists_placement_feasible: bool,
) -> ResolvedProfile:
    """`given`: the profile before extenders and managed resources changed its arguments; users are shown that
    form.
    """
    needed = {ref.name for plugin_set in profile.plugins.values() for ref in plugin_set.enabled}
    _check_construction(profile, needed)
    expanded = expand_plugins(
        profile, registry.points_by_plugin, lists_placement_feasible=lists_placement_feasible
    )
    filters = {plugin.name for plugin in expanded.get("filter", ())}
    _check_managers_filter(profile, registry, plugins, filters)
    profile = with_ignored(profile, resources_left_to(plugins, filters))
    framework_config = sorted(
        (entry for entry in profile.plugin_config if entry.name in needed and entry.args is not None),
        key=lambda config: config.name,
    )
    return ResolvedProfile(
        scheduler_name=profile.scheduler_name,
        percentage_of_nodes_to_score=profile.percentage_of_nodes_to_score,
        percentage_of_placements_to_score=profile.percentage_of_placements_to_score,
        plugins=expanded,
        plugin_args={config.name: config.args for config in framework_config},
        merged_plugins=profile.merged_plugins(),
        plugin_config=given.plugin_config,
        framework_plugin_config=tuple(framework_config),
    )


def _check_no_plugin_is_named_extender(profile: DefaultedProfile) -> None:
    for point, plugin_set in profile.plugins.items():
        if any(ref.name == EXTENDER for ref in plugin_set.enabled):
            message = (
                f'plugin "{EXTENDER}": pods that extenders rejected count as rejected by this name; give '
                "the plugin another name, or remove extenders"
            )
            raise ProfileError(Finding(message, field=f"plugins.{point}.enabled"))


def _check_managers_filter(
    profile: DefaultedProfile,
    registry: PluginRegistry,
    plugins: Sequence[BerthPlugin],
    filters: Collection[str],
) -> None:
    """Raise ProfileError if a plugin that manages resources is enabled here, but not at filter."""
    for plugin in plugins:
        if not plugin.managed_resources or plugin.name in filters:
            continue
        for point, plugin_set in profile.plugins.items():
            if any(ref.name == plugin.name for ref in plugin_set.enabled):
                # What a served plugin implements is known when it is attached.
                may_filter = plugin.in_process is None or "filter" in registry.points_by_plugin[plugin.name]
                why = why_not_at_filter(plugin) if may_filter else why_without_filter(plugin)
                message = f'plugin "{plugin.name}" {why}'
                raise ProfileError(Finding(message, field=f"plugins.{point}.enabled"))


def _check_construction(profile: DefaultedProfile, needed: set[str]) -> None:
    for index, entry in enumerate(profile.plugin_config):
        if entry.name in needed and isinstance(entry.typed, NodeResourcesFitArgsV1):
            for finding in check_fit_args("", entry.typed):
                message = f'initializing plugin "{entry.name}": {finding.field}: {finding.message}'
                where = f"pluginConfig[{index}].args.{finding.field}"
                raise ProfileError(Finding(message, field=where, suggestion=finding.suggestion))


def _check_same_queue_sort(resolved: Sequence[ResolvedProfile], index: int) -> None:
    first, profile = resolved[0], resolved[index]
    name, wanted = profile.plugins["queueSort"][0].name, first.plugins["queueSort"][0].name
    shown = f'profile "{profile.scheduler_name}"'
    where = f"profiles[{index}].plugins.queueSort"
    if name != wanted:
        message = f'different queue sort plugins for {shown}: "{name}", first: "{wanted}"'
        raise ProfileError(Finding(message, field=where))
    if _args_text(profile, name) != _args_text(first, name):
        raise ProfileError(Finding(f"different queue sort plugin args for {shown}", field=where))


def _args_text(profile: ResolvedProfile, name: str) -> str:
    args = [config.args for config in profile.plugin_config if config.name == name]
    return json.dumps(args[-1] if args else None, sort_keys=True)
