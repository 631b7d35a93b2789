"""Audit lines for refused calls: bounded, and without what the caller should not have said."""

from __future__ import annotations

from berth_host.handle.refusals import MAX_NAME_BYTES, Refusals
from berth_host.model.sparing_lines import BURST_LINES
from structlog.testing import capture_logs


def test_audit_lines_are_limited_and_the_next_one_has_the_number_of_missing_lines() -> None:
    now_s = 5.0
    refusals = Refusals(lambda: now_s)
    with capture_logs() as lines:
        for _ in range(int(BURST_LINES) + 7):
            refusals.note("Demo", "Requeue", "unix:", "no token")
        assert len(lines) == BURST_LINES
        now_s += 1.0
        refusals.note("x" * 1000, "Requeue", "unix:", "no token")
    assert lines[0] == {
        "event": "audit.call_refused",
        "log_level": "warning",
        "plugin": "Demo",
        "call": "Requeue",
        "peer": "unix:",
        "reason": "no token",
        "left_out": 0,
    }
    assert lines[-1]["left_out"] == 7
    assert len(lines[-1]["plugin"].encode()) <= MAX_NAME_BYTES
