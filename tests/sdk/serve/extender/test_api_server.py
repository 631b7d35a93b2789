"""The requests of an extender to an API server on loopback: lists, watches, a pod, a Binding."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from berth_sdk import BindResult, CycleState, Need, Plugin, Pod, PodSensitivity, Status
from berth_sdk.serve.extender.api_server import AccessError, ApiAccess, ApiServer
from support.kube_api import Answer, KubeApi, kube_api
from support.waiting import PATIENCE_S, until

from sdk.serve.extender.serving import access, extender, has_nodes, has_pod, passes, passing, ready


class Room(Plugin):
    """Two pods fit on a node."""

    needs = (Need.nodes(), Need.pods())
    pod_sensitivity = PodSensitivity.NODE

    def filter(self, state: CycleState, pod: Pod, node: Any) -> Status:
        return Status.success() if node.pod_count < 2 else Status.unschedulable("no place is free")


@pytest.fixture
async def api() -> AsyncIterator[KubeApi]:
    async with kube_api() as running:
        yield running


async def test_watch_that_lost_its_history_lists_again(api: KubeApi) -> None:
    await has_nodes(api, "n1", "n2")
    api.max_watch_s = 0.01
    async with extender(Room, node_cache_capable=True, api=access(api)) as asking:
        await ready(asking)
        await until(lambda: len(api.seen("GET", "/nodes")) > 3)
        gone = {"kind": "Status", "code": 410, "message": "too old resource version"}
        api.answers.append(Answer("GET", "/nodes", 410, gone))
        await api.delete("nodes", "n1")
        api.answers.append(Answer("GET", "/pods", 500, {"message": "etcd is away"}))
        await has_pod(api, "a", "n2")
        await has_pod(api, "b", "n2")
        await passing(asking, [], "n1", "n2")
        await has_nodes(api, "n1")
        api.compact()
        await passing(asking, ["n1"], "n1", "n2")


async def test_health_reports_that_the_cluster_is_no_longer_followed(
    api: KubeApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("a mistake in the client")

    await has_nodes(api, "n1")
    api.max_watch_s = 0.01
    async with extender(Room, node_cache_capable=True, api=access(api)) as asking:
        await ready(asking)
        monkeypatch.setattr(ApiServer, "_list", broken)
        api.answers.append(Answer("GET", "/nodes", 410, {"message": "gone"}))
        async with asyncio.timeout(PATIENCE_S):
            while (await asking.get("/healthz"))[0] == 200:
                await asyncio.sleep(0.01)
        assert "no longer followed" in (await asking.get("/healthz"))[1]
    assert "the cluster is no longer followed, restart the extender" in caplog.text


async def test_long_lists_come_in_pages(api: KubeApi) -> None:
    await has_nodes(api, *(f"n{i}" for i in range(501)))
    async with extender(Room, node_cache_capable=True, api=access(api)) as asking:
        await ready(asking)
        assert await passes(asking, "n0", "n500") == ["n0", "n500"]
    assert any("continue" in request.query for request in api.seen("GET", "/nodes"))


# --- bind --------------------------------------------------------------------------------------------


class Binder(Plugin):
    """Decides by the pod's name. What it saw is in `seen`."""

    seen: list[tuple[str, str]] = []  # noqa: RUF012

    def bind(self, state: CycleState, pod: Pod, node_name: str) -> Any:
        Binder.seen.append((pod.labels.get("app", ""), node_name))
        return {
            "host": BindResult(Status.success(), host_binds=True),
            "skip": Status.skip(),
            "own": Status.success(),
            "no": Status.unschedulable("the rack is full"),
            "broken": None,
        }[pod.name]


