"""`KnownSlots` lists as missing what a plain set lists, whatever is learned and forgotten."""

from __future__ import annotations

import numpy as np
import pytest
from berth_sdk.kept import known_slots
from berth_sdk.kept.known_slots import KnownSlots
from berth_sdk.node import Node
from berth_sdk.tables import NodeColumns, NodeTable
from berth_sdk.tables.node_columns import NodeUsage
from hypothesis import given
from hypothesis import strategies as st

NODES = 9
SLOTS = st.lists(st.integers(0, NODES - 1), max_size=NODES, unique=True)
STEPS = st.lists(st.tuples(st.sampled_from(["learn", "forget", "clear", "grow", "ask"]), SLOTS), max_size=20)


def columns() -> NodeColumns:
    made = NodeColumns()
    for i in range(NODES):
        made.add(Node(name=f"n{i}"))
    return made


@given(steps=STEPS, few=st.sampled_from([0, 1, 3, 64]), most=st.sampled_from([0, 2, 64]))
def test_missing_rows_are_those_that_were_not_learned(
    steps: list[tuple[str, list[int]]], few: int, most: int
) -> None:
    # How many are listed must not matter.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_slots, "FEW", few)
        patch.setattr(known_slots, "MOST", most)
        whole = NodeTable(columns())
        known = KnownSlots()
        known.grow(whole.slot_count)
        plain: set[int] = set()
        for what, slots in steps:
            if what == "learn":
                known.learn(whole.take(sorted(slots)).slots, in_use=NODES)
                plain |= set(slots)
            elif what == "forget":
                known.forget(slots)
                plain -= set(slots)
            elif what == "clear":
                known.clear()
                plain.clear()
            elif what == "grow":
                known.grow(len(known) + 1)
            asked = whole.take(slots) if what == "ask" else whole
            expected = [at for at, slot in enumerate(asked.slots.tolist()) if slot not in plain]
            listed = known.few_missing(asked)
            assert listed is None or sorted(listed) == sorted(asked.slots.tolist()[at] for at in expected)
            assert known.missing(asked).tolist() == expected


def test_a_few_missing_slots_are_listed_until_they_are_learned() -> None:
    whole, known = NodeTable(columns()), KnownSlots()
    known.grow(whole.slot_count)
    assert known.few_missing(whole) is None
    known.learn(whole.slots, in_use=NODES)
    assert known.few_missing(whole) == []
    known.forget([3, 1])
    assert sorted(known.few_missing(whole) or ()) == [1, 3]
    assert known.few_missing(whole.take([0, 3])) == [3]
    known.learn_few([3])
    assert known.few_missing(whole) == known.missing(whole).tolist() == [1]


def test_slots_that_came_later_are_not_known() -> None:
    made = columns()
    known = KnownSlots()
    known.grow(made.capacity)
    known.learn(NodeTable(made).slots, in_use=NODES)
    assert known.missing(NodeTable(made)).tolist() == []
    slots = [made.add(Node(name=f"late{i}")) for i in range(200)]
    known.grow(made.capacity)
    known.forget(slots)
    assert known.missing(NodeTable(made)).tolist() == list(range(NODES, NODES + 200))


def test_rows_taken_by_the_same_positions_are_the_same_array() -> None:
    table = NodeTable(columns())
    positions = np.arange(NODES)[::-1].copy()
    assert table.take(positions).slots is not table.take(positions).slots
    positions.flags.writeable = False
    taken = table.take(positions)
    assert taken.slots is table.take(positions).slots
    assert taken.slots.tolist() == list(range(NODES))[::-1]
    assert not taken.slots.flags.writeable
    other = NodeTable(columns())
    assert other.take(positions).slots is not taken.slots


def test_tables_of_the_same_few_rows_are_one_until_anything_moves() -> None:
    made = columns()
    table = NodeTable(made)
    taken = table.take([1, 3])
    assert taken is NodeTable.of(made).take(np.asarray([1, 3]))
    assert table.take([1, 2]).slots.tolist() == [1, 2]
    assert taken.requested_of(("cpu", "memory")).tolist() == [[0, 0], [0, 0]]
    made.set_usage(3, NodeUsage(requested={"cpu": 5}))
    assert NodeTable(made).take([1, 3]).requested_of(("cpu", "memory")).tolist() == [[0, 5], [0, 0]]
    assert NodeTable(made).take([3, 1]).requested_of(("memory", "cpu")).tolist() == [[0, 0], [5, 0]]
