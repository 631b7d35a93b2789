"""The GPU memory extender and the plugin with the same decisions, each alone and against each other."""

from __future__ import annotations

import asyncio
import json
import random
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import extender
import gpu_memory
import measure
import pytest
from berth_host.model.clock import ManualClock
from berth_sdk import CycleState, LiveReservation, Node, ObjectRef, Pod
from berth_sdk.testing import PluginHost, make_pod, node_object, pod_object
from berth_sim.cluster.http.serving import ServedCluster, served
from berth_sim.cluster.server import ApiServer
from gpu_memory import GPU, GPUS, MEMORY
from gpu_memory_plugin import GpuMemory

Manifest = dict[str, Any]


def gpu_node(name: str, gpus: int, gib: int) -> Manifest:
    """Return a node with GPUs of `gib` each, or with none."""
    if not gpus:
        return node_object(name)
    return node_object(name, labels={GPUS: str(gpus)}, allocatable={MEMORY: str(gpus * gib)})


def gpu_pod(name: str, gib: int, *, node: str = "", gpu: str = "") -> Manifest:
    """Return a pod that requests memory of one GPU, on a node or pending."""
    annotations = {GPU: gpu} if gpu else {}
    return pod_object(name, uid=name, requests={MEMORY: str(gib)}, node=node, annotations=annotations)


# --- the decisions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "wanted", "gpu"),
    [([16, 16], 8, 0), ([16, 8], 8, 1), ([16, 4], 8, 0), ([4, 4], 8, None), ([], 8, None)],
)
def test_pod_gets_the_gpu_on_which_the_least_is_left_over(
    left: list[int], wanted: int, gpu: int | None
) -> None:
    assert gpu_memory.best_gpu(left, wanted) == gpu


def test_pod_without_a_known_gpu_counts_on_every_gpu() -> None:
    assert gpu_memory.left([16, 16], [(4, "1"), (2, ""), (1, "7")]) == [13, 9]


def test_node_that_the_pod_fills_gets_the_most_points() -> None:
    assert gpu_memory.points([16, 16], [16, 8], 8) == 10
    assert gpu_memory.points([16, 16], [16, 4], 8) == 5
    assert gpu_memory.points([16, 16], [4, 4], 8) == 0


@pytest.mark.parametrize(
    ("quantity", "number"), [("0", 0), ("24", 24), ("1k", 1000), ("1Ki", 1024), ("2M", 2_000_000)]
)
def test_quantity_is_read_as_the_api_server_writes_it(quantity: str, number: int) -> None:
    assert gpu_memory.amount(quantity) == number


def test_pod_without_gpu_memory_fits_anywhere_and_scores_nowhere() -> None:
    assert gpu_memory.refusal([], [], 0) is None
    assert gpu_memory.points([16], [16], 0) == 0


# --- both ways, one decision -------------------------------------------------------------------------------


def some_cluster(rng: random.Random) -> tuple[list[Manifest], list[Manifest]]:
    """Return nodes with and without GPUs, and pods on them, some without a known GPU."""
    nodes = [gpu_node(f"n{i}", rng.choice((0, 1, 2, 4)), rng.choice((8, 16, 24))) for i in range(12)]
    pods = [
        gpu_pod(
            f"p{i}", rng.randint(1, 12), node=f"n{rng.randrange(12)}", gpu=rng.choice(("", "0", "1", "3"))
        )
        for i in range(20)
    ]
    return nodes, pods


def verbs_over(nodes: list[Manifest], pods: list[Manifest]) -> extender.Verbs:
    """Return the extender's verbs over a cluster that its watches have shown."""
    cluster = extender.Cluster()
    cluster.see_nodes(nodes)
    cluster.see_pods(pods)
    return extender.Verbs(extender.Api("http://127.0.0.1:1"), cluster)


