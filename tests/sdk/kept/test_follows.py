"""The ends of a kept answer: requeues, declared objects, and the declared part of the tables."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import Final

import pytest
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn
from berth_sdk.kept.follows import BySignature, Follows, JointVersions, StaleSlots
from berth_sdk.kube_object import ObjectRef
from berth_sdk.needs import Need
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.tables import NodeTable, ObjectStore
from berth_sdk.tables.node_columns import NodeColumns
from berth_sdk.testing import make_node, make_pod, make_table
from berth_sdk.testing.handle import RecordingHandle

CLASSES: Final = "deviceclasses"


def reading(store: ObjectStore, plugin: str = "Demo") -> Follows:
    """Return a plugin that judges row by row, and reads the device classes."""
    handle = RecordingHandle(lambda: make_table([]), {CLASSES: store})
    return Follows(plugin, DependsOn.ROW, [Need.objects(CLASSES)], handle)


def test_versions_change_with_a_requeue_and_with_a_declared_object() -> None:
    store = ObjectStore()
    follows = reading(store)
    first = follows.versions()
    follows.forget()
    second = follows.versions()
    store.put(ObjectRef(name="gpu"), None, 1)
    assert len({first, second, follows.versions()}) == 3


def test_objects_that_cannot_be_read_are_reported() -> None:
    assert not Follows("Demo", DependsOn.TABLE, [Need.objects(CLASSES)]).is_readable
    assert Follows("Demo", DependsOn.TABLE).is_readable
    assert reading(ObjectStore()).is_readable


def test_joint_versions_name_requeues_first_and_a_shared_reader_once() -> None:
    store = ObjectStore()
    one, other = reading(store, "One"), reading(store, "Other")
    joint = JointVersions([one, other])
    assert joint.read() == (0, 0, store.version)
    other.forget()
    store.put(ObjectRef(name="gpu"), None, 1)
    assert joint.read() == (0, 1, store.version)


def test_a_pod_is_signed_once_in_a_cycle_as_of_the_versions_of_then() -> None:
    signed: list[str] = []

    def sign(pod: Pod, nodes: NodeTable) -> Hashable:
        signed.append(pod.name)
        return pod.name

    follows, state, nodes = Follows("Demo", DependsOn.ROW, sign=sign), CycleState("c"), make_table([])
    assert follows.signature(state, make_pod("p"), nodes, (0,)) == "p"
    assert follows.signature(state, make_pod("p"), nodes, (1,)) == "p"
    assert (signed, state.signed_at) == (["p"], (0,))


def test_pods_that_cannot_be_signed_equal_no_other_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def sign(pod: Pod, nodes: NodeTable) -> Hashable:
        raise ValueError("no label")

    follows, nodes = Follows("Demo", DependsOn.ROW, sign=sign), make_table([])
    with caplog.at_level(logging.WARNING, "berth_sdk.plugin"):
        found = [follows.signature(CycleState("c"), make_pod("p"), nodes, ()) for _ in range(2)]
    assert found[0] != found[1]
    assert [record.getMessage().split(" ")[0] for record in caplog.records] == ["Demo"]


def columns(*nodes: Node) -> NodeColumns:
    made = NodeColumns()
    for node in nodes:
        made.add(node)
    return made


@pytest.mark.parametrize(
    ("depends_on", "after_a_pod", "after_a_node"),
    [
        pytest.param(DependsOn.NODE, [], [1], id="node"),
        pytest.param(DependsOn.ROW, [0], [1], id="row"),
        pytest.param(DependsOn.NODES, [], None, id="nodes"),
    ],
)
def test_slots_are_stale_when_the_declared_part_of_them_moves(
    depends_on: DependsOn, after_a_pod: list[int], after_a_node: list[int] | None
) -> None:
    table = columns(make_node("a"), make_node("b"))
    stale = StaleSlots(depends_on, table)
    assert stale.since_last(table) == []
    table.touch(0, 1)
    assert stale.since_last(table) == after_a_pod
    table.set_node(1, Node(name="b", labels={"disk": "ssd"}))
    assert stale.since_last(table) == after_a_node
    assert stale.since_last(table) == []


def test_all_slots_are_stale_at_first_and_in_another_table() -> None:
    stale = StaleSlots(DependsOn.ROW)
    first, second = columns(make_node("a")), columns(make_node("a"))
    assert [stale.since_last(one) for one in (first, first, second)] == [None, [], None]


def test_the_value_that_was_used_least_recently_makes_room() -> None:
    kept: BySignature[str] = BySignature(2)
    assert [kept.keep("a", "A"), kept.keep("b", "B")] == [None, None]
    assert kept.get("a") == "A"
    assert kept.keep("c", "C") == "B"
    assert [kept.get(one) for one in "abc"] == ["A", None, "C"]


def test_values_of_another_version_are_dropped() -> None:
    kept: BySignature[str] = BySignature(2)
    assert kept.as_of(1)
    kept.keep("a", "A")
    assert not kept.as_of(1)
    assert len(kept) == 1
    assert kept.as_of(2)
    assert len(kept) == 0
