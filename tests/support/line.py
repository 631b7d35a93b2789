"""`Line`: a stream of calls without a plugin at the other end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any


class Line:
    """A stream that takes what is written and answers what the test says."""

    def __init__(self, answer: Callable[[], Awaitable[Any]]) -> None:
        self.read = answer

    def done(self) -> bool:
        return False

    def cancel(self) -> None:
        pass

    async def write(self, message: bytes) -> None:
        pass
