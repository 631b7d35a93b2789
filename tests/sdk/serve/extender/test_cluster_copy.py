"""An extender's own copy of nodes and pods, over an API server on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from berth_sdk import CycleState, Need, Plugin, Pod, PodSensitivity, Status, Verdicts
from berth_sdk.results import PreFilterResult
from berth_sdk.serve.extender.cluster_copy import ClusterCopy
from berth_sdk.tables import NodeTable
from support.kube_api import KubeApi, kube_api
from support.waiting import until

from sdk.serve.extender.serving import (
    about_names,
    about_nodes,
    about_victims,
    access,
    extender,
    has_nodes,
    has_pod,
    node,
    passes,
    passing,
    pod,
    ready,
)


class Room(Plugin):
    """Two pods fit on a node; nodes with more free places score higher."""

    needs = (Need.nodes(), Need.pods())
    pod_sensitivity = PodSensitivity.NODE

    def filter(self, state: CycleState, pod: Pod, node: Any) -> Status:
        assert node.pod_count == len(node.pods)
        return Status.success() if node.pod_count < 2 else Status.unschedulable("no place is free")

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Any:
        return 100 - 10 * nodes.pod_count


class Largest(Plugin):
    """Reads usage over the table, without a need for pods: the usage of nodes brings them."""

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Any:
        return PreFilterResult(eligible=frozenset(nodes.names[:2]))

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Any:
        free = nodes.allocatable("cpu") - nodes.requested("cpu")
        return Verdicts.reject_where(free < pod.requests.get("cpu", 0), Status.unschedulable("too small"))


@pytest.fixture
async def api() -> AsyncIterator[KubeApi]:
    async with kube_api() as running:
        yield running


async def test_copy_follows_nodes_and_pods(api: KubeApi) -> None:
    await has_nodes(api, "n1", "n2")
    await has_pod(api, "a", "n1")
    await has_pod(api, "pending")
    async with extender(Room, node_cache_capable=True, api=access(api)) as asking:
        await ready(asking)
        assert await passes(asking, "n1", "n2") == ["n1", "n2"]
        answer = await asking.post("prioritize", about_names("n2", "n1"))
        assert answer == [{"Host": "n2", "Score": 10}, {"Host": "n1", "Score": 9}]
        b = await has_pod(api, "b", "n1")
        await passing(asking, ["n2"], "n1", "n2")
        await api.put("pods", "b", **{**b, "status": {"phase": "Succeeded"}})
        await passing(asking, ["n1", "n2"], "n1", "n2")
        await has_pod(api, "c", "n1")
        await passing(asking, ["n2"], "n1", "n2")
        await api.delete("pods", "default/c")
        await passing(asking, ["n1", "n2"], "n1", "n2")
        await api.delete("nodes", "n1")
        await passing(asking, ["n2"], "n1", "n2")
        await has_pod(api, "d", "n1")
        await has_nodes(api, "n1")
        await passing(asking, ["n2"], "n1", "n2")  # a and d were on it before it came back
        answer = await asking.post("filter", about_names("n1"))
        assert answer["FailedNodes"] == {"n1": "no place is free"}
        pods = api.seen("GET", "/pods")
        assert all("spec.nodeName!=" in request.query["fieldSelector"] for request in pods)


async def test_node_objects_are_answered_whole_and_judged_by_the_copy(api: KubeApi) -> None:
    await has_nodes(api, "n1", "n2")
    await has_pod(api, "a", "n1")
    await has_pod(api, "b", "n1")
    async with extender(Room, api=access(api)) as asking:
        await ready(asking)
        sent = [node("n1"), node("n2", labels={"only": "here"})]
        answer = await asking.post("filter", about_nodes(*sent))
    assert answer["Nodes"]["items"] == [sent[1]]
    assert answer["FailedNodes"] == {"n1": "no place is free"}


async def test_pre_filter_sees_all_nodes_and_usage_is_known(api: KubeApi) -> None:
    await has_nodes(api, "n1", "n2", "n3", cpu=2)
    await has_pod(api, "a", "n1", cpu="1500m")
    async with extender(Largest, node_cache_capable=True, api=access(api)) as asking:
        await ready(asking)
        answer = await asking.post("filter", about_names("n3", "n2", "n1", of=pod(cpu=1)))
    assert answer["NodeNames"] == ["n2"]
    assert answer["FailedNodes"] == {"n1": "too small"}
    assert list(answer["FailedAndUnresolvableNodes"]) == ["n3"]


async def test_node_that_is_new_is_waited_for_and_an_unknown_one_fails(api: KubeApi) -> None:
    await has_nodes(api, "n1")
    async with extender(Room, node_cache_capable=True, api=access(api)) as asking:
        await ready(asking)
        answer = asyncio.create_task(asking.post("filter", about_names("n1", "n2", "n9")))
        await until(lambda: asking.server.in_flight.count == 1)
        await has_nodes(api, "n2")
        done = await answer
    assert done["NodeNames"] == ["n1", "n2"]
    assert done["FailedNodes"] == {"n9": "the extender does not know the node yet"}


@pytest.mark.parametrize("meta", [False, True])
@pytest.mark.parametrize("plugin", [Room, Largest])
async def test_preempt_asks_without_the_victims(api: KubeApi, plugin: type, meta: bool) -> None:
    await has_nodes(api, "n1", "n2", cpu=2)
    held = {
        name: [await has_pod(api, f"{name}-{i}", name, cpu="900m") for i in range(2)] for name in ("n1", "n2")
    }
    async with extender(plugin, node_cache_capable=meta, api=access(api)) as asking:
        await ready(asking)
        assert await passes(asking, "n1", "n2") == (["n1", "n2"] if plugin is Largest else [])
        request = about_victims({"n1": held["n1"][:1], "n2": [], "n9": []}, meta=meta, of=pod(cpu=1))
        answer = await asking.post("preempt", request)
    uid = held["n1"][0]["metadata"]["uid"]
    assert answer == {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": uid}], "NumPDBViolations": 1}}}


async def test_requests_wait_for_the_first_lists(api: KubeApi) -> None:
    api.held = asyncio.Event()
    await has_nodes(api, "n1")
    async with extender(Room, node_cache_capable=True, api=access(api)) as asking:
        assert (await asking.get("/healthz"))[0] == 503
        assert (await asking.reply("filter", about_names("n1")))[0] == 503
        api.held.set()
        await ready(asking)
        assert await asking.get("/healthz") == (200, "ok\n")
        assert await passes(asking, "n1") == ["n1"]


def test_node_that_did_not_come_is_waited_for_once() -> None:
    copy = ClusterCopy([Need.node_objects()])
    copy.nodes.replace({"n1": node("n1")})
    assert copy.find(["n1", "gone"], wait_s=0.01).unknown == ("gone",)
    assert copy.find(["n1", "gone"], wait_s=3600).unknown == ("gone",)
    copy.nodes.put("gone", node("gone"))
    assert copy.find(["n1", "gone"], wait_s=3600).unknown == ()


def test_only_the_last_change_of_an_object_is_held() -> None:
    copy = ClusterCopy([Need.node_objects()])
    assert copy.pods is None
    copy.nodes.replace({"n1": node("n1"), "n2": node("n2")})
    for version in range(100):
        copy.nodes.put("n1", node("n1", str(version), labels={"at": str(version)}))
    copy.nodes.put("n2", None)
    assert len(copy.nodes._changes) == 2  # noqa: SLF001
    found = copy.find(["n1", "n2"], wait_s=0)
    assert (found.candidates.names, found.unknown) == (["n1"], ("n2",))
    item = found.candidates.node(0).object
    assert item is not None
    assert item.get("metadata.labels.at") == "99"


def test_object_that_cannot_be_read_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    copy = ClusterCopy([Need.nodes()])
    assert copy.pods is not None
    copy.nodes.replace({"n1": node("n1"), "n2": {"metadata": {"name": "n2"}, "spec": 1}})
    copy.pods.replace({"u": {"metadata": {"uid": "u"}, "spec": 1}})
    assert copy.find(["n1", "n2"], wait_s=0).unknown == ("n2",)
    assert "node n2 is left out" in caplog.text
    assert "a pod is left out" in caplog.text
