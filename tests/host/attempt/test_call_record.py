"""What a call needs of its cycle: the plugins' parts, and the budget of served calls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from berth_host.attempt.call_record import CycleRecord
from berth_sdk import clocks


class Clocks(clocks.MachineClocks):
    """The machine's clocks, but for the monotonic one, which is set by hand."""

    def __init__(self, at: list[float]) -> None:
        self.monotonic_s = lambda: at[0]


@pytest.fixture
def now_s() -> Iterator[list[float]]:
    at = [100.0]
    with clocks.replaced(Clocks(at)):
        yield at


def test_time_in_which_calls_overlap_counts_once(now_s: list[float]) -> None:
    record = CycleRecord("c", None, "default-scheduler", 1.0)
    record.served_call_begins()
    now_s[0] += 0.25
    record.served_call_begins()
    now_s[0] += 0.25
    assert record.budget_left_s == 0.5
    record.served_call_ends()
    record.served_call_ends()
    now_s[0] += 10
    assert record.budget_left_s == 0.5


def test_the_groups_record_pays_for_its_members(now_s: list[float]) -> None:
    group = CycleRecord("g", None, "default-scheduler", 3.0)
    member = CycleRecord("g/m", None, "default-scheduler", 1.0)
    member.parent = member.payer = group
    member.served_call_begins()
    now_s[0] += 2
    member.served_call_ends()
    assert (member.budget_left_s, group.budget_left_s) == (1.0, 1.0)


def test_a_cycle_restarts_unless_it_or_the_groups_cycle_reserved_or_restarted() -> None:
    group, member = (CycleRecord(name, None, "p", 1.0) for name in ("g", "m"))
    member.parent = group
    assert member.may_restart
    group.reserved = True
    assert not member.may_restart
    group.reserved, member.restarted = False, True
    assert not member.may_restart
    assert group.may_restart


def test_calls_of_a_member_go_where_the_groups_first_call_went() -> None:
    group, member = (CycleRecord(name, None, "p", 1.0) for name in ("g", "m"))
    member.parent = group
    assert member.instance("P") is None
    group.part("P").instance = "first"
    assert member.instance("P") == "first"
    member.part("P").is_lost = True
    assert (member.lost, group.lost, member.root) == ("P", "", group)
