"""The loaded configuration, as the rest of the host sees it: no versions, nothing absent.

Built by `loading`, read by `app`, `check-config` and everything that `app` composes. Times are in
seconds. Plugin arguments stay JSON, because only the plugin knows their meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from berth_host.config.berth.configuration import BerthConfiguration
from berth_host.config.emulation import NO_EMULATION, Emulation
from berth_host.config.profiles.expansion import EnabledPlugin
from berth_host.config.source.node import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElection:
    """Leader election: how replicas agree on which one schedules."""

    leader_elect: bool
    lease_duration_s: float
    renew_deadline_s: float
    retry_period_s: float
    resource_lock: str
    resource_name: str
    resource_namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConnection:
    """How to reach the API server. `qps` 50 and `burst` 100 unless the file says otherwise."""

    kubeconfig: str
    accept_content_types: str
    content_type: str
    qps: float
    burst: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedResource:
    """A resource that an extender accounts for; `ignored_by_scheduler`: NodeResourcesFit leaves it out."""

    name: str
    ignored_by_scheduler: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderTls:
    """Certificates for an extender. Where both data and a file are given, the data counts."""

    insecure: bool
    server_name: str
    cert_file: str
    key_file: str
    ca_file: str
    cert_data: bytes
    key_data: bytes
    ca_data: bytes

    def __repr__(self) -> str:
        """Without key material."""
        return f"ExtenderTls(insecure={self.insecure}, server_name={self.server_name!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extender:
    """One HTTP extender. An empty verb: the extender does not answer that call."""

    url_prefix: str
    filter_verb: str
    preempt_verb: str
    prioritize_verb: str
    bind_verb: str
    weight: int
    enable_https: bool
    tls: ExtenderTls | None
    http_timeout_s: float
    node_cache_capable: bool
    managed_resources: tuple[ManagedResource, ...]
    ignorable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeSchedulerConfiguration:
    """The fields that all profiles share. `extenders` are in the order in which they are asked.

    `percentage_of_nodes_to_score` 0 means: not set.
    """

    parallelism: int
    leader_election: LeaderElection
    client_connection: ClientConnection
    enable_profiling: bool
    enable_contention_profiling: bool
    percentage_of_nodes_to_score: int
    pod_initial_backoff_s: int
    pod_max_backoff_s: int
    extenders: tuple[Extender, ...]
    delay_cache_until_active: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfig:
    """The arguments of one plugin, as JSON; None when it has none."""

    name: str
    args: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedProfile:
    """One scheduler name with the plugins that run for it.

    `plugins`: by point, spelled as in KubeSchedulerConfiguration, in the order in which they run; points
    without plugins are absent. `plugin_args`: the arguments of each plugin that runs, defaults included.
    `percentage_of_nodes_to_score` None: the global value counts. `merged_plugins` and `plugin_config` are
    the profile before expansion, `framework_plugin_config` the arguments that the plugins get, sorted by
    name.
    """

    scheduler_name: str
    percentage_of_nodes_to_score: int | None
    plugins: Mapping[str, tuple[EnabledPlugin, ...]]
    plugin_args: Mapping[str, Json]
    merged_plugins: Mapping[str, Json]
    plugin_config: tuple[PluginConfig, ...]
    framework_plugin_config: tuple[PluginConfig, ...]

    def plugins_at(self, point: str) -> tuple[EnabledPlugin, ...]:
        """The plugins of a point, none if it has none."""
        return self.plugins.get(point, ())

    @property
    def plugin_names(self) -> frozenset[str]:
        """All plugins that run at any point."""
        return frozenset(plugin.name for listed in self.plugins.values() for plugin in listed)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfiguration:
    """A whole configuration. `scheduler_json` is the defaulted first document without its profiles.

    `document` is the first document as it was decoded, before any default. `berth_document` is berth's own
    document in the same file. `converted_from` is the older form of the first document, None for v1.
    `emulation`: the mended behaviours that are off.
    """

    scheduler: KubeSchedulerConfiguration
    profiles: tuple[ResolvedProfile, ...]
    berth: BerthConfiguration
    warnings: tuple[str, ...]
    scheduler_json: Mapping[str, Json]
    document: Mapping[str, Json]
    berth_document: Mapping[str, Json] | None = None
    converted_from: str | None = None
    emulation: Emulation = NO_EMULATION

    def profile(self, scheduler_name: str) -> ResolvedProfile | None:
        """The profile of a scheduler name, None if it is another scheduler's."""
        return next((p for p in self.profiles if p.scheduler_name == scheduler_name), None)
