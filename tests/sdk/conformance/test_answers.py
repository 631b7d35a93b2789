"""Two ways to the same answers are compared by what they say, whichever call brought it."""

from __future__ import annotations

from berth_sdk.conformance.answers import difference

EARLY = {"PreFilter.early_filter of n1, a pod": "full", "Filter.early_scores of n0, a pod": "10"}


def test_early_answer_is_that_of_the_later_call() -> None:
    assert difference(EARLY, {"Filter of n1, a pod": "full", "Score of n0, a pod": "10"}) == ""


def test_early_score_that_another_way_does_not_ask_for_is_not_compared() -> None:
    assert difference({**EARLY, "PreFilter.early_scores of n1, a pod": "3"}, EARLY) == ""


def test_other_verdict_or_score_is_a_difference() -> None:
    assert difference(EARLY, {"Filter of n1, a pod": "full", "Score of n0, a pod": "11"}) == (
        "Score of n0, a pod: '10', and then '11'"
    )
    assert (
        difference(EARLY, {"Score of n0, a pod": "10"}) == "Filter of n1, a pod: 'full', and then 'nothing'"
    )
