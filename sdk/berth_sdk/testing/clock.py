"""`TestClock`: the time of a test, which only the test advances."""

from __future__ import annotations

from typing import Final

START_S: Final = 1_767_225_600.0
"""2026-01-01T00:00:00Z in Unix seconds."""


class TestClock:
    """A clock that the test sets. `now_s`: Unix seconds."""

    __test__ = False  # pytest collects classes with this prefix as tests

    def __init__(self, now_s: float = START_S) -> None:
        self.now_s = now_s
