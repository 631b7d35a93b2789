"""`tell_waits`: for which plugins a run is waiting, while it waits. Called by `simulation`.

A plugin that was lost may come back, and for up to a minute nothing else moves: a user who sees nothing
cannot tell that from a command that hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from berth_host.attach.attachments import RESTORING_S

LOOK_S: Final = 2.0
"""What is back by the next look was not worth a line."""


class _Place(Protocol):
    @property
    def title(self) -> str: ...


class Awaited(Protocol):
    """Where a plugin may still come back: an `Attachment`."""

    @property
    def place(self) -> _Place:
        """Where it should be."""
        ...

    @property
    def served(self) -> tuple[str, ...]:
        """The plugins there."""
        ...

    @property
    def reason(self) -> str:
        """Why it is not there."""
        ...


async def tell_waits(awaited: Callable[[], Iterable[Awaited]], say: Callable[[str], None]) -> None:
    """Until it is cancelled. Each place is told once, when it is `awaited` at two looks in a row."""
    told: set[str] = set()
    before: set[str] = set()
    while True:
        await asyncio.sleep(LOOK_S)
        now = {one.place.title: one for one in awaited()}
        for title in sorted(now.keys() & before - told):
            told.add(title)
            names = ", ".join(now[title].served)
            why = now[title].reason or "it has not answered yet"
            say(f"waiting for plugin {names} ({title}), at most {RESTORING_S:.0f} s each time: {why}")
        before = set(now)
