"""The verdict of a case, and the JSON of a row."""

from __future__ import annotations

from dataclasses import replace

import pytest
from berth_bench.hostile.figures import Answer, Attempt, Row, Side

BOUND = Answer.BOUND


def side(attempt_s: float, following_s: float = 0.01, answer: Answer = BOUND) -> Side:
    following = Attempt(cpu_s=following_s, answer=BOUND)
    return Side(attempt=Attempt(cpu_s=attempt_s, answer=answer), following=following)


def row(kube: Side | None, berth: Side | None, hold_s: float = 0.0) -> Row:
    return Row(case="pod/labels", nodes=300, size=9, size_bytes=99, kube=kube, berth=berth, hold_s=hold_s)


@pytest.mark.parametrize(
    ("kube", "berth", "hold_s", "verdict"),
    [
        (side(0.4), side(1.2), 0.25, "ok"),
        (side(0.4), side(1.3), 0.0, "attempt: CPU"),
        (side(0.001), side(0.2), 0.0, "ok"),
        (side(0.001), side(0.21), 0.0, "attempt: CPU"),
        (side(0.1, 0.1), side(0.1, 0.31), 0.0, "following: CPU"),
        (side(0.4), side(0.4), 0.26, "hold"),
        (side(0.4), side(0.4, answer=Answer.NONE), 0.0, "attempt: no answer"),
        (side(0.4), side(0.4, answer=Answer.UNSCHEDULABLE), 0.0, "attempt: unschedulable, not bound"),
        # What kube-scheduler itself does not answer is no measure.
        (side(9.0, answer=Answer.NONE), side(30.0), 0.0, "ok"),
        (None, side(0.2), 0.0, "ok"),
        (None, side(0.3), 0.0, "not compared"),
        (None, side(0.3), 0.3, "hold"),
        (None, None, 0.0, "refused"),
    ],
)
def test_verdict_says_which_limit_was_not_kept(
    kube: Side | None, berth: Side | None, hold_s: float, verdict: str
) -> None:
    assert row(kube, berth, hold_s).verdict == verdict


def test_ratio_is_of_cpu_and_missing_without_an_answer_or_any_cpu() -> None:
    assert row(side(0.4), side(1.0)).ratio == 2.5
    assert row(side(0.0), side(1.0)).ratio is None
    assert row(side(0.4, answer=Answer.NONE), side(1.0)).ratio is None
    assert row(None, side(1.0)).ratio is None
    assert row(side(0.4, 0.2), side(1.0, 0.1)).following_ratio == 0.5


def test_json_has_both_sides_and_the_command() -> None:
    one = replace(row(side(0.4), side(1.0), 0.12345), held_by="run", limited_by="Too long")
    line = one.as_json("berth bench hostile pod/labels")
    assert line["kube"] == {
        "attempt": {"cpu_s": 0.4, "answer": "bound"},
        "following": {"cpu_s": 0.01, "answer": "bound"},
    }
    assert (line["ratio"], line["hold_s"], line["held_by"], line["verdict"]) == (2.5, 0.1235, "run", "ok")
    assert line["limited_by"] == "Too long"
    assert line["command"] == "berth bench hostile pod/labels"
    assert row(None, None).as_json("")["berth"] is None
