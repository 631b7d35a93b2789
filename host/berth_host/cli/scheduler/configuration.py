"""Flags -> the LoadedConfiguration that the scheduler runs with. Called by `command` at start and at HUP.

Without --config the deprecated flags and those of the leader election change the defaults; with it only
the latter change the file. Source: `cmd/kube-scheduler/app/options/options.go` (ApplyTo), v1.36.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from typing import Any, Final

from berth_host.cli import configuration, standard_input
from berth_host.cli.scheduler.flag_kinds import emulated_version, gate_values
from berth_host.cli.scheduler.flag_problems import of_flags
from berth_host.cli.scheduler.parsing import ParsedFlags
from berth_host.cluster.kube.config_maps import read_config_map
from berth_host.cluster.kube.connection import Connection
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.errors import ConfigurationError
from berth_host.config.loading import Overrides
from berth_host.model.paths import expanded, is_file

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
    """Read and complete the configuration; `plugins` are the program's own, `read_stdin` is for --config -.

    Raises ConfigurationError and PluginLoadError.
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
    return configuration.without_extenders(result, path)


def _config_map(flags: ParsedFlags, namespace: str, name: str, kubeconfig: str) -> Mapping[str, str]:
    """Return the data of a ConfigMap of the cluster that is to be scheduled. Raises HostError."""
    master = flags.text("master")
    connection = Connection(
        kubeconfig=kubeconfig or ("" if master else kubeconfig_of_environment()),
        master=master,
        user_agent=user_agent(),
    )
    return read_config_map(connection, namespace, name)


def kubeconfig_of_environment() -> str:
    """Return the files of KUBECONFIG that exist, which are merged as kubectl does; all if none exists."""
    paths = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    existing = [path for path in paths if is_file(expanded(path))]
    return os.pathsep.join(existing or paths)


def user_agent() -> str:
    """Return the name by which the API server knows the program."""
    return f"berth-scheduler/v{version('berth-host')}"


def overrides(flags: ParsedFlags) -> Overrides:
    """The command line's replacements for the file, or for the defaults."""
    leader_election = _given(flags, _LEADER_ELECTION)
    if flags.text("config"):
        return Overrides(leader_election=leader_election)
    return Overrides(
        leader_election=leader_election,
        client_connection=_given(flags, _CLIENT_CONNECTION),
        top=_given(flags, _TOP),
    )


def _given(flags: ParsedFlags, attributes: Mapping[str, str]) -> dict[str, Any]:
    return {attribute: flags.value(name) for name, attribute in attributes.items() if flags.is_given(name)}
