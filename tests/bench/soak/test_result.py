"""The result of a soak, and when it has problems."""

from __future__ import annotations

from dataclasses import replace

import pytest
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
    memory_growth_percent=4.9,
)


def test_clean_run_has_no_problem() -> None:
    assert CLEAN.problems() == []
    assert replace(CLEAN, memory_growth_percent=None).problems() == []


@pytest.mark.parametrize("name", ZERO)
def test_each_figure_that_must_be_zero_is_named(name: str) -> None:
    (problem,) = Result(**{**CLEAN.as_json(), name: 2}).problems()
    assert problem == f"{name}: 2"


def test_memory_that_grows_by_a_twentieth_is_a_leak() -> None:
    (problem,) = replace(CLEAN, memory_growth_percent=5.0).problems()
    assert "is a leak" in problem


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
        "memory_growth_percent",
    ]
