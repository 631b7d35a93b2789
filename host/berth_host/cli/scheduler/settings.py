"""Flags -> the configuration of the scheduler, and the settings of its process.

`command` calls it at start, and reads the configuration again at HUP. Without --config, deprecated flags and
flags of the leader election change the defaults. With --config, only flags of the leader election change the
file. The error of a flag's value names the flag, and not a file.
Source: `cmd/kube-scheduler/app/options/options.go` (ApplyTo), v1.36, and the messages of kube-scheduler about
the same flags. Its message about a short leaseDuration quotes only renewDeadline.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from berth_sdk.kube_object import ObjectRef
from berth_sdk.yaml.encoding import read_text

from berth_host import log
from berth_host.app import HostOptions
from berth_host.cli import configuration, standard_input
from berth_host.cli.scheduler.flag_kinds import UVLOOP, emulated_version, gate_values
from berth_host.cli.scheduler.flags import FLAGS, shown
from berth_host.cli.scheduler.parsing import FlagError, ParsedFlags
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.errors import ConfigurationError, Finding
from berth_host.config.loading import Overrides
from berth_host.endpoints.options import ServingOptions
from berth_host.log.secrets import masked
from berth_host.metrics.scheduler_metrics import SchedulerMetrics
from berth_host.model.clock import RealClock
from berth_host.model.paths import expanded, is_file
from berth_host.model.user import ClientTrust
from berth_host.process import event_loop, lease_settings
from berth_host.process.admission import admitted
from berth_host.process.api_server import read_config_map
from berth_host.process.process import ProcessSettings
from berth_host.shadow.record import ShadowRecord

_LEADER_ELECTION: Final = {
    "leader-elect": "leader_elect",
    "leader-elect-lease-duration": "lease_duration_s",
    "leader-elect-renew-deadline": "renew_deadline_s",
    "leader-elect-retry-period": "retry_period_s",
    "leader-elect-resource-lock": "resource_lock",
    "leader-elect-resource-name": "resource_name",
    "leader-elect-resource-namespace": "resource_namespace",
}
_CLIENT_CONNECTION: Final = {
    "kubeconfig": "kubeconfig",
    "kube-api-content-type": "content_type",
    "kube-api-qps": "qps",
    "kube-api-burst": "burst",
}
_TOP: Final = {"profiling": "enable_profiling", "contention-profiling": "enable_contention_profiling"}


def loaded(
    flags: ParsedFlags, plugins: Mapping[str, type], read_stdin: Callable[[], str] = standard_input.read_text
) -> LoadedConfiguration:
    """Read and complete the configuration. Raises ConfigurationError and PluginLoadError.

    `plugins`: classes of the program, by name. `read_stdin`: for --config -.
    """
    path = flags.text("config") or None
    try:
        result = configuration.load(
            path,
            plugins,
            convert_older=not flags.is_on("no-convert"),
            feature_gates=gate_values(flags.texts("feature-gates")),
            emulated_version=emulated_version(flags.texts("emulated-version")),
            overrides=overrides(flags),
            read_stdin=read_stdin,
            read_config_map=partial(_config_map, flags),
        )
    except ConfigurationError as err:
        raise of_flags(err, flags) from err
    return result


def _config_map(flags: ParsedFlags, namespace: str, name: str, kubeconfig: str) -> Mapping[str, str]:
    """Return the data of a ConfigMap of the scheduler's cluster. Raises HostError."""
    master = flags.text("master")
    return read_config_map(
        namespace,
        name,
        kubeconfig=kubeconfig or ("" if master else kubeconfig_of_environment()),
        master=master,
        user_agent=user_agent(),
    )


def kubeconfig_of_environment() -> str:
    """Return the existing files of KUBECONFIG, which are merged as by kubectl; all files if none exists."""
    paths = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    existing = [path for path in paths if is_file(expanded(path))]
    return os.pathsep.join(existing or paths)


def user_agent() -> str:
    """Return the User-Agent of requests to the API server."""
    return f"berth-scheduler/v{version('berth-host')}"


def overrides(flags: ParsedFlags) -> Overrides:
    """Return the values of flags that replace values of the file, or of the defaults without a file."""
    leader_election = _values(flags, _LEADER_ELECTION)
    if flags.is_on("shadow"):
        # A shadow holds no Lease: it would keep the real scheduler from leading.
        leader_election["leader_elect"] = False
    if flags.text("config"):
        return Overrides(leader_election=leader_election)
    return Overrides(
        leader_election=leader_election,
        client_connection=_values(flags, _CLIENT_CONNECTION),
        top=_values(flags, _TOP),
    )


