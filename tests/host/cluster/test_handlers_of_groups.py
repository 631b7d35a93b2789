"""The effects of watch events about pod groups and their members on object stores, cache and queue."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.cluster.port import WatchEvent
from berth_host.cycle.attempt import Failure
from berth_host.model.resources import COSCHEDULING_GROUPS
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import COSCHEDULING_LABEL
from berth_sdk.status import Status
from support.watched_host import WatchedHost

KEY = "podgroup/default/g"


@pytest.fixture
def host() -> WatchedHost:
    return WatchedHost()


@pytest.fixture
def grouping() -> WatchedHost:
    return WatchedHost(groups=True)


def members(host: WatchedHost, key: str = KEY) -> tuple[list[str], ...] | None:
    """The names of the unscheduled, assumed and assigned members of the group g."""
    state = host.cache.groups.state(key)
    if state is None:
        return None
    parts = (state.unscheduled, state.assumed, state.assigned)
    return tuple(sorted(pod.name for pod in part.values()) for part in parts)


def test_members_count_in_their_group_from_the_watch_on(grouping: WatchedHost) -> None:
    grouping.member("a")
    grouping.member("b", node="n1")
    grouping.member("c", scheduler="other")
    grouping.pod("d")
    assert members(grouping) == (["a"], [], ["b"])
    grouping.member("a", labels={"x": "1"})
    state = grouping.cache.groups.state(KEY)
    assert state is not None
    assert state.all["uid-a"].labels == {"x": "1"}
    grouping.member("a", node="n2")
    assert members(grouping) == ([], [], ["a", "b"])
    grouping.pod_gone("a")
    grouping.pod_gone("b")
    assert members(grouping) is None


def test_new_pending_pod_is_an_event_for_a_host_with_pod_groups_alone(
    host: WatchedHost, grouping: WatchedHost
) -> None:
    for each in (host, grouping):
        each.pod("a")
    assert host.notes.events == []
    assert grouping.notes.events == ["UnscheduledPodAdd"]


def test_deleted_member_counts_no_more_when_it_was_assumed(grouping: WatchedHost) -> None:
    grouping.group()
    grouping.member("a")
    pod = grouping.stores.pod("default/a")
    assert pod is not None
    grouping.cache.assume(pod.on_node("n1"))
    assert members(grouping) == ([], ["a"], [])
    grouping.pod_gone("a")
    assert members(grouping) == ([], [], [])


def test_member_waits_for_the_object_of_its_group(grouping: WatchedHost) -> None:
    grouping.member("a")
    assert grouping.queued == {}
    grouping.group()
    assert grouping.queued == {"a": "active"}
    assert grouping.cache.groups.object(KEY) == grouping.queue.groups.forest.root_of(KEY)
    assert grouping.stores.get("PodGroup", "g", "default") is not None
    grouping.loses("PodGroup", "default/g")
    assert grouping.queued == {}
    assert grouping.cache.groups.object(KEY) is None
    assert grouping.stores.get("PodGroup", "g", "default") is None


def test_new_version_of_a_group_replaces_the_old_one(grouping: WatchedHost) -> None:
    grouping.group()
    grouping.notes.events.clear()
    grouping.group(minimum=1)
    group = grouping.cache.groups.object(KEY)
    assert group is not None
    assert group.min_count == 1


def test_group_that_was_created_again_is_a_deletion_and_an_addition(grouping: WatchedHost) -> None:
    grouping.group()
    grouping.member("a")
    grouping.group(uid="another")
    group = grouping.cache.groups.object(KEY)
    assert group is not None
    assert (group.uid, grouping.queued) == ("another", {"a": "active"})
    grouping.handlers.handle(
        WatchEvent("PodGroup", KubeObject.of({"metadata": {"name": "g", "uid": "uid-g"}}), None)
    )
    assert grouping.cache.groups.object(KEY) == group


def test_group_of_a_host_without_pod_groups_is_not_looked_at(host: WatchedHost) -> None:
    host.member("a")
    host.group()
    assert host.queued == {"a": "active"}
    assert members(host) is None
    pod = host.stores.pod("default/a")
    assert pod is not None
    assert pod.group_key == ""


def test_malformed_group_is_refused_and_its_last_version_stays(grouping: WatchedHost) -> None:
    grouping.group()
    broken = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default", "uid": "uid-g"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": "two"}}},
    }
    grouping.shows("PodGroup", broken)
    assert grouping.handlers.refused == {"PodGroup": 1}
    group = grouping.cache.groups.object(KEY)
    assert group is not None
    assert group.min_count == 2


# --- groups of coscheduling --------------------------------------------------------------------------

OTHER = "podgroup.scheduling.x-k8s.io/default/g"
IN_G = {COSCHEDULING_LABEL: "g"}


def their_group(host: WatchedHost, least: int = 2) -> None:
    """A PodGroup of coscheduling comes, or changes."""
    item: dict[str, Any] = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default", "uid": "uid-g"},
        "spec": {"minMember": least},
    }
    host.shows(COSCHEDULING_GROUPS, item)


@pytest.fixture
def coscheduling(host: WatchedHost) -> WatchedHost:
    host.handlers.schedule_coscheduling()
    return host


def test_pod_that_gets_the_label_leaves_the_queue_and_enters_it_as_a_member(
    coscheduling: WatchedHost,
) -> None:
    host = coscheduling
    host.parked("a")
    host.pod("a", labels=IN_G)
    assert host.queued == {}, "the group's object is missing"
    their_group(host)
    assert host.queued == {"a": "active"}
    assert members(host, OTHER) == (["a"], [], [])
    host.pod("a")
    assert host.queued == {"a": "active"}
    assert members(host, OTHER) == ([], [], [])
    assert host.pop().pod.group_key == ""
    assert host.queue.pop() is None


def test_pod_that_gets_the_label_in_flight_comes_back_as_a_member(coscheduling: WatchedHost) -> None:
    host = coscheduling
    their_group(host)
    host.pod("a")
    info = host.pop()
    host.pod("a", labels=IN_G)
    assert (host.queued, members(host, OTHER)) == ({}, (["a"], [], []))
    host.failures.handle(
        info, Failure(status=Status.unschedulable("no"), unschedulable_plugins=frozenset({"Fit"}))
    )
    assert host.queued == {"a": "active"}
    assert info.pod.group_key == OTHER


def test_label_of_an_assumed_pod_counts_from_its_binding_on(coscheduling: WatchedHost) -> None:
    host = coscheduling
    their_group(host)
    host.assumed("a")
    host.pod("a", labels=IN_G)
    assert members(host, OTHER) == (["a"], [], [])
    host.pod("a", labels=IN_G, node="n1")
    assert members(host, OTHER) == ([], [], ["a"])


def test_bound_pod_changes_its_group_with_its_label(coscheduling: WatchedHost) -> None:
    host = coscheduling
    host.pod("a", node="n1", labels=IN_G)
    assert members(host, OTHER) == ([], [], ["a"])
    host.pod("a", node="n1")
    assert members(host, OTHER) is None
    host.pod("a", node="n1", labels=IN_G)
    assert members(host, OTHER) == ([], [], ["a"])


def test_member_that_was_assumed_in_another_group_leaves_that_one_when_it_is_bound(
    coscheduling: WatchedHost,
) -> None:
    host = coscheduling
    their_group(host)
    host.pod("a", labels=IN_G)
    pod = host.stores.pod("default/a")
    assert pod is not None
    host.cache.assume(pod.on_node("n1"))
    assert members(host, OTHER) == ([], ["a"], [])
    host.pod("a", labels={COSCHEDULING_LABEL: "h"}, node="n1")
    assert members(host, OTHER) == ([], [], [])
    assert members(host, OTHER.replace("/g", "/h")) == ([], [], ["a"])


def test_groups_and_pods_that_are_there_already_become_groups_and_members(host: WatchedHost) -> None:
    """A served plugin that judges the groups of coscheduling is attached late."""
    their_group(host)
    host.parked("d", labels=IN_G)
    host.pod("a", labels=IN_G)
    in_flight = host.pop()
    host.pod("b", labels=IN_G, node="n1")
    host.pod("c")
    assert members(host, OTHER) is None
    for _ in range(2):
        host.handlers.schedule_coscheduling()
        assert members(host, OTHER) == (["a", "d"], [], ["b"])
        assert host.cache.groups.object(OTHER) == host.queue.groups.forest.root_of(OTHER)
    assert in_flight.pod.name == "a"
    assert host.queued == {"c": "active", "d": "active"}
    their_group(host, least=3)
    group = host.cache.groups.object(OTHER)
    assert group is not None
    assert group.min_count == 3
