"""A follower gets each changed slot once, or None where it cannot know the changed ones."""

from __future__ import annotations

import pytest
from berth_sdk.node import Node
from berth_sdk.tables import NodeColumns, NodeTable, NodeUsage
from berth_sdk.tables.slot_follower import Moved, SlotFollower
from berth_sdk.tables.slot_log import LIMIT


def columns() -> NodeColumns:
    made = NodeColumns()
    for name in ("n0", "n1", "n2"):
        made.add(Node(name=name))
    return made


@pytest.mark.parametrize("what", [Moved.NODE, Moved.ROW])
def test_first_call_gives_none_and_the_next_one_no_slots(what: Moved) -> None:
    made = columns()
    follower = SlotFollower(what)
    assert follower.moved_in(made) is None
    assert follower.moved_in(made) == []
    assert SlotFollower(what, made).moved(NodeTable(made)) == []


def test_a_slot_that_changed_twice_is_returned_once() -> None:
    made = columns()
    follower = SlotFollower(Moved.ROW, made)
    for count, slot in enumerate((2, 0, 2), start=1):
        made.set_usage(slot, NodeUsage(pod_count=count))
    assert follower.moved_in(made) == [2, 0]
    assert follower.moved_in(made) == []


def test_follower_of_node_objects_ignores_changes_of_pods() -> None:
    made = columns()
    nodes, rows = SlotFollower(Moved.NODE, made), SlotFollower(Moved.ROW, made)
    made.set_usage(1, NodeUsage(pod_count=1))
    assert (nodes.moved_in(made), rows.moved_in(made)) == ([], [1])
    slot = made.add(Node(name="n3"))
    assert nodes.moved_in(made) == [slot]
    assert slot in (rows.moved_in(made) or [])


def test_each_follower_has_its_own_position() -> None:
    made = columns()
    early, late = SlotFollower(Moved.ROW, made), SlotFollower(Moved.ROW, made)
    made.set_usage(0, NodeUsage(pod_count=1))
    assert early.moved_in(made) == [0]
    made.set_usage(1, NodeUsage(pod_count=1))
    assert (early.moved_in(made), late.moved_in(made)) == ([1], [0, 1])


def test_follower_that_is_too_far_behind_or_reads_another_table_gets_none() -> None:
    made = columns()
    follower = SlotFollower(Moved.ROW, made)
    for count in range(2 * LIMIT + 1):
        made.set_usage(0, NodeUsage(pod_count=count + 1))
    assert follower.moved_in(made) is None
    assert follower.moved_in(columns()) is None
