"""Checks the values of a decoded BerthConfiguration. Called by its decoder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from berth_sdk.wire.addresses import is_loopback

from berth_host.config.berth.configuration import Transport
from berth_host.config.berth.handle_checks import check_handle
from berth_host.config.berth.points import (
    MAX_CONCURRENCY,
    MAX_CYCLE_BUDGET_MS,
    MAX_PLUGINS,
    MIN_CYCLE_BUDGET_MS,
    MIN_DEADLINE_MS,
    POINT_RULES,
    PointRules,
)
from berth_host.config.berth.shared import check_shared
from berth_host.config.berth.tcp import check_tls_files, host_in
from berth_host.config.berth.types_v1alpha1 import (
    BerthConfigurationV1Alpha1,
    PluginV1Alpha1,
    PointsV1Alpha1,
    PointV1Alpha1,
    ScopeV1Alpha1,
)
from berth_host.config.checks.names import check_label_name
from berth_host.config.checks.selectors import check_label_selector
from berth_host.config.decoding.duration import format_duration
from berth_host.config.decoding.go_types import json_fields
from berth_host.config.errors import (
    Finding,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)

_MS_NS: Final = 1_000_000
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_UNIX: Final = re.compile(r"unix:///[^\x00]+")
_MAX_SOCKET_PATH_BYTES: Final = 107
_MAX_UID: Final = 2**32 - 2
_IN_PROCESS: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


def check_berth(document: BerthConfigurationV1Alpha1) -> list[Finding]:
    """The errors in a decoded document; empty if there are none."""
    findings = []
    plugins = document.plugins or ()
    if len(plugins) > MAX_PLUGINS:
        findings.append(invalid("plugins", len(plugins), f"at most {MAX_PLUGINS} plugins"))
    folder = document.socket_folder
    seen: set[str] = set()
    for index, plugin in enumerate(plugins):
        path = f"plugins[{index}]"
        findings += _check_name(f"{path}.name", plugin.name)
        if plugin.name in seen:
            findings.append(duplicate(f"{path}.name", plugin.name))
        seen.add(plugin.name)
        findings += _check_plugin(path, plugin, folder)
    findings += check_shared(plugins)
    findings += _check_folder(document)
    findings += check_handle(document.handle)
    if document.cycle_budget is not None:
        limits = (MIN_CYCLE_BUDGET_MS, MAX_CYCLE_BUDGET_MS)
        findings += _check_duration("cycleBudget", document.cycle_budget, limits)
    return findings


def _check_name(path: str, name: str) -> list[Finding]:
    if not name:
        return [required(path, "the name by which a profile enables the plugin")]
    if _NAME.fullmatch(name):
        return []
    message = "at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
    return [invalid(path, name, message)]


def _check_folder(document: BerthConfigurationV1Alpha1) -> list[Finding]:
    folder = document.socket_folder
    if not folder:
        return []
    if not folder.startswith("/") or "\0" in folder:
        return [invalid("socketFolder", folder, "the absolute path of a folder, such as /run/berth")]
    return []


def _is_in_folder(plugin: PluginV1Alpha1) -> bool:
    return plugin.endpoint is None and plugin.command is None and plugin.in_process is None


def _check_plugin(path: str, plugin: PluginV1Alpha1, folder: str) -> list[Finding]:
    findings = _check_where(path, plugin, folder)
    findings += _check_scope(f"{path}.scope", plugin.scope)
    findings += _check_points(f"{path}.points", plugin.points)
    if not 0 <= plugin.max_concurrency <= MAX_CONCURRENCY:
        message = f"not in valid range [0, {MAX_CONCURRENCY}]; 0 leaves it to the plugin"
        findings.append(invalid(f"{path}.maxConcurrency", plugin.max_concurrency, message))
    findings += _check_transport(f"{path}.transport", plugin)
    findings += _check_uids(f"{path}.allowedUIDs", plugin)
    findings += _check_permit(f"{path}.handle.permit", plugin.handle.permit or ())
    return findings


def _check_permit(path: str, names: Sequence[str]) -> list[Finding]:
    findings = []
    for index, name in enumerate(names):
        if not name:
            findings.append(required(f"{path}[{index}]", "the name of a plugin that holds pods at Permit"))
        elif name in names[:index]:
            findings.append(duplicate(f"{path}[{index}]", name))
    return findings


def _check_uids(path: str, plugin: PluginV1Alpha1) -> list[Finding]:
    uids = plugin.allowed_uids or ()
    if uids and not (_is_in_folder(plugin) or (plugin.endpoint or "").startswith("unix:")):
        return [forbidden(path, "only for a Unix socket: who listens elsewhere has no user that is known")]
    return [
        invalid(f"{path}[{index}]", uid, f"not in valid range [0, {_MAX_UID}]")
        for index, uid in enumerate(uids)
        if not 0 <= uid <= _MAX_UID
    ]


def _check_transport(path: str, plugin: PluginV1Alpha1) -> list[Finding]:
    if plugin.transport is None:
        return []
    if plugin.in_process is not None:
        return [forbidden(path, "inProcess needs none: the plugin is called directly")]
    known = [transport.value for transport in Transport]
    return [] if plugin.transport in known else [not_supported(path, plugin.transport, known)]


def _check_where(path: str, plugin: PluginV1Alpha1, folder: str) -> list[Finding]:
    ways = {
        "endpoint": plugin.endpoint,
        "command": plugin.command,
        "inProcess": plugin.in_process,
    }
    given = [name for name, value in ways.items() if value is not None]
    if not given and not folder:
        message = "say where the plugin is: endpoint, command or inProcess; or a socketFolder for all of them"
        return [required(path, message)]
    if len(given) > 1:
        message = f"{' and '.join(given)} exclude each other: a plugin is in one place"
        return [forbidden(f"{path}.{name}", message) for name in given[1:]]
    findings = []
    if plugin.command is not None:
        findings += _check_command(f"{path}.command", plugin.command)
    if plugin.in_process is not None and not _IN_PROCESS.fullmatch(plugin.in_process):
        message = "write it as module:Class, such as my_plugins.gpu:GpuShare"
        findings.append(invalid(f"{path}.inProcess", plugin.in_process, message))
    if plugin.endpoint is not None:
        findings += _check_endpoint(path, plugin, plugin.endpoint)
    else:
        way = given[0] if given else "a socket of the folder"
        findings += _check_no_transport_security(path, plugin, f"{way} needs none")
        if plugin.credential_file:
            message = f"only for an endpoint: {way} needs none"
            findings.append(forbidden(f"{path}.credentialFile", message))
    return findings


def _check_command(path: str, command: Sequence[str]) -> list[Finding]:
    if not command:
        return [required(path, "the program and its arguments")]
    if not command[0]:
        return [required(f"{path}[0]", "the program to launch")]
    return [
        invalid(f"{path}[{index}]", word, "must not contain a zero byte")
        for index, word in enumerate(command)
        if "\0" in word
    ]


def _check_endpoint(path: str, plugin: PluginV1Alpha1, endpoint: str) -> list[Finding]:
    where = f"{path}.endpoint"
    if endpoint.startswith("unix:"):
        if not _UNIX.fullmatch(endpoint):
            return [invalid(where, endpoint, "a socket is named unix:///absolute/path")]
        if len(endpoint.removeprefix("unix://").encode()) > _MAX_SOCKET_PATH_BYTES:
            message = f"the path of a socket has at most {_MAX_SOCKET_PATH_BYTES} bytes"
            return [invalid(where, endpoint, message)]
        return _check_no_transport_security(path, plugin, "a Unix socket needs none")
    host = host_in(endpoint)
    if host is None:
        return [invalid(where, endpoint, "write it as unix:///absolute/path or host:port")]
    return _check_tcp_security(path, plugin, host)


def _check_tcp_security(path: str, plugin: PluginV1Alpha1, host: str) -> list[Finding]:
    if plugin.insecure:
        findings = []
        if plugin.tls is not None:
            message = "tls and insecure: true exclude each other"
            findings.append(forbidden(f"{path}.tls", message))
        if not is_loopback(host):
            message = "plaintext is for loopback addresses only: give tls with caFile, certFile and keyFile"
            findings.append(forbidden(f"{path}.insecure", message))
        return findings
    if plugin.tls is None:
        message = (
            "a TCP endpoint needs caFile, certFile and keyFile (or insecure: true on a loopback address)"
        )
        return [required(f"{path}.tls", message)]
    return check_tls_files(f"{path}.tls", plugin.tls)


def _check_no_transport_security(path: str, plugin: PluginV1Alpha1, why: str) -> list[Finding]:
    findings = []
    if plugin.tls is not None:
        findings.append(forbidden(f"{path}.tls", f"only for TCP endpoints: {why}"))
    if plugin.insecure:
        findings.append(forbidden(f"{path}.insecure", f"only for loopback TCP endpoints: {why}"))
    return findings


def _check_scope(path: str, scope: ScopeV1Alpha1) -> list[Finding]:
    findings = []
    if scope.namespace_selector is not None:
        findings += check_label_selector(f"{path}.namespaceSelector", scope.namespace_selector)
    if scope.pod_selector is not None:
        findings += check_label_selector(f"{path}.podSelector", scope.pod_selector)
    for index, resource in enumerate(scope.resources or ()):
        findings += check_label_name(f"{path}.resources[{index}]", resource)
    return findings


def _check_points(path: str, points: PointsV1Alpha1) -> list[Finding]:
    findings = []
    for name, known in json_fields(PointsV1Alpha1).items():
        point = getattr(points, known.attribute)
        if point is not None:
            findings += _check_point(f"{path}.{name}", point, POINT_RULES[name])
    return findings


def _check_point(path: str, point: PointV1Alpha1, rules: PointRules) -> list[Finding]:
    findings = []
    if point.deadline is not None:
        limits = (MIN_DEADLINE_MS, rules.max_deadline_ms)
        findings += _check_duration(f"{path}.deadline", point.deadline, limits)
    if point.policy is None:
        return findings
    names = [policy.value for policy in rules.policies]
    if not names:
        findings.append(forbidden(f"{path}.policy", f"a failure here has one outcome: {rules.fixed}"))
    elif point.policy not in names:
        findings.append(not_supported(f"{path}.policy", point.policy, names))
    return findings


def _check_duration(path: str, duration_ns: int, limits_ms: tuple[int, int]) -> list[Finding]:
    low, high = (limit * _MS_NS for limit in limits_ms)
    if low <= duration_ns <= high:
        return []
    message = f"not in valid range [{format_duration(low)}, {format_duration(high)}]"
    return [invalid(path, format_duration(duration_ns), message)]
