"""An event loop that runs the callbacks of each turn in a shuffled order.

Tests run the host on it: whatever still depends on the order in which tasks of one turn run, differs there.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import Any


class ShufflingLoop(asyncio.SelectorEventLoop):
    """The order is another one for each `seed`; a callback of a turn still runs before those of the next."""

    _ready: deque[Any]

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._shuffled = random.Random(seed)

    def _run_once(self) -> None:
        ready = list(self._ready)
        self._shuffled.shuffle(ready)
        self._ready.clear()
        self._ready.extend(ready)
        super()._run_once()  # type: ignore[misc]  # asyncio's own, which typeshed leaves out
