"""Objects that the real API server admits and parsers refuse: listed, watched, counted and let go."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from berth_bench.versus.real_servers import RealServers
from berth_host.model.clock import RealClock
from berth_kube.client import KubeClient
from berth_kube.cluster import KubeCluster
from berth_kube.connection import Connection
from berth_kube.informer import WatchTimes
from berth_sdk.json.reader import RawJson
from berth_sdk.pod import Pod
from support.waiting import until
from support.watched_view import WatchedView

pytestmark = pytest.mark.long

PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
TIMES = WatchTimes(min_watch_s=60, max_watch_s=60, idle_s=90.0, page_size=5)
DEEP = b'{"f:a":' * 1_100 + b"{}" + b"}" * 1_100
MANAGED = (
    b'[{"manager":"m]","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z",'
    b'"fieldsType":"FieldsV1","fieldsV1":' + DEEP + b"}]"
)
# Not thousands of digits: the API server closes the connection over these.
PARAMETERS = rb'{"z":1.0,"a":1e5,"a":"\ud800","d":' + b"[" * 1_100 + b"]" * 1_100 + b"}"


@pytest.fixture
async def client(empty_servers: RealServers) -> AsyncIterator[KubeClient]:
    opened = await KubeClient.open(Connection(kubeconfig=str(empty_servers.kubeconfig()), qps=-1))
    yield opened
    await opened.close()


def pod(name: str, memory: str = "1Gi", managed: bytes = MANAGED) -> bytes:
    return (
        b'{"metadata":{"name":"%b","managedFields":%b},"spec":{"containers":[{"name":"c","image":"i",'
        b'"resources":{"requests":{"memory":"%b"}}}]}}' % (name.encode(), managed, memory.encode())
    )


async def test_deep_pods_and_claims_come_change_and_go(client: KubeClient) -> None:
    await client.send("POST", PODS, body=pod("deep"))
    await client.send("POST", PODS, body=pod("digits", "7" * 5_000, b"[]"))
    config = b'[{"opaque":{"driver":"d.example.com","parameters":%b}}]' % PARAMETERS
    claim = b'{"metadata":{"name":"c","managedFields":%b},"spec":{"devices":{"config":%b}}}' % (
        MANAGED,
        config,
    )
    await client.send("POST", CLAIMS, body=claim)
    listed = await client.send("GET", PODS)
    assert DEEP in listed, "the API server keeps what parsers refuse"
    cluster, seen = KubeCluster(client, RealClock(), times=TIMES), WatchedView()
    try:
        await cluster.start(seen.handle, ["pods", "resource.k8s.io/resourceclaims"])
        found = {event.new.ref.name: event.new for event in seen.events if event.new is not None}
        assert set(found) == {"deep", "digits", "c"}
        assert Pod.from_object(found["deep"]).requests == {"memory": 2**30}
        assert Pod.from_object(found["digits"]).requests == {"memory": 2**63 - 1}
        kept = found["c"].get("spec.devices.config")[0]["opaque"]["parameters"]
        assert isinstance(kept, RawJson)
        assert kept.content == PARAMETERS
        merge = "application/merge-patch+json"
        patch = b'{"metadata":{"labels":{"a":"b"},"managedFields":%b}}' % MANAGED
        await client.send("PATCH", f"{PODS}/deep", body=patch, content_type=merge)
        await until(lambda: any(e.new is not None and e.new.get("metadata.labels") for e in seen.events))
        for path in (f"{PODS}/deep", f"{PODS}/digits", f"{CLAIMS}/c"):
            await client.send("DELETE", path, body=b'{"gracePeriodSeconds":0}')
        await until(lambda: not any(seen.objects.values()))
        assert seen.faults == []
        assert sum(informer.broken_count for informer in cluster.informers.values()) == 0
    finally:
        await cluster.stop()
