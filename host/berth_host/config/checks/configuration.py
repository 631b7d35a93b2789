"""Validation of a whole KubeSchedulerConfiguration, in kube-scheduler's order. Called by the loader.

Source: `pkg/scheduler/apis/config/validation/validation.go`,
`component-base/config/validation/validation.go`, v1.38.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from berth_sdk.duration import format_seconds

from berth_host.config.checks.names import check_extended_resource_name
from berth_host.config.checks.plugin_args import check_args
from berth_host.config.decoding.scheduler_v1 import PluginConfig
from berth_host.config.decoding.types_v1 import (
    API_VERSION,
    PLUGIN_SETS,
    Extender,
    KubeSchedulerConfiguration,
    LeaderElection,
)
from berth_host.config.default_plugins import MULTI_POINT, PLACEMENT_FEASIBLE
from berth_host.config.defaulting import (
    PLACEMENTS_GATE,
    PLACEMENTS_TO_SCORE,
    DefaultedProfile,
    DefaultedScheduler,
)
from berth_host.config.errors import Finding, duplicate, forbidden, invalid, required
from berth_host.config.feature_gates import FeatureGates

REMOVED_PLUGINS: Final = ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits")
"""Plugins of older releases that v1 refuses by name."""

# kube-scheduler does not search multiPoint for removed plugins, and the points of placements since 1.38 only.
_POINTS_OF_REMOVED_CHECK: Final = PLUGIN_SETS[: PLUGIN_SETS.index(MULTI_POINT)]
_PLACEMENT_POINTS: Final = ("placementGenerate", "placementScore", PLACEMENT_FEASIBLE)


def check_configuration(
    defaulted: DefaultedScheduler, gates: FeatureGates, absent_fields: frozenset[str] = frozenset()
) -> list[Finding]:
    """Return the errors in a decoded and defaulted document; empty if there are none. `absent_fields`: as in
    `Emulation`.
    """
    lists_feasible = f"plugins.{PLACEMENT_FEASIBLE}" not in absent_fields
    points = (*_POINTS_OF_REMOVED_CHECK, *(_PLACEMENT_POINTS if lists_feasible else ()))
    config = defaulted.config
    findings = []
    if config.client_connection.burst < 0:
        burst = config.client_connection.burst
        findings.append(invalid("clientConnection.burst", burst, "must be non-negative"))
    findings += _check_leader_election(config.leader_election)
    if config.parallelism <= 0:
        message = "should be an integer value greater than zero"
        findings.append(invalid("parallelism", config.parallelism, message))
    findings += _check_profiles(defaulted.profiles, gates, points)
    findings += _check_percentage("percentageOfNodesToScore", config.percentage_of_nodes_to_score)
    findings += _check_placements(PLACEMENTS_TO_SCORE, config.percentage_of_placements_to_score, gates)
    findings += _check_backoff(config)
    findings += _check_extenders(config.extenders)
    return findings


def _check_leader_election(given: LeaderElection) -> list[Finding]:
    if not given.leader_elect:
        return []
    path = "leaderElection"
    durations = {
        "leaseDuration": given.lease_duration_s,
        "renewDeadline": given.renew_deadline_s,
        "retryPeriod": given.retry_period_s,
    }
    findings = [
        invalid(f"{path}.{name}", format_seconds(duration_s), "must be greater than zero")
        for name, duration_s in durations.items()
        if duration_s <= 0
    ]
    if given.lease_duration_s <= given.renew_deadline_s:
        shown = format_seconds(given.renew_deadline_s)
        findings.append(invalid(f"{path}.leaseDuration", shown, "must be greater than `RenewDeadline`"))
    names = {
        "resourceLock": given.resource_lock,
        "resourceNamespace": given.resource_namespace,
        "resourceName": given.resource_name,
    }
    findings += [required(f"{path}.{name}") for name, value in names.items() if not value]
    if given.resource_lock != "leases":
        message = 'resourceLock value must be "leases"'
        findings.append(invalid(f"{path}.resourceLock", given.resource_lock, message))
    return findings


def _check_percentage(path: str, percentage: int | None) -> list[Finding]:
    if percentage is None or 0 <= percentage <= 100:
        return []
    return [invalid(path, percentage, "not in valid range [0-100]")]


def _check_placements(path: str, percentage: int | None, gates: FeatureGates) -> list[Finding]:
    if percentage is not None and not gates.is_enabled(PLACEMENTS_GATE):
        return [
            forbidden(path, f"{PLACEMENTS_TO_SCORE} requires {PLACEMENTS_GATE} feature gate to be enabled")
        ]
    return _check_percentage(path, percentage)


def _check_backoff(config: KubeSchedulerConfiguration) -> list[Finding]:
    initial, maximum = config.pod_initial_backoff_s, config.pod_max_backoff_s
    findings = []
    if initial <= 0:
        findings.append(invalid("podInitialBackoffSeconds", initial, "must be greater than 0"))
    if maximum < initial:
        message = "must be greater than or equal to PodInitialBackoffSeconds"
        findings.append(invalid("podMaxBackoffSeconds", maximum, message))
    return findings


def _check_profiles(
    profiles: Sequence[DefaultedProfile], gates: FeatureGates, points: Sequence[str]
) -> list[Finding]:
    findings = []
    seen: set[str] = set()
    for index, profile in enumerate(profiles):
        path = f"profiles[{index}]"
        if not profile.scheduler_name:
            findings.append(required(f"{path}.schedulerName"))
        where = f"{path}.percentageOfNodesToScore"
        findings += _check_percentage(where, profile.percentage_of_nodes_to_score)
        where = f"{path}.{PLACEMENTS_TO_SCORE}"
        findings += _check_placements(where, profile.percentage_of_placements_to_score, gates)
        findings += _check_removed_plugins(f"{path}.plugins", profile, points)
        findings += _check_plugin_config(f"{path}.pluginConfig", profile.plugin_config, gates)
        if profile.scheduler_name in seen:
            # The empty object: kube-scheduler prints the path of the other profile as one.
            findings.append(duplicate(f"{path}.schedulerName", {}))
        seen.add(profile.scheduler_name)
    return findings + _check_common_queue_sort(profiles)


def _check_removed_plugins(path: str, profile: DefaultedProfile, points: Sequence[str]) -> list[Finding]:
    return [
        invalid(f"{path}.{point}.enabled[{index}]", ref.name, _removed_message())
        for point in points
        for index, ref in enumerate(profile.plugins[point].enabled)
        if ref.name in REMOVED_PLUGINS
    ]


def _removed_message() -> str:
    return f'was invalid in version "v1" (KubeSchedulerConfiguration is version "{API_VERSION}")'


def _check_plugin_config(path: str, entries: Sequence[PluginConfig], gates: FeatureGates) -> list[Finding]:
    findings = []
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        where = f"{path}[{index}]"
        if entry.name in seen:
            findings.append(duplicate(where, entry.name))
        seen.add(entry.name)
        if entry.name in REMOVED_PLUGINS:
            findings.append(invalid(where, entry.name, _removed_message()))
        elif entry.typed is not None:
            findings += check_args(f"{where}.args", entry.typed, gates)
    return findings


def _check_common_queue_sort(profiles: Sequence[DefaultedProfile]) -> list[Finding]:
    findings = []
    first = profiles[0].plugins["queueSort"]
    if len(first.enabled) > 1:
        where = "profiles[0].plugins.queueSort.Enabled"
        findings.append(invalid(where, len(first.enabled), "only one queue sort plugin can be enabled"))
    name = first.enabled[0].name if first.enabled else ""
    args = [entry.args for entry in profiles[0].plugin_config if name and entry.name == name]
    canonical = _canonical(args[-1] if args else None)
    for index, profile in enumerate(profiles[1:], start=1):
        given = profile.plugins["queueSort"]
        if given != first:
            message = "must be the same for all profiles"
            findings.append(invalid(f"profiles[{index}].plugins.queueSort", given.to_json(), message))
        findings += [
            invalid(
                f"profiles[{index}].pluginConfig.args",
                entry.args,
                "queueSort must be the same for all profiles",
            )
            for entry in profile.plugin_config
            if entry.name == name and _canonical(entry.args) != canonical
        ]
    return findings


def _canonical(args: object) -> str:
    # As text, because True == 1 in Python.
    return json.dumps(args, sort_keys=True)


def _check_extenders(extenders: Sequence[Extender]) -> list[Finding]:
    findings = []
    seen: set[str] = set()
    for index, extender in enumerate(extenders):
        path = f"extenders[{index}]"
        if extender.prioritize_verb and extender.weight <= 0:
            message = "must have a positive weight applied to it (with a prioritizeVerb, such as weight: 1)"
            findings.append(invalid(f"{path}.weight", extender.weight, message))
        for position, resource in enumerate(extender.managed_resources):
            where = f"{path}.managedResources[{position}].name"
            findings += check_extended_resource_name(where, resource.name)
            if resource.name in seen:
                findings.append(invalid(where, resource.name, "duplicate extender managed resource name"))
            seen.add(resource.name)
    binders = sum(bool(extender.bind_verb) for extender in extenders)
    if binders > 1:
        shown = f"found {binders} extenders implementing bind"
        findings.append(invalid("extenders", shown, "only one extender can implement bind"))
    return findings
