"""The effects of watch events on object stores, cache and queue."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.cluster.port import WatchEvent
from berth_host.errors.state import InvariantError
from berth_sdk.kube_object import KubeObject
from berth_sdk.testing.builders import node_object, pod_object
from support.watched_host import WatchedHost

DELETING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.fixture
def host() -> WatchedHost:
    return WatchedHost()


# --- pods that wait to be scheduled ----------------------------------------------------------------


def test_pending_pod_is_queued_and_stored(host: WatchedHost) -> None:
    host.pod("a")
    assert host.queued == {"a": "active"}
    assert host.stores.pod("default/a") is not None


def test_pod_of_another_scheduler_is_stored_but_not_queued(host: WatchedHost) -> None:
    host.pod("a", scheduler="other")
    host.pod("a", scheduler="other", labels={"x": "1"})
    host.pod_gone("a")
    assert host.queued == {}
    assert host.notes.events == []


def test_update_with_the_same_version_changes_nothing(host: WatchedHost) -> None:
    host.pod("a")
    info = host.pop()
    host.queue.done(info.uid)
    host.pod("a", labels={"x": "1"}, meta={"resourceVersion": "1"})
    assert (host.queued, host.notes.events) == ({}, [])


def test_changes_of_a_queued_pod_reach_it(host: WatchedHost) -> None:
    host.parked("a", "TaintToleration")
    host.pod("a", labels={"x": "1"}, tolerations=["k"])
    assert host.queued == {"a": "backoff"}
    assert host.notes.events == [
        "self:TargetPodUpdatePodLabel",
        "self:TargetPodUpdatePodToleration",
    ]


def test_deleted_pod_leaves_queue_and_stores_and_its_attempt_is_aborted(host: WatchedHost) -> None:
    host.pod("a")
    host.pod_gone("a")
    assert (host.queued, host.stores.pod("default/a")) == ({}, None)
    assert host.attempts.aborted == ["uid-a"]
    assert host.notes.events == []


def test_recreated_pod_is_a_new_one_even_if_the_deletion_was_not_shown(host: WatchedHost) -> None:
    host.parked("a")
    host.pod("a", uid="uid-a2")
    (info,) = host.queue.places.active
    assert (info.uid, info.attempts, host.queued) == ("uid-a2", 0, {"a": "active"})
    assert host.attempts.aborted == ["uid-a"]


def test_late_deletion_of_an_older_object_leaves_the_younger_of_its_name(host: WatchedHost) -> None:
    host.pod("a", uid="uid-a2")
    host.node("n1", uid="uid-n2")
    host.handlers.handle(WatchEvent("Pod", KubeObject.of(pod_object("a", uid="uid-a")), None))
    host.handlers.handle(WatchEvent("Node", KubeObject.of(node_object("n1", uid="uid-n1")), None))
    assert (host.queued, host.cache.node_count) == ({"a": "active"}, 1)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_pod_has_left_the_cluster(host: WatchedHost, phase: str) -> None:
    host.node("n1")
    host.pod("a", node="n1")
    host.pod("done-from-the-start", node="n1", status={"phase": phase})
    assert host.cache.pod_count == 1
    host.notes.events.clear()
    host.pod("a", node="n1", status={"phase": phase})
    host.pod("a", node="n1", status={"phase": phase}, labels={"x": "1"})
    host.pod_gone("a")
    assert (host.cache.pod_count, host.stores.pod("default/a")) == (0, None)
    assert host.notes.events == ["AssignedPodDelete"]


# --- pods on nodes ---------------------------------------------------------------------------------


def test_bound_pod_is_in_the_cache_before_the_queue_gets_its_event(host: WatchedHost) -> None:
    seen: list[int] = []
    host.notes.listener = lambda label: seen.append(host.cache.pod_count)
    host.pod("a", node="n1")
    host.pod("a", node="n1", labels={"x": "1"})
    host.pod_gone("a")
    assert seen == [1, 1, 0]


def test_bound_pod_leaves_the_queue_and_requeues_others(host: WatchedHost) -> None:
    host.parked("waiting", "InterPodAffinity")
    host.pod("a")
    host.pod("a", node="n1")
    assert host.queued == {"waiting": "backoff"}
    assert host.notes.events == ["AssignedPodAdd"]
    assert host.cache.pod_count == 1


def test_bound_pod_confirms_the_assumed_one(host: WatchedHost) -> None:
    info = host.assumed("a")
    host.pod("a", node="n1")
    assert (host.cache.is_assumed(info.uid), host.cache.pod_count) == (False, 1)


def test_pod_that_was_bound_elsewhere_counts_where_it_is(host: WatchedHost) -> None:
    info = host.assumed("a", "n1")
    host.pod("a", node="n2")
    pod = host.cache.get_pod(info.uid)
    assert pod is not None
    assert pod.node_name == "n2"


def test_bound_pod_of_another_scheduler_counts_too(host: WatchedHost) -> None:
    host.pod("a", scheduler="other")
    host.pod("a", scheduler="other", node="n1")
    assert host.cache.pod_count == 1
    assert host.notes.events == ["AssignedPodAdd"]


def test_each_kind_of_change_of_a_bound_pod_is_an_event(host: WatchedHost) -> None:
    host.pod("a", node="n1", cpu="2")
    host.notes.events.clear()
    host.pod("a", node="n1", cpu="1", labels={"x": "1"})
    host.pod("a", node="n1", cpu="1", labels={"x": "1"})
    assert host.notes.events == [
        "AssignedPodUpdatePodLabel",
        "AssignedPodUpdatePodScaleDown",
        "AssignedPodUpdate",
    ]


def test_event_is_passed_on_although_the_cache_refuses_its_part(host: WatchedHost) -> None:
    host.pod("a", node="n1")
    pod = host.stores.pod("default/a")
    assert pod is not None
    host.cache.remove_pod(pod)
    host.pod("a", node="n1", labels={"x": "1"})
    host.pod_gone("a")
    assert host.notes.events == ["AssignedPodAdd", "AssignedPodUpdatePodLabel", "AssignedPodDelete"]


def test_pod_that_changes_its_node_raises_invariant_error(host: WatchedHost) -> None:
    host.pod("a", node="n1")
    with pytest.raises(InvariantError, match="uid-a"):
        host.pod("a", node="n2")


# --- assumed pods ----------------------------------------------------------------------------------


def test_update_of_an_assumed_pod_is_not_for_the_queue(host: WatchedHost) -> None:
    info = host.assumed("a")
    host.queue.done(info.uid)
    host.pod("a", labels={"x": "1"})
    assert (host.queued, host.notes.events) == ({}, [])


@pytest.mark.parametrize("waits", [pytest.param(True, id="at permit"), pytest.param(False, id="binding")])
def test_assumed_pod_that_is_being_deleted_frees_its_node(host: WatchedHost, waits: bool) -> None:
    host.parked("waiting")
    info = host.assumed("a")
    if waits:
        host.attempts.waiting.add(info.uid)
    host.pod("a", meta=DELETING)
    assert host.notes.events == ["AssignedPodDelete"]
    assert host.queued == {"waiting": "backoff"}
    # A rejected wait ends in the failure handler, which forgets the pod itself.
    assert host.cache.is_assumed(info.uid) is waits
    host.pod("a", meta=DELETING, labels={"x": "1"})
    assert host.notes.events[1:] == ([] if waits else ["self:TargetPodUpdatePodLabel"])


def test_assumed_pod_that_is_gone_frees_its_node(host: WatchedHost) -> None:
    host.parked("waiting")
    info = host.assumed("a")
    host.pod_gone("a")
    assert (host.cache.pod_count, host.queued) == (0, {"waiting": "backoff"})
    assert host.attempts.aborted == [info.uid]
    assert host.notes.events == ["AssignedPodDelete"]


# --- nominated pods --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [pytest.param({"nominated": "n2"}, id="moved"), pytest.param({}, id="cleared")],
)
def test_changed_nomination_helps_pods_of_equal_or_lower_priority(
    host: WatchedHost, change: dict[str, Any]
) -> None:
    host.pod("nominated", nominated="n1", priority=5)
    for name, priority in (("low", 1), ("equal", 5), ("high", 9)):
        host.pod(name, priority=priority)
    for _ in range(4):
        info = host.pop()
        info.unschedulable_plugins = {"NodeResourcesFit"}
        host.queue.add_unschedulable(info)
    host.pod("nominated", priority=5, **change)
    assert host.notes.events == ["self:TargetPodUpdate", "AssignedPodDelete"]
    assert host.queued == {"low": "backoff", "equal": "backoff", "high": "pool", "nominated": "backoff"}


def test_deleted_nominated_pod_helps_pods_of_equal_or_lower_priority(host: WatchedHost) -> None:
    host.parked("low", priority=1)
    host.parked("high", priority=9)
    host.pod("nominated", nominated="n1", priority=5)
    assert host.nominated == {"n1": ["nominated"]}
    host.pod_gone("nominated")
    assert (host.queued, host.nominated) == ({"low": "backoff", "high": "pool"}, {})


def test_nominated_pod_that_is_bound_to_another_node_helps_nobody_as_in_kube_scheduler(
    host: WatchedHost,
) -> None:
    host.parked("low", priority=1)
    host.pod("nominated", nominated="n1", priority=5)
    host.notes.events.clear()
    host.pod("nominated", nominated="n1", priority=5, node="n2")
    assert host.notes.events == ["AssignedPodAdd"]
    assert (host.queued, host.nominated) == ({"low": "pool"}, {})


def test_deleted_nominated_pod_does_not_requeue_itself(host: WatchedHost) -> None:
    host.parked("low", priority=1)
    host.pod("nominated", nominated="n1", priority=5)
    info = host.pop()
    info.unschedulable_plugins = {"NodeResourcesFit"}
    host.queue.add_unschedulable(info)
    host.notes.hints.clear()
    host.pod_gone("nominated")
    assert {name for _, _, name, _ in host.notes.hints} == {"low"}
    assert host.queued == {"low": "backoff"}


def test_deletion_of_a_pod_in_flight_requeues_no_later_pod_of_its_name(host: WatchedHost) -> None:
    host.pod("nominated", nominated="n1")
    older = host.pop()
    host.pod_gone("nominated")
    host.pod("nominated", uid="uid-2")
    younger = host.pop()
    host.queue.done(older.uid)
    younger.unschedulable_plugins = {"NodeResourcesFit"}
    host.queue.add_unschedulable(younger)
    assert host.queued == {"nominated": "pool"}
    assert host.queue.in_flight.event_count == 0


def test_new_nomination_is_no_event(host: WatchedHost) -> None:
    host.pod("a")
    host.pod("a", nominated="n1")
    assert host.notes.events == ["self:TargetPodUpdate"]
    assert host.nominated == {"n1": ["a"]}


# --- nodes -----------------------------------------------------------------------------------------


def test_node_is_in_the_cache_before_its_add_and_until_after_its_delete_event(host: WatchedHost) -> None:
    seen: list[tuple[str, int]] = []
    host.notes.listener = lambda label: seen.append((label, host.cache.node_count))
    host.node("n1")
    host.node("n1", labels={"x": "1"})
    host.loses("Node", "n1")
    assert seen == [("NodeAdd", 1), ("NodeUpdateNodeLabel", 1), ("NodeDelete", 1)]
    assert (host.cache.node_count, host.stores.node("n1")) == (0, None)


def test_new_node_requeues_pods(host: WatchedHost) -> None:
    host.parked("a")
    host.node("n1")
    assert host.queued == {"a": "backoff"}


def test_heartbeat_of_a_node_is_no_event(host: WatchedHost) -> None:
    host.node("n1")
    host.notes.events.clear()
    host.node("n1", status={"conditions": []})
    assert host.notes.events == []


def test_recreated_node_is_a_deletion_and_an_addition(host: WatchedHost) -> None:
    host.node("n1")
    host.node("n1", uid="uid-2")
    assert host.notes.events == ["NodeAdd", "NodeDelete", "NodeAdd"]
    assert host.cache.node_count == 1


# --- other kinds -----------------------------------------------------------------------------------


def claim(name: str = "data") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "ns"},
    }


def test_object_is_stored_before_the_queue_gets_its_event(host: WatchedHost) -> None:
    seen: list[bool] = []
    host.notes.listener = lambda label: seen.append(
        host.stores.get("PersistentVolumeClaim", "data", "ns") is not None
    )
    host.shows("PersistentVolumeClaim", claim())
    assert seen == [True]


def test_object_events_are_those_that_some_plugin_registered(host: WatchedHost) -> None:
    host.shows("PersistentVolumeClaim", claim())
    host.shows("PersistentVolumeClaim", claim())
    host.loses("PersistentVolumeClaim", "ns/data")
    host.shows("Namespace", {"metadata": {"name": "ns"}})
    host.shows("PodDisruptionBudget", {"metadata": {"name": "b", "namespace": "ns"}})
    host.shows("CSINode", {"metadata": {"name": "n1"}})
    assert host.notes.events == [
        "PersistentVolumeClaimAdd",
        "PersistentVolumeClaimUpdate",
        "NamespaceAdd",
        "storage.k8s.io/CSINodeAdd",
    ]
    assert host.stores.get("Namespace", "ns") is not None
    assert host.stores.get("PersistentVolumeClaim", "data", "ns") is None


# --- objects that cannot be read -------------------------------------------------------------------


def test_unreadable_object_leaves_the_stored_version(host: WatchedHost) -> None:
    host.pod("a", cpu="1")
    host.pod("a", cpu="one")
    host.node("n1", cpu="many")
    pod = host.stores.pod("default/a")
    assert pod is not None
    assert pod.requests["cpu"] == 1000
    assert host.cache.node_count == 0


def test_deletion_of_an_unknown_object_changes_nothing(host: WatchedHost) -> None:
    host.pod("a", cpu="one")
    host.pod_gone("a")
    host.node("n1", cpu="many")
    host.loses("Node", "n1")
    assert host.notes.events == []


# --- a relist --------------------------------------------------------------------------------------


def test_relist_of_unchanged_objects_requeues_no_pod_and_changes_nothing(host: WatchedHost) -> None:
    host.node("n1")
    host.pod("bound", node="n1")
    host.pod("other", scheduler="other")
    host.shows("StorageClass", storage_class("fast"))
    host.parked("waiting", "VolumeBinding")
    generation = host.cache.generations.last
    for (kind, _), item in list(host.seen.items()):
        # With and without the old object, as a watch that begins anew shows them.
        host.handlers.handle(WatchEvent(kind, None, item))
        host.handlers.handle(WatchEvent(kind, item, item))
    assert (host.notes.events, host.queued) == ([], {"waiting": "pool"})
    assert host.cache.generations.last == generation
    assert not host.handlers.refused


def test_objects_without_a_version_are_taken_as_changed(host: WatchedHost) -> None:
    host.node("n1", meta={"resourceVersion": ""})
    host.node("n1", meta={"resourceVersion": ""}, labels={"x": "1"})
    found = host.stores.node("n1")
    assert found is not None
    assert found.labels.get("x") == "1"


def storage_class(name: str) -> dict[str, Any]:
    return {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}


# --- objects that cannot be taken over -------------------------------------------------------------


ODD: list[tuple[str, dict[str, Any]]] = [
    ("Pod", {"metadata": {"name": "odd", "namespace": "default"}, "spec": {"containers": 7}}),
    ("Pod", {"metadata": {"name": "odd", "namespace": "default"}, "spec": {"containers": [None]}}),
    ("Pod", {"metadata": {"name": "odd", "namespace": "default"}, "spec": ["a list"]}),
    ("Pod", {"metadata": "no metadata"}),
    ("Node", {"metadata": {"name": "odd"}, "status": {"allocatable": {"cpu": "many"}}}),
    ("Node", {"metadata": {"name": "odd"}, "status": {"allocatable": [1]}}),
    ("Node", {"metadata": {"name": "odd"}, "spec": {"taints": [3]}}),
    ("Node", {"metadata": {"name": ["odd"]}}),
    ("StorageClass", {"metadata": [1]}),
]


@pytest.mark.parametrize(("kind", "item"), ODD)
def test_unreadable_object_is_counted_reported_and_skipped(
    host: WatchedHost, kind: str, item: dict[str, Any]
) -> None:
    host.handlers.handle(WatchEvent(kind, None, KubeObject("v1", kind, parsed=item)))
    host.node("n1")
    host.pod("a")
    assert host.handlers.refused == {kind: 1}
    assert host.queued == {"a": "active"}
    assert host.cache.node_count == 1
    for event in host.reports:
        assert (event.regarding.name, event.regarding_kind, event.type) == ("odd", kind, "Warning")
        assert (event.reason, event.reporter) == ("FailedParsing", "default-scheduler")
        assert f"this {kind} cannot be read" in event.note
    named = isinstance(item["metadata"], dict) and item["metadata"]["name"] == "odd"
    assert len(host.reports) == named


def unreadable_pod(name: str, *, version: str = "5", **spec: Any) -> KubeObject:
    """A pod with a field that Kubernetes would refuse, beside requests that can be read."""
    wrong = {"name": "b", "resources": {"requests": {"cpu": "x" * 5_000, "memory": "1Gi"}}}
    right = {"name": "a", "resources": {"requests": {"cpu": "500m"}}}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": version}
    parsed = {
        "metadata": metadata,
        "spec": {"containers": [right, wrong], **spec},
        "status": {"phase": "Pending"},
    }
    return KubeObject("v1", "Pod", parsed=parsed)


def test_unreadable_pod_counts_on_its_node_with_what_can_be_read(host: WatchedHost) -> None:
    host.node("n1")
    odd = unreadable_pod("odd", nodeName="n1")
    host.handlers.handle(WatchEvent("Pod", None, odd))
    found = host.stores.pod("default/odd")
    assert found is not None
    assert (found.requests, found.node_name) == ({"cpu": 500, "memory": 2**30}, "n1")
    assert host.cache.get_pod("uid-odd") is not None
    (event,) = host.reports
    assert event.note.endswith("; what can be read of its requests counts on its node")
    assert len(event.note) < 1_000
    # Its deletion frees the room.
    host.handlers.handle(WatchEvent("Pod", odd, None))
    assert host.cache.get_pod("uid-odd") is None


def test_unreadable_change_of_a_pod_keeps_its_last_state_and_takes_its_node_and_its_end(
    host: WatchedHost,
) -> None:
    host.node("n1")
    host.pod("odd", requests={"cpu": "2"})
    assert host.queued == {"odd": "active"}
    host.handlers.handle(WatchEvent("Pod", None, unreadable_pod("odd", version="6", nodeName="n1")))
    found = host.stores.pod("default/odd")
    assert found is not None
    assert (found.requests["cpu"], found.node_name, host.queued) == (2_000, "n1", {})
    ended = unreadable_pod("odd", version="7", nodeName="n1")
    ended.parsed["status"]["phase"] = "Failed"
    host.handlers.handle(WatchEvent("Pod", None, ended))
    assert (host.stores.pod("default/odd"), host.cache.get_pod("uid-odd")) == (None, None)


def test_unreadable_pending_pod_gets_a_condition_and_is_said_once(host: WatchedHost) -> None:
    for version in ("5", "6", "7"):
        host.handlers.handle(WatchEvent("Pod", None, unreadable_pod("odd", version=version)))
    assert host.queued == {}
    assert host.handlers.refused == {"Pod": 1}
    assert len(host.reports) == 1
    ((pod, message),) = set(host.refusals)
    assert pod == "odd"
    assert "spec.containers[1].resources.requests.cpu" in message
    assert "(5000 characters)" in message
    host.pod("odd")
    assert host.queued == {"odd": "active"}
    # A new problem is news.
    host.handlers.handle(WatchEvent("Pod", None, unreadable_pod("odd", version="99")))
    assert host.handlers.refused == {"Pod": 2}


def test_standby_writes_nothing_about_unreadable_objects_until_it_leads() -> None:
    host = WatchedHost(leads=False)
    for name in ("odd", "gone"):
        host.handlers.handle(WatchEvent("Pod", None, unreadable_pod(name)))
    host.handlers.handle(WatchEvent("Pod", unreadable_pod("gone"), None))
    assert (host.handlers.refused, host.reports, host.refusals) == ({"Pod": 2}, [], [])
    host.handlers.begin()
    assert [event.regarding.name for event in host.reports] == ["odd"]
    assert [name for name, _ in host.refusals] == ["odd"]


def test_object_that_becomes_unreadable_stays_as_it_was_and_recovers(host: WatchedHost) -> None:
    host.node("n1")
    host.shows("Node", {"metadata": {"name": "n1", "uid": "uid-n1"}, "spec": {"taints": [3]}})
    assert host.handlers.refused == {"Node": 1}
    assert host.cache.node_count == 1
    host.node("n1", labels={"x": "1"})
    found = host.stores.node("n1")
    assert found is not None
    assert found.labels.get("x") == "1"
    host.loses("Node", "n1")
    assert host.cache.node_count == 0