@pytest.mark.parametrize("seed", range(8))
def test_extender_and_plugin_give_the_same_verdicts_and_scores(seed: int) -> None:
    rng = random.Random(seed)
    nodes, pods = some_cluster(rng)
    wanted = gpu_pod("new", rng.randint(1, 24))
    names = [node["metadata"]["name"] for node in nodes]
    verbs = verbs_over(nodes, pods)
    answers = [
        verbs.filter({"Pod": wanted, "Nodes": {"items": nodes}, "NodeNames": None}),
        verbs.filter({"Pod": wanted, "Nodes": None, "NodeNames": names}),
    ]
    assert [node["metadata"]["name"] for node in answers[0].pop("Nodes")["items"]] == answers[1].pop(
        "NodeNames"
    )
    assert answers[0] == answers[1]
    attempt = PluginHost(
        GpuMemory,
        nodes=[Node.from_object(node) for node in nodes],
        pods=[Pod.from_object(pod) for pod in pods],
    ).attempt(Pod.from_object(wanted))
    verdicts = attempt.filter()
    refused = {name: status for name, status in verdicts.items() if not status.is_success}
    assert answers[0]["FailedNodes"] == {
        name: status.message for name, status in refused.items() if status.code.kube_name == "Unschedulable"
    }
    assert answers[0]["FailedAndUnresolvableNodes"] == {
        name: status.message for name, status in refused.items() if status.code.kube_name != "Unschedulable"
    }
    scores = verbs.prioritize({"Pod": wanted, "Nodes": None, "NodeNames": names})
    assert attempt.score(*names) == {item["Host"]: 10 * item["Score"] for item in scores}


# --- the extender as a process -----------------------------------------------------------------------------


