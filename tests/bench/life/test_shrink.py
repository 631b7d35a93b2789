"""A life that breaks a law is made short."""

from __future__ import annotations

from dataclasses import replace

import pytest
from berth_bench.life.life import Result, live
from berth_bench.life.shrink import shrunk
from berth_bench.life.world import KINDS

FAILING = Result(
    seed=1,
    days=8.0,
    hosts=1,
    mood="hell",
    broken="pods disappeared: a",
    hours=8 * 24 + 0.1,
    pods=1,
    bound=1,
    acts=1,
    faults=1,
    trace_lines=100,
    trace_sha256="",
    cpu_s=1.0,
)


class Fails:
    """Lives that break the law if they have `days` and the kinds `needs`."""

    def __init__(self, days: float, needs: set[str], other_law: str = "") -> None:
        self.days, self.needs, self.other_law = days, needs, other_law
        self.count = 0

    def __call__(self, days: float, without: frozenset[str]) -> Result:
        self.count += 1
        fails = days >= self.days and not self.needs & without
        broken = f"pods disappeared: {self.count}" if fails else self.other_law
        return replace(FAILING, days=days, hours=24 * days, broken=broken, without=tuple(sorted(without)))


def test_days_and_kinds_that_are_not_needed_are_left_out() -> None:
    found = shrunk(FAILING, KINDS, Fails(3.0, {"pods", "restart"}))
    assert set(found.without) == set(KINDS) - {"pods", "restart"}
    assert 3.0 <= found.days < 3.1


def test_life_that_breaks_another_law_is_not_taken() -> None:
    found = shrunk(FAILING, KINDS, Fails(100.0, set(), "nodes got more: n1"))
    assert found is FAILING


def test_law_broken_early_is_tried_with_the_days_until_then_first() -> None:
    fails = Fails(0.5, set(KINDS))
    found = shrunk(replace(FAILING, hours=24.0), (), fails)
    assert 0.5 <= found.days < 0.6


@pytest.mark.parametrize("kind", ["taint", "cut"])
def test_life_without_a_kind_has_the_others_at_the_same_times(kind: str) -> None:
    with_all, without = live(12, 0.004, hosts=1), live(12, 0.004, hosts=1, without=[kind])

    def pods_of(result: Result) -> list[str]:
        new = [line.split() for line in result.lines if " new Pod default/pod-" in line]
        return [line[0] for line in new if float(line[0]) < 100]

    assert pods_of(with_all) == pods_of(without) != []
