"""Verdicts: single ones, and groups over a table."""

from __future__ import annotations

import numpy as np
import pytest
from berth_sdk.status import SUCCESS, Code, Status, Verdicts
from hypothesis import given
from hypothesis import strategies as st

A, B = Status.unschedulable("a"), Status.unresolvable("b")
statuses = st.lists(st.sampled_from([SUCCESS, A, B, Status.unschedulable("a", "c")]), max_size=8)


@pytest.mark.parametrize(
    ("code", "name", "rejected"),
    [
        (Code.SUCCESS, "Success", False),
        (Code.ERROR, "Error", False),
        (Code.UNSCHEDULABLE, "Unschedulable", True),
        (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "UnschedulableAndUnresolvable", True),
        (Code.WAIT, "Wait", False),
        (Code.SKIP, "Skip", False),
        (Code.PENDING, "Pending", True),
    ],
)
def test_codes_are_classified_as_success_or_rejection(code: Code, name: str, rejected: bool) -> None:
    status = Status(code)
    assert (code.kube_name, status.is_rejected, status.is_success) == (name, rejected, name == "Success")


def test_codes_have_kube_schedulers_numbers() -> None:
    assert [code.value for code in Code] == list(range(7))


def test_reasons_are_joined_and_signing_keeps_them() -> None:
    status = Status.unschedulable("Insufficient cpu", "Too many pods")
    assert status.message == "Insufficient cpu, Too many pods"
    signed = status.with_plugin("Fit")
    assert (signed.code, signed.reasons, signed.plugin) == (status.code, status.reasons, "Fit")
    assert signed.with_plugin("Fit") is signed


@given(statuses)
def test_groups_have_a_status_for_every_row(rows: list[Status]) -> None:
    verdicts = Verdicts.of(rows)
    assert verdicts.to_list() == rows
    assert [verdicts.status(i) for i in range(len(rows))] == rows
    assert verdicts.passed.tolist() == [row.is_success for row in rows]
    assert verdicts.all_passed is all(row.is_success for row in rows)
    assert len(verdicts.statuses) == len({*rows, SUCCESS})
    back = list(range(len(rows) - 1, -1, -1))
    assert verdicts.take(back).to_list() == rows[::-1]


@given(statuses, st.data())
def test_later_check_changes_only_rows_that_passed_earlier_ones(
    rows: list[Status], data: st.DataObject
) -> None:
    mask = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    late = Status.unresolvable("late")
    got = Verdicts.of(rows).otherwise(np.array(mask, dtype=np.bool_), late)
    want = [late if hit and row.is_success else row for row, hit in zip(rows, mask, strict=True)]
    assert got.to_list() == want


def test_short_forms_of_verdicts_cover_all_rows() -> None:
    assert Verdicts.feasible(2).to_list() == [SUCCESS] * 2
    assert Verdicts.all(2, A).to_list() == [A] * 2
    assert Verdicts.all(2, SUCCESS).all_passed
    assert Verdicts.reject_where(np.array([True, False]), B).to_list() == [B, SUCCESS]
    assert len(Verdicts.feasible(0)) == 0
