"""The adapter against the real kube-apiserver, for behaviour that the small server of tests/kube
lacks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from berth_bench.soak.cutting_proxy import cutting_proxy
from berth_bench.versus.real_servers import NOBODY, SCHEDULER, RealServers
from berth_host.cluster.port import EventRecord
from berth_host.errors.cluster import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnauthorizedError,
    UnavailableError,
)
from berth_host.model.clock import RealClock
from berth_host.model.patch_type import PatchType
from berth_kube.client import KubeClient
from berth_kube.cluster import KubeCluster
from berth_kube.connection import Connection
from berth_kube.informer import WatchTimes
from berth_sdk.kube_object import ObjectRef
from support.certificates import Authority
from support.waiting import PATIENCE_S, until
from support.watched_view import WatchedView

KINDS = {
    "namespaces": "Namespace",
    "nodes": "Node",
    "pods": "Pod",
    "services": "Service",
    "persistentvolumes": "PersistentVolume",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "replicationcontrollers": "ReplicationController",
    "apps/replicasets": "ReplicaSet",
    "apps/statefulsets": "StatefulSet",
    "policy/poddisruptionbudgets": "PodDisruptionBudget",
    "storage.k8s.io/storageclasses": "StorageClass",
    "storage.k8s.io/csinodes": "CSINode",
    "storage.k8s.io/csidrivers": "CSIDriver",
    "storage.k8s.io/csistoragecapacities": "CSIStorageCapacity",
    "storage.k8s.io/volumeattachments": "VolumeAttachment",
    "resource.k8s.io/resourceclaims": "ResourceClaim",
    "resource.k8s.io/resourceslices": "ResourceSlice",
    "resource.k8s.io/deviceclasses": "DeviceClass",
}
POD = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
TIMES = WatchTimes(min_watch_s=2, max_watch_s=3, idle_s=5.0, page_size=5)


BOTH_PROTOCOLS = pytest.mark.parametrize("client", ["h2", "http/1.1"], indirect=True)
"""For tests of frequent requests."""


@pytest.fixture
async def client(empty_servers: RealServers, request: pytest.FixtureRequest) -> AsyncIterator[KubeClient]:
    """Open a client. The parameter: the protocol that it offers for frequent requests (ALPN)."""
    opened = await KubeClient.open(Connection(kubeconfig=str(empty_servers.kubeconfig()), qps=-1))
    opened.credentials.http2_context.set_alpn_protocols([getattr(request, "param", "h2")])
    yield opened
    await opened.close()


@pytest.fixture
async def cluster(client: KubeClient) -> AsyncIterator[KubeCluster]:
    made = KubeCluster(client, RealClock(), times=TIMES)
    yield made
    await made.stop()


def named(name: str, namespace: str = "default") -> ObjectRef:
    return ObjectRef(name=name, namespace=namespace)


async def test_every_kind_that_kube_scheduler_watches_can_be_watched(cluster: KubeCluster) -> None:
    seen = WatchedView()
    await cluster.start(seen.handle, KINDS)
    assert cluster.synced == dict.fromkeys(KINDS, True)
    assert cluster.problems == {}
    assert "default" in seen.objects["Namespace"]
    await cluster.create("nodes", ObjectRef(name="n1"), {})
    await cluster.create("storage.k8s.io/csinodes", ObjectRef(name="n1"), {"spec": {"drivers": []}})
    await until(lambda: "n1" in seen.objects["Node"] and "n1" in seen.objects["CSINode"])
    await cluster.delete("nodes", ObjectRef(name="n1"))
    await cluster.delete("storage.k8s.io/csinodes", ObjectRef(name="n1"))
    await until(lambda: not seen.objects["Node"] and not seen.objects["CSINode"])
    assert seen.faults == []


@pytest.mark.long
async def test_composite_groups_of_an_older_server_are_found_in_its_version(
    empty_pod_group_servers: RealServers,
) -> None:
    seen, groups = WatchedView(), "scheduling.k8s.io/compositepodgroups"
    client = await KubeClient.open(Connection(kubeconfig=str(empty_pod_group_servers.kubeconfig()), qps=-1))
    cluster = KubeCluster(client, RealClock(), times=TIMES)
    try:
        await cluster.start(seen.handle, ["scheduling.k8s.io/podgroups", groups])
        spec = {
            "schedulingPolicy": {"gang": {"minGroupCount": 1}},
            "workloadRef": {"workloadName": "w", "templateName": "t"},
        }
        made = await cluster.create(groups, named("tree"), {"spec": spec})
        await until(lambda: "default/tree" in seen.objects["CompositePodGroup"])
        assert made.api_version == "scheduling.k8s.io/v1alpha3"  # all that 1.37 has
        assert cluster.problems == {}
        assert seen.faults == []
    finally:
        await cluster.stop()
        await client.close()


async def test_catch_up_hands_over_every_change_and_waits_for_no_quiet_kind(cluster: KubeCluster) -> None:
    seen = WatchedView()
    await cluster.start(seen.handle, KINDS)
    for number in range(30):
        await cluster.create("pods", ObjectRef(namespace="default", name=f"p{number}"), POD)
    assert await cluster.catch_up(20.0) == []
    assert {f"default/p{number}" for number in range(30)} <= set(seen.objects["Pod"])
    assert seen.faults == []


@BOTH_PROTOCOLS
async def test_adapter_creates_binds_patches_and_deletes_a_pod(cluster: KubeCluster) -> None:
    seen = WatchedView()
    await cluster.start(seen.handle, ["pods"])
    made = await cluster.create("pods", named("web-"), POD)
    await until(lambda: made.ref.key in seen.objects["Pod"])
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    patched = await cluster.patch(
        "pods",
        made.ref,
        {"status": {"conditions": [condition]}},
        patch_type=PatchType.STRATEGIC,
        subresource="status",
    )
    assert [item["reason"] for item in patched.get("status.conditions")] == ["Unschedulable"]
    await cluster.bind(made.ref, "n1")
    bound = await cluster.get("pods", made.ref)
    assert bound is not None
    assert bound.get("spec.nodeName") == "n1"
    with pytest.raises(ConflictError, match='is already assigned to node "n1"'):
        await cluster.bind(made.ref, "n2")
    await cluster.patch("pods", made.ref, {"status": {"phase": "Succeeded"}}, subresource="status")
    await until(lambda: not seen.objects["Pod"])
    await cluster.delete("pods", made.ref, grace_period_s=0)
    assert await cluster.get("pods", made.ref) is None
    assert seen.faults == []


@BOTH_PROTOCOLS
async def test_each_refusal_has_its_error_class_and_the_servers_message(cluster: KubeCluster) -> None:
    pod = await cluster.create("pods", named("web"), POD)
    other = ObjectRef(name="web", namespace="default", uid="0f0f0f0f-0000-0000-0000-000000000000")
    stale: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}}
    calls = [
        (cluster.bind(other, "n1"), ConflictError, "Precondition failed: UID in precondition"),
        (cluster.bind(named("gone"), "n1"), NotFoundError, 'pods "gone" not found'),
        (cluster.create("pods", named("web"), POD), ConflictError, "already exists"),
        (cluster.create("pods", named("No_Name"), POD), InvalidError, "metadata.name: Invalid value"),
        (
            cluster.patch("pods", pod.ref, stale, expected_resource_version="1"),
            ConflictError,
            "the object has been modified",
        ),
        (
            cluster.patch("pods", pod.ref, {"spec": {"nodeSelector": {"a": "b"}}}),
            InvalidError,
            "spec: Forbidden: pod updates may not change fields",
        ),
        (cluster.get("nothing.example.com/things", named("x")), NotFoundError, "is its CRD installed"),
    ]
    for call, kind, words in calls:
        with pytest.raises(kind, match=words):
            await call


async def test_update_of_a_watched_object_keeps_its_owners_fields(cluster: KubeCluster) -> None:
    kept = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    content = {
        "metadata": {"annotations": kept},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/x"},
        },
    }
    await cluster.create("persistentvolumes", ObjectRef(name="pv"), content)
    shown: dict[str, Any] = {}
    await cluster.start(
        lambda event: shown.update({"pv": event.new}) if event.new is not None else None,
        ["persistentvolumes"],
    )
    parsed = shown["pv"].parsed
    metadata = parsed["metadata"]
    changed = {**parsed, "metadata": {**metadata, "labels": {"a": "b"}}}
    replaced = await cluster.update("persistentvolumes", changed)
    assert replaced.get("metadata.labels") == {"a": "b"}
    assert replaced.get("metadata.annotations") == kept
    with pytest.raises(ConflictError):
        await cluster.update("persistentvolumes", changed)


@BOTH_PROTOCOLS
async def test_repeated_event_becomes_a_series(cluster: KubeCluster, client: KubeClient) -> None:
    pod = await cluster.create("pods", named("web"), POD)
    for note in ("first", "second", "third"):
        cluster.create_event(
            EventRecord(
                regarding=pod.ref,
                type="Warning",
                reason="FailedScheduling",
                action="Scheduling",
                note=note + "ü" * 600,
                reporter="default-scheduler",
            )
        )
        await until(lambda: cluster.events.waiting_count == 0)
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    items = (await client.request("GET", path))["items"]
    [event] = [item for item in items if item["regarding"].get("uid") == pod.ref.uid]
    assert event["note"].startswith("first")
    assert event["note"].endswith("ü ...")
    assert event["series"]["count"] == 2
    assert cluster.events.dropped == {}


async def test_event_in_a_missing_namespace_is_dropped(cluster: KubeCluster) -> None:
    gone = ObjectRef(name="web", namespace="nowhere")
    cluster.create_event(
        EventRecord(regarding=gone, reason="FailedScheduling", action="Scheduling", note="", reporter="x")
    )
    await until(lambda: cluster.events.waiting_count == 0)
    assert cluster.events.dropped == {"rejected": 1}


async def test_stock_role_is_enough_and_what_it_lacks_is_named(empty_servers: RealServers) -> None:
    client = await KubeClient.open(Connection(kubeconfig=str(empty_servers.kubeconfig(SCHEDULER))))
    cluster = KubeCluster(client, RealClock())
    try:
        await cluster.start(lambda event: None, ["pods", "nodes", "apps/replicasets"])
        late = asyncio.ensure_future(cluster.watch(["scheduling.k8s.io/priorityclasses"]))
        await until(lambda: bool(cluster.problems))
        [problem] = cluster.problems.values()
        assert 'cannot list resource "priorityclasses" in API group "scheduling.k8s.io"' in problem
        assert "apiGroups: ['scheduling.k8s.io'], resources: ['priorityclasses']" in problem
        late.cancel()
    finally:
        await cluster.stop()
        await client.close()


async def test_wrong_credentials_have_different_errors(empty_servers: RealServers) -> None:
    wrong = await KubeClient.open(Connection(kubeconfig=str(empty_servers.kubeconfig(token="wrong"))))
    with pytest.raises(UnauthorizedError, match="Unauthorized"):
        await wrong.request("GET", "/api/v1/nodes")
    await wrong.close()
    nobody = await KubeClient.open(Connection(kubeconfig=str(empty_servers.kubeconfig(NOBODY))))
    with pytest.raises(ForbiddenError, match='cannot list resource "nodes"'):
        await nobody.request("GET", "/api/v1/nodes")
    await nobody.close()


async def test_client_certificate_names_the_user(empty_servers: RealServers, authority: Authority) -> None:
    access = empty_servers.kubeconfig(certificate=authority.issue(SCHEDULER))
    scheduler = await KubeClient.open(Connection(kubeconfig=str(access)))
    assert (await scheduler.request("GET", "/api/v1/nodes"))["items"] == []
    with pytest.raises(ForbiddenError, match='User "system:kube-scheduler" cannot list resource "secrets"'):
        await scheduler.request("GET", "/api/v1/secrets")
    await scheduler.close()


async def test_custom_resource_is_watched_once_its_definition_is_there(
    cluster: KubeCluster, client: KubeClient
) -> None:
    seen = WatchedView()
    await cluster.start(seen.handle, ["berth.example.com/widgets"])
    assert "is its CRD installed?" in cluster.problems["berth.example.com/widgets"]
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.berth.example.com"},
        "spec": {
            "group": "berth.example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [version],
        },
    }
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await client.request("POST", crds, body=definition)
    try:
        await until(lambda: not cluster.problems)
        await cluster.create("berth.example.com/widgets", named("w"), {"spec": {}})
        await until(lambda: "default/w" in seen.objects["berth.example.com/widgets"])
    finally:
        await client.request("DELETE", f"{crds}/widgets.berth.example.com")
    await until(lambda: not seen.objects["berth.example.com/widgets"])
    assert seen.faults == []


async def test_view_equals_the_server_over_cut_connections(
    empty_servers: RealServers, cluster: KubeCluster
) -> None:
    seen = WatchedView()
    async with cutting_proxy(empty_servers.url, 3) as proxy:
        proxied = empty_servers.kubeconfig(url=proxy.url.replace("http:", "https:"))
        client = await KubeClient.open(Connection(kubeconfig=str(proxied), qps=-1))
        watching = KubeCluster(client, RealClock(), times=TIMES)
        try:
            starting = asyncio.ensure_future(watching.start(seen.handle, ["nodes", "pods"]))
            there: set[str] = set()
            for i in range(60):
                name = f"n{i % 7}"
                if name in there:
                    await cluster.delete("nodes", ObjectRef(name=name))
                    there.remove(name)
                if i % 3:
                    # Often the second object of its name.
                    await cluster.create("nodes", ObjectRef(name=name), {})
                    there.add(name)
                if i % 10 == 5:
                    proxy.cut_all()
            proxy.is_calm = True
            proxy.cut_all()
            await asyncio.wait_for(starting, PATIENCE_S)
            wanted = {}
            for name in there:
                node = await cluster.get("nodes", ObjectRef(name=name))
                assert node is not None
                wanted[name] = (node.ref.uid, node.ref.resource_version)
            await until(lambda: dict(seen.objects["Node"]) == wanted)
        finally:
            await watching.stop()
            await client.close()
    assert seen.faults == []


@pytest.mark.long
async def test_adapter_catches_up_after_an_outage(empty_servers: RealServers, cluster: KubeCluster) -> None:
    seen = WatchedView()
    await cluster.create("nodes", ObjectRef(name="before"), {})
    await cluster.start(seen.handle, ["nodes"])
    await asyncio.to_thread(empty_servers.stop_api_server, kill=True)
    await until(lambda: bool(cluster.problems))
    with pytest.raises(UnavailableError, match="is the API server running"):
        await cluster.get("nodes", ObjectRef(name="before"))
    await asyncio.to_thread(empty_servers.start_api_server)
    await cluster.create("nodes", ObjectRef(name="after"), {})
    await until(lambda: "after" in seen.objects["Node"])
    await until(lambda: not cluster.problems)
    assert sorted(seen.objects["Node"]) == ["after", "before"]
    assert seen.faults == []
