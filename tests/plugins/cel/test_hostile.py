"""Expressions as long and as deep as the API server admits them: 10 KiB."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from berth_plugins.cel.environment import Environment
from berth_plugins.cel.errors import CelError, CostError, EvalError
from berth_plugins.cel.values import Opaque

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


@pytest.mark.long
def test_target_of_chained_optional_macros_is_evaluated_twice_but_compiled_once() -> None:
    cost_of("optional.of(1)" + ".optMap(x, x)" * 8 + ".hasValue()")
    with pytest.raises(CostError):
        cost_of("optional.of(1)" + ".optMap(x, x)" * 200 + ".hasValue()")


def test_evaluation_ends_at_its_cost_limit() -> None:
    with pytest.raises(CostError, match="operation cancelled: actual cost limit exceeded"):
        cost_of(
            "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, a + b + c >= 0)))"
        )


def bound(count: int, first: str, step: str, last: str) -> str:
    """Return names for values, each made of the one before, which `$` stands for."""
    steps = "".join(f"cel.bind(a{i}, {step.replace('$', f'a{i - 1}')}, " for i in range(1, count))
    return f"cel.bind(a0, {first}, {steps}{last.replace('$', f'a{count - 1}')}" + ")" * count


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    "text",
    [
        bound(40, "[1, 1]", "$ + $", "size($) > 0"),
        bound(40, "'0123456789'", "$ + $", "size($) > 0"),
        bound(40, "dyn('0123456789')", "$ + $", "$ != 1"),
        bound(40, "b'0123456789'", "$ + $", "size($) > 0"),
        bound(40, "'0123456789'", "$.replace('', '0123456789')", "size($) > 0"),
        bound(40, "'0123456789'", "$.split('').join('0123456789')", "size($) > 0"),
        bound(40, "[1, 1]", "[$, $]", "$ == $"),
        bound(40, "[1, 1]", "[$, $]", "$ in [$]"),
        bound(40, "[1, 1]", "{1: $, 2: $}", "$ == $"),
        bound(40, "[1, 1]", "[$, $]", "[$, $].distinct() == []"),
        bound(40, "[1, 1]", "[$, $]", "dyn($).flatten(100) == []"),
        bound(40, "[1, 1]", "[$, $]", "'%s'.format([$]) == ''"),
        bound(40, "[1, 1]", "[$, $]", "dyn([$]).indexOf(1) == 0"),
        bound(40, "[1, 1]", "[$, $]", "[?dyn($)] == []"),
        "lists.range(1000000000).size() > 0",
        "lists.range(199999).distinct().size() > 0",
        "lists.range(199999).sort().size() > 0",
        "'%.999999999f'.format([1.0]) == ''",
        "'%.999999999e'.format([1.0]) == ''",
    ],
)
def test_work_that_upstream_counts_as_one_step_is_bounded(text: str) -> None:
    with pytest.raises(CostError, match="operation cancelled: actual cost limit exceeded"):
        cost_of(text)


def test_values_nested_deeper_than_their_text_cost_too_much() -> None:
    text = bound(60, "dyn([1])", "dyn(" + "[" * 70 + "$" + "]" * 70 + ")", "$ == $")
    with pytest.raises(CostError):
        cost_of(text)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    "text",
    [
        bound(40, "{1: 1}", "{$: $}", "$ == $"),
        bound(40, "[1]", "[" * 110 + "$" + "]" * 110, "$ == $"),
        bound(40, "{1: 1}", "{$: $}", "$ == 'a'"),
    ],
)
def test_types_without_end_are_refused(text: str) -> None:
    with pytest.raises(CelError, match="the types of its values are nested too deeply"):
        cost_of(text)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("getHours('" + "1" * 5000 + ":00')", "value out of range"),
        ("getHours('99999999999:00')", "timestamp overflow"),
        ("getHours('+23:00')", "timestamp overflow"),
        ("getHours('../UTC')", "time: invalid location name"),
        ("getHours('/etc/localtime')", "time: invalid location name"),
        ("getHours('Mars/Olympus')", "unknown time zone Mars/Olympus"),
    ],
)
def test_times_out_of_range_are_errors_of_the_language(text: str, want: str) -> None:
    with pytest.raises(EvalError, match=want):
        cost_of(f"timestamp('9999-12-31T23:59:59Z').{text} == 1")


def test_precision_of_a_text_is_a_number_of_64_bits() -> None:
    with pytest.raises(CelError, match="value out of range"):
        cost_of("'%.99999999999999999999f'.format([1.0]) == ''")


def test_threads_evaluate_deep_expressions_at_once() -> None:
    limit = sys.getrecursionlimit()
    program = ENVIRONMENT.compile("[" * 200 + "1" + "].map(x, x)" * 200 + " == []", ("bool",))
    start = threading.Barrier(4)

    def evaluate(_: int) -> bool:
        start.wait()
        return all(program.evaluate()[0] is False for _ in range(10))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(evaluate, range(4)))
    assert sys.getrecursionlimit() == limit


def test_every_type_that_only_functions_look_into_knows_equal_values() -> None:
    assert {one.__name__ for one in Opaque.__subclasses__() if one.__abstractmethods__} == set()
    with pytest.raises(TypeError, match="abstract"):
        Opaque()  # type: ignore[abstract]
