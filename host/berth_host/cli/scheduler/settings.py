"""Flags and a configuration -> the settings that the process is started with. Called by `command`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from berth_sdk.kube_object import ObjectRef

from berth_host import log
from berth_host.app import HostOptions
from berth_host.cli import standard_input
from berth_host.cli.scheduler.configuration import kubeconfig_of_environment, loaded, user_agent
from berth_host.cli.scheduler.flag_problems import given
from berth_host.cli.scheduler.flags import FLAGS
from berth_host.cli.scheduler.parsing import FlagError, ParsedFlags
from berth_host.cli.scheduler.shown import shown
from berth_host.cluster.kube import lease_settings
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.secrets import masked
from berth_host.endpoints.options import ServingOptions
from berth_host.model.user import ClientTrust
from berth_host.process.process import ProcessSettings
from berth_host.yaml.encoding import read_text

_FORMATS: Final = ("text", "json")
_MAX_PORT: Final = 65535


def logging_of(flags: ParsedFlags) -> tuple[str, str]:
    """Level and form for `log.configure`. Raises FlagError."""
    form = flags.text("logging-format")
    if form not in _FORMATS:
        raise FlagError(f"--logging-format {form!r}: want text or json")
    return log.level_of(flags.integer("v")), form


def settings(
    flags: ParsedFlags,
    configuration: LoadedConfiguration,
    plugins: Mapping[str, type],
    read_stdin: Callable[[], str] = standard_input.read_text,
) -> ProcessSettings:
    """Everything but the host's own parts; `read_stdin` is for --config -. Raises FlagError."""
    _check_election(flags, configuration)
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
        ),
    )


def _check_election(flags: ParsedFlags, configuration: LoadedConfiguration) -> None:
    """The process reports a file's error when it starts; a flag's error is reported of the flag here."""
    settings = configuration.scheduler.leader_election
    if not settings.leader_elect:
        return
    for problem in lease_settings.problems(settings):
        names = given(flags, (f"leaderElection.{field}" for field in problem.fields))
        if names:
            raise FlagError(f"{' '.join(names)}: {problem.text}")


def own_pod(environment: Mapping[str, str]) -> ObjectRef | None:
    """The pod that this process runs in, as the downward API tells it; None: not told."""
    name, namespace = environment.get("POD_NAME", ""), environment.get("POD_NAMESPACE", "")
    uid = environment.get("POD_UID", "")
    return ObjectRef(name=name, namespace=namespace, uid=uid) if name and namespace else None


def _serving(flags: ParsedFlags, configuration: LoadedConfiguration) -> ServingOptions:
    port = flags.integer("secure-port")
    if not 0 <= port <= _MAX_PORT:
        raise FlagError(f"--secure-port {port}: must be between 0 and 65535; 0 turns the endpoints off")
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
        skip_lookup=flags.is_on("authentication-skip-lookup"),
        tolerate_lookup_failure=flags.is_on("authentication-tolerate-lookup-failure"),
        profiling=configuration.scheduler.enable_profiling,
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