class Running:
    """A running extender, beside the API server that it follows."""

    def __init__(self, server: ApiServer, api: ServedCluster, url: str) -> None:
        self.server = server
        self.api = api
        self.url = url

    async def ask(self, verb: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        """Return the status and the body of the answer to one call."""
        return await asyncio.to_thread(_post, f"{self.url}/{verb}", body)

    async def until_left(self, node_name: str, gib: int, fits: bool) -> None:
        """Wait until the extender's own watch makes it say that a pod fits on a node, or does not."""
        args = {"Pod": gpu_pod("x", gib), "Nodes": None, "NodeNames": [node_name]}
        while ((await self.ask("filter", args))[1]["NodeNames"] == [node_name]) is not fits:
            pass


def _post(url: str, body: Mapping[str, Any]) -> tuple[int, Any]:
    request = urllib.request.Request(url, data=json.dumps(body).encode(), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as err:
        with err:
            return err.code, json.load(err)


@asynccontextmanager
async def running(*objects: Manifest) -> AsyncIterator[Running]:
    server = ApiServer(ManualClock())
    for item in objects:
        server.create(item)
    async with served(server) as api, measure.extender_process(api.url) as url:
        yield Running(server, api, url)


def binding_of(it: Running, name: str, node: str) -> Manifest:
    """Return the scheduler's ExtenderBindingArgs for a pod."""
    pod = it.server.get("pods", ObjectRef(namespace="default", name=name))
    uid = "" if pod is None else pod.ref.uid
    return {"PodName": name, "PodNamespace": "default", "PodUID": uid, "Node": node}


@pytest.mark.slow
async def test_bind_writes_the_gpu_and_binds_the_pod() -> None:
    async with running(
        gpu_node("a", 2, 16), gpu_pod("one", 10), gpu_pod("two", 10), gpu_pod("three", 10)
    ) as it:
        assert await it.ask("bind", binding_of(it, "one", "a")) == (200, {"Error": ""})
        assert await it.ask("bind", binding_of(it, "two", "a")) == (200, {"Error": ""})
        _, refused = await it.ask("bind", binding_of(it, "three", "a"))
        assert refused == {"Error": "no GPU of the node has enough memory left: a was filled meanwhile"}
        bound = {
            pod.ref.name: (pod.get("spec.nodeName"), pod.get("metadata.annotations"))
            for pod in it.server.list("pods")
        }
        assert bound == {"one": ("a", {GPU: "0"}), "two": ("a", {GPU: "1"}), "three": ("", {})}


@pytest.mark.slow
async def test_pod_that_cannot_be_bound_holds_no_memory() -> None:
    async with running(gpu_node("a", 1, 16), gpu_pod("one", 10)) as it:
        _, failed = await it.ask("bind", {**binding_of(it, "one", "a"), "PodUID": "of-a-pod-before"})
        assert "metadata.uid" in failed["Error"]
        await it.until_left("a", 16, fits=True)
        assert await it.ask("bind", binding_of(it, "missing", "a")) != (200, {"Error": ""})


@pytest.mark.slow
async def test_pod_without_gpu_memory_is_bound_without_an_annotation() -> None:
    async with running(node_object("plain"), pod_object("web")) as it:
        assert await it.ask("bind", binding_of(it, "web", "plain")) == (200, {"Error": ""})
        (web,) = it.server.list("pods")
        assert (web.get("spec.nodeName"), web.get("metadata.annotations")) == ("plain", None)


@pytest.mark.slow
async def test_extender_follows_nodes_and_pods() -> None:
    async with running(gpu_node("a", 1, 16), gpu_pod("one", 10, node="a", gpu="0")) as it:
        await it.until_left("a", 10, fits=False)
        it.server.delete("pods", ObjectRef(namespace="default", name="one"), grace_period_s=0)
        await it.until_left("a", 10, fits=True)
        it.server.create(gpu_node("b", 1, 8))
        await it.until_left("b", 8, fits=True)
        it.server.delete("nodes", ObjectRef(name="b"))
        await it.until_left("b", 8, fits=False)


@pytest.mark.slow
async def test_unreadable_request_and_unknown_verb_are_refused() -> None:
    async with running(gpu_node("a", 1, 16)) as it:
        code, answer = await it.ask("filter", {"Nodes": None})
        assert (code, answer) == (400, {"Error": "the request cannot be read: KeyError('Pod')"})
        code, answer = await it.ask("preempt", {})
        assert (code, answer) == (404, {"Error": "/preempt is none of /filter, /prioritize, /bind"})


# --- the plugin --------------------------------------------------------------------------------------------


def plugin_host(*objects: Manifest) -> PluginHost:
    return PluginHost(
        GpuMemory,
        nodes=[Node.from_object(item) for item in objects if item["kind"] == "Node"],
        pods=[Pod.from_object(item) for item in objects if item["kind"] == "Pod"],
    )


def test_placed_pods_get_gpus_and_annotations() -> None:
    host = plugin_host(gpu_node("a", 2, 16))
    outcomes = []
    for name in ("one", "two", "three"):
        attempt = host.attempt(Pod.from_object(gpu_pod(name, 10)))
        verdict = attempt.filter()["a"]
        placed = attempt.place("a").code.name if verdict.is_success else verdict.message
        outcomes.append((placed, attempt.pod.annotations.get(GPU)))
    refused = ("no GPU of the node has enough memory left", None)
    assert outcomes == [("SUCCESS", "0"), ("SUCCESS", "1"), refused]


def test_pod_without_gpu_memory_is_placed_anywhere() -> None:
    attempt = plugin_host(node_object("plain")).attempt(make_pod("web"))
    assert attempt.filter()["plain"].is_success
    assert attempt.place("plain").is_success
    assert attempt.pod.annotations == {}


def test_what_if_counts_the_pods_that_leave() -> None:
    victim = gpu_pod("low", 10, node="a", gpu="0")
    attempt = plugin_host(gpu_node("a", 1, 16), victim).attempt(Pod.from_object(gpu_pod("high", 10)))
    assert not attempt.filter()["a"].is_success
    assert attempt.what_if("a", removed=[Pod.from_object(victim)]).is_success


def test_reservation_survives_the_process_and_unreserve_gives_it_back() -> None:
    host = plugin_host(gpu_node("a", 2, 16))
    attempt = host.attempt(Pod.from_object(gpu_pod("one", 10)))
    assert attempt.reserve("a").is_success
    assert attempt.state.token == b"0"
    another = GpuMemory({}, host.handle)
    live = CycleState("cycle", plugin="GpuMemory")
    live.token = b"1"
    another.reconcile([LiveReservation(state=live, pod=make_pod("one", uid="one"), node_name="a")])
    on_node = make_pod("one", uid="one", node="a", requests={MEMORY: "10"})
    host.put_pod(on_node)
    left = [gpus[1] for gpus in another._gpus(host.table())]  # noqa: SLF001  what it counts shows nowhere else
    assert left == [[16, 6]]
    another.unreserve(live, on_node, "a")
    host.remove_pod(on_node)
    assert [gpus[1] for gpus in another._gpus(host.table())] == [[16, 16]]  # noqa: SLF001


def test_arguments_are_refused() -> None:
    with pytest.raises(Exception, match="GpuMemory takes no arguments"):
        PluginHost(GpuMemory, {"gpus": 2})