def _values(flags: ParsedFlags, attributes: Mapping[str, str]) -> dict[str, Any]:
    return {attribute: flags.value(name) for name, attribute in attributes.items() if flags.is_given(name)}


_FLAGS_OF: Final = {
    "leaderElection.leaseDuration": ("leader-elect-lease-duration", "leader-elect-renew-deadline"),
    "leaderElection.renewDeadline": ("leader-elect-renew-deadline", "leader-elect-retry-period"),
    "leaderElection.retryPeriod": ("leader-elect-retry-period",),
    "leaderElection.resourceLock": ("leader-elect-resource-lock",),
    "leaderElection.resourceName": ("leader-elect-resource-name",),
    "leaderElection.resourceNamespace": ("leader-elect-resource-namespace",),
    "clientConnection.burst": ("kube-api-burst",),
}
_OWN_WORDS: Final = {
    # The message quotes the value of renewDeadline.
    "must be greater than `RenewDeadline`": "leaseDuration must be greater than renewDeadline, {value}",
    "Required value": "must not be empty",
}


def of_flags(error: ConfigurationError, flags: ParsedFlags) -> ConfigurationError:
    """Return an error that names the flags that caused `error`, with only their findings.

    Returns `error` itself if no flag caused it.
    """
    blamed: list[str] = []
    findings: list[Finding] = []
    for finding in error.findings:
        names = _given(flags, (finding.field,))
        if finding.type is None or not names:
            continue
        before, _, detail = finding.message.rpartition(": ")
        words = _OWN_WORDS.get(detail, detail).replace("{value}", before.rpartition(": ")[2].strip('"'))
        blamed += names
        findings.append(Finding(words, type=finding.type))
    if not findings:
        return error
    found = ConfigurationError(error.kind, findings, source=" ".join(dict.fromkeys(blamed)))
    found.warnings = error.warnings
    return found


def _given(flags: ParsedFlags, fields: Iterable[str]) -> list[str]:
    """Return the flags of the command line that may have set any of `fields`, as `--NAME=VALUE`."""
    return list(dict.fromkeys(_each_given(flags, fields)))


def _each_given(flags: ParsedFlags, fields: Iterable[str]) -> Iterator[str]:
    for field in fields:
        for name in _FLAGS_OF.get(field, ()):
            if flags.is_given(name):
                yield f"--{name}={shown(FLAGS[name], flags.value(name))}"


_FORMATS: Final = ("text", "json")
_MAX_PORT: Final = 65535


def logging_of(flags: ParsedFlags) -> tuple[str, str]:
    """Return level and form for `log.configure`. Raises FlagError."""
    form = flags.text("logging-format")
    if form not in _FORMATS:
        raise FlagError(f"--logging-format {form!r}: want text or json")
    return log.level_of(flags.integer("v")), form


def runs_on_uvloop(flags: ParsedFlags) -> bool:
    """Return False if asyncio's own event loop is to be used. Raises FlagError if uvloop is not installed."""
    if flags.text("event-loop") != UVLOOP:
        return False
    if flags.is_given("event-loop") and event_loop.loop_factory() is None:
        raise FlagError(
            f"--event-loop {UVLOOP}: uvloop is not installed: pip install 'berth-host[uvloop]', or leave the"
            " flag out"
        )
    return True


def settings(
    flags: ParsedFlags,
    configuration: LoadedConfiguration,
    plugins: Mapping[str, type],
    read_stdin: Callable[[], str] = standard_input.read_text,
) -> ProcessSettings:
    """Return the settings of the process. Raises FlagError. `read_stdin`: for --config -."""
    _check_election(flags, configuration)
    clock, metrics = RealClock(), SchedulerMetrics()
    return ProcessSettings(
        configuration=configuration,
        load=lambda: loaded(flags, plugins, read_stdin),
        master=flags.text("master"),
        default_kubeconfig=kubeconfig_of_environment(),
        user_agent=user_agent(),
        serving=_serving(flags, configuration),
        authentication_kubeconfig=flags.text("authentication-kubeconfig"),
        authorization_kubeconfig=flags.text("authorization-kubeconfig"),
        flags=tuple(
            (name, str(masked(shown(flag, flags.value(name))))) for name, flag in sorted(FLAGS.items())
        ),
        options=HostOptions(
            plugins=plugins,
            max_in_pool_s=flags.number("pod-max-in-unschedulable-pods-duration"),
            own_pod=own_pod(os.environ),
            own_address=os.environ.get("POD_IP", ""),
            clock=clock,
            metrics=metrics,
            admission=admitted,
        ),
        shadow=ShadowRecord(clock, metrics.shadow) if flags.is_on("shadow") else None,
    )


