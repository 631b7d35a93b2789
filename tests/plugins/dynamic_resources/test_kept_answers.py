"""Law: kept answers change no verdict, while claims, slices and nodes' labels change."""

from __future__ import annotations

from typing import Any

from berth_plugins.dynamic_resources.allocator import SLICES
from berth_plugins.dynamic_resources.plugin import DynamicResources
from berth_sdk.cycle_state import CycleState
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.runtime.plugin_runtime import PluginRuntime
from berth_sdk.status import Status
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


def table_of(zones: tuple[str, str, str]) -> NodeTable:
    return make_table(
        [make_node(name, labels={"zone": zone}) for name, zone in zip(NODES, zones, strict=True)]
    )


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
taken = st.builds(
    lambda name, pool, which, i: claim(name, allocated=[f"{pool}/{which}-d{i}"]),
    st.sampled_from(["t1", "t2"]),
    st.sampled_from(["p", "q"]),
    st.sampled_from(["s1", "s2", "s3"]),
    st.integers(0, 1),
)
steps = st.one_of(
    slices.map(lambda item: (SLICES, item)),
    taken.map(lambda item: (CLAIMS, item)),
    st.sampled_from([(CLAIMS, "t1"), (CLAIMS, "t2"), (SLICES, "s1"), (SLICES, "s2")]),
    st.tuples(*[st.sampled_from("ab")] * 3).map(lambda zones: ("labels", zones)),
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
    zones = ("a", "a", "b")
    lasting = runtime_of(stores)
    for resource, change in history:
        generation += 1
        if resource == "labels":
            zones = change
        elif isinstance(change, str):
            namespace = "default" if resource == CLAIMS else ""
            stores[resource].remove(namespace, change, generation)
        else:
            put(resource, change)
        nodes = table_of(zones)
        assert asked(lasting, nodes) == asked(runtime_of(stores), nodes)


def runtime_of(stores: dict[str, ObjectStore]) -> PluginRuntime:
    handle = RecordingHandle(lambda: table_of(("a", "a", "a")), stores)
    return PluginRuntime(DynamicResources({}, handle), handle=handle)


def asked(runtime: PluginRuntime, nodes: NodeTable) -> list[Status]:
    state = CycleState("cycle")
    pod = Pod.from_object(pod_with("c"))
    before: Any = runtime.pre_filter(state, pod, nodes)
    assert before.status.is_success
    found: Any = runtime.filter(state, pod, nodes)
    statuses: list[Status] = found.verdicts.to_list()
    return statuses
