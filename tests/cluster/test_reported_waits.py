"""Pods that waited for the flush in public bug reports, on a real API server: the change itself requeues
them.

kubernetes 139161 (one of two anti-affinity terms), 124930 and 93934 (a node that does not exist yet), and
similar ones. A host that emulates 1.36 lets the first one wait.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest
from berth_bench.versus.real_servers import SCHEDULER, RealServers
from berth_bench.versus.scheduler_process import SchedulerProcess, SchedulerSetup
from support.hosts import pod
from support.requeue_objects import Json, away, lingering, node, on, service, spread, term, waiter
from support.waiting import until

pytestmark = pytest.mark.long

HEADER: Final = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
"""
SPREADING: Final = (
    HEADER + "profiles: [{pluginConfig: [{name: PodTopologySpread, args: {defaultingType: List, "
    "defaultConstraints: [{maxSkew: 1, topologyKey: deck, minDomains: 2, "
    "whenUnsatisfiable: DoNotSchedule}]}}]}]\n"
)
PODS: Final = "/api/v1/namespaces/default/pods"
HARBOUR: Final = node("quay-a", {"deck": "one"})
WEB: Final = {"app": "web"}

Start = Callable[..., Awaitable[SchedulerProcess]]


@pytest.fixture
async def start(empty_servers: RealServers, tmp_path: Path) -> AsyncIterator[Start]:
    """Start berth, and wait until it is ready."""
    started: list[SchedulerProcess] = []

    async def begin(*flags: str, configuration: str = HEADER) -> SchedulerProcess:
        setup = SchedulerSetup(
            program="berth",
            kubeconfig=empty_servers.kubeconfig(SCHEDULER),
            folder=tmp_path,
            configuration=configuration,
            flags=["--logging-format=json", "-v=2", *flags],
        )
        started.append(SchedulerProcess(setup))
        await started[-1].start()
        await started[-1].ready()
        return started[-1]

    yield begin
    for process in started:
        await process.stop()


def put(servers: RealServers, *objects: Json) -> None:
    for item in objects:
        plural = f"{item['kind'].lower()}s"
        inside = item["metadata"].get("namespace")
        where = f"/namespaces/{inside}" if inside else ""
        servers.create(f"/api/v1{where}/{plural}", item)


def remove(servers: RealServers, name: str, collection: str = PODS) -> None:
    servers.request("DELETE", f"{collection}/{name}", {"gracePeriodSeconds": 0})


def node_of(servers: RealServers, name: str) -> str:
    return str(servers.request("GET", f"{PODS}/{name}")["spec"].get("nodeName", ""))


async def waits(servers: RealServers, name: str, reason: str) -> None:
    """Wait until the pod was tried, and rejected for `reason`."""

    def rejected() -> bool:
        conditions = servers.request("GET", f"{PODS}/{name}")["status"].get("conditions", ())
        return any(reason in one.get("message", "") for one in conditions)

    await until(rejected)


async def placed(servers: RealServers, name: str, where: str) -> None:
    """Wait until the pod is bound, for a fifth of the time after which the flush would requeue it."""
    await until(lambda: node_of(servers, name) == where)


SHY: Final = waiter(affinity=away(term("deck", app="noisy"), term("deck", app="smelly")))
BLOCKER: Final = on("quay-a", "blocker", labels={"app": "noisy"})


async def test_pod_is_requeued_when_one_of_two_anti_affinity_terms_no_longer_applies(
    empty_servers: RealServers, start: Start
) -> None:
    await start()
    put(empty_servers, HARBOUR, BLOCKER, SHY)
    await waits(empty_servers, "waiter", "anti-affinity")
    remove(empty_servers, "blocker")
    await placed(empty_servers, "waiter", "quay-a")


async def test_a_host_that_emulates_1_36_lets_that_pod_wait(empty_servers: RealServers, start: Start) -> None:
    await start("--emulated-version=kube=1.36")
    put(empty_servers, HARBOUR, BLOCKER, SHY)
    await waits(empty_servers, "waiter", "anti-affinity")
    remove(empty_servers, "blocker")
    # The host has seen the deletion when it binds a pod that was created after it.
    put(empty_servers, pod("later"))
    await placed(empty_servers, "later", "quay-a")
    assert node_of(empty_servers, "waiter") == ""


async def test_pod_is_requeued_when_a_namespace_is_no_longer_selected(
    empty_servers: RealServers, start: Start
) -> None:
    await start()
    blue = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "other", "labels": {"team": "blue"}},
    }
    selector = {"matchLabels": {"team": "blue"}}
    put(empty_servers, HARBOUR, blue, on("quay-a", "stranger", namespace="other", labels={"app": "db"}))
    put(empty_servers, waiter(affinity=away(term("deck", namespaces=selector, app="db"))))
    await waits(empty_servers, "waiter", "anti-affinity")
    patch(empty_servers, "/api/v1/namespaces/other", {"metadata": {"labels": {"team": "red"}}})
    await placed(empty_servers, "waiter", "quay-a")


def patch(servers: RealServers, path: str, body: Json) -> None:
    servers.request("PATCH", path, body, content_type="application/merge-patch+json")


async def test_pod_is_requeued_when_a_counted_pod_begins_to_terminate(
    empty_servers: RealServers, start: Start
) -> None:
    await start()
    constraint = spread(topologyKey="deck", minDomains=2)
    put(empty_servers, HARBOUR, lingering(on("quay-a", "last", labels=WEB)))
    put(empty_servers, waiter(labels=WEB, topologySpreadConstraints=[constraint]))
    await waits(empty_servers, "waiter", "topology spread constraints")
    remove(empty_servers, "last")
    await placed(empty_servers, "waiter", "quay-a")
    patch(empty_servers, f"{PODS}/last", {"metadata": {"finalizers": None}})


async def test_pod_is_requeued_when_the_service_of_a_default_constraint_is_deleted(
    empty_servers: RealServers, start: Start
) -> None:
    await start(configuration=SPREADING)
    put(empty_servers, HARBOUR, service("front", app="web"), on("quay-a", "last", labels=WEB))
    put(empty_servers, waiter(labels=WEB))
    await waits(empty_servers, "waiter", "topology spread constraints")
    remove(empty_servers, "front", "/api/v1/namespaces/default/services")
    await placed(empty_servers, "waiter", "quay-a")


async def test_pod_is_requeued_when_its_only_node_is_added(empty_servers: RealServers, start: Start) -> None:
    process = await start()
    here = [{"key": "metadata.name", "operator": "In", "values": ["quay-z"]}]
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": here}]}}
    put(empty_servers, HARBOUR, waiter(affinity={"nodeAffinity": terms}))
    await waits(empty_servers, "waiter", "0/1 nodes are available")
    put(empty_servers, node("quay-z"))
    await placed(empty_servers, "waiter", "quay-z")
    # The log is complete only after the process has ended: a pod is bound before the host logs it.
    assert await process.stop() == 0
    attempts = re.findall(r'"attempt": ?(\d+)', process.log.read_text())
    assert sorted(set(attempts)) == ["1", "2"], "it was tried without a change"