def _check_election(flags: ParsedFlags, configuration: LoadedConfiguration) -> None:
    """Raise FlagError for flags with conflicting values. The process checks the values of a file."""
    if flags.is_on("shadow") and flags.is_given("leader-elect") and flags.is_on("leader-elect"):
        raise FlagError("--shadow --leader-elect=true: a shadow holds no Lease; leave --leader-elect out")
    settings = configuration.scheduler.leader_election
    if not settings.leader_elect:
        return
    for problem in lease_settings.problems(settings):
        names = _given(flags, (f"leaderElection.{field}" for field in problem.fields))
        if names:
            raise FlagError(f"{' '.join(names)}: {problem.text}")


def own_pod(environment: Mapping[str, str]) -> ObjectRef | None:
    """Return the pod of this process, read from the downward API's variables; None if they are not set."""
    name, namespace = environment.get("POD_NAME", ""), environment.get("POD_NAMESPACE", "")
    uid = environment.get("POD_UID", "")
    return ObjectRef(name=name, namespace=namespace, uid=uid) if name and namespace else None


def _serving(flags: ParsedFlags, configuration: LoadedConfiguration) -> ServingOptions:
    port = flags.integer("secure-port")
    if not 0 <= port <= _MAX_PORT:
        raise FlagError(f"--secure-port {port}: must be between 0 and 65535; 0 turns the endpoints off")
    query_port = flags.integer("query-secure-port")
    if not 0 <= query_port <= _MAX_PORT:
        raise FlagError(
            f"--query-secure-port {query_port}: must be between 0 and 65535; 0 turns the query service off"
        )
    if query_port and query_port == port:
        raise FlagError(f"--query-secure-port {query_port}: is that of --secure-port; choose another port")
    return ServingOptions(
        bind_address=flags.text("bind-address"),
        port=port,
        cert_file=_path(flags, "tls-cert-file"),
        key_file=_path(flags, "tls-private-key-file"),
        cert_dir=_path(flags, "cert-dir"),
        min_tls=flags.text("tls-min-version"),
        ciphers=flags.texts("tls-cipher-suites"),
        always_allowed=flags.texts("authorization-always-allow-paths"),
        token_ttl_s=flags.number("authentication-token-webhook-cache-ttl"),
        allowed_ttl_s=flags.number("authorization-webhook-cache-authorized-ttl"),
        denied_ttl_s=flags.number("authorization-webhook-cache-unauthorized-ttl"),
        trust=ClientTrust(
            client_ca=_content(flags, "client-ca-file"),
            proxy_ca=_content(flags, "requestheader-client-ca-file"),
            proxy_names=flags.texts("requestheader-allowed-names"),
            user_headers=flags.texts("requestheader-username-headers"),
            uid_headers=flags.texts("requestheader-uid-headers"),
            group_headers=flags.texts("requestheader-group-headers"),
            extra_prefixes=flags.texts("requestheader-extra-headers-prefix"),
        ),
        client_ca_file=_path(flags, "client-ca-file"),
        proxy_ca_file=_path(flags, "requestheader-client-ca-file"),
        skip_lookup=flags.is_on("authentication-skip-lookup"),
        tolerate_lookup_failure=flags.is_on("authentication-tolerate-lookup-failure"),
        profiling=configuration.scheduler.enable_profiling,
        ui=flags.is_on("ui"),
        query_address=flags.text("query-bind-address"),
        query_port=query_port,
    )


def _path(flags: ParsedFlags, name: str) -> Path | None:
    text = flags.text(name)
    return Path(text) if text else None


def _content(flags: ParsedFlags, name: str) -> str:
    path = flags.text(name)
    if not path:
        return ""
    try:
        return read_text(Path(path))
    except (OSError, UnicodeDecodeError) as err:
        raise FlagError(f"--{name} {path}: cannot be read: {err}") from None
