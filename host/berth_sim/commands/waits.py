"""`tell_waits`: reports the plugins that a run waits for. `simulation` calls it.

A lost plugin may come back. A run waits for it for up to a minute. Without a report, a user would think that
the command hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from berth_host.attach.attachments import RESTORING_S

LOOK_S: Final = 2.0
"""Seconds between two checks. A wait that ends before the second check is not reported."""


class _Place(Protocol):
    @property
    def title(self) -> str: ...


class Awaited(Protocol):
    """An `Attachment` whose plugins may still come back."""

    @property
    def place(self) -> _Place:
        """The place of the attachment."""
        ...

    @property
    def served(self) -> tuple[str, ...]:
        """The plugins of the attachment."""
        ...

    @property
    def reason(self) -> str:
        """The reason why the plugins are not attached."""
        ...


async def tell_waits(awaited: Callable[[], Iterable[Awaited]], say: Callable[[str], None]) -> None:
    """Report what the run waits for, until cancelled.

    Reports a place once, after two consecutive checks with the place in `awaited`.
    """
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
