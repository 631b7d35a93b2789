"""Audit lines for refused calls of HandleService: the caller, the call and the reason, never the token.

Whoever reaches the socket may ask as often as it likes, so the lines are limited, and the next one says how
many were left out. Written by `HandleService`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from berth_host.handle.rates import TokenBucket
from berth_host.log import get_logger
from berth_host.rpc.served.statuses import cut

LINES_PER_S: Final = 1.0
BURST_LINES: Final = 10.0
MAX_NAME_BYTES: Final = 64
_LOG = get_logger()


class Refusals:
    """`clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._bucket = TokenBucket(LINES_PER_S, BURST_LINES, clock)
        self._left_out = 0

    def note(self, plugin: str, call: str, peer: str, why: str) -> None:
        """`plugin`: the name that the caller gave, which may be anything."""
        if self._bucket.take() > 0:
            self._left_out += 1
            return
        _LOG.warning(
            "audit.call_refused",
            plugin=cut(plugin, MAX_NAME_BYTES),
            call=call,
            peer=peer,
            reason=why,
            left_out=self._left_out,
        )
        self._left_out = 0
