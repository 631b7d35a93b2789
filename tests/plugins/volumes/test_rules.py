"""Laws: however nodes, pods and objects come, change and go, each volume plugin says about all nodes at once
what the plain rules say node by node, and what-ifs are clusters that have become so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from berth_plugins.volumes.node_volume_limits import NodeVolumeLimits
from berth_plugins.volumes.volume_binding import VolumeBinding
from berth_plugins.volumes.volume_restrictions import VolumeRestrictions
from berth_plugins.volumes.volume_zone import VolumeZone
from berth_sdk.cycle_state import CycleState
from berth_sdk.kept.follows import concern
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.needs import NeedKind
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.runtime.plugin_runtime import PluginRuntime
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeColumns, NodeTable, ObjectStore, PodTable
from berth_sdk.testing.builders import node_object
from berth_sdk.testing.handle import RecordingHandle
from hypothesis import given, settings
from hypothesis import strategies as st
from support import plain_volumes as plain
from support.storage import (
    ATTACHMENTS,
    CLAIMS,
    CLASSES,
    CSI_CAPACITIES,
    CSI_DRIVERS,
    CSI_NODES,
    VOLUMES,
    attachment,
    capacity,
    claim,
    csi,
    csi_driver,
    csi_node,
    pod_using,
    storage_class,
    volume,
)
from support.tiers import examples

Json = dict[str, Any]
Rule = Callable[..., plain.Verdict]
RULES: dict[type, Rule] = {
    VolumeRestrictions: plain.restrictions,
    NodeVolumeLimits: plain.limits,
    VolumeZone: plain.zone,
    VolumeBinding: plain.binding,
}
each_plugin = pytest.mark.parametrize("cls", RULES, ids=lambda cls: cls.__name__)
NODES = ("n1", "n2", "n3")
NAMES = ("c1", "c2", "c3")
DISKS = ("v1", "v2", "v3", "v4")
SIZES = st.sampled_from(["1Gi", "2Gi", "3Gi"])
ZONE = plain.ZONES[0]
SELECTED = "volume.kubernetes.io/selected-node"
modes = st.sampled_from([["ReadWriteOnce"], ["ReadWriteOncePod"], ["ReadWriteOnce", "ReadOnlyMany"]])


@st.composite
def claims(draw: st.DrawFn, name: str = "") -> Json:
    more: Json = {"accessModes": draw(modes)}
    if draw(st.integers(0, 5)) == 0:
        more["annotations"] = {SELECTED: draw(st.sampled_from(NODES))}
    return claim(
        name or draw(st.sampled_from(NAMES)),
        cls=draw(st.sampled_from(["slow", "slow", "local", "local", "local", "now", None])),
        size=draw(SIZES),
        bound_to=draw(st.sampled_from(["", "", "", "v1", "v2", "gone"])),
        **more,
    )


@st.composite
def volumes(draw: st.DrawFn, name: str = "") -> Json:
    handle = draw(st.sampled_from(["h1", "h2", "h3"]))
    kinds: list[Json] = [{"csi": csi(handle)}, {"gcePersistentDisk": {"pdName": handle}}, {"local": {}}]
    source = draw(st.sampled_from(kinds))
    return volume(
        name or draw(st.sampled_from(DISKS)),
        cls=draw(st.sampled_from(["slow", "local"])),
        size=draw(SIZES),
        zones=draw(st.sampled_from([(), ("a",), ("b",), ("a", "b"), ("c",)])),
        labels=draw(st.sampled_from([{}, {ZONE: "a"}, {ZONE: "a__b"}])),
        phase=draw(st.sampled_from(["Available", "Available", "Bound"])),
        bound_to=draw(st.sampled_from(["", "", *NAMES])),
        accessModes=draw(st.sampled_from([["ReadWriteOnce", "ReadWriteOncePod"], ["ReadWriteOnce"]])),
        **source,
    )


zones = st.sampled_from([None, "a", "b"])
LOCAL = storage_class("local", provisioner="kubernetes.io/no-provisioner")
objects = st.one_of(
    st.tuples(st.just(CLAIMS), claims()),
    st.tuples(st.just(VOLUMES), volumes()),
    st.tuples(
        st.just(CLASSES),
        st.one_of(
            st.builds(storage_class, zones=st.sampled_from([(), ("a",)])),
            st.just(LOCAL),
            st.just(storage_class("now", mode="Immediate")),
        ),
    ),
    st.tuples(
        st.just(CSI_NODES),
        st.builds(
            csi_node,
            st.sampled_from(NODES),
            st.fixed_dictionaries(
                {
                    "csi.example.com": st.sampled_from([None, 0, 1, 2]),
                    "pd.csi.storage.gke.io": st.sampled_from([None, 1]),
                }
            ),
        ),
    ),
    st.tuples(st.just(CSI_DRIVERS), st.builds(csi_driver, storageCapacity=st.booleans())),
    st.tuples(
        st.just(CSI_CAPACITIES),
        st.builds(capacity, st.sampled_from(["p1", "p2"]), st.none() | SIZES, zone=zones),
    ),
    st.tuples(
        st.just(ATTACHMENTS),
        st.builds(attachment, st.sampled_from("xy"), st.sampled_from(NODES), st.sampled_from(DISKS)),
    ),
)
sources = st.one_of(
    st.sampled_from(NAMES),
    st.builds(
        lambda disk, read_only: {"gcePersistentDisk": {"pdName": disk, "readOnly": read_only}},
        st.sampled_from(["h1", "h2"]),
        st.booleans(),
    ),
)
holders = st.lists(st.lists(sources, max_size=2), max_size=2)
nodes = st.tuples(st.sampled_from(NODES), st.sampled_from(["", "a", "b", "c"]))
wishes = st.lists(st.one_of(st.sampled_from(NAMES), st.sampled_from(NAMES), sources), min_size=1, max_size=3)
beginnings = st.tuples(
    *(st.tuples(st.just(CLAIMS), claims(name)) for name in NAMES),
    *(st.tuples(st.just(VOLUMES), volumes(name)) for name in DISKS),
    st.just((CLASSES, storage_class())),
    st.just((CLASSES, LOCAL)),
)
"""Most rules need existing claims, volumes and classes."""
changes = st.lists(
    st.one_of(
        st.tuples(st.just("object"), objects),
        st.tuples(st.just("object"), objects),
        st.tuples(
            st.just("gone"),
            st.tuples(st.sampled_from([CLAIMS, VOLUMES, CSI_NODES, ATTACHMENTS]), st.integers(0, 9)),
        ),
        st.tuples(st.just("pods"), st.tuples(st.sampled_from(NODES), holders)),
        st.tuples(st.just("node"), nodes),
    ),
    max_size=12,
)
steps = st.builds(lambda begin, then: [*(("object", one) for one in begin), *then], beginnings, changes)


class Both:
    """A plugin that lives while its cluster changes, with the plain cluster beside it."""

    def __init__(self, cls: type) -> None:
        self.cluster = plain.Cluster()
        self.columns = NodeColumns()
        self.columns.pods = PodTable()
        self.stores: dict[str, ObjectStore] = {}
        needs: Any = cls.needs  # type: ignore[attr-defined]  # every plugin here has it
        for need in needs:
            if need.kind is NeedKind.OBJECT:
                self.stores[need.resource] = ObjectStore()
        handle = RecordingHandle(lambda: self.nodes, self.stores)
        plugin = cls({}, handle)
        self.runtime = PluginRuntime(plugin, handle=handle)
        self._generation = 0
        self._made = 0
        for name, zone in zip(NODES, "aab", strict=True):
            self.node(name, zone)

    @property
    def nodes(self) -> NodeTable:
        return NodeTable.of(self.columns)

    def step(self, kind: str, what: Any) -> None:
        self._generation += 1
        if kind == "object":
            self._object(*what)
        elif kind == "gone":
            resource, at = what
            keys = sorted(self.cluster.objects.get(resource, {}))
            if keys:
                namespace, name = keys[at % len(keys)]
                del self.cluster.objects[resource][namespace, name]
                if resource in self.stores:
                    self.stores[resource].remove(namespace, name, self._generation)
        elif kind == "pods":
            self._pods(*what)
        else:
            self.node(*what)

    def node(self, name: str, zone: str) -> None:
        labels = {"zone": zone, ZONE: zone} if zone else {}
        raw = node_object(name, labels=labels)
        self.cluster.nodes[name] = raw
        self.cluster.pods.setdefault(name, [])
        slot = self.columns.index_of.get(name)
        if slot is None:
            slot = self.columns.add(Node.from_object(KubeObject.of(raw)))
        else:
            self.columns.set_node(slot, Node.from_object(KubeObject.of(raw)))
        self.columns.touch(slot, self.columns.version + 1)

    def _object(self, resource: str, item: Json) -> None:
        shown = KubeObject.of(
            {**item, "metadata": {**item["metadata"], "resourceVersion": str(self._generation)}}
        )
        ref = shown.ref
        self.cluster.objects.setdefault(resource, {})[ref.namespace, ref.name] = shown.parsed
        if resource in self.stores:
            self.stores[resource].put(
                ObjectRef(name=ref.name, namespace=ref.namespace), shown, self._generation
            )

    def _pods(self, node: str, held: list[list[Any]]) -> None:
        pods = []
        for its in held:
            self._made += 1
            pods.append(pod_using(f"p{self._made}", *its, node=node))
        self.cluster.pods[node] = [dict(pod.object.parsed) for pod in pods if pod.object is not None]
        slot = self.columns.index_of[node]
        assert self.columns.pods is not None
        self.columns.pods.set_node_pods(slot, pods, (), self._generation)
        self.columns.touch(slot, self.columns.version + 1)

    def said(self, pod: Pod, table: NodeTable) -> list[plain.Verdict]:
        """PreFilter, then Filter."""
        state = CycleState("cycle")
        before: Any = self.runtime.pre_filter(state, pod, table)
        if before.status.code is Code.SKIP:
            return [None] * len(table)
        if not before.status.is_success:
            return [shown(before.status)] * len(table)
        result: Any = self.runtime.filter(state, pod, table)
        return [shown(status) for status in result.verdicts.to_list()]


def shown(status: Status) -> plain.Verdict:
    return None if status.is_success else (status.code.kube_name, status.reasons)


@pytest.mark.sampled(every=2)
@pytest.mark.slow
@each_plugin
@settings(max_examples=examples(60), deadline=None)
@given(steps=steps, wanted=wishes, data=st.data())
def test_verdicts_equal_a_computation_by_the_rules_as_the_cluster_changes(
    cls: type, steps: list[tuple[str, Any]], wanted: list[Any], data: st.DataObject
) -> None:
    both = Both(cls)
    pod = pod_using("web", *wanted)
    assert pod.object is not None
    raw = pod.object.parsed
    for kind, what in steps:
        both.step(kind, what)
        table, cluster = both.nodes, both.cluster
        want = [RULES[cls](cluster, raw, name, cluster.pods[name]) for name in table.names]
        assert both.said(pod, table) == want
    rows = data.draw(st.lists(st.sampled_from(range(3)), min_size=1, unique=True))
    part = both.nodes.take(rows)
    every = dict(zip(both.nodes.names, both.said(pod, both.nodes), strict=True))
    assert both.said(pod, part) == [every[name] for name in part.names]


@pytest.mark.slow
@pytest.mark.parametrize("cls", [VolumeRestrictions, NodeVolumeLimits], ids=lambda cls: cls.__name__)
@settings(max_examples=examples(60), deadline=None)
@given(
    steps=steps,
    wanted=wishes,
    coming=st.lists(st.lists(sources, max_size=2), max_size=2),
    leaving=st.lists(st.integers(0, 1), max_size=2, unique=True),
)
def test_what_ifs_equal_a_computation_by_the_rules(
    cls: type, steps: list[tuple[str, Any]], wanted: list[Any], coming: list[Any], leaving: list[int]
) -> None:
    both = Both(cls)
    for kind, what in steps:
        both.step(kind, what)
    pod = pod_using("web", *wanted)
    assert pod.object is not None
    raw, cluster, table = pod.object.parsed, both.cluster, both.nodes
    state = CycleState("cycle")
    before: Any = both.runtime.pre_filter(state, pod, table)
    if not before.status.is_success:
        return  # no what-if is asked then
    added = [pod_using(f"new{i}", *its) for i, its in enumerate(coming)]
    items, want = [], []
    for name in table.names:
        held = table.pods.on_node(int(table.slots[table.names.index(name)]))
        removed = [held[i] for i in leaving if i < len(held)]
        items.append(Scenario(name, tuple(removed), tuple(added)))
        here = [raw_of(one) for one in (*(one for one in held if one not in removed), *added)]
        less = plain.uses_of(cluster, raw, [raw_of(one) for one in removed]) - plain.uses_of(
            cluster, raw, [raw_of(one) for one in added]
        )
        want.append(
            plain.restrictions(cluster, raw, name, here, less)
            if cls is VolumeRestrictions
            else plain.limits(cluster, raw, name, here)
        )
    got: Any = both.runtime.filter_scenarios(state, pod, Scenarios(table, items))
    assert [shown(status) for status in got.to_list()] == want


def raw_of(pod: Pod) -> plain.Json:
    assert pod.object is not None
    return pod.object.parsed


@each_plugin
def test_specs_without_storage_do_not_concern_the_plugin_and_others_are_signed_pod_by_pod(cls: type) -> None:
    stores: dict[str, ObjectStore] = {}
    follows = PluginRuntime(cls({}, RecordingHandle(lambda: NodeTable.of(NodeColumns()), stores))).follows
    nodes = NodeTable.of(NodeColumns())
    assert follows.sign_spec is not None and follows.sign is not None
    for pod in (pod_using("a"), pod_using("a", {"emptyDir": {}})):
        known = concern(follows.sign_spec(pod))
        assert known is concern(follows.sign(pod, nodes)) is not None
    claiming = pod_using("a", "c1")
    assert follows.sign_spec(claiming) is None
    assert concern(follows.sign(claiming, nodes)) is None
