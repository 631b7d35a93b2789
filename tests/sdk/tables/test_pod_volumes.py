"""Pods with storage by slot, and readers that follow the changed slots."""

from __future__ import annotations

import pytest
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.tables import Moved, NodeColumns, NodeTable, ObjectStore, PodTable, SlotFollower
from berth_sdk.testing import make_node, make_pod, make_table
from hypothesis import given
from hypothesis import strategies as st


def storing(name: str) -> Pod:
    raw = {
        "metadata": {"name": name, "uid": name},
        "spec": {"volumes": [{"name": "v", "iscsi": {"iqn": name}}]},
    }
    return Pod.from_object(raw)


def columns_with(*names: str) -> NodeColumns:
    columns = NodeColumns()
    columns.pods = PodTable()
    for generation, name in enumerate(names, 1):
        columns.touch(columns.add(make_node(name)), generation)
    return columns


def put(columns: NodeColumns, slot: int, *pods: Pod) -> None:
    assert columns.pods is not None
    columns.pods.set_node_pods(slot, pods, (), 1)
    columns.touch(slot, columns.version + 10)


def test_only_pods_with_storage_are_listed() -> None:
    columns = columns_with("a", "b")
    nodes = NodeTable.of(columns)
    disk, plain = storing("disk"), make_pod("plain", uid="plain")
    put(columns, 1, plain, disk)
    assert nodes.pod_volumes.on_slot(1) == (disk,)
    assert nodes.pod_volumes.on_slot(0) == ()
    assert list(nodes.pod_volumes.slots()) == [1]


def test_volumes_of_a_table_without_pods_raise() -> None:
    columns = NodeColumns()
    columns.add(make_node("a"))
    with pytest.raises(ValueError, match=r"Need\.pod_objects\(\)"):
        NodeTable.of(columns).pod_volumes.slots()


def test_follower_gets_all_slots_first_and_then_the_changed_ones() -> None:
    columns = columns_with("a", "b")
    follower = SlotFollower(Moved.VOLUMES)
    assert follower.moved(NodeTable.of(columns)) is None
    assert follower.moved(NodeTable.of(columns)) == []
    disk = storing("disk")
    put(columns, 1, disk)
    put(columns, 0, make_pod("plain", uid="plain"))
    assert follower.moved(NodeTable.of(columns)) == [1]
    put(columns, 1, disk, make_pod("other", uid="other"))
    assert follower.moved(NodeTable.of(columns)) == []
    put(columns, 1)
    assert follower.moved(NodeTable.of(columns)) == [1]


def test_follower_of_nodes_gets_added_changed_and_removed_nodes() -> None:
    columns = columns_with("a")
    follower = SlotFollower(Moved.NODE)
    follower.moved(NodeTable.of(columns))
    slot = columns.add(make_node("b"))
    columns.set_node(0, make_node("a", labels={"x": "y"}))
    assert follower.moved(NodeTable.of(columns)) == [slot, 0]
    columns.remove(0)
    assert follower.moved(NodeTable.of(columns)) == [0]


def test_follower_gets_all_slots_of_another_table() -> None:
    follower = SlotFollower(Moved.VOLUMES)
    first, second = make_table([make_node("a")]), make_table([make_node("a")])
    assert follower.moved(first) is None
    assert follower.moved(second) is None


@given(st.lists(st.tuples(st.integers(0, 2), st.lists(st.sampled_from("abcdef"), unique=True))))
def test_updated_volumes_equal_a_scan_of_every_pod(steps: list[tuple[int, list[str]]]) -> None:
    columns = columns_with("n0", "n1", "n2")
    nodes = NodeTable.of(columns)
    # Three of the pods have storage; a pod is on the node where it was put last.
    pods = {name: storing(name) if name < "d" else make_pod(name, uid=name) for name in "abcdef"}
    held: dict[int, list[str]] = {0: [], 1: [], 2: []}
    for slot, names in steps:
        for others in held.values():
            others[:] = [name for name in others if name not in names]
        held[slot] = names
        for each in range(3):
            put(columns, each, *(pods[name] for name in held[each]))
        want = {each: tuple(pods[name] for name in held[each] if name < "d") for each in range(3)}
        assert {each: nodes.pod_volumes.on_slot(each) for each in range(3)} == want
        assert set(nodes.pod_volumes.slots()) == {each for each, found in want.items() if found}


# --- objects ---------------------------------------------------------------------------------------


def item(name: str) -> tuple[ObjectRef, KubeObject]:
    return ObjectRef(name=name), KubeObject.of({"kind": "Thing", "metadata": {"name": name}})


def test_store_returns_the_objects_changed_since_a_version() -> None:
    store = ObjectStore()
    store.put(*item("a"), 1)
    seen = store.version
    assert store.moved_since(seen) == []
    store.put(*item("b"), 2)
    store.remove("", "a", 3)
    assert store.moved_since(seen) == [("", "b"), ("", "a")]


def test_version_of_another_store_gives_none() -> None:
    one, other = ObjectStore(), ObjectStore()
    one.put(*item("a"), 1)
    other.put(*item("a"), 1)
    assert one.version != other.version
    assert other.moved_since(one.version) is None
    assert one.moved_since(other.version) is None
