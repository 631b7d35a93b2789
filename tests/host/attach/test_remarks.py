"""Warnings about an instance: each once, bounded in size and number."""

from __future__ import annotations

from berth_host.attach.remarks import MAX_REMARK_BYTES, MAX_REMARKS, MORE, Remarks


def test_each_warning_is_kept_once_in_order() -> None:
    remarks = Remarks()
    for text in ("b", "a", "b"):
        remarks.add(text)
    assert remarks.texts == ["b", "a"]


def test_a_flood_of_warnings_is_bounded_and_the_last_one_says_so() -> None:
    remarks = Remarks()
    for number in range(1000):
        remarks.add(f"{number} " + "é" * MAX_REMARK_BYTES)
    assert len(remarks.texts) == MAX_REMARKS + 1
    assert remarks.texts[-1] == MORE
    assert max(len(text.encode()) for text in remarks.texts) <= MAX_REMARK_BYTES
    assert [text.split()[0] for text in remarks.texts[:2]] == ["0", "1"]
