"""The life of pods and nodes in the cache, event by event."""

from __future__ import annotations

import pytest
from berth_host.cache.cache import Cache
from berth_host.errors.state import CacheError, InvariantError
from berth_sdk.node import Node
from berth_sdk.pod import HostPort, Pod


def pod(name: str, node_name: str = "n1", **fields: object) -> Pod:
    defaults: dict[str, object] = {
        "requests": {"cpu": 100, "memory": 10},
        "non_zero_requests": {"cpu": 100, "memory": 200},
    }
    return Pod(name=name, uid=f"uid-{name}", node_name=node_name, **(defaults | fields))  # type: ignore[arg-type]


@pytest.fixture
def cache() -> Cache:
    cache = Cache()
    cache.add_node(Node(name="n1", allocatable={"cpu": 4000}))
    return cache


def requested(cache: Cache, node_name: str = "n1") -> dict[str, int]:
    info = cache.node_info(node_name)
    return {} if info is None else info.requested


def test_assumed_pod_counts_on_its_node(cache: Cache) -> None:
    cache.assume(pod("a"))
    assert cache.is_assumed("uid-a")
    assert requested(cache) == {"cpu": 100, "memory": 10}
    assert (cache.pod_count, cache.assumed_count) == (1, 1)


def test_pod_cannot_be_assumed_twice(cache: Cache) -> None:
    cache.assume(pod("a"))
    with pytest.raises(CacheError, match="cannot be assumed"):
        cache.assume(pod("a"))
    assert requested(cache) == {"cpu": 100, "memory": 10}


def test_forgotten_pod_leaves_no_trace(cache: Cache) -> None:
    cache.assume(pod("a"))
    cache.forget(pod("a"))
    assert requested(cache) == {}
    assert cache.get_pod("uid-a") is None
    assert not cache.is_assumed("uid-a")


def test_forgetting_an_unknown_pod_does_nothing(cache: Cache) -> None:
    cache.forget(pod("a"))
    assert cache.pod_count == 0


def test_forgetting_on_another_node_is_refused(cache: Cache) -> None:
    cache.assume(pod("a"))
    with pytest.raises(CacheError, match="was assumed on 'n1', not on 'n2'"):
        cache.forget(pod("a", "n2"))
    assert cache.is_assumed("uid-a")


def test_confirmed_pod_cannot_be_forgotten(cache: Cache) -> None:
    cache.assume(pod("a"))
    cache.add_pod(pod("a"))
    with pytest.raises(CacheError, match="is bound"):
        cache.forget(pod("a"))
    assert requested(cache) == {"cpu": 100, "memory": 10}


def test_pod_that_was_confirmed_meanwhile_stays_when_it_is_forgotten_if_assumed(cache: Cache) -> None:
    cache.assume(pod("a"))
    cache.add_pod(pod("a"))
    cache.forget_if_assumed(pod("a"))
    assert requested(cache) == {"cpu": 100, "memory": 10}


def test_assumed_pod_is_forgotten_if_assumed(cache: Cache) -> None:
    cache.assume(pod("a"))
    with pytest.raises(CacheError, match="was assumed on 'n1', not on 'n2'"):
        cache.forget_if_assumed(pod("a", "n2"))
    cache.forget_if_assumed(pod("a"))
    assert cache.get_pod("uid-a") is None


def test_confirmation_replaces_the_assumed_record(cache: Cache) -> None:
    cache.assume(pod("a"))
    confirmed = pod("a", resource_version="7")
    assert cache.add_pod(confirmed) is None
    assert cache.get_pod("uid-a") is confirmed
    assert not cache.is_assumed("uid-a")
    assert requested(cache) == {"cpu": 100, "memory": 10}


def test_newer_record_comes_last_on_its_node_and_is_the_one_that_counts(cache: Cache) -> None:
    for name in "abcd":
        cache.add_pod(pod(name))
    cache.update_pod(pod("b"), pod("b", resource_version="2"))
    cache.update_pod(pod("a"), pod("a", requests={"cpu": 300}, claims=("disk",)))
    info = cache.node_info("n1")
    assert info is not None
    assert [one.name for one in info.pods] == ["b", "d", "c", "a"]
    assert (info.requested, info.pvc_refs) == ({"cpu": 600, "memory": 30}, {"default/disk": 1})


def test_confirmed_pod_restores_a_port_that_another_pods_removal_freed(cache: Cache) -> None:
    ports = (HostPort("", "", 80),)
    cache.assume(pod("a", host_ports=ports))
    cache.add_pod(pod("b", host_ports=ports))
    cache.remove_pod(pod("b"))
    info = cache.node_info("n1")
    assert info is not None
    assert info.host_ports == set()
    cache.add_pod(pod("a", host_ports=ports))
    assert info.host_ports == {HostPort("0.0.0.0", "TCP", 80)}


def test_pod_bound_to_another_node_than_assumed_moves_there(cache: Cache) -> None:
    cache.add_node(Node(name="n2"))
    cache.assume(pod("a"))
    assert cache.add_pod(pod("a", "n2")) == "n1"
    assert requested(cache, "n1") == {}
    assert requested(cache, "n2") == {"cpu": 100, "memory": 10}


def test_second_add_of_a_bound_pod_is_refused_and_counts_once(cache: Cache) -> None:
    cache.add_pod(pod("a"))
    with pytest.raises(CacheError, match="cannot be added again"):
        cache.add_pod(pod("a"))
    assert requested(cache) == {"cpu": 100, "memory": 10}


