"""The embedded cluster over HTTP, used by the host's client for real clusters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from berth_host.cluster.port import EventRecord, WatchEvent
from berth_host.errors.cluster import ConflictError, InvalidError, NotFoundError, UnavailableError
from berth_host.model.clock import RealClock
from berth_host.model.patch_type import PatchType
from berth_kube.client import KubeClient
from berth_kube.cluster import KubeCluster
from berth_kube.connection import Connection
from berth_sdk.kube_object import ObjectRef
from berth_sim.cluster.http.serving import ServedCluster, served
from berth_sim.cluster.server import ApiServer
from support.waiting import until


def pod(name: str, phase: str = "") -> dict[str, Any]:
    made: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "registry.example.com/app:v1"}]},
    }
    return made | ({"status": {"phase": phase}} if phase else {})


def ref(name: str, uid: str = "") -> ObjectRef:
    return ObjectRef(name=name, namespace="default", uid=uid)


class Seen:
    """The changes that a host got, newest last."""

    def __init__(self) -> None:
        self.events: list[WatchEvent] = []

    def __call__(self, event: WatchEvent) -> None:
        self.events.append(event)

    def has(self, kind: str, name: str, node: str | None = None) -> bool:
        return any(
            event.kind == kind
            and event.new is not None
            and event.new.ref.name == name
            and (node is None or event.new.get("spec.nodeName") == node)
            for event in self.events
        )

    def lost(self, name: str) -> bool:
        return any(event.new is None and event.old and event.old.ref.name == name for event in self.events)


@pytest.fixture
async def server() -> ApiServer:
    made = ApiServer(RealClock())
    made.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    return made


@pytest.fixture
async def there(server: ApiServer) -> AsyncIterator[ServedCluster]:
    async with served(server) as running:
        yield running


@pytest.fixture
async def cluster(there: ServedCluster) -> AsyncIterator[KubeCluster]:
    client = await KubeClient.open(Connection(master=there.url, qps=-1))
    made = KubeCluster(client, RealClock(), host_name="here")
    yield made
    await made.stop()
    await client.close()


async def test_host_gets_existing_objects_and_changes(server: ApiServer, cluster: KubeCluster) -> None:
    server.create(pod("before"))
    seen = Seen()
    await cluster.start(seen, ["nodes", "pods"])
    assert seen.has("Node", "n1")
    assert seen.has("Pod", "before")
    server.create(pod("after"))
    await until(lambda: seen.has("Pod", "after"))
    await cluster.bind(ref("after"), "n1")
    await until(lambda: seen.has("Pod", "after", "n1"))
    await cluster.delete("pods", ref("before"))
    await until(lambda: seen.lost("before"))


async def test_finished_pod_is_deleted_from_the_watch_of_a_host(
    server: ApiServer, cluster: KubeCluster
) -> None:
    server.create(pod("job"))
    seen = Seen()
    await cluster.start(seen, ["pods"])
    server.patch("pods", ref("job"), {"status": {"phase": "Succeeded"}}, subresource="status")
    await until(lambda: seen.lost("job"))


async def test_refusals_are_those_of_the_embedded_server(
    server: ApiServer, there: ServedCluster, cluster: KubeCluster
) -> None:
    uid = server.create(pod("web")).ref.uid
    await cluster.bind(ref("web", uid), "n1")
    with pytest.raises(ConflictError, match="already assigned to node"):
        await cluster.bind(ref("web", uid), "n1")
    assert there.handlers.rebinds == 0
    with pytest.raises(ConflictError, match="already assigned to node"):
        await cluster.bind(ref("web", uid), "n2")
    assert there.handlers.rebinds == 1
    with pytest.raises(ConflictError, match="Precondition failed"):
        await cluster.bind(ref("web", "another"), "n1")
    with pytest.raises(NotFoundError, match='pods "gone" not found'):
        await cluster.bind(ref("gone"), "n1")
    with pytest.raises(InvalidError) as caught:
        await cluster.create("pods", ref("bare"), {"spec": {"containers": []}})
    assert "spec.containers" in {problem.path for problem in caught.value.problems}


async def test_objects_are_read_changed_and_made(server: ApiServer, cluster: KubeCluster) -> None:
    server.create(pod("web"))
    assert await cluster.get("pods", ref("gone")) is None
    change = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    await cluster.patch("pods", ref("web"), change, patch_type=PatchType.STRATEGIC, subresource="status")
    found = await cluster.get("pods", ref("web"))
    assert found is not None
    assert {"type": "Ready", "status": "False"} in found.get("status.conditions")
    made = await cluster.create("services", ref("svc-"), {"spec": {"selector": {"app": "web"}}})
    assert made.ref.name.startswith("svc-")
    await cluster.update("services", {**made.parsed, "spec": {"selector": {"app": "other"}}})
    assert server.list("services")[0].get("spec.selector") == {"app": "other"}


async def test_events_are_taken(there: ServedCluster, cluster: KubeCluster) -> None:
    cluster.create_event(
        EventRecord(regarding=ref("web"), reason="Scheduled", note="on n1", reporter="default-scheduler")
    )
    await until(lambda: there.handlers.events_taken == 1)


async def test_host_catches_up_after_a_silence(
    server: ApiServer, there: ServedCluster, cluster: KubeCluster
) -> None:
    seen = Seen()
    await cluster.start(seen, ["pods"])
    await there.fall_silent()
    with pytest.raises(UnavailableError):
        await cluster.get("pods", ref("web"))
    server.create(pod("meanwhile"))
    await there.listen()
    await until(lambda: seen.has("Pod", "meanwhile"))


async def test_faulty_request_is_refused(there: ServedCluster) -> None:
    client = await KubeClient.open(Connection(master=there.url, qps=-1))
    try:
        with pytest.raises(NotFoundError, match="could not find the requested resource"):
            await client.request("GET", "/apis/example.com/v1/widgets")
        with pytest.raises(InvalidError, match="field selector"):
            await client.request("GET", "/api/v1/pods", query={"fieldSelector": "spec.nodeName=n1"})
    finally:
        await client.close()


async def test_client_of_an_older_version_reads_and_writes_that_version(
    server: ApiServer, there: ServedCluster
) -> None:
    client = await KubeClient.open(Connection(master=there.url, qps=-1))
    claims = "/apis/resource.k8s.io/v1beta1/namespaces/default/resourceclaims"
    old = [{"name": "gpu", "deviceClassName": "gpus"}]
    new = [{"name": "gpu", "exactly": {"deviceClassName": "gpus"}}]
    try:
        body = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": old}}}
        made = await client.request("POST", claims, body=body)
        listed = await client.request("GET", claims)
        patched = await client.request(
            "PATCH",
            f"{claims}/c",
            body={"metadata": {"labels": {"a": "b"}}},
            content_type=PatchType.MERGE.value,
        )
        newest = await client.request("GET", claims.replace("v1beta1", "v1") + "/c")
        group = await client.request("GET", "/apis/resource.k8s.io/v1beta1")
    finally:
        await client.close()
    assert [one["spec"]["devices"]["requests"] for one in (made, *listed["items"], patched)] == [old] * 3
    assert [one["apiVersion"] for one in (made, listed, patched)] == ["resource.k8s.io/v1beta1"] * 3
    assert (newest["apiVersion"], newest["spec"]["devices"]["requests"]) == ("resource.k8s.io/v1", new)
    assert server.list("resource.k8s.io/resourceclaims")[0].get("spec.devices.requests") == new
    assert [item["kind"] for item in group["resources"]] == [
        "ResourceClaim",
        "ResourceClaimTemplate",
        "ResourceSlice",
        "DeviceClass",
    ]
