"""`Trace`: what happened in a life, a line each, in virtual time; the same for the same seed and commit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable


class Trace:
    """The lines of a life. `keeps` False: only their number and their digest are kept."""

    def __init__(self, now_s: Callable[[], float], *, keeps: bool = True) -> None:
        self.lines: list[str] = []
        self.count = 0
        self._now_s = now_s
        self._keeps = keeps
        self._digest = hashlib.sha256()

    def add(self, text: str) -> None:
        """Add a line, with the time before it."""
        line = f"{self._now_s():.6f} {text}"
        self.count += 1
        self._digest.update(line.encode() + b"\n")
        if self._keeps:
            self.lines.append(line)

    @property
    def digest(self) -> str:
        """The SHA-256 of all lines, as hexadecimal digits."""
        return self._digest.hexdigest()
