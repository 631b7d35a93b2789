"""A heap whose items are found by key."""

from __future__ import annotations

import weakref

from berth_host.queue.heap import KeyedHeap
from hypothesis import given
from hypothesis import strategies as st


def filled(*items: tuple[str, int]) -> KeyedHeap[str]:
    heap: KeyedHeap[str] = KeyedHeap()
    for key, order in items:
        heap.push(key, order, key)
    return heap


def test_smallest_order_comes_out_first() -> None:
    heap = filled(("b", 2), ("a", 1), ("c", 3))
    assert [heap.pop(), heap.pop(), heap.pop(), heap.pop()] == ["a", "b", "c", None]


def test_equal_orders_come_out_in_the_order_of_pushing() -> None:
    heap = filled(("z", 1), ("a", 1), ("m", 1))
    assert list(heap) == ["z", "a", "m"]


def test_pushing_a_key_again_replaces_its_item_and_its_place() -> None:
    heap = filled(("a", 1), ("b", 2))
    heap.push("a", 3, "new")
    assert list(heap) == ["b", "new"]
    assert len(heap) == 2


def test_removed_item_never_comes_out() -> None:
    heap = filled(("a", 1), ("b", 2))
    assert heap.remove("a") == "a"
    assert heap.remove("a") is None
    assert heap.peek() == "b"
    assert "a" not in heap
    assert heap.get("a") is None


def test_dead_entries_do_not_pile_up() -> None:
    class Pod:
        """Something that can be seen to be gone."""

    heap: KeyedHeap[Pod] = KeyedHeap()
    kept: weakref.WeakSet[Pod] = weakref.WeakSet()
    for order in range(1000):
        kept.add(value := Pod())
        heap.push("a", order, value)
    assert len(kept) < 200


ORDERS = st.dictionaries(st.text("abcdefgh", min_size=1, max_size=2), st.integers(0, 5), max_size=20)


@given(first=ORDERS, second=ORDERS, removed=st.sets(st.text("abcdefgh", min_size=1, max_size=2)))
def test_whatever_is_replaced_or_removed_the_rest_comes_out_in_order(
    first: dict[str, int], second: dict[str, int], removed: set[str]
) -> None:
    heap = filled(*first.items(), *second.items())
    for key in removed:
        heap.remove(key)
    want = {key: order for key, order in (first | second).items() if key not in removed}
    assert len(heap) == len(want)
    got: list[str] = []
    while (popped := heap.pop()) is not None:
        got.append(popped)
    assert [want[key] for key in got] == sorted(want.values())
    assert set(got) == set(want)
