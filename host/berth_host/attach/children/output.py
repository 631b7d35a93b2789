"""What a child writes -> the last lines of it, and a bounded number of lines in the host's log.

Standard error is the child's log: a ring of its last lines explains an early end, and at most so many lines
a second go on to the host's own log, structured if they parse. Standard output says one line and is then
thrown away. A child that floods either costs time in proportion to nothing but what it writes.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from berth_host.log import get_logger

KEPT_LINES: Final = 200
MAX_LINE_BYTES: Final = 4096
LINES_PER_S: Final = 50
_CHUNK_BYTES: Final = 64 * 1024
_LOG = get_logger()


class OutputLog:
    """Lines of one child's standard error. `lines`: the last ones; `dropped`: not passed on to the log."""

    def __init__(self, plugins: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self.dropped = 0
        self._plugins = plugins
        self._clock = clock
        self._window_s = 0.0
        self._in_window = 0
        self._dropped_in_window = 0

    def add(self, line: bytes) -> None:
        """One line, cut to 4 KiB."""
        text = line[:MAX_LINE_BYTES].decode(errors="replace").rstrip()
        if not text:
            return
        self.lines.append(text)
        now_s = self._clock()
        if now_s - self._window_s >= 1.0:
            self._report_drops()
            self._window_s, self._in_window = now_s, 0
        self._in_window += 1
        if self._in_window > LINES_PER_S:
            self.dropped += 1
            self._dropped_in_window += 1
            return
        _LOG.info("plugin.logged", plugin=self._plugins, **_fields(text))

    def _report_drops(self) -> None:
        if self._dropped_in_window:
            _LOG.warning("plugin.log_dropped", plugin=self._plugins, lines=self._dropped_in_window)
            self._dropped_in_window = 0

    @property
    def last(self) -> str:
        """The last line, empty if there is none."""
        return self.lines[-1] if self.lines else ""


def _fields(text: str) -> dict[str, Any]:
    if text.startswith("{"):
        try:
            parsed = json.loads(text)
        except ValueError:
            parsed = None
        if isinstance(parsed, dict):
            return {"record": parsed}
    return {"line": text}


async def read_lines(stream: asyncio.StreamReader, add: Callable[[bytes], None]) -> None:
    """Hand every line of the stream over, those that are too long in pieces, until it ends."""
    rest = b""
    while chunk := await stream.read(_CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            add(line)
        while len(rest) > MAX_LINE_BYTES:
            add(rest[:MAX_LINE_BYTES])
            rest = rest[MAX_LINE_BYTES:]
        # A flood fills the pipe faster than it is read: let the others have a turn.
        await asyncio.sleep(0)
    add(rest)


async def throw_away(stream: asyncio.StreamReader) -> None:
    """Read to the end, so that the writer never blocks."""
    await read_lines(stream, _ignore)


def _ignore(_line: bytes) -> None:
    return None
