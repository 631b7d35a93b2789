"""`QuietLines`: warnings that anybody who reaches a port can cause, at most one per second."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Final

from berth_sdk.clocks import monotonic_s

LINE_EVERY_S: Final = 1.0


class QuietLines:
    """The lines of one port; each says how many were left out before it. `log`: writes them."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = monotonic_s) -> None:
        """`clock`: monotonic seconds."""
        self._log = log
        self._clock = clock
        self._told_s = -math.inf
        self._left_out = 0

    def tell(self, text: str, *values: object) -> None:
        """Write a warning, unless there was one in the last second."""
        now_s = self._clock()
        if now_s - self._told_s < LINE_EVERY_S:
            self._left_out += 1
            return
        more = f" ({self._left_out} lines left out)" if self._left_out else ""
        self._told_s, self._left_out = now_s, 0
        self._log.warning(f"{text}%s", *values, more)
