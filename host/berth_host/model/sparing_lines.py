"""`SparingLines`: a limit on the log lines of one kind, for what callers without rights can make the log say.

The next line that is written says how many were left out, and so does the metric
`berth_log_lines_left_out_total`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from berth_sdk.clocks import monotonic_s

from berth_host.model.token_bucket import TokenBucket

LINES_PER_S: Final = 1.0
BURST_LINES: Final = 10.0


class SparingLines:
    """The limit of one kind of lines. `clock`: monotonic seconds."""

    def __init__(
        self,
        clock: Callable[[], float] = monotonic_s,
        *,
        per_s: float = LINES_PER_S,
        burst: float = BURST_LINES,
    ) -> None:
        self._bucket = TokenBucket(per_s, burst, clock)
        self._left_out = 0
        self.left_out_count = 0
        """The number of all lines that were left out."""

    def take(self) -> int | None:
        """Return the number of lines left out before this one, to be written with it; None: leave this one
        out, too.
        """
        if self._bucket.take() > 0:
            self._left_out += 1
            self.left_out_count += 1
            return None
        left_out, self._left_out = self._left_out, 0
        return left_out
