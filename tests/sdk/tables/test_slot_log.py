"""A reader of the log gets every entry, or None when the log has dropped some."""

from __future__ import annotations

from berth_sdk.tables.slot_log import RecentLog, SlotLog
from hypothesis import given
from hypothesis import strategies as st

STEPS = st.lists(st.sampled_from(["add", "read", "forget"]), max_size=60)


@given(steps=STEPS, limit=st.integers(1, 5))
def test_a_reader_gets_every_entry_or_none(steps: list[str], limit: int) -> None:
    log: RecentLog[int] = RecentLog(limit)
    unseen: list[int] = []
    position, is_sure = log.position, True
    for number, step in enumerate(steps):
        if step == "add":
            log.add(number)
            unseen.append(number)
        elif step == "forget":
            log.forget()
            is_sure = False
        else:
            got = log.since(position)
            if got is None:
                assert not is_sure or len(unseen) > limit
            else:
                assert is_sure
                assert got == unseen
            unseen, position, is_sure = [], log.position, True


def test_a_log_keeps_at_least_its_limit_and_drops_older_entries() -> None:
    log = SlotLog(limit=3)
    begin = log.position
    for slot in range(7):
        log.add(slot)
    assert log.since(begin) is None
    assert log.since(log.position - 3) == [4, 5, 6]
    assert log.since(log.position) == []
