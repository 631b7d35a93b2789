"""Audit lines for refused calls of HandleService: the caller, the call and the reason, never the token.

Whoever reaches the socket may ask as often as it likes, so the lines are limited, and the next one says how
many were left out. Written by `HandleService`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from berth_host.log import get_logger
from berth_host.model.sparing_lines import SparingLines
from berth_host.rpc.served.statuses import cut

MAX_NAME_BYTES: Final = 64
_LOG = get_logger()


class Refusals:
    """`clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._lines = SparingLines(clock)

    def note(self, plugin: str, call: str, peer: str, why: str) -> None:
        """`plugin`: the name that the caller gave, which may be anything."""
        left_out = self._lines.take()
        if left_out is None:
            return
        _LOG.warning(
            "audit.call_refused",
            plugin=cut(plugin, MAX_NAME_BYTES),
            call=call,
            peer=peer,
            reason=why,
            left_out=left_out,
        )
