"""Ties and offsets."""

from __future__ import annotations

from berth_host.cycle.chooser import SeededChooser, SmallestName
from support.frameworks import table_of


def test_same_seed_makes_the_same_choices() -> None:
    names = table_of("a", "b", "c", "d")
    first, second = SeededChooser(7), SeededChooser(7)
    choices = [first.pick(names) for _ in range(50)]
    assert choices == [second.pick(names) for _ in range(50)]
    assert set(choices) == {0, 1, 2, 3}
    assert all(0 <= first.offset(3) < 3 for _ in range(50))


def test_without_a_seed_the_drawn_one_is_logged() -> None:
    names = table_of(*"abcdefgh")
    drawn = SeededChooser()
    again = SeededChooser(drawn.seed)
    assert [drawn.pick(names) for _ in range(20)] == [again.pick(names) for _ in range(20)]


def test_smallest_name_wins_whatever_the_order() -> None:
    assert SmallestName().pick(table_of("n10", "n1", "n2")) == 1
    assert SmallestName().offset(9) == 0
    assert SmallestName().order(3) == [0, 1, 2]


def test_random_order_has_each_thing_once() -> None:
    chooser = SeededChooser(7)
    orders = {tuple(chooser.order(3)) for _ in range(100)}
    assert orders == {(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)}