def test_update_recounts_the_pod_from_the_record_in_the_cache(cache: Cache) -> None:
    cache.add_pod(pod("a"))
    stale = pod("a", requests={"cpu": 1})
    cache.update_pod(stale, pod("a", requests={"cpu": 300, "example.com/gpu": 1}))
    assert requested(cache) == {"cpu": 300, "example.com/gpu": 1}


def test_update_of_an_unknown_or_assumed_pod_is_refused(cache: Cache) -> None:
    with pytest.raises(CacheError, match="not in the cache"):
        cache.update_pod(pod("a"), pod("a"))
    cache.assume(pod("b"))
    with pytest.raises(CacheError, match="is assumed"):
        cache.update_pod(pod("b"), pod("b"))
    assert requested(cache) == {"cpu": 100, "memory": 10}


def test_bound_pod_that_changes_its_node_breaks_an_invariant(cache: Cache) -> None:
    cache.add_pod(pod("a"))
    with pytest.raises(InvariantError, match="on 'n1' in the cache, updated as uid-a on 'n2'"):
        cache.update_pod(pod("a"), pod("a", "n2"))
    with pytest.raises(InvariantError, match="removed from 'n2'"):
        cache.remove_pod(pod("a", "n2"))
    assert requested(cache) == {"cpu": 100, "memory": 10}


def test_removal_with_a_stale_record_without_node_works(cache: Cache) -> None:
    cache.add_pod(pod("a"))
    cache.remove_pod(pod("a", ""))
    assert requested(cache) == {}
    with pytest.raises(CacheError, match="cannot be removed"):
        cache.remove_pod(pod("a"))


def test_pod_without_uid_or_node_is_refused(cache: Cache) -> None:
    with pytest.raises(CacheError, match="no uid"):
        cache.add_pod(Pod(name="a", node_name="n1"))
    with pytest.raises(CacheError, match="names no node"):
        cache.assume(pod("a", ""))


def test_pods_that_come_before_their_node_are_on_it_when_it_comes() -> None:
    cache = Cache()
    cache.add_pod(pod("a"))
    assert cache.node_count == 0
    assert requested(cache) == {"cpu": 100, "memory": 10}
    info = cache.add_node(Node(name="n1"))
    assert cache.node_count == 1
    assert [p.name for p in info.pods] == ["a"]


def test_placeholder_goes_with_its_last_pod() -> None:
    cache = Cache()
    cache.add_pod(pod("a"))
    cache.remove_pod(pod("a"))
    assert cache.node_info("n1") is None


def test_removed_node_keeps_its_pods_until_they_leave(cache: Cache) -> None:
    cache.add_pod(pod("a"))
    cache.remove_node("n1")
    assert cache.node_count == 0
    info = cache.node_info("n1")
    assert info is not None
    assert info.node is None
    cache.remove_pod(pod("a"))
    assert cache.node_info("n1") is None


def test_node_made_again_finds_its_pods_and_is_a_new_one(cache: Cache) -> None:
    cache.add_pod(pod("a"))
    info = cache.node_info("n1")
    assert info is not None
    born = info.born
    cache.remove_node("n1")
    again = cache.add_node(Node(name="n1"))
    assert again.requested == {"cpu": 100, "memory": 10}
    assert again.born > born


def test_node_whose_uid_changed_is_a_new_one() -> None:
    cache = Cache()
    born = cache.add_node(Node(name="n1", uid="1")).born
    assert cache.update_node(Node(name="n1", uid="1")).born == born
    assert cache.update_node(Node(name="n1", uid="2")).born > born
    assert cache.node_count == 1


def test_update_of_an_unknown_node_adds_it_and_removal_of_one_is_refused(cache: Cache) -> None:
    cache.update_node(Node(name="n2"))
    assert cache.node_count == 2
    cache.remove_node("n2")
    with pytest.raises(CacheError, match="n2 is not in the cache"):
        cache.remove_node("n2")
    assert cache.node_count == 1


def test_last_pod_takes_the_place_of_one_that_leaves(cache: Cache) -> None:
    for name in "abcd":
        cache.add_pod(pod(name))
    cache.remove_pod(pod("b"))
    info = cache.node_info("n1")
    assert info is not None
    assert [p.name for p in info.pods] == ["a", "d", "c"]


def test_host_ports_are_a_set_so_one_of_two_leaving_frees_the_port(cache: Cache) -> None:
    cache.add_pod(pod("a", host_ports=(HostPort("", "", 80),)))
    cache.add_pod(pod("b", host_ports=(HostPort("0.0.0.0", "TCP", 80),)))
    info = cache.node_info("n1")
    assert info is not None
    assert info.host_ports == {HostPort("0.0.0.0", "TCP", 80)}
    cache.remove_pod(pod("a"))
    assert info.host_ports == set()


def test_claims_are_counted_per_namespace(cache: Cache) -> None:
    cache.add_pod(pod("a", claims=("data", "logs")))
    cache.add_pod(pod("b", claims=("data",)))
    info = cache.node_info("n1")
    assert info is not None
    assert info.pvc_refs == {"default/data": 2, "default/logs": 1}
    cache.remove_pod(pod("a"))
    assert info.pvc_refs == {"default/data": 1}


def test_changes_are_listed_from_a_generation_on_oldest_first(cache: Cache) -> None:
    cache.add_node(Node(name="n2"))
    before = cache.generations.last
    cache.assume(pod("a", "n1"))
    cache.assume(pod("b", "n2"))
    cache.assume(pod("c", "n1"))
    assert [info.name for info in cache.changed_since(before)] == ["n2", "n1"]
    assert cache.changed_since(cache.generations.last) == []
