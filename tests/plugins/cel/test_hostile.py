"""Expressions as long and as deep as the API server admits them: 10 KiB."""

from __future__ import annotations

import sys

import pytest
from berth_plugins.cel.environment import Environment
from berth_plugins.cel.errors import CelError, CostError

LONGEST = 10 * 1024
ENVIRONMENT = Environment({}, {}, 1_000_000)


def cost_of(text: str) -> int:
    return ENVIRONMENT.compile(text, ("bool",)).evaluate()[1]


@pytest.mark.parametrize(
    "text",
    [
        "(" * 249 + "true" + ")" * 249,
        "[" * 248 + "]" * 248 + " == []",
        "{1: " * 240 + "1" + "}" * 240 + " == {}",
        "+".join(["1"] * 250) + " > 0",
        "dyn([1])" + ".map(x, x)" * 200 + " == [1]",
        "[" * 200 + "1" + "].map(x, x)" * 200 + " == []",
        "true" + " || true" * 1200,
        "[" + ",".join(["1"] * 4000) + "].size() == 4000",
    ],
)
def test_deep_and_long_expressions_are_evaluated(text: str) -> None:
    assert len(text) <= LONGEST
    limit = sys.getrecursionlimit()
    cost_of(text)
    assert sys.getrecursionlimit() == limit


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("(" * 251 + "true" + ")" * 251, "expression recursion limit exceeded: 250"),
        ("+".join(["1"] * 260) + " > 0", "max recursion depth exceeded"),
        ("1" * 10_000 + " == 1", "invalid int literal"),
        ("(" * 5000, "expression recursion limit exceeded: 250"),
    ],
)
def test_too_deep_expressions_are_refused_in_kube_schedulers_words(text: str, want: str) -> None:
    with pytest.raises(CelError, match=want):
        ENVIRONMENT.compile(text, ("bool",))


def test_target_of_chained_optional_macros_is_evaluated_twice_but_compiled_once() -> None:
    cost_of("optional.of(1)" + ".optMap(x, x)" * 8 + ".hasValue()")
    with pytest.raises(CostError):
        cost_of("optional.of(1)" + ".optMap(x, x)" * 200 + ".hasValue()")


def test_evaluation_ends_at_its_cost_limit() -> None:
    with pytest.raises(CostError, match="operation cancelled: actual cost limit exceeded"):
        cost_of(
            "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, a + b + c >= 0)))"
        )
