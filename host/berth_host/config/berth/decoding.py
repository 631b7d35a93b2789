"""A BerthConfiguration document -> BerthConfiguration, strictly decoded and checked. Called by the loader.

Wrong shapes are errors of kind "decode", values that make no sense of kind "validation"; both name file,
line, field path and the nearest valid name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from berth_sdk.duration import format_seconds
from berth_sdk.wire.addresses import endpoint_problem, is_loopback
from berth_sdk.wire.message_limit import limit_problem
from berth_sdk.wire.traces import is_installed

from berth_host.config.berth.configuration import (
    API_VERSION,
    KIND,
    BerthConfiguration,
    BerthPlugin,
    HandleListener,
    PluginScope,
    TlsFiles,
    TracingConfiguration,
    Transport,
)
from berth_host.config.berth.managed_resources import check_managed_resources
from berth_host.config.berth.points import (
    MAX_CONCURRENCY,
    MAX_CYCLE_BUDGET_MS,
    MAX_PLUGINS,
    MILLION,
    MIN_CYCLE_BUDGET_MS,
    MIN_DEADLINE_MS,
    POINT_RULES,
    PointPolicy,
    PointRules,
)
from berth_host.config.berth.tcp import host_in, ip_in
from berth_host.config.checks.names import check_label_name
from berth_host.config.checks.selectors import check_label_selector
from berth_host.config.decoding.go_types import Context, decode_value, struct_of, word_of
from berth_host.config.errors import (
    ConfigurationError,
    Finding,
    duplicate,
    forbidden,
    invalid,
    nearest,
    not_supported,
    required,
)
from berth_host.config.source.node import SourceNode

_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_MAX_UID: Final = 2**32 - 2
_IN_PROCESS: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_SHARED: Final = (
    ("transport", "given_transport", "is asked in one way"),
    ("credentialFile", "credential_file", "expects one credential"),
    ("tls", "tls", "has one certificate, and knows its host by one"),
    ("allowedUIDs", "allowed_uids", "runs for one user"),
    ("maxMessageBytes", "max_message_bytes", "has one limit for its messages"),
)
"""Field, attribute, and what the one process does."""
_FOLDER: Final = ""
"""In the place of an endpoint."""


def decode_berth(root: SourceNode, *, source: str) -> BerthConfiguration:
    """Decode and check one document. Raises ConfigurationError with every error in it."""
    findings = _check_version_and_kind(root)
    context = Context(is_yaml=True, findings=findings)
    if not findings:
        decoded = decode_value(struct_of(BerthConfiguration), root, "", context)
    if findings:
        raise ConfigurationError("decode", sorted(findings, key=lambda f: f.line or 0), source=source)
    configuration: BerthConfiguration = decoded
    findings = [finding.at_line(root.line_of(finding.field)) for finding in check_berth(configuration)]
    if findings:
        raise ConfigurationError("validation", findings, source=source)
    return configuration


def _check_version_and_kind(root: SourceNode) -> list[Finding]:
    findings = []
    for name, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        member = root.members.get(name)
        given = member.node.value if member is not None else None
        if given != wanted:
            shown = f'"{given}"' if isinstance(given, str) else "no text"
            suggestion = nearest(str(given), (wanted,)) if given is not None else None
            message = f"expected {wanted}, got {shown}"
            line = root.line_of(name)
            findings.append(Finding(message, field=name, line=line, suggestion=suggestion))
    return findings


def check_berth(document: BerthConfiguration) -> list[Finding]:
    """Return the errors in a decoded document; empty if there are none."""
    findings = []
    plugins = document.plugins
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
    findings += check_managed_resources(plugins)
    findings += _check_shared(plugins)
    findings += _check_folder(document)
    findings += _check_handle(document.handle)
    limits = (MIN_CYCLE_BUDGET_MS, MAX_CYCLE_BUDGET_MS)
    findings += _check_duration("cycleBudget", document.cycle_budget_s, limits)
    findings += _check_message_bytes("maxMessageBytes", document.max_message_bytes)
    return findings + _check_tracing(document.tracing)


def _check_tracing(tracing: TracingConfiguration | None) -> list[Finding]:
    if tracing is None:
        return []
    findings = []
    if not is_installed():
        message = "the packages for it are missing: pip install 'berth-host[tracing]'"
        findings.append(forbidden("tracing", message))
    endpoint = tracing.endpoint
    if endpoint is not None and not _is_collector(endpoint):
        message = (
            "the address of an OTLP collector for gRPC, such as localhost:4317 or https://otel.example:4317"
        )
        findings.append(invalid("tracing.endpoint", endpoint, message))
    rate = tracing.sampling_rate_per_million
    if rate is not None and not 0 <= rate <= MILLION:
        message = f"not in valid range [0, {MILLION}]"
        findings.append(invalid("tracing.samplingRatePerMillion", rate, message))
    return findings


def _is_collector(endpoint: str) -> bool:
    scheme, separator, rest = endpoint.partition("://")
    if not separator:
        return host_in(endpoint) is not None
    return scheme in ("http", "https") and bool(rest.strip("/")) and " " not in rest


def _check_name(path: str, name: str) -> list[Finding]:
    if not name:
        return [required(path, "the name by which a profile enables the plugin")]
    if _NAME.fullmatch(name):
        return []
    message = "at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
    return [invalid(path, name, message)]


def _check_folder(document: BerthConfiguration) -> list[Finding]:
    folder = document.socket_folder
    if not folder:
        return []
    if not folder.startswith("/") or "\0" in folder:
        return [invalid("socketFolder", folder, "the absolute path of a folder, such as /run/berth")]
    return []


def _check_plugin(path: str, plugin: BerthPlugin, folder: str) -> list[Finding]:
    findings = _check_where(path, plugin, folder)
    findings += _check_scope(f"{path}.scope", plugin.scope)
    findings += _check_points(f"{path}.points", plugin.points)
    if not 0 <= plugin.max_concurrency <= MAX_CONCURRENCY:
        message = f"not in valid range [0, {MAX_CONCURRENCY}]; 0 leaves it to the plugin"
        findings.append(invalid(f"{path}.maxConcurrency", plugin.max_concurrency, message))
    findings += _check_transport(f"{path}.transport", plugin)
    findings += _check_uids(f"{path}.allowedUIDs", plugin)
    if plugin.max_message_bytes is not None:
        where = f"{path}.maxMessageBytes"
        if plugin.in_process is not None:
            findings.append(forbidden(where, "inProcess needs none: the plugin gets no messages"))
        findings += _check_message_bytes(where, plugin.max_message_bytes)
    permit = plugin.handle.permit if plugin.handle is not None else None
    findings += _check_permit(f"{path}.handle.permit", permit or ())
    return findings


def _check_permit(path: str, names: Sequence[str]) -> list[Finding]:
    findings = []
    for index, name in enumerate(names):
        if not name:
            findings.append(required(f"{path}[{index}]", "the name of a plugin that holds pods at Permit"))
        elif name in names[:index]:
            findings.append(duplicate(f"{path}[{index}]", name))
    return findings


def _check_uids(path: str, plugin: BerthPlugin) -> list[Finding]:
    uids = plugin.allowed_uids
    if uids and not (plugin.in_folder or (plugin.endpoint or "").startswith("unix:")):
        return [forbidden(path, "only for a Unix socket: who listens elsewhere has no user that is known")]
    return [
        invalid(f"{path}[{index}]", uid, f"not in valid range [0, {_MAX_UID}]")
        for index, uid in enumerate(uids)
        if not 0 <= uid <= _MAX_UID
    ]


def _check_transport(path: str, plugin: BerthPlugin) -> list[Finding]:
    if plugin.given_transport is None:
        return []
    if plugin.in_process is not None:
        return [forbidden(path, "inProcess needs none: the plugin is called directly")]
    given, known = word_of(plugin.given_transport), [transport.value for transport in Transport]
    return [] if given in known else [not_supported(path, given, known)]


def _check_where(path: str, plugin: BerthPlugin, folder: str) -> list[Finding]:
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


def _check_endpoint(path: str, plugin: BerthPlugin, endpoint: str) -> list[Finding]:
    if problem := endpoint_problem(endpoint):
        return [invalid(f"{path}.endpoint", endpoint, problem)]
    if endpoint.startswith("unix:"):
        return _check_no_transport_security(path, plugin, "a Unix socket needs none")
    return _check_tcp_security(path, plugin, host_in(endpoint) or "")


def _check_tcp_security(path: str, plugin: BerthPlugin, host: str) -> list[Finding]:
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
    return _check_tls_files(f"{path}.tls", plugin.tls)


def _check_no_transport_security(path: str, plugin: BerthPlugin, why: str) -> list[Finding]:
    findings = []
    if plugin.tls is not None:
        findings.append(forbidden(f"{path}.tls", f"only for TCP endpoints: {why}"))
    if plugin.insecure:
        findings.append(forbidden(f"{path}.insecure", f"only for loopback TCP endpoints: {why}"))
    return findings


def _check_scope(path: str, scope: PluginScope) -> list[Finding]:
    findings = []
    if scope.namespace_selector is not None:
        findings += check_label_selector(f"{path}.namespaceSelector", scope.namespace_selector)
    if scope.pod_selector is not None:
        findings += check_label_selector(f"{path}.podSelector", scope.pod_selector)
    for index, resource in enumerate(scope.resources):
        findings += check_label_name(f"{path}.resources[{index}]", resource)
    return findings


def _check_points(path: str, points: Mapping[str, PointPolicy]) -> list[Finding]:
    findings = []
    for name, rules in POINT_RULES.items():
        if name in points:
            findings += _check_point(f"{path}.{name}", points[name], rules)
    return findings


def _check_point(path: str, point: PointPolicy, rules: PointRules) -> list[Finding]:
    findings = []
    if point.deadline_s is not None:
        limits = (MIN_DEADLINE_MS, rules.max_deadline_ms)
        findings += _check_duration(f"{path}.deadline", point.deadline_s, limits)
    if point.policy is None:
        return findings
    names = [policy.value for policy in rules.policies]
    if not names:
        findings.append(forbidden(f"{path}.policy", f"a failure here has one outcome: {rules.fixed}"))
    elif word_of(point.policy) not in names:
        findings.append(not_supported(f"{path}.policy", word_of(point.policy), names))
    return findings


def _check_duration(path: str, duration_s: float, limits_ms: tuple[int, int]) -> list[Finding]:
    low, high = (limit / 1000 for limit in limits_ms)
    if low <= duration_s <= high:
        return []
    message = f"not in valid range [{format_seconds(low)}, {format_seconds(high)}]"
    return [invalid(path, format_seconds(duration_s), message)]


def _check_message_bytes(path: str, limit_bytes: int) -> list[Finding]:
    problem = limit_problem(limit_bytes)
    return [invalid(path, limit_bytes, f"{problem} (bytes)")] if problem else []


def _check_shared(plugins: Sequence[BerthPlugin]) -> list[Finding]:
    """Return a finding for each setting in which a plugin differs from the first one at its endpoint, or in
    the folder.
    """
    findings = []
    first: dict[str, BerthPlugin] = {}
    for index, plugin in enumerate(plugins):
        if plugin.command is not None or plugin.in_process is not None:
            continue
        other = first.setdefault(plugin.endpoint or _FOLDER, plugin)
        for name, attribute, does in _SHARED:
            value = getattr(plugin, attribute)
            if value != getattr(other, attribute):
                message = (
                    f"plugins at one endpoint are one process, which {does}"
                    if plugin.endpoint
                    else "must be the same for all plugins of socketFolder: any of its sockets may be theirs"
                )
                shown = value if isinstance(value, str) else ""
                findings.append(invalid(f"plugins[{index}].{name}", shown, message))
    return findings


def _check_handle(handle: HandleListener | None) -> list[Finding]:
    """Empty where there is none, or nothing is wrong with it."""
    if handle is None:
        return []
    findings = _check_bind(handle.bind_address) + _check_advertised(handle.advertise_address)
    if handle.tls is None:
        message = "plugins ask their host over TLS: caFile, certFile and keyFile"
        return [*findings, required("handle.tls", message)]
    return [*findings, *_check_tls_files("handle.tls", handle.tls)]


def _check_bind(address: str) -> list[Finding]:
    path, message = "handle.bindAddress", "an address of this machine and a port, such as 0.0.0.0:10270"
    if not address:
        return [required(path, message)]
    host = host_in(address)
    return [invalid(path, address, message)] if host is None or ip_in(host) is None else []


def _check_advertised(address: str) -> list[Finding]:
    path = "handle.advertiseAddress"
    if not address:
        return []
    host = host_in(address)
    if host is None:
        return [invalid(path, address, "write it as host:port")]
    ip = ip_in(host)
    if ip is not None and ip.is_unspecified:
        return [invalid(path, address, "plugins cannot dial it: name the host as they reach it")]
    return []


def _check_tls_files(path: str, tls: TlsFiles) -> list[Finding]:
    """Check that `caFile`, `certFile` and `keyFile` are all set."""
    files = {"caFile": tls.ca_file, "certFile": tls.cert_file, "keyFile": tls.key_file}
    return [
        required(f"{path}.{name}", "both sides prove who they are")
        for name, file in files.items()
        if not file
    ]