@pytest.mark.parametrize(
    ("name", "error", "node_name"),
    [
        ("host", "", "n1"),
        ("skip", "", "n1"),
        ("own", "", None),
        ("no", "the rack is full", None),
        ("broken", "Binder.bind returned None, but must decide: return a Status", None),
    ],
)
async def test_bind_posts_the_binding_where_the_host_is_to_bind(
    api: KubeApi, name: str, error: str, node_name: str | None
) -> None:
    Binder.seen.clear()
    made = await has_pod(api, name, labels={"app": "web"})
    async with extender(Binder, api=access(api)) as asking:
        request = {
            "PodName": name,
            "PodNamespace": "default",
            "PodUID": made["metadata"]["uid"],
            "Node": "n1",
        }
        assert await asking.post("bind", request) == {"Error": error}
    assert api.objects["pods"][f"default/{name}"]["spec"].get("nodeName") == node_name
    assert Binder.seen == [("web", "n1")]
    for posted in api.seen("POST", "/binding"):
        assert posted.body == {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": "default", "uid": made["metadata"]["uid"]},
            "target": {"kind": "Node", "name": "n1"},
        }


async def test_bind_reports_what_the_api_server_says(api: KubeApi) -> None:
    made = await has_pod(api, "host", "n2")
    request = {
        "PodName": "host",
        "PodNamespace": "default",
        "PodUID": made["metadata"]["uid"],
        "Node": "n1",
    }
    async with extender(Binder, api=access(api)) as asking:
        assert "already assigned to node" in (await asking.post("bind", request))["Error"]
        answer = await asking.post("bind", {**request, "PodUID": "older"})
        assert answer["Error"].endswith("not older: it was replaced")
        answer = await asking.post("bind", {**request, "PodName": "gone"})
        assert answer["Error"] == 'GET api/v1/namespaces/default/pods/gone: 404 pods "gone" not found'
        api.answers.append(Answer("GET", "/host", 200, b"<html>"))
        assert "the answer is not JSON" in (await asking.post("bind", request))["Error"]
        status, text = await asking.reply("bind", {**request, "Node": "n" * 70_000})
        assert (status, text) == (413, "the request has more than 65536 bytes\n")
        status, text = await asking.reply("bind", {**request, "Node": ""})
        assert (status, text) == (400, "Node must be a string that is not empty, not ''\n")


async def test_token_is_read_for_every_request(api: KubeApi, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    made = await has_pod(api, "no")
    request = {"PodName": "no", "PodNamespace": "default", "PodUID": made["metadata"]["uid"], "Node": "n1"}
    async with extender(Binder, api=ApiAccess(url=api.url, token_file=str(token))) as asking:
        await asking.post("bind", request)
        token.write_text("second\n")
        await asking.post("bind", request)
        token.unlink()
        assert "--token-file" in (await asking.post("bind", request))["Error"]
    assert [one.authorization for one in api.seen("GET", "/no")] == ["Bearer first", "Bearer second"]


async def test_api_server_that_is_away_is_the_error_of_bind(api: KubeApi) -> None:
    async with extender(Binder, api=ApiAccess(url="http://127.0.0.1:1")) as asking:
        request = {"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "n1"}
        answer = await asking.post("bind", request)
    assert answer["Error"].startswith("GET api/v1/namespaces/default/pods/p: ")


# --- access ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"url": "api.example"}, "write https://HOST:PORT"),
        ({"url": "https://api", "cert_file": "c"}, "--client-certificate and --client-key go together"),
        ({"url": "https://api", "token_file": "/none"}, "--token-file /none cannot be read"),
        ({"url": "https://api", "ca_file": "/none"}, "--certificate-authority /none cannot be used"),
        (
            {"url": "https://api", "cert_file": "/none", "key_file": "/none"},
            "--client-certificate /none and --client-key /none are no certificate",
        ),
    ],
)
def test_access_that_cannot_work_is_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(AccessError, match=said):
        ApiAccess(**settings).check()


def test_access_in_a_pod_is_that_of_its_service_account(tmp_path: Path) -> None:
    inside = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(AccessError, match="does not run in a pod"):
        ApiAccess.in_cluster(inside, tmp_path)
    (tmp_path / "token").write_text("secret")
    with pytest.raises(AccessError, match="give --server and its credentials"):
        ApiAccess.in_cluster({}, tmp_path)
    found = ApiAccess.in_cluster(inside, tmp_path)
    assert (found.url, found.headers()) == ("https://[fd00::1]:443", {"Authorization": "Bearer secret"})
