"""The table of pods beside the nodes: rows without gaps, and columns that stay right when pods are added or
removed.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from berth_sdk.pod import Pod
from berth_sdk.tables import PodTable
from hypothesis import given, settings
from hypothesis import strategies as st
from support.record_strategies import pods as any_pods
from support.table_contents import pod_contents
from support.tiers import examples


def pod(name: str, **fields: object) -> Pod:
    return Pod(name=name, uid=name, **fields)  # type: ignore[arg-type]


def names(found: list[Pod]) -> list[str]:
    return [each.name for each in found]


def test_empty_table_has_no_rows() -> None:
    table = PodTable()
    assert len(table) == 0
    assert table.on_node(3) == []
    assert table.rows_on_node(3).tolist() == []
    assert table.position("a") is None


def test_columns_hold_the_values_of_the_records() -> None:
    table = PodTable()
    first = pod("a", priority=5, started_at_s=2.5, namespace="x", requests={"cpu": 100}, labels={"app": "w"})
    table.set_node_pods(4, [first, pod("b", terminating=True)], {"b"}, 9)
    assert table.node_index.tolist() == [4, 4]
    assert table.priority.tolist() == [5, 0]
    assert table.start_time_s[0] == 2.5
    assert math.isnan(table.start_time_s[1])
    assert table.terminating.tolist() == [False, True]
    assert table.assumed.tolist() == [False, True]
    assert table.generation.tolist() == [9, 9]
    assert table.requests("cpu").tolist() == [100, 0]
    assert [table.namespaces.values[code] for code in table.namespace.tolist()] == ["x", "default"]
    codes, values = table.label("app")
    assert (codes.tolist(), values.find("w")) == ([1, 0], 1)
    assert table.pod(0) is first


def test_columns_are_read_only() -> None:
    table = PodTable()
    table.set_node_pods(0, [pod("a")], (), 1)
    for column in (table.node_index, table.requests("cpu"), table.label("app")[0], table.generation):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 1


def test_last_row_takes_the_place_of_a_removed_row() -> None:
    table = PodTable()
    a, b, c = pod("a", priority=1), pod("b", priority=2), pod("c", priority=3)
    table.set_node_pods(0, [a, b, c], (), 1)
    assert table.set_node_pods(0, [c, b], (), 2) == ["a"]
    assert names([table.pod(row) for row in range(len(table))]) == ["c", "b"]
    assert table.priority.tolist() == [3, 2]
    assert (table.position("c"), table.position("a")) == (0, None)
    assert names(table.on_node(0)) == ["c", "b"]
    assert table.rows_on_node(0).tolist() == [0, 1]


def test_only_rows_with_a_new_record_get_the_new_generation() -> None:
    table = PodTable()
    a, b = pod("a"), pod("b")
    table.set_node_pods(0, [a, b], (), 1)
    table.set_node_pods(0, [a, replace(b, priority=7)], (), 2)
    assert table.generation.tolist() == [1, 2]
    assert (table.generation_of("a"), table.generation_of("b")) == (1, 2)


def test_row_of_a_pod_at_another_place_on_its_node_gets_the_new_generation() -> None:
    table = PodTable()
    a, b, c = pod("a"), pod("b"), pod("c")
    table.set_node_pods(0, [a, b, c], (), 1)
    table.set_node_pods(0, [c, b], (), 2)
    assert (table.generation_of("c"), table.generation_of("b")) == (2, 1)
    table.set_node_pods(0, [b, c], (), 3)
    assert (table.generation_of("c"), table.generation_of("b")) == (3, 3)


def test_assumed_mark_changes_with_an_unchanged_record() -> None:
    table = PodTable()
    a = pod("a")
    table.set_node_pods(0, [a], {"a"}, 1)
    assert (table.is_assumed("a"), table.assumed.tolist()) == (True, [True])
    table.set_node_pods(0, [a], (), 2)
    assert (table.is_assumed("a"), table.assumed.tolist()) == (False, [False])
    assert table.generation.tolist() == [2]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_pod_that_changes_its_node_has_one_row_in_either_order_of_writes(
    order: tuple[int, int],
) -> None:
    table = PodTable()
    table.set_node_pods(0, [pod("a")], (), 1)
    after: dict[int, list[Pod]] = {0: [], 1: [pod("a")]}
    for index in order:
        table.set_node_pods(index, after[index], (), 2)
    assert len(table) == 1
    assert table.node_index.tolist() == [1]
    assert (names(table.on_node(0)), names(table.on_node(1))) == ([], ["a"])


def test_list_of_a_nodes_pods_never_changes() -> None:
    table = PodTable()
    table.set_node_pods(0, [pod("a")], (), 1)
    before = table.pods_of(0)
    mine = table.on_node(0)
    mine.clear()
    table.set_node_pods(0, [pod("b")], (), 2)
    assert [each.name for each in before] == ["a"]
    assert names(table.on_node(0)) == ["b"]


def test_encoded_column_follows_later_changes() -> None:
    table = PodTable()
    table.set_node_pods(0, [pod("a", claims=("x",)), pod("b")], (), 1)

    def first_claim(each: Pod) -> str | None:
        return each.claims[0] if each.claims else None

    codes, values = table.encoded("Demo/claim", first_claim)
    assert [values.values[code] for code in codes.tolist()] == ["x", None]
    table.set_node_pods(1, [pod("c", claims=("y",))], (), 2)
    codes, values = table.encoded("Demo/claim", first_claim)
    assert [values.values[code] for code in codes.tolist()] == ["x", None, "y"]


def test_column_with_too_many_values_is_dropped() -> None:
    table = PodTable()
    table.set_node_pods(0, [pod("a", labels={"job": "0"})], (), 0)
    _, values = table.label("job")
    for i in range(1, 5000):
        table.set_node_pods(0, [pod("a", labels={"job": str(i)})], (), i)
    assert len(values) == 5001
    table.begin_update()
    codes, fresh = table.label("job")
    assert [fresh.values[code] for code in codes.tolist()] == ["4999"]
    assert len(fresh) == 2


steps = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.sampled_from("abcdef"), unique=True), st.booleans()), max_size=12
)


@pytest.mark.slow
@given(steps=steps, data=st.data())
@settings(max_examples=examples(60), deadline=None)
def test_updated_table_equals_a_new_one(
    steps: list[tuple[int, list[str], bool]], data: st.DataObject
) -> None:
    table = PodTable()
    here: dict[int, list[Pod]] = {0: [], 1: [], 2: []}
    assumed: set[str] = set()
    for generation, (index, wanted, is_assumed) in enumerate(steps, 1):
        elsewhere = {each.name for other in here if other != index for each in here[other]}
        kept = {each.name: each for each in here[index]}
        here[index] = [
            kept.get(name) or data.draw(any_pods(name=name)) for name in wanted if name not in elsewhere
        ]
        for each in here[index]:
            (assumed.add if is_assumed else assumed.discard)(each.uid)
        table.set_node_pods(index, here[index], assumed, generation)
        table.label("app")
    fresh = PodTable()
    for index, found in here.items():
        fresh.set_node_pods(index, found, assumed, 1)
        assert table.on_node(index) == found
    slots = {0: "n0", 1: "n1", 2: "n2"}
    assert pod_contents(table, slots) == pod_contents(fresh, slots)


@pytest.mark.parametrize("rows", [[], [1], [2, 0], [1, 1, 2]])
def test_several_pods_are_read_in_the_order_of_their_rows(rows: list[int]) -> None:
    pods = [Pod(name=name, uid=f"uid-{name}") for name in "abc"]
    table = PodTable.of(pods)
    assert table.several(np.asarray(rows, dtype=np.intp)) == [pods[row] for row in rows]
