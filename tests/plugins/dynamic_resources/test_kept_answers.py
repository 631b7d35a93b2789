"""Law: kept answers change no verdict and no device, while claims, slices, nodes and their labels change."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from berth_plugins.dynamic_resources.allocator import SLICES, Allocator
from berth_plugins.dynamic_resources.inventory import Inventory, SeenPools
from berth_plugins.dynamic_resources.plugin import DynamicResources
from berth_plugins.dynamic_resources.rules import Rules, TaintRules
from berth_sdk.cycle_state import CycleState
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.runtime.plugin_runtime import PluginRuntime
from berth_sdk.slices import Work, at_once
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable, ObjectStore
from berth_sdk.testing import make_node, make_table
from berth_sdk.testing.handle import RecordingHandle
from hypothesis import given, settings
from hypothesis import strategies as st
from support.device_objects import claim, device, device_class, exactly, pod_with, resource_slice
from support.tiers import examples

CLAIMS = "resource.k8s.io/resourceclaims"
TAINT_RULES = "resource.k8s.io/devicetaintrules"
CLASSES = "resource.k8s.io/deviceclasses"
NODES = ("n1", "n2", "n3")
Json = dict[str, Any]


def table_of(zones: tuple[str, str, str], names: Sequence[str] = NODES) -> NodeTable:
    by_name = dict(zip(NODES, zones, strict=True))
    return make_table([make_node(name, labels={"zone": by_name[name]}) for name in names])


def in_zone(zone: str) -> Json:
    wanted = {"key": "zone", "operator": "In", "values": [zone]}
    return {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}


def places() -> st.SearchStrategy[Json]:
    return st.one_of(
        st.sampled_from([{"nodeName": name} for name in NODES]),
        st.sampled_from([{"nodeSelector": in_zone(zone)} for zone in "ab"]),
        st.just({"allNodes": True}),
    )


slices = st.builds(
    lambda name, pool, count, generation, place: resource_slice(
        name, [device(f"{name}-d{i}") for i in range(count)], pool, generation=generation, **place
    ),
    st.sampled_from(["s1", "s2", "s3"]),
    st.sampled_from(["p", "q"]),
    st.integers(0, 2),
    st.integers(1, 2),
    places(),
)


def counters_of(pool: str, units: int = 1, generation: int = 1, **place: Any) -> Json:
    """Return the slice of a pool with its counters; `devices_of` returns the other slice."""
    counters = [{"name": "units", "counters": {"unit": {"value": str(units)}}}]
    both = {"generation": generation, "resourceSliceCount": 2}
    return resource_slice(f"{pool}-c", [], pool, sharedCounters=counters, **both, **place)


def devices_of(pool: str, generation: int = 1, **place: Any) -> Json:
    consumes = [{"counterSet": "units", "counters": {"unit": {"value": "1"}}}]
    devices = [device(f"{pool}-d{i}", consumesCounters=consumes) for i in range(2)]
    return resource_slice(f"{pool}-d", devices, pool, generation=generation, resourceSliceCount=2, **place)


counted = st.one_of(
    st.builds(
        lambda pool, units, generation, place: counters_of(pool, units, generation, **place),
        st.sampled_from(["k", "l"]),
        st.integers(0, 2),
        st.integers(1, 2),
        places(),
    ),
    st.builds(
        lambda pool, generation, place: devices_of(pool, generation, **place),
        st.sampled_from(["k", "l"]),
        st.integers(1, 2),
        places(),
    ),
)
taken = st.builds(
    lambda name, device: claim(name, allocated=[device]),
    st.sampled_from(["t1", "t2"]),
    st.one_of(
        st.builds(
            lambda pool, which, i: f"{pool}/{which}-d{i}",
            st.sampled_from(["p", "q"]),
            st.sampled_from(["s1", "s2", "s3"]),
            st.integers(0, 1),
        ),
        st.builds(lambda pool, i: f"{pool}/{pool}-d{i}", st.sampled_from(["k", "l"]), st.integers(0, 1)),
    ),
)
steps = st.one_of(
    slices.map(lambda item: (SLICES, item)),
    counted.map(lambda item: (SLICES, item)),
    taken.map(lambda item: (CLAIMS, item)),
    st.sampled_from([(CLAIMS, "t1"), (CLAIMS, "t2"), (SLICES, "s1"), (SLICES, "s2")]),
    st.tuples(*[st.sampled_from("ab")] * 3).map(lambda zones: ("labels", zones)),
    # Other nodes, or the same nodes in other slots.
    st.permutations(NODES).flatmap(
        lambda names: st.integers(1, len(NODES)).map(lambda count: ("nodes", tuple(names[:count])))
    ),
)


@settings(max_examples=examples(80), deadline=None)
@given(history=st.lists(steps, min_size=1, max_size=12), count=st.integers(1, 2))
def test_kept_answers_equal_those_of_a_new_plugin(history: list[tuple[str, Any]], count: int) -> None:
    stores = {resource: ObjectStore() for resource in (CLAIMS, SLICES, CLASSES, TAINT_RULES)}
    generation = 0

    def put(resource: str, raw: Json) -> None:
        item = KubeObject.of(raw)
        stores[resource].put(item.ref, item, generation)

    put(CLASSES, device_class())
    put(CLAIMS, claim("c", exactly(count=count)))
    for pool, name in (("k", "n1"), ("l", "n2")):
        put(SLICES, counters_of(pool, nodeName=name))
        put(SLICES, devices_of(pool, nodeName=name))
    zones, names = ("a", "a", "b"), NODES
    lasting = runtime_of(stores)
    for resource, change in history:
        generation += 1
        if resource == "labels":
            zones = change
        elif resource == "nodes":
            names = change
        elif isinstance(change, str):
            namespace = "default" if resource == CLAIMS else ""
            stores[resource].remove(namespace, change, generation)
        else:
            put(resource, change)
        nodes = table_of(zones, names)
        assert asked(lasting, nodes) == asked(runtime_of(stores), nodes)


def test_pool_with_counters_of_one_node_concerns_that_node_alone() -> None:
    store = ObjectStore()
    for pool, name in (("k", "n1"), ("l", "n2")):
        for raw in (counters_of(pool, nodeName=name), devices_of(pool, nodeName=name)):
            item = KubeObject.of(raw)
            store.put(item.ref, item, 1)
    nodes = table_of(("a", "a", "a"))
    reader = RecordingHandle(lambda: nodes, {SLICES: store}).objects(SLICES)
    inventory = Inventory(reader, TaintRules(None))

    def stamps() -> list[int]:
        at_once(inventory.refresh())
        stamps: list[int] = inventory.seen_by(nodes).stamps.tolist()
        return stamps

    before = stamps()
    inventory.touch(next(pool_id for pool_id in inventory.pools if pool_id.pool == "k"))
    after = stamps()
    assert [one == other for one, other in zip(before, after, strict=True)] == [False, True, True]
    # Before 1.37, the counters of a pool count on every node.
    everywhere = Inventory(reader, TaintRules(None), local_counters=False)
    everywhere.refresh()
    assert len(set(everywhere.seen_by(nodes).stamps.tolist())) == 1


def stores_with(*devices: Json) -> dict[str, ObjectStore]:
    """Return a claim of one device, its class, and these slices."""
    stores = {resource: ObjectStore() for resource in (CLAIMS, SLICES, CLASSES, TAINT_RULES)}
    for resource, raw in ((CLASSES, device_class()), (CLAIMS, claim("c", exactly(count=1)))):
        item = KubeObject.of(raw)
        stores[resource].put(item.ref, item, 1)
    for raw in devices:
        item = KubeObject.of(raw)
        stores[SLICES].put(item.ref, item, 1)
    return stores


def test_devices_found_outlive_a_question_about_a_new_node() -> None:
    stores = stores_with(resource_slice("s", [device("d")], "p", allNodes=True))
    runtime, state, pod = runtime_of(stores), CycleState("cycle"), Pod.from_object(pod_with("c"))
    nodes, others = table_of(("a", "a", "a")), table_of(("a", "a", "a"), NODES[::-1])
    runtime.pre_filter(state, pod, nodes)
    runtime.filter(state, pod, nodes)
    # The question of a plugin, in the same cycle: the nodes have other slots since a node came.
    runtime.filter(state.clone(), pod, others.take([1]))
    outcomes = state.get("attempt").outcomes
    assert all(outcomes.on(name) is not None for name in NODES)


def test_search_ends_although_another_one_saw_fewer_selectors_meanwhile() -> None:
    zones = [f"z{number}" for number in range(9)]  # more places than one byte has bits
    stores = stores_with(
        *(resource_slice(zone, [device("d")], f"p-{zone}", nodeSelector=in_zone(zone)) for zone in zones)
    )
    nodes = make_table([make_node(f"n-{zone}", labels={"zone": zone}) for zone in zones])
    handle = RecordingHandle(lambda: nodes, stores)
    allocator = Allocator(handle, Rules(), 10.0, 600.0)
    runtime, pod = PluginRuntime(DynamicResources({}, handle), handle=handle), Pod.from_object(pod_with("c"))

    def search() -> Work[Verdicts]:
        state = CycleState("cycle")
        runtime.pre_filter(state, pod, nodes)
        at_once(allocator.refresh())
        return allocator.verdicts(state.get("attempt"), nodes)

    first = search()
    for _ in range(4):
        next(first)
    stores[SLICES].remove("", "z0", 2)
    assert [status.is_success for status in at_once(search()).to_list()] == [False] + [True] * 8
    assert [status.is_success for status in at_once(first).to_list()][1:] == [True] * 8


def test_no_device_is_taken_or_given_back_while_nodes_get_their_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stores = stores_with(resource_slice("s", [device("d")], "p", nodeName="n1"))
    handle = RecordingHandle(lambda: table_of(("a", "a", "a")), stores)
    allocator = Allocator(handle, Rules(), 10.0, 600.0)
    free: list[bool] = []
    seen_by = Inventory.seen_by

    def watched(self: Inventory, nodes: NodeTable) -> SeenPools:
        def look() -> None:
            free.append(allocator.ledger.lock.acquire(blocking=False))
            if free[-1]:
                allocator.ledger.lock.release()

        other = threading.Thread(target=look)
        other.start()
        other.join()
        return seen_by(self, nodes)

    monkeypatch.setattr(Inventory, "seen_by", watched)
    runtime, state = PluginRuntime(DynamicResources({}, handle), handle=handle), CycleState("cycle")
    nodes, pod = table_of(("a", "a", "a")), Pod.from_object(pod_with("c"))
    runtime.pre_filter(state, pod, nodes)
    at_once(allocator.refresh())
    at_once(allocator.verdicts(state.get("attempt"), nodes))
    assert free == [False]


def runtime_of(stores: dict[str, ObjectStore]) -> PluginRuntime:
    handle = RecordingHandle(lambda: table_of(("a", "a", "a")), stores)
    return PluginRuntime(DynamicResources({}, handle), handle=handle)


def asked(runtime: PluginRuntime, nodes: NodeTable) -> list[tuple[Status, tuple[str, ...], int]]:
    """Return the verdict on each node, the devices found for it, and its score."""
    state = CycleState("cycle")
    pod = Pod.from_object(pod_with("c"))
    before: Any = runtime.pre_filter(state, pod, nodes)
    assert before.status.is_success
    found: Any = runtime.filter(state, pod, nodes)
    outcomes = state.get("attempt").outcomes
    devices = [None if outcomes is None else outcomes.on(name) for name in nodes.names]
    ids = [
        ()
        if one is None
        else tuple(str(choice.candidate.device.id) for each in one.choices for choice in each)
        for one in devices
    ]
    scores = [0] * len(nodes) if outcomes is None else outcomes.scores[nodes.slots].tolist()
    return list(zip(found.verdicts.to_list(), ids, scores, strict=True))
