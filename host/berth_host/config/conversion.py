"""Values of one API version -> the configuration that the host works with. Called by the loader.

Source: `pkg/scheduler/apis/config/v1/conversion.go`, `pkg/scheduler/scheduler.go` (order of extenders).
"""

from __future__ import annotations

from typing import Final

from berth_host.config.configuration import (
    ClientConnection,
    Extender,
    ExtenderTls,
    KubeSchedulerConfiguration,
    LeaderElection,
    ManagedResource,
)
from berth_host.config.decoding.types_v1 import (
    ClientConnectionV1,
    ExtenderTlsV1,
    ExtenderV1,
    KubeSchedulerConfigurationV1,
    LeaderElectionV1,
)

_SECOND_NS: Final = 1_000_000_000
_DEFAULT_HTTP_TIMEOUT_NS: Final = 5 * _SECOND_NS


def scheduler_configuration(given: KubeSchedulerConfigurationV1) -> KubeSchedulerConfiguration:
    """The fields that all profiles share, from a document with defaults."""
    extenders = [_extender(extender) for extender in given.extenders or ()]
    return KubeSchedulerConfiguration(
        parallelism=given.parallelism or 0,
        leader_election=_leader_election(given.leader_election),
        client_connection=_client_connection(given.client_connection),
        enable_profiling=bool(given.enable_profiling),
        enable_contention_profiling=bool(given.enable_contention_profiling),
        percentage_of_nodes_to_score=given.percentage_of_nodes_to_score or 0,
        pod_initial_backoff_s=given.pod_initial_backoff_seconds or 0,
        pod_max_backoff_s=given.pod_max_backoff_seconds or 0,
        # Extenders that may be ignored are asked last; the order is kept otherwise.
        extenders=tuple(sorted(extenders, key=lambda extender: extender.ignorable)),
        delay_cache_until_active=given.delay_cache_until_active,
    )


def _leader_election(given: LeaderElectionV1) -> LeaderElection:
    return LeaderElection(
        leader_elect=bool(given.leader_elect),
        lease_duration_s=given.lease_duration / _SECOND_NS,
        renew_deadline_s=given.renew_deadline / _SECOND_NS,
        retry_period_s=given.retry_period / _SECOND_NS,
        resource_lock=given.resource_lock,
        resource_name=given.resource_name,
        resource_namespace=given.resource_namespace,
    )


def _client_connection(given: ClientConnectionV1) -> ClientConnection:
    return ClientConnection(
        kubeconfig=given.kubeconfig,
        accept_content_types=given.accept_content_types,
        content_type=given.content_type,
        qps=given.qps,
        burst=given.burst,
    )


def _extender(given: ExtenderV1) -> Extender:
    resources = given.managed_resources or ()
    return Extender(
        url_prefix=given.url_prefix,
        filter_verb=given.filter_verb,
        preempt_verb=given.preempt_verb,
        prioritize_verb=given.prioritize_verb,
        bind_verb=given.bind_verb,
        weight=given.weight,
        enable_https=given.enable_https,
        tls=None if given.tls_config is None else _extender_tls(given.tls_config),
        http_timeout_s=(given.http_timeout or _DEFAULT_HTTP_TIMEOUT_NS) / _SECOND_NS,
        node_cache_capable=given.node_cache_capable,
        managed_resources=tuple(
            ManagedResource(name=resource.name, ignored_by_scheduler=resource.ignored_by_scheduler)
            for resource in resources
        ),
        ignorable=given.ignorable,
    )


def _extender_tls(given: ExtenderTlsV1) -> ExtenderTls:
    return ExtenderTls(
        insecure=given.insecure,
        server_name=given.server_name,
        cert_file=given.cert_file,
        key_file=given.key_file,
        ca_file=given.ca_file,
        cert_data=given.cert_data,
        key_data=given.key_data,
        ca_data=given.ca_data,
    )
