"""The message of an unschedulable pod."""

from __future__ import annotations

from berth_host.explain.fit_error import fit_error_message


def test_reasons_sort_as_strings_behind_their_counts() -> None:
    got = fit_error_message(12, {"y": 2, "x": 10}, post_filter_message="preemption: no")
    assert got == "0/12 nodes are available: 10 x, 2 y. preemption: no"


def test_pre_filter_message_replaces_the_histogram() -> None:
    got = fit_error_message(3, {"x": 3}, pre_filter_message="node(s) didn't satisfy plugin A")
    assert got == "0/3 nodes are available: node(s) didn't satisfy plugin A."


def test_without_any_reason_the_sentence_ends_after_the_colon() -> None:
    assert fit_error_message(3, {}) == "0/3 nodes are available:"
