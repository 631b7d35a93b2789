"""Early answers are for quick plugins, and for pods that will probably need them."""

from __future__ import annotations

import pytest
from berth_sdk.runtime.worth import RETRY_EVERY, SAVED_S, Worth

QUICK_S = 0.2 * SAVED_S
SLOW_S = 5 * SAVED_S


def given(worth: Worth, calls: int, seconds: float) -> list[int]:
    """Which of so many calls are answered early, where that takes `seconds`."""
    answered: list[int] = []
    for number in range(calls):
        if worth.begins():
            worth.took(seconds)
            answered.append(number)
    return answered


def test_quick_answer_is_always_given() -> None:
    assert len(given(Worth(), 500, QUICK_S)) == 500


@pytest.mark.parametrize("seconds", [2 * SAVED_S, SLOW_S, 1000 * SAVED_S])
def test_answer_that_takes_longer_than_it_saves_is_soon_given_no_more(seconds: float) -> None:
    assert given(Worth(), RETRY_EVERY, seconds) == list(range(8))


@pytest.mark.parametrize("seconds", [2 * SAVED_S, SLOW_S])
def test_one_cancelled_call_that_was_slow_is_enough(seconds: float) -> None:
    worth = Worth()
    assert len(given(worth, 20, QUICK_S)) == 20
    assert worth.begins()
    worth.took(seconds, cancelled=True)
    assert given(worth, RETRY_EVERY - 1, QUICK_S) == []
    assert given(worth, 2, QUICK_S) == [0, 1]


def test_a_cancelled_call_that_was_quick_changes_nothing() -> None:
    worth = Worth()
    assert worth.begins()
    worth.took(QUICK_S, cancelled=True)
    assert len(given(worth, 20, QUICK_S)) == 20


def test_slow_calls_among_quick_ones_change_nothing() -> None:
    worth = Worth()
    for _ in range(20):
        assert len(given(worth, 8, QUICK_S)) == 8
        assert len(given(worth, 7, 100 * SAVED_S)) == 7


def test_it_is_tried_again_ever_more_rarely_and_kept_once_it_is_quick() -> None:
    worth = Worth()
    first = given(worth, 20, SLOW_S)
    tries = given(worth, 8 * RETRY_EVERY, SLOW_S)
    since = 20 - 1 - first[-1]
    assert [number + 1 + since for number in tries] == [RETRY_EVERY, 3 * RETRY_EVERY, 7 * RETRY_EVERY]
    later = given(worth, 20 * RETRY_EVERY, QUICK_S)
    assert later == list(range(later[0], 20 * RETRY_EVERY))


def test_pods_that_are_not_bound_need_less_of_it() -> None:
    worth = Worth()
    assert given(worth, 50, 0.5 * SAVED_S)
    for _ in range(50):
        worth.ended(bound=False)
    assert not given(worth, 50, 0.5 * SAVED_S)
    assert not worth.pays
    for _ in range(50):
        worth.ended(bound=True)
    assert worth.pays
