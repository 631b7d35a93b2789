"""Metrics of the connection to the API server: Events that were not written, failures of watches."""

from __future__ import annotations

from collections.abc import Iterator

from berth_kube.cluster import KubeCluster

from berth_host.metrics import families
from berth_host.metrics.scheduler_metrics import SchedulerMetrics


def show_cluster(metrics: SchedulerMetrics, cluster: KubeCluster) -> None:
    """Show the Events that were not written, and the failures of watches, as metrics."""
    dropped = cluster.events.dropped
    metrics.read(families.EVENTS_DROPPED, lambda: [((cause,), count) for cause, count in dropped.items()])
    metrics.read(families.WATCH_TROUBLE, lambda: _watch_trouble(cluster))


def _watch_trouble(cluster: KubeCluster) -> Iterator[tuple[tuple[str, ...], float]]:
    for resource, informer in cluster.informers.items():
        yield (resource, "reconnected"), informer.reconnect_count
        yield (resource, "listed"), informer.relist_count
        yield (resource, "unreadable"), informer.broken_count
