"""Statuses as numbers: SUCCESS is 0, equal ones have one number, and a copy goes its own way."""

from __future__ import annotations

from berth_sdk.kept.status_codes import StatusCodes
from berth_sdk.status import SUCCESS, Status

FULL, TAINTED = Status.unschedulable("full"), Status.unresolvable("tainted")


def test_numbers_are_given_in_the_order_of_appearance_and_read_back() -> None:
    codes = StatusCodes()
    given = [codes.encode(status) for status in (FULL, SUCCESS, TAINTED, Status.unschedulable("full"))]
    assert given == [1, 0, 2, 1]
    assert [codes.statuses[code] for code in given] == [FULL, SUCCESS, TAINTED, FULL]
    assert len(codes) == 3


def test_a_copy_keeps_the_numbers_and_grows_alone() -> None:
    codes = StatusCodes()
    codes.encode(FULL)
    copied = codes.copy()
    assert (copied.encode(FULL), copied.encode(TAINTED)) == (1, 2)
    assert codes.statuses == [SUCCESS, FULL]
    assert codes.encode(Status.unschedulable("other")) == 2


def test_one_set_of_numbers_knows_nothing_of_another() -> None:
    StatusCodes().encode(FULL)
    assert StatusCodes().encode(TAINTED) == 1
