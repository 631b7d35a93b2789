"""The first pod is placed when nodes and bound pods are there, and not before."""

from __future__ import annotations

import asyncio

import pytest
from berth_host.app import Host, HostOptions
from berth_host.config.loading import default_configuration
from berth_host.model.clock import RealClock
from berth_kube.client import KubeClient
from berth_kube.cluster import KubeCluster
from berth_kube.informer import WatchTimes
from support.kube_api import KubeApi, Request
from support.waiting import until
from support.watched_view import WatchedView

pytestmark = pytest.mark.slow
TIMES = WatchTimes(min_watch_s=60, max_watch_s=60, idle_s=60.0, page_size=3)
BOUND = 7


@pytest.mark.parametrize("held", ["nodes", "the last pods", "all pods"])
async def test_first_pod_is_placed_when_nodes_and_bound_pods_are_there(
    api: KubeApi, client: KubeClient, held: str
) -> None:
    # By what is free, `large` would be chosen, unless the bound pods are known to fill it.
    for name, cpu in (("large", "8"), ("small", "2")):
        await api.put("nodes", name, status={"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}})
    await api.put("pods", "first", spec=spec("100m"))
    for number in range(BOUND):
        await api.put("pods", f"running-{number}", spec={**spec("1100m"), "nodeName": "large"})
    gate = asyncio.Event()
    waiting: list[Request] = []

    def gate_of(request: Request) -> asyncio.Event | None:
        is_held = {
            "nodes": request.path.endswith("/nodes"),
            "the last pods": request.path.endswith("/pods") and "continue" in request.query,
            "all pods": request.path.endswith("/pods"),
        }[held]
        if is_held and "watch" not in request.query:
            waiting.append(request)
            return gate
        return None

    api.gate_of = gate_of
    clock = RealClock()
    host = Host(default_configuration(), KubeCluster(client, clock, times=TIMES), HostOptions(clock=clock))
    starting = asyncio.create_task(host.start())
    try:
        await until(lambda: bool(waiting))
        await asyncio.sleep(0.1)
        assert (starting.done(), api.seen("POST", "/binding")) == (False, [])
        if held != "all pods":
            await until(lambda: host.objects.pod("default/first") is not None)
        gate.set()
        await starting
        await until(lambda: bool(api.seen("POST", "/binding")))
        (binding,) = api.seen("POST", "/binding")
        assert binding.body["target"]["name"] == "small"
    finally:
        await host.stop()


def spec(cpu: str) -> dict[str, object]:
    container = {"name": "c", "image": "app", "resources": {"requests": {"cpu": cpu, "memory": "1Mi"}}}
    return {"schedulerName": "default-scheduler", "containers": [container]}


async def test_next_page_is_asked_for_while_the_objects_of_a_large_one_are_handed_over(
    api: KubeApi, client: KubeClient
) -> None:
    for number in range(1200):
        await api.put("pods", f"p{number:04}", metadata={"annotations": {"a": "x" * 4000}})
    seen = WatchedView()
    cluster = KubeCluster(client, RealClock())
    try:
        await cluster.start(seen.handle, ["pods"])
    finally:
        await cluster.stop()
    assert len(seen.objects["Pod"]) == 1200
    assert seen.faults == []
    pages = [request.query["limit"] for request in api.seen("GET", "/pods") if "watch" not in request.query]
    assert pages == ["50", "500", "500", "500"]
