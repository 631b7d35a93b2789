"""Lines that anybody can cause are at most one per second."""

from __future__ import annotations

import logging

import pytest
from berth_sdk.serve.quiet_lines import LINE_EVERY_S, QuietLines


def test_lines_that_were_left_out_are_counted_in_the_next_one(caplog: pytest.LogCaptureFixture) -> None:
    now_s = [5.0]
    lines = QuietLines(logging.getLogger("port"), lambda: now_s[0])
    for at in range(7):
        lines.tell("line %d", at)
    now_s[0] += LINE_EVERY_S
    lines.tell("line %s", "last")
    assert [record.getMessage() for record in caplog.records] == ["line 0", "line last (6 lines left out)"]
