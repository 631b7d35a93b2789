"""Answers that came before their call, found again for the nodes that are left."""

from __future__ import annotations

import numpy as np
from berth_host.attempt.call_record import EarlyScores, EarlyVerdicts
from berth_host.rpc.early_answers import early_scores, early_verdicts
from berth_sdk.status import Status, Verdicts
from hypothesis import given
from hypothesis import strategies as st

ROWS = st.lists(st.integers(0, 30), unique=True, max_size=12)


def rows(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    return np.asarray(values, dtype=np.intp)


@given(st.lists(ROWS, max_size=4), ROWS)
def test_latest_score_of_each_slot_counts_and_one_unknown_slot_asks_anew(
    batches: list[list[int]], wanted: list[int]
) -> None:
    answers = []
    latest: dict[int, int] = {}
    for number, batch in enumerate(batches):
        scores = [1000 * number + slot for slot in batch]
        latest.update(zip(batch, scores, strict=True))
        answers.append(EarlyScores(rows(batch), np.asarray(scores, dtype=np.int64)))
    got = early_scores(answers, rows(wanted))
    if wanted and all(slot in latest for slot in wanted):
        assert got is not None
        assert got.tolist() == [latest[slot] for slot in wanted]
    else:
        assert got is None


def test_verdicts_are_taken_for_the_rows_that_are_left() -> None:
    refused = Status.unschedulable("no")
    verdicts = Verdicts.reject_where(np.asarray([True, False, True]), refused)
    answer = EarlyVerdicts(rows([4, 7, 9]), verdicts)
    got = early_verdicts(answer, rows([9, 7]))
    assert got is not None
    assert got.to_list() == [refused, Status.success()]
    assert early_verdicts(answer, rows([4, 8])) is None
    assert early_verdicts(None, rows([4])) is None
