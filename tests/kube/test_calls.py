"""The calls of the port: their requests, and their results and errors."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.cluster.port import ClusterPort
from berth_host.errors.cluster import (
    ConflictError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from berth_host.model.patch_type import PatchType
from berth_kube import calls
from berth_kube.cluster import KubeCluster
from berth_sdk.kube_object import ObjectRef
from support.kube_api import KubeApi, Request

WEB = ObjectRef(name="web", namespace="default")


def sent(api: KubeApi, method: str) -> Request:
    [request] = [request for request in api.requests if request.method == method]
    return request


async def test_kube_cluster_is_a_cluster_port(cluster: KubeCluster) -> None:
    port: ClusterPort = cluster
    assert port.answers_at_once is False
    assert port.undelivered_count == 0


async def test_bind_posts_what_kube_scheduler_posts(api: KubeApi, cluster: KubeCluster) -> None:
    pod = await api.put("pods", "web")
    uid = pod["metadata"]["uid"]
    await cluster.bind(ObjectRef(name="web", namespace="default", uid=uid), "n1")
    request = sent(api, "POST")
    assert request.path == "/api/v1/namespaces/default/pods/web/binding"
    assert request.content_type == "application/json"
    assert request.body == {
        "kind": "Binding",
        "apiVersion": "v1",
        "metadata": {"name": "web", "namespace": "default", "uid": uid},
        "target": {"kind": "Node", "name": "n1"},
    }
    assert api.objects["pods"]["default/web"]["spec"]["nodeName"] == "n1"


async def test_bind_of_a_bound_pod_is_a_conflict_in_the_servers_words(
    api: KubeApi, cluster: KubeCluster
) -> None:
    await api.put("pods", "web", spec={"nodeName": "n2"})
    with pytest.raises(ConflictError, match='pod web is already assigned to node "n2"') as caught:
        await cluster.bind(WEB, "n1")
    assert caught.value.key == "default/web"


async def test_get_reads_live(api: KubeApi, cluster: KubeCluster) -> None:
    pod = await api.put("pods", "web")
    got = await cluster.get("pods", WEB)
    assert got is not None
    assert (got.kind, got.ref.uid) == ("Pod", pod["metadata"]["uid"])
    assert "managedFields" not in got.parsed["metadata"]
    assert await cluster.get("pods", ObjectRef(name="web", namespace="default", uid="other")) is None
    assert await cluster.get("pods", ObjectRef(name="gone", namespace="default")) is None


@pytest.mark.parametrize(
    ("resource", "ref", "path"),
    [
        ("nodes", ObjectRef(name="n1"), "/api/v1/nodes/n1"),
        ("storage.k8s.io/csinodes", ObjectRef(name="n1"), "/apis/storage.k8s.io/v1/csinodes/n1"),
        (
            "resource.k8s.io/resourceclaims",
            ObjectRef(name="c", namespace="a"),
            "/apis/resource.k8s.io/v1/namespaces/a/resourceclaims/c",
        ),
        (
            "example.com/widgets",
            ObjectRef(name="w", namespace="a"),
            "/apis/example.com/v1beta1/namespaces/a/widgets/w",
        ),
    ],
)
async def test_every_resource_has_its_path(
    api: KubeApi, cluster: KubeCluster, resource: str, ref: ObjectRef, path: str
) -> None:
    await cluster.get(resource, ref)
    assert api.requests[-1].path == path


@pytest.mark.parametrize("patch_type", list(PatchType))
async def test_patch_says_its_type_and_the_version_that_it_is_for(
    api: KubeApi, cluster: KubeCluster, patch_type: PatchType
) -> None:
    pod = await api.put("pods", "web")
    version = pod["metadata"]["resourceVersion"]
    patch: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}}
    got = await cluster.patch("pods", WEB, patch, patch_type=patch_type, expected_resource_version=version)
    request = sent(api, "PATCH")
    assert request.content_type == patch_type.value
    assert request.body == {"metadata": {"labels": {"a": "b"}, "resourceVersion": version}}
    assert patch == {"metadata": {"labels": {"a": "b"}}}
    assert got.get("metadata.labels.a") == "b"
    with pytest.raises(ConflictError):
        await cluster.patch("pods", WEB, patch, expected_resource_version=version)


async def test_status_is_patched_and_replaced_at_its_own_path(api: KubeApi, cluster: KubeCluster) -> None:
    pod = await api.put("pods", "web")
    await cluster.patch("pods", WEB, {"status": {}}, subresource="status")
    await cluster.update(
        "pods", {"metadata": pod["metadata"] | {"resourceVersion": ""}}, subresource="status"
    )
    paths = [request.path for request in api.requests]
    assert paths == ["/api/v1/namespaces/default/pods/web/status"] * 2


async def test_update_puts_the_whole_object_with_its_kind(api: KubeApi, cluster: KubeCluster) -> None:
    node = await api.put("nodes", "n1")
    content = {"metadata": {"name": "n1", "resourceVersion": node["metadata"]["resourceVersion"]}}
    got = await cluster.update("nodes", content)
    assert sent(api, "PUT").body == {"kind": "Node", "apiVersion": "v1", **content}
    assert got.ref.name == "n1"
    with pytest.raises(ConflictError):
        await cluster.update("nodes", content)


async def test_create_names_or_lets_the_server_name(api: KubeApi, cluster: KubeCluster) -> None:
    named = await cluster.create("pods", WEB, {"spec": {}})
    assert named.ref.key == "default/web"
    completed = await cluster.create("pods", ObjectRef(name="web-", namespace="default"), {})
    assert completed.ref.name.startswith("web-")
    assert api.requests[0].body == {
        "kind": "Pod",
        "apiVersion": "v1",
        "spec": {},
        "metadata": {"name": "web", "namespace": "default"},
    }
    assert api.requests[1].body["metadata"] == {"generateName": "web-", "namespace": "default"}
    with pytest.raises(ConflictError, match="already exists"):
        await cluster.create("pods", WEB, {})


@pytest.mark.parametrize(("grace_period_s", "more"), [(None, {}), (0, {"gracePeriodSeconds": 0})])
async def test_delete_sends_options_without_preconditions(
    api: KubeApi, cluster: KubeCluster, grace_period_s: int | None, more: dict[str, int]
) -> None:
    await api.put("pods", "web")
    await cluster.delete("pods", WEB, grace_period_s=grace_period_s)
    assert sent(api, "DELETE").body == {"kind": "DeleteOptions", "apiVersion": "v1", **more}
    assert api.objects["pods"] == {}
    with pytest.raises(NotFoundError):
        await cluster.delete("pods", WEB)


async def test_delete_names_the_uid_where_only_that_object_may_go(api: KubeApi, cluster: KubeCluster) -> None:
    made = await api.put("pods", "web")
    one = ObjectRef(name="web", namespace="default", uid=made["metadata"]["uid"])
    await cluster.delete("pods", one, same_uid=True)
    assert sent(api, "DELETE").body == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": one.uid},
    }


async def test_call_without_a_name_never_reaches_the_collection(api: KubeApi, cluster: KubeCluster) -> None:
    nameless = ObjectRef(name="", namespace="default")
    for call in (
        cluster.delete("pods", nameless),
        cluster.get("pods", nameless),
        cluster.patch("pods", nameless, {}),
        cluster.update("pods", {"metadata": {"namespace": "default"}}),
        cluster.create("pods", nameless, {}),
    ):
        with pytest.raises(InvalidError, match=r"metadata\.name"):
            await call
    assert api.requests == []


async def test_nothing_is_sent_while_the_lease_has_run_out(api: KubeApi, cluster: KubeCluster) -> None:
    await api.put("pods", "web")
    cluster.lease_has_run_out = lambda: True
    with pytest.raises(UnavailableError, match="could not renew its Lease"):
        await cluster.patch("pods", WEB, {"metadata": {"labels": {"a": "b"}}})
    assert api.requests == []
    cluster.lease_has_run_out = lambda: False
    changed = await cluster.patch("pods", WEB, {"metadata": {"labels": {"a": "b"}}})
    assert changed.get("metadata.labels") == {"a": "b"}


async def test_nothing_is_sent_once_cut_off_but_the_watches_go_on(api: KubeApi, cluster: KubeCluster) -> None:
    await api.put("pods", "web")
    cluster.cut()
    cluster.cut()
    for call in (
        cluster.bind(WEB, "n1"),
        cluster.get("pods", WEB),
        cluster.patch("pods", WEB, {}),
        cluster.delete("pods", WEB),
        cluster.create("pods", WEB, {}),
        cluster.update("pods", {"metadata": {"name": "web"}}),
    ):
        with pytest.raises(UnavailableError, match="not the leader any more"):
            await call
    assert api.requests == []
    seen: list[object] = []
    await cluster.start(seen.append, ["pods"])
    assert len(seen) == 1


async def test_list_reads_all_pages_of_the_objects_with_the_labels(
    api: KubeApi, cluster: KubeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "_PAGE_SIZE", 2)
    for i in range(5):
        phase = "Succeeded" if i % 2 else "Running"
        await api.put("pods", f"m{i}", "team", metadata={"labels": {"g": "one"}}, status={"phase": phase})
    await api.put("pods", "other", "team", metadata={"labels": {"g": "two"}})
    await api.put("pods", "elsewhere", "default", metadata={"labels": {"g": "one"}})
    listed = await cluster.list("pods", "team", {"g": "one"})
    assert [item.ref.name for item in listed] == [f"m{i}" for i in range(5)]
    assert {item.kind for item in listed} == {"Pod"}
    pages = [request for request in api.requests if request.query.get("labelSelector") == "g=one"]
    assert len(pages) == 3
    assert all("fieldSelector" not in request.query for request in pages)


async def test_list_selects_by_fields_without_labels(api: KubeApi, cluster: KubeCluster) -> None:
    await cluster.list("pods", "team", {}, {"status.phase": "Succeeded"})
    assert "labelSelector" not in sent(api, "GET").query
    assert sent(api, "GET").query["fieldSelector"] == "status.phase=Succeeded"
