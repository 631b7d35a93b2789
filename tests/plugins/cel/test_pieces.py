"""Evaluations in pieces: where a piece ends changes no result, and no expression goes on without an end."""

from __future__ import annotations

import sys
import threading
from functools import partial
from typing import Any

import pytest
from berth_plugins.cel import pieces, planner
from berth_plugins.cel.errors import CelError, EvalError
from berth_plugins.cel.pieces import PIECE, count, in_pieces
from berth_sdk.slices import Work, at_once

from plugins.cel.test_hostile import ENVIRONMENT, bound
from plugins.cel.test_recorded import RECORDS, answer


def pieces_of(work: Work[Any]) -> int:
    """Return the number of times that others get their turn."""
    return sum(1 for _ in work)


def evaluated(text: str) -> str:
    try:
        return str(ENVIRONMENT.compile(text, ("bool",)).evaluate())
    except CelError as err:
        return str(err)


def test_a_short_function_runs_at_once_in_its_callers_thread() -> None:
    def function() -> threading.Thread:
        count(PIECE)
        return threading.current_thread()

    work = in_pieces(function)
    with pytest.raises(StopIteration) as ended:
        next(work)
    assert ended.value.value is threading.current_thread()


def test_a_long_function_runs_only_while_its_caller_waits() -> None:
    order: list[str] = []

    def function() -> str:
        for i in range(3):
            order.append(f"work {i}")
            count(PIECE + 1)
        return "done"

    work = in_pieces(function)
    for _ in work:
        order.append("others")
    assert order == ["work 0", "others", "work 0", "others", "work 1", "others", "work 2", "others"]
    assert at_once(in_pieces(function)) == "done"


def test_what_a_function_raises_reaches_its_caller() -> None:
    def function() -> None:
        count(PIECE + 1)
        raise EvalError("divided by zero")

    with pytest.raises(EvalError, match="divided by zero"):
        at_once(in_pieces(function))


def test_a_function_that_is_given_up_ends_with_its_thread() -> None:
    ended: list[bool] = []

    def function() -> None:
        try:
            while True:
                count(PIECE + 1)
        except Exception:  # noqa: BLE001 - what functions of the language do
            ended.append(False)
        finally:
            ended.append(True)

    threads = threading.active_count()
    work = in_pieces(function)
    next(work)
    next(work)
    assert threading.active_count() == threads + 1
    work.close()
    assert threading.active_count() == threads
    assert ended == [True, True]  # the first run ended when it was too long


def test_others_have_their_own_limit_of_recursion_between_two_pieces() -> None:
    limit = sys.getrecursionlimit()
    limits = set()
    nested = ENVIRONMENT.compile("[" * 200 + "1" + "].map(x, x)" * 200 + " == []", ("bool",))

    def deep(levels: int) -> int:
        count(100)
        return 0 if levels == 0 else 1 + deep(levels - 1)

    assert limit < 5000
    work = in_pieces(lambda: deep(5000))
    while True:
        try:
            next(work)
        except StopIteration as ended:
            assert ended.value == 5000
            break
        limits.add(sys.getrecursionlimit())
        assert nested.evaluate()[0] is False
    assert limits == {limit}


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("lists.range(20000).all(x, x >= 0)", 20),
        ("lists.range(140).all(x, lists.range(140).all(y, x + y >= 0))", 30),
        ("lists.range(600).distinct().size() > 0", 40),
        ("lists.range(9000).map(x, -x).sort().size() > 0", 20),
        ("lists.range(40000).sum() > 0", 10),
        ("lists.range(40000).max() > 0", 10),
        ("lists.range(40000).isSorted()", 10),
        ("39999 in dyn(lists.range(40000))", 10),
        ("lists.range(40000) == lists.range(40000)", 12),
        ("lists.range(40000).indexOf(39999) > 0", 10),
        ("lists.range(40000).lastIndexOf(0) == 0", 10),
        (bound(14, "'0123456789'", "$ + $", "'%s'.format([[$]]) == ''"), 20),
        (bound(40, "[1, 1]", "[$, $]", "'%s'.format([$]) == ''"), 40),
        (" || ".join(["[1].all(x, x > 1)"] * 480), 80),
        ("[" + ",".join(["1"] * 4000) + "].size() == 4000", 40),
        ("x+" * 5000, 12),
    ],
)
def test_no_work_of_an_expression_is_one_piece(text: str, least: int) -> None:
    assert pieces_of(in_pieces(lambda: evaluated(text))) >= least


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces end at every turn of a fold."""
    monkeypatch.setattr(pieces, "PIECE", 3)
    monkeypatch.setattr(planner, "PIECE", 3)


@pytest.mark.usefixtures("tiny")
def test_expressions_in_tiny_pieces_end_as_in_kube_scheduler() -> None:
    divided = 0
    for record in RECORDS:
        work = in_pieces(partial(answer, record["expr"]))
        while True:
            try:
                next(work)
            except StopIteration as ended:
                assert ended.value == record
                break
            divided += 1
    assert divided > 10 * len(RECORDS)
