"""Metrics of the connection to the API server."""

from __future__ import annotations

from berth_host.cluster.port import EventRecord, WatchEvent
from berth_host.metrics.exposition import Exposition
from berth_host.metrics.scheduler_metrics import SchedulerMetrics
from berth_host.model.clock import RealClock
from berth_host.process.cluster_metrics import show_cluster
from berth_kube.client import KubeClient
from berth_kube.cluster import KubeCluster
from berth_kube.connection import Connection
from berth_sdk.kube_object import ObjectRef
from support.kube_api import kube_api


async def test_dropped_events_and_failed_watches_are_read_from_the_cluster() -> None:
    async with kube_api() as api:
        client = await KubeClient.open(Connection(master=api.url))
        cluster = KubeCluster(client, RealClock())
        metrics = SchedulerMetrics()
        show_cluster(metrics, cluster)

        def ignore(event: WatchEvent) -> None:
            """The metrics are about the watch, not about what it hands over."""

        await cluster.start(ignore, ["nodes"])
        await cluster.stop()
        cluster.create_event(
            EventRecord(regarding=ObjectRef(name="p", namespace="n"), reason="R", note="late", reporter="me")
        )
        text = (await Exposition(lambda: metrics.sources).text()).decode()
        await client.close()
    assert 'berth_events_dropped_total{reason="stopped"} 1.0' in text
    assert 'berth_watch_interruptions_total{reason="listed",resource="nodes"} 0.0' in text
