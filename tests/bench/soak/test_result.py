"""The result of a soak, and when it has problems."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from berth_bench.soak.growth import Growth
from berth_bench.soak.result import ZERO, Result

CLEAN = Result(
    seed=1,
    minutes=10.0,
    pods_created=5,
    bound=4,
    pending=1,
    kills={"killed": 3},
    lost_pods=0,
    over_committed_nodes=0,
    leaked_reservations=0,
    double_binds=0,
    leaked_tasks=0,
    leaked_fds=0,
    growth={"objects": Growth(0.5, 0.4, lasts=True), "malloced_bytes": Growth(9.0, 7.0, lasts=True)},
    memory_growth_percent=8.7,
)


def test_clean_run_has_no_problem() -> None:
    assert CLEAN.problems() == []
    assert replace(CLEAN, growth={}, memory_growth_percent=None).problems() == []


@pytest.mark.parametrize("name", ZERO)
def test_each_figure_that_must_be_zero_is_named(name: str) -> None:
    changed: dict[str, Any] = {name: 2}
    (problem,) = replace(CLEAN, **changed).problems()
    assert problem == f"{name}: 2"


def test_objects_that_grow_beyond_the_error_are_a_leak_whose_types_are_named() -> None:
    growth = {**CLEAN.growth, "objects": Growth(2.0, 0.5, lasts=True)}
    found = replace(CLEAN, growth=growth, leaking_types=[("a.Pod", 300), ("builtins.dict", 20)]).problems()
    assert found == [
        "objects grew by 2.00 % (error 0.50) in the second half, to its end: 1 % or more, without the error,"
        " is a leak",
        "the types that grew most: 300 a.Pod, 20 builtins.dict",
    ]


def test_run_without_bound_pods_is_a_problem() -> None:
    assert replace(CLEAN, bound=0).problems() == ["no pod was bound"]


def test_calls_lost_in_swaps_are_a_problem_and_no_field() -> None:
    (problem,) = replace(CLEAN, calls_lost_in_swaps=2).problems()
    assert problem == "calls that found no instance while a newer one took over: 2"


def test_pods_that_a_required_plugin_refused_are_a_problem_and_no_field() -> None:
    found = replace(CLEAN, misplaced_pods=2)
    assert found.problems() == ["pods on nodes that a required plugin rejects: 2"]
    assert found.as_json() == CLEAN.as_json()


def test_json_has_exactly_the_fields_of_the_result() -> None:
    assert list(CLEAN.as_json()) == [
        "seed",
        "minutes",
        "pods_created",
        "bound",
        "pending",
        "kills",
        "lost_pods",
        "over_committed_nodes",
        "leaked_reservations",
        "double_binds",
        "leaked_tasks",
        "leaked_fds",
        "growth",
        "memory_growth_percent",
    ]
    assert CLEAN.as_json()["growth"]["objects"] == {"percent": 0.5, "error": 0.4}
