"""`TestClock`: the time of a test, which moves when the test says so."""

from __future__ import annotations

from typing import Final

START_S: Final = 1_767_225_600.0
"""2026-01-01T00:00:00Z in Unix seconds."""


class TestClock:
    """The time, `now_s`: Unix seconds."""

    __test__ = False  # pytest takes classes of this name for tests

    def __init__(self, now_s: float = START_S) -> None:
        self.now_s = now_s
