"""The types of kubescheduler.config.k8s.io/v1, field by field, as kube-scheduler 1.36 declares them.

Values of these types hold a file's content (before and after defaulting); the rest of the host uses
`configuration`. Source: `staging/src/k8s.io/kube-scheduler/config/v1/types.go`,
`staging/src/k8s.io/component-base/config/v1alpha1/types.go`, v1.36.
"""

# json_field is dataclasses.field with a tag, and every zero value is immutable.
# ruff: noqa: RUF009

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from berth_host.config.decoding.go_types import json_field, struct_of
from berth_host.config.decoding.value_types import (
    BOOL,
    BYTES,
    DURATION,
    FLOAT32,
    INT32,
    INT64,
    RAW,
    STRING,
    pointer_to,
    slice_of,
)
from berth_host.config.source.node import SourceNode

GROUP: Final = "kubescheduler.config.k8s.io"
API_VERSION: Final = f"{GROUP}/v1"
KIND: Final = "KubeSchedulerConfiguration"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElectionV1:
    """Leader election: how replicas agree on which one schedules."""

    leader_elect: bool | None = json_field("leaderElect", pointer_to(BOOL))
    lease_duration: int = json_field("leaseDuration", DURATION)
    renew_deadline: int = json_field("renewDeadline", DURATION)
    retry_period: int = json_field("retryPeriod", DURATION)
    resource_lock: str = json_field("resourceLock", STRING)
    resource_name: str = json_field("resourceName", STRING)
    resource_namespace: str = json_field("resourceNamespace", STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConnectionV1:
    """How to reach the API server."""

    kubeconfig: str = json_field("kubeconfig", STRING)
    accept_content_types: str = json_field("acceptContentTypes", STRING)
    content_type: str = json_field("contentType", STRING)
    qps: float = json_field("qps", FLOAT32)
    burst: int = json_field("burst", INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginV1:
    """One entry of a plugin list."""

    name: str = json_field("name", STRING)
    weight: int | None = json_field("weight", pointer_to(INT32), omit_empty=True)


_PLUGINS = slice_of(struct_of(PluginV1))


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSetV1:
    """The plugins enabled and disabled at one point."""

    enabled: tuple[PluginV1, ...] | None = json_field("enabled", _PLUGINS, omit_empty=True)
    disabled: tuple[PluginV1, ...] | None = json_field("disabled", _PLUGINS, omit_empty=True)


_PLUGIN_SET = struct_of(PluginSetV1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginsV1:
    """The plugin sets of a profile by point."""

    pre_enqueue: PluginSetV1 = json_field("preEnqueue", _PLUGIN_SET)
    queue_sort: PluginSetV1 = json_field("queueSort", _PLUGIN_SET)
    pre_filter: PluginSetV1 = json_field("preFilter", _PLUGIN_SET)
    filter: PluginSetV1 = json_field("filter", _PLUGIN_SET)
    post_filter: PluginSetV1 = json_field("postFilter", _PLUGIN_SET)
    pre_score: PluginSetV1 = json_field("preScore", _PLUGIN_SET)
    score: PluginSetV1 = json_field("score", _PLUGIN_SET)
    reserve: PluginSetV1 = json_field("reserve", _PLUGIN_SET)
    permit: PluginSetV1 = json_field("permit", _PLUGIN_SET)
    pre_bind: PluginSetV1 = json_field("preBind", _PLUGIN_SET)
    bind: PluginSetV1 = json_field("bind", _PLUGIN_SET)
    post_bind: PluginSetV1 = json_field("postBind", _PLUGIN_SET)
    multi_point: PluginSetV1 = json_field("multiPoint", _PLUGIN_SET)
    placement_generate: PluginSetV1 = json_field("placementGenerate", _PLUGIN_SET)
    placement_score: PluginSetV1 = json_field("placementScore", _PLUGIN_SET)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfigV1:
    """Arguments of one plugin, undecoded."""

    name: str = json_field("name", STRING)
    args: SourceNode | None = json_field("args", RAW)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileV1:
    """One scheduler name and its plugins."""

    scheduler_name: str | None = json_field("schedulerName", pointer_to(STRING), omit_empty=True)
    percentage_of_nodes_to_score: int | None = json_field(
        "percentageOfNodesToScore", pointer_to(INT32), omit_empty=True
    )
    plugins: PluginsV1 | None = json_field("plugins", pointer_to(struct_of(PluginsV1)), omit_empty=True)
    plugin_config: tuple[PluginConfigV1, ...] | None = json_field(
        "pluginConfig", slice_of(struct_of(PluginConfigV1)), omit_empty=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderManagedResourceV1:
    """A resource that an extender accounts for."""

    name: str = json_field("name", STRING)
    ignored_by_scheduler: bool = json_field("ignoredByScheduler", BOOL, omit_empty=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderTlsV1:
    """Certificates for an extender. Where both data and a file are given, the data counts."""

    insecure: bool = json_field("insecure", BOOL, omit_empty=True)
    server_name: str = json_field("serverName", STRING, omit_empty=True)
    cert_file: str = json_field("certFile", STRING, omit_empty=True)
    key_file: str = json_field("keyFile", STRING, omit_empty=True)
    ca_file: str = json_field("caFile", STRING, omit_empty=True)
    cert_data: bytes = json_field("certData", BYTES, omit_empty=True)
    key_data: bytes = json_field("keyData", BYTES, omit_empty=True)
    ca_data: bytes = json_field("caData", BYTES, omit_empty=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderV1:
    """One HTTP extender."""

    url_prefix: str = json_field("urlPrefix", STRING)
    filter_verb: str = json_field("filterVerb", STRING, omit_empty=True)
    preempt_verb: str = json_field("preemptVerb", STRING, omit_empty=True)
    prioritize_verb: str = json_field("prioritizeVerb", STRING, omit_empty=True)
    weight: int = json_field("weight", INT64, omit_empty=True)
    bind_verb: str = json_field("bindVerb", STRING, omit_empty=True)
    enable_https: bool = json_field("enableHTTPS", BOOL, omit_empty=True)
    tls_config: ExtenderTlsV1 | None = json_field(
        "tlsConfig", pointer_to(struct_of(ExtenderTlsV1)), omit_empty=True
    )
    http_timeout: int = json_field("httpTimeout", DURATION)
    node_cache_capable: bool = json_field("nodeCacheCapable", BOOL, omit_empty=True)
    managed_resources: tuple[ExtenderManagedResourceV1, ...] | None = json_field(
        "managedResources", slice_of(struct_of(ExtenderManagedResourceV1)), omit_empty=True
    )
    ignorable: bool = json_field("ignorable", BOOL, omit_empty=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeSchedulerConfigurationV1:
    """The whole first document."""

    kind: str = json_field("kind", STRING, omit_empty=True)
    api_version: str = json_field("apiVersion", STRING, omit_empty=True)
    parallelism: int | None = json_field("parallelism", pointer_to(INT32), omit_empty=True)
    leader_election: LeaderElectionV1 = json_field("leaderElection", struct_of(LeaderElectionV1))
    client_connection: ClientConnectionV1 = json_field("clientConnection", struct_of(ClientConnectionV1))
    enable_profiling: bool | None = json_field("enableProfiling", pointer_to(BOOL), omit_empty=True)
    enable_contention_profiling: bool | None = json_field(
        "enableContentionProfiling", pointer_to(BOOL), omit_empty=True
    )
    percentage_of_nodes_to_score: int | None = json_field(
        "percentageOfNodesToScore", pointer_to(INT32), omit_empty=True
    )
    pod_initial_backoff_seconds: int | None = json_field(
        "podInitialBackoffSeconds", pointer_to(INT64), omit_empty=True
    )
    pod_max_backoff_seconds: int | None = json_field(
        "podMaxBackoffSeconds", pointer_to(INT64), omit_empty=True
    )
    profiles: tuple[ProfileV1, ...] | None = json_field(
        "profiles", slice_of(struct_of(ProfileV1)), omit_empty=True
    )
    extenders: tuple[ExtenderV1, ...] | None = json_field(
        "extenders", slice_of(struct_of(ExtenderV1)), omit_empty=True
    )
    delay_cache_until_active: bool = json_field("delayCacheUntilActive", BOOL, omit_empty=True)
