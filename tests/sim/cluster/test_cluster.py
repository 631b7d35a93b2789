"""The embedded cluster as a port: existing objects first, then every change in order, a few per turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from berth_host.cluster.port import MAX_EVENTS_PER_TURN, ClusterPort, EventRecord, WatchEvent
from berth_host.errors.cluster import ConflictError, UnavailableError
from berth_host.model.clock import ManualClock
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.selectors import Requirement
from berth_sdk.slices import PIECES
from berth_sim.cluster import cluster as cluster_module
from berth_sim.cluster.cluster import MemoryCluster
from berth_sim.cluster.kinds import BY_RESOURCE
from support.manifest_objects import node_object, pod_object


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster(ManualClock(1_800_000_000))


def names(events: list[WatchEvent]) -> list[str]:
    objects = [event.new or event.old for event in events]
    return [obj.ref.name for obj in objects if obj is not None]


async def test_embedded_cluster_is_a_cluster_port(cluster: MemoryCluster) -> None:
    port: ClusterPort = cluster
    assert port.undelivered_count == 0


async def test_start_returns_once_everything_there_was_handed_over(cluster: MemoryCluster) -> None:
    cluster.server.create(node_object("a"))
    for i in range(3 * MAX_EVENTS_PER_TURN):
        cluster.server.create(pod_object(f"pod-{i}"))
    seen: list[WatchEvent] = []
    await cluster.start(seen.append, BY_RESOURCE)
    assert names(seen) == ["default", "a", *(f"pod-{i}" for i in range(3 * MAX_EVENTS_PER_TURN))]
    assert all(event.old is None for event in seen)


async def test_start_of_an_empty_cluster_returns(cluster: MemoryCluster) -> None:
    seen: list[WatchEvent] = []
    await cluster.start(seen.append, BY_RESOURCE)
    assert seen == []


async def test_change_comes_back_later_not_inside_the_call(cluster: MemoryCluster) -> None:
    seen: list[WatchEvent] = []
    await cluster.start(seen.append, BY_RESOURCE)
    pod = cluster.server.create(pod_object("web"))
    await cluster.bind(pod.ref, "a")
    assert seen == []
    assert cluster.undelivered_count == 3
    await asyncio.sleep(0)
    assert [(event.kind, event.old is None) for event in seen] == [
        ("Namespace", True),
        ("Pod", True),
        ("Pod", False),
    ]
    assert seen[-1].new is not None
    assert seen[-1].new.get("spec.nodeName") == "a"
    assert cluster.undelivered_count == 0


async def test_one_turn_hands_over_a_few_changes_only(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "MAX_TURN_S", 60.0)
    seen: list[WatchEvent] = []
    await cluster.start(seen.append, BY_RESOURCE)
    for i in range(2 * MAX_EVENTS_PER_TURN + 1):
        cluster.server.create(node_object(f"node-{i}"))
    counts = []
    for _ in range(3):
        await asyncio.sleep(0)
        counts.append(len(seen))
    assert counts == [MAX_EVENTS_PER_TURN, 2 * MAX_EVENTS_PER_TURN, 2 * MAX_EVENTS_PER_TURN + 1]


async def test_a_turn_ends_when_its_time_is_over(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "MAX_TURN_S", 0.0)
    seen: list[WatchEvent] = []
    await cluster.start(seen.append, BY_RESOURCE)
    for name in "abc":
        cluster.server.create(node_object(name))
    counts = []
    for _ in range(3):
        await asyncio.sleep(0)
        counts.append(len(seen))
    assert counts == [1, 2, 3]


async def test_handler_that_raises_loses_its_own_change_alone(cluster: MemoryCluster) -> None:
    seen: list[str] = []
    reported: list[BaseException] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))

    def handler(event: WatchEvent) -> None:
        (name,) = names([event])
        if name == "b":
            raise ValueError(name)
        seen.append(name)

    await cluster.start(handler, BY_RESOURCE)
    for name in "abc":
        cluster.server.create(node_object(name))
    # How many changes a turn of the loop takes depends on how busy the machine is.
    while cluster.undelivered_count:
        await asyncio.sleep(0)
    assert seen == ["a", "c"]
    assert [str(err) for err in reported] == ["b"]


async def test_nothing_is_handed_over_after_stop(cluster: MemoryCluster) -> None:
    seen: list[WatchEvent] = []
    await cluster.start(seen.append, BY_RESOURCE)
    cluster.server.create(node_object("a"))
    await cluster.stop()
    cluster.server.create(node_object("b"))
    await asyncio.sleep(0)
    assert seen == []


async def test_calls_answer_as_the_server_does(cluster: MemoryCluster) -> None:
    pod = cluster.server.create(pod_object("web"))
    await cluster.patch("pods", pod.ref, {"metadata": {"labels": {"a": "1"}}})
    with pytest.raises(ConflictError):
        await cluster.patch("pods", pod.ref, {}, expected_resource_version=pod.ref.resource_version)
    current = await cluster.get("pods", pod.ref)
    assert current is not None
    assert current.get("metadata.labels") == {"a": "1"}
    await cluster.delete("pods", pod.ref)
    assert await cluster.get("pods", pod.ref) is None


async def test_events_carry_the_pods_scheduler_and_are_found_by_reason(cluster: MemoryCluster) -> None:
    source = cluster.server.create(pod_object("web", schedulerName="mine"))
    pod = Pod.from_object(KubeObject.of(source.parsed))
    cluster.record_event(pod, "Warning", "FailedScheduling", "Scheduling", "first")
    cluster.record_event(pod, "Warning", "FailedScheduling", "Scheduling", "second")
    latest = cluster.server.events.latest("FailedScheduling", "default/web")
    assert latest is not None
    assert (latest.note, latest.reporter) == ("second", "mine")
    assert cluster.server.events.total_count == 2


async def test_after_the_cut_no_call_gets_through_and_no_event(cluster: MemoryCluster) -> None:
    pod = cluster.server.create(pod_object("web"))
    cluster.cut()
    cluster.cut()
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: cluster.get("pods", pod.ref),
        lambda: cluster.bind(pod.ref, "a"),
        lambda: cluster.patch("pods", pod.ref, {}),
        lambda: cluster.update("pods", pod.parsed),
        lambda: cluster.create("pods", ObjectRef(namespace="default", name="api"), pod_object("api")),
        lambda: cluster.delete("pods", pod.ref),
    ]
    for call in calls:
        with pytest.raises(UnavailableError):
            await call()
    cluster.record_event(Pod.from_object(pod), "Normal", "Scheduled", "Binding", "note")
    cluster.create_event(EventRecord(regarding=pod.ref, reason="r", note="n", reporter="me"))
    assert cluster.server.events.total_count == 0
    assert cluster.server.list("pods") == [pod]


async def test_update_says_the_kind_of_its_resource(cluster: MemoryCluster) -> None:
    pod = cluster.server.create(pod_object("web"))
    said = {key: value for key, value in pod.parsed.items() if key not in ("apiVersion", "kind")}
    said["metadata"] = {**said["metadata"], "labels": {"a": "1"}}
    assert (await cluster.update("pods", said)).get("metadata.labels") == {"a": "1"}


async def test_only_what_was_asked_for_is_handed_over_and_more_when_it_is_asked_for(
    cluster: MemoryCluster,
) -> None:
    cluster.server.create(node_object("a"))
    cluster.server.create(pod_object("web"))
    seen: list[WatchEvent] = []
    await cluster.start(seen.append, {"nodes"})
    cluster.server.create(pod_object("later"))
    cluster.server.create(node_object("b"))
    while cluster.undelivered_count:
        await asyncio.sleep(0)
    assert names(seen) == ["a", "b"]
    await cluster.watch({"nodes", "pods", "example.com/widgets"})
    cluster.server.create(pod_object("last"))
    while cluster.undelivered_count:
        await asyncio.sleep(0)
    assert names(seen) == ["a", "b", "web", "later", "last"]


async def test_long_lists_of_a_pod_are_read_in_slices_before_the_pod_is_handed_over(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "SLICE_S", 0.0)
    made: list[object] = []
    init = Requirement.__init__

    def counting(self: Requirement, *args: Any) -> None:
        made.append(self)
        init(self, *args)

    monkeypatch.setattr(Requirement, "__init__", counting)
    seen: list[WatchEvent] = []
    pods: list[Pod] = []

    def handle(event: WatchEvent) -> None:
        seen.append(event)
        if event.kind == "Pod" and event.new is not None:
            pods.append(Pod.from_object(event.new))

    await cluster.start(handle, BY_RESOURCE)
    terms = [{"labelSelector": {"matchLabels": {"app": f"x{i}"}}, "topologyKey": "zone"} for i in range(1000)]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    cluster.server.create(pod_object("long", affinity=affinity))
    cluster.server.create(node_object("a"))
    most, turns = 0, 0
    while cluster.undelivered_count:
        before = len(made)
        await asyncio.sleep(0)
        most, turns = max(most, len(made) - before), turns + 1
    assert names(seen) == ["default", "long", "a"]
    assert pods[0].pod_affinity is not None
    assert len(pods[0].pod_affinity.required_anti) == 1000
    assert len(made) >= 1000
    assert most <= 2 * PIECES
    assert turns >= 1000 // (2 * PIECES)


async def test_pod_whose_lists_cannot_be_read_ahead_is_handed_over_and_so_is_what_follows(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raising() -> Iterator[None]:
        yield
        raise TypeError("a list of lists")

    monkeypatch.setattr(Pod, "long_parts", staticmethod(lambda _: raising()))
    seen: list[WatchEvent] = []
    await cluster.start(seen.append, BY_RESOURCE)
    cluster.server.create(pod_object("odd"))
    cluster.server.create(node_object("a"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert names(seen) == ["default", "odd", "a"]
