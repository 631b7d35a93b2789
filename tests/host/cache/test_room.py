"""The room of nodes: what is too little for a pod, and the nodes whose pods exceed their room."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from berth_host.cache.cache import Cache
from berth_host.cache.node_info import NodeInfo
from berth_host.cache.room import PORTS_TAKEN, TOO_MANY_PODS, lacking
from berth_sdk.node import Node
from berth_sdk.pod import HostPort, Pod
from hypothesis import given
from hypothesis import strategies as st

NODES = ("n0", "n1")


def node(offers: Mapping[str, int], name: str = "n0") -> Node:
    return Node(name=name, uid=name, allocatable=offers)


def pod(
    name: str, requests: Mapping[str, int] | None = None, at: str = "n0", ports: tuple[HostPort, ...] = ()
) -> Pod:
    return Pod(name=name, uid=name, node_name=at, requests=requests or {}, host_ports=ports)


def info_of(cache: Cache, name: str = "n0") -> NodeInfo:
    found = cache.node_info(name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("offers", "others", "mine", "want"),
    [
        ({"cpu": 4, "pods": 2}, [{"cpu": 2}], {"cpu": 2}, ()),
        ({"cpu": 4, "pods": 2}, [{"cpu": 3}], {"cpu": 2}, ("Insufficient cpu",)),
        ({"cpu": 4, "pods": 1}, [{"cpu": 1}], {"cpu": 1}, (TOO_MANY_PODS,)),
        ({"cpu": 4, "pods": 1}, [{"cpu": 4}], {"cpu": 1}, (TOO_MANY_PODS, "Insufficient cpu")),
        # What the pod does not ask for does not concern it.
        ({"cpu": 4, "memory": 1, "pods": 9}, [{"memory": 5}], {"cpu": 1}, ()),
        ({"cpu": 4, "pods": 9}, [{"cpu": 5}], {"cpu": 0}, ()),
        # A resource that no node has comes from a claim.
        ({"cpu": 4, "pods": 9}, [{"example.com/gpu": 8}], {"example.com/gpu": 1}, ()),
        # A node whose device plugin found all devices broken.
        ({"example.com/gpu": 0, "pods": 9}, [], {"example.com/gpu": 1}, ("Insufficient example.com/gpu",)),
    ],
)
def test_what_is_too_little_is_named(
    offers: Mapping[str, int], others: list[dict[str, int]], mine: dict[str, int], want: tuple[str, ...]
) -> None:
    cache = Cache()
    cache.add_node(node(offers))
    for number, requests in enumerate(others):
        cache.add_pod(pod(f"other{number}", requests))
    cache.assume(pod("mine", mine))
    assert lacking(info_of(cache), pod("mine", mine), lambda _: True, ports=True) == want


@pytest.mark.parametrize(
    ("port", "is_taken"),
    [
        (HostPort(ip="", protocol="TCP", port=80), True),
        (HostPort(ip="10.0.0.1", protocol="TCP", port=80), True),
        (HostPort(ip="", protocol="UDP", port=80), False),
        (HostPort(ip="", protocol="TCP", port=81), False),
    ],
)
def test_host_port_of_another_pod_is_taken(port: HostPort, is_taken: bool) -> None:
    cache = Cache()
    cache.add_node(node({"pods": 9}))
    mine = pod("mine", ports=(HostPort(ip="", protocol="TCP", port=80),))
    cache.assume(mine)
    cache.add_pod(pod("other", ports=(port,)))
    want = (PORTS_TAKEN,) if is_taken else ()
    assert lacking(info_of(cache), mine, lambda _: True, ports=True) == want
    assert lacking(info_of(cache), mine, lambda _: True, ports=False) == ()
    assert lacking(info_of(cache), mine, lambda _: False, ports=True) == ()


def test_changes_of_others_are_told_from_the_hosts_own() -> None:
    cache = Cache()
    cache.add_node(node({"cpu": 4, "pods": 9}))
    cache.assume(pod("mine", {"cpu": 1}))
    cache.add_pod(pod("mine", {"cpu": 1}))
    cache.assume(pod("back", {"cpu": 1}))
    cache.forget(pod("back", {"cpu": 1}))
    cache.update_node(node({"cpu": 5, "pods": 9}))
    assert info_of(cache).taken_generation == 0
    for change in (
        lambda: cache.add_pod(pod("other", {"cpu": 1})),
        lambda: cache.update_pod(pod("other", {"cpu": 1}), pod("other", {"cpu": 2})),
        lambda: cache.update_node(node({"cpu": 3, "pods": 9})),
    ):
        change()
        assert info_of(cache).taken_generation == info_of(cache).generation
    before = info_of(cache).taken_generation
    cache.update_pod(pod("other", {"cpu": 2}), pod("other", {"cpu": 1}))
    cache.remove_pod(pod("other", {"cpu": 1}))
    assert info_of(cache).taken_generation == before


STEP = st.tuples(
    st.sampled_from(["add", "assume", "bind", "forget", "resize", "remove", "node", "no node"]),
    st.integers(0, 5),
    st.sampled_from(NODES),
    st.integers(0, 3),
)


@given(steps=st.lists(st.tuples(STEP, st.booleans()), max_size=30))
def test_overfull_nodes_equal_a_recount(steps: list[tuple[tuple[str, int, str, int], bool]]) -> None:
    """Whenever the nodes are read, at any steps, they are those whose bound pods exceed their offers."""
    cache = Cache()
    known: dict[str, Pod] = {}
    for (step, number, at, amount), reads in steps:
        name = f"p{number}"
        mine = known.get(name)
        if step in ("add", "assume") and mine is None:
            known[name] = pod(name, {"cpu": amount}, at)
            (cache.add_pod if step == "add" else cache.assume)(known[name])
        elif step == "bind" and mine is not None and cache.is_assumed(name):
            cache.add_pod(mine)
        elif step == "forget" and mine is not None and cache.is_assumed(name):
            cache.forget(known.pop(name))
        elif step == "resize" and mine is not None and not cache.is_assumed(name):
            known[name] = pod(name, {"cpu": amount}, mine.node_name)
            cache.update_pod(mine, known[name])
        elif step == "remove" and mine is not None:
            cache.remove_pod(known.pop(name))
        elif step == "node":
            cache.add_node(node({"cpu": amount, "pods": 2} if amount else {}, at))
        elif step == "no node" and (info := cache.node_info(at)) is not None and info.node is not None:
            cache.remove_node(at)
        if reads:
            assert cache.overfull.names() == recount(cache, known)
    assert cache.overfull.names() == recount(cache, known)


def recount(cache: Cache, known: Mapping[str, Pod]) -> list[str]:
    found = []
    for name in NODES:
        info = cache.node_info(name)
        if info is None or info.node is None:
            continue
        bound = [one for one in known.values() if one.node_name == name and not cache.is_assumed(one.uid)]
        offers = info.node.allocatable
        too_many = "pods" in offers and len(bound) > offers["pods"]
        too_much = "cpu" in offers and sum(one.requests["cpu"] for one in bound) > offers["cpu"]
        if too_many or too_much:
            found.append(name)
    return found
