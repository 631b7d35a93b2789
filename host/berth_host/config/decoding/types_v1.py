"""The types of kubescheduler.config.k8s.io/v1, field by field, as kube-scheduler 1.38 declares them.

`Emulation.absent_fields` names those that older versions do not have.

Values of these types hold a file's content, before and after `defaulting`; the host reads them as they are.
An attribute whose type has no None may be None before defaulting only. Times are in seconds.
Source: `staging/src/k8s.io/kube-scheduler/config/v1/types.go`,
`staging/src/k8s.io/component-base/config/v1alpha1/types.go`, v1.38.
"""

# RUF009 is off: json_field returns a dataclass field, and its default values are immutable.
# ruff: noqa: RUF009

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, make_dataclass
from typing import Any, Final

from berth_sdk.extension_points import ExtensionPoint

from berth_host.config.decoding.go_types import (
    BOOL,
    BYTES,
    DURATION,
    FLOAT32,
    INT32,
    INT64,
    RAW,
    STRING,
    json_field,
    json_fields,
    pointer_to,
    slice_of,
    struct_of,
    with_zero,
)
from berth_host.config.default_plugins import LISTED_POINTS, MULTI_POINT
from berth_host.config.source.node import SourceNode

GROUP: Final = "kubescheduler.config.k8s.io"
API_VERSION: Final = f"{GROUP}/v1"
KIND: Final = "KubeSchedulerConfiguration"
_HTTP_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElection:
    """Leader election: how replicas agree on which one schedules."""

    leader_elect: bool = json_field("leaderElect", pointer_to(BOOL))
    lease_duration_s: float = json_field("leaseDuration", DURATION)
    renew_deadline_s: float = json_field("renewDeadline", DURATION)
    retry_period_s: float = json_field("retryPeriod", DURATION)
    resource_lock: str = json_field("resourceLock", STRING)
    resource_name: str = json_field("resourceName", STRING)
    resource_namespace: str = json_field("resourceNamespace", STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConnection:
    """The connection to the API server. `qps` 50 and `burst` 100 unless the file says otherwise."""

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


def _plugin_sets() -> Iterator[str]:
    """Yield the lists of a profile in their order: those of pods, `multiPoint`, those of groups."""
    first_of_groups = ExtensionPoint.PLACEMENT_GENERATE
    yield from (point.config_name for point in LISTED_POINTS if point < first_of_groups)
    yield MULTI_POINT
    yield from (point.config_name for point in LISTED_POINTS if point >= first_of_groups)


_Sets: Any = make_dataclass(
    "_Sets",
    [(name, PluginSetV1, json_field(name, _PLUGIN_SET)) for name in _plugin_sets()],
    frozen=True,
    slots=True,
    kw_only=True,
)


class PluginsV1(_Sets):  # type: ignore[misc]  # its fields are the extension points
    """The plugin sets of a profile by point, each a PluginSetV1."""

    __slots__ = ()


PLUGIN_SETS: Final = tuple(json_fields(PluginsV1))
"""The extension points and `multiPoint`, spelled and ordered as in KubeSchedulerConfiguration."""


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
    percentage_of_placements_to_score: int | None = json_field(
        "percentageOfPlacementsToScore", pointer_to(INT32), omit_empty=True
    )
    plugins: PluginsV1 | None = json_field("plugins", pointer_to(struct_of(PluginsV1)), omit_empty=True)
    plugin_config: tuple[PluginConfigV1, ...] | None = json_field(
        "pluginConfig", slice_of(struct_of(PluginConfigV1)), omit_empty=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedResource:
    """An extended resource that an extender or a plugin accounts for. `ignored_by_scheduler`:
    NodeResourcesFit does not check it.
    """

    name: str = json_field("name", STRING)
    ignored_by_scheduler: bool = json_field("ignoredByScheduler", BOOL, omit_empty=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderTls:
    """Certificates for an extender. Where both data and a file are given, the data counts."""

    insecure: bool = json_field("insecure", BOOL, omit_empty=True)
    server_name: str = json_field("serverName", STRING, omit_empty=True)
    cert_file: str = json_field("certFile", STRING, omit_empty=True)
    key_file: str = json_field("keyFile", STRING, omit_empty=True)
    ca_file: str = json_field("caFile", STRING, omit_empty=True)
    cert_data: bytes = json_field("certData", BYTES, omit_empty=True)
    key_data: bytes = json_field("keyData", BYTES, omit_empty=True)
    ca_data: bytes = json_field("caData", BYTES, omit_empty=True)

    def __repr__(self) -> str:
        """Without key material."""
        return f"ExtenderTls(insecure={self.insecure}, server_name={self.server_name!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extender:
    """One HTTP extender. An empty verb: the extender does not answer that call."""

    url_prefix: str = json_field("urlPrefix", STRING)
    filter_verb: str = json_field("filterVerb", STRING, omit_empty=True)
    preempt_verb: str = json_field("preemptVerb", STRING, omit_empty=True)
    prioritize_verb: str = json_field("prioritizeVerb", STRING, omit_empty=True)
    weight: int = json_field("weight", INT64, omit_empty=True)
    bind_verb: str = json_field("bindVerb", STRING, omit_empty=True)
    enable_https: bool = json_field("enableHTTPS", BOOL, omit_empty=True)
    tls: ExtenderTls | None = json_field("tlsConfig", pointer_to(struct_of(ExtenderTls)), omit_empty=True)
    given_http_timeout_s: float = json_field("httpTimeout", DURATION)
    node_cache_capable: bool = json_field("nodeCacheCapable", BOOL, omit_empty=True)
    managed_resources: tuple[ManagedResource, ...] = json_field(
        "managedResources", with_zero(slice_of(struct_of(ManagedResource)), ()), omit_empty=True
    )
    ignorable: bool = json_field("ignorable", BOOL, omit_empty=True)

    @property
    def http_timeout_s(self) -> float:
        """The time limit of one request; 5 s where the file gives none."""
        return self.given_http_timeout_s or _HTTP_TIMEOUT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeSchedulerConfiguration:
    """The whole first document. `percentage_of_nodes_to_score` 0: not set."""

    kind: str = json_field("kind", STRING, omit_empty=True)
    api_version: str = json_field("apiVersion", STRING, omit_empty=True)
    parallelism: int = json_field("parallelism", pointer_to(INT32), omit_empty=True)
    leader_election: LeaderElection = json_field("leaderElection", struct_of(LeaderElection))
    client_connection: ClientConnection = json_field("clientConnection", struct_of(ClientConnection))
    enable_profiling: bool = json_field("enableProfiling", pointer_to(BOOL), omit_empty=True)
    enable_contention_profiling: bool = json_field(
        "enableContentionProfiling", pointer_to(BOOL), omit_empty=True
    )
    percentage_of_nodes_to_score: int = json_field(
        "percentageOfNodesToScore", pointer_to(INT32), omit_empty=True
    )
    percentage_of_placements_to_score: int | None = json_field(
        "percentageOfPlacementsToScore", pointer_to(INT32), omit_empty=True
    )
    pod_initial_backoff_s: int = json_field("podInitialBackoffSeconds", pointer_to(INT64), omit_empty=True)
    pod_max_backoff_s: int = json_field("podMaxBackoffSeconds", pointer_to(INT64), omit_empty=True)
    profiles: tuple[ProfileV1, ...] | None = json_field(
        "profiles", slice_of(struct_of(ProfileV1)), omit_empty=True
    )
    extenders: tuple[Extender, ...] = json_field(
        "extenders", with_zero(slice_of(struct_of(Extender)), ()), omit_empty=True
    )
    delay_cache_until_active: bool = json_field("delayCacheUntilActive", BOOL, omit_empty=True)

    @property
    def extenders_in_turn(self) -> tuple[Extender, ...]:
        """The extenders in the order in which they are asked: the ignorable ones last."""
        return tuple(sorted(self.extenders, key=lambda extender: extender.ignorable))
