"""What a child writes -> the last lines of it, and a bounded number of lines in the host's log.

Standard error is the child's log: a ring of its last lines explains an early end, and at most so many lines
a second go on to the host's own log; the number of the others follows when their second is over, or the
child. Records of berth-sdk's own log become lines. Standard output says one line and is then thrown away. A
child that floods either costs time in proportion to nothing but what it writes.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from berth_host.log import get_logger
from berth_host.rpc.served.statuses import plain

KEPT_LINES: Final = 200
MAX_LINE_BYTES: Final = 64 * 1024
"""A record of berth-sdk's log is one line, and may hold a traceback."""
LINES_PER_S: Final = 50
WINDOW_S: Final = 1.0
_CHUNK_BYTES: Final = 64 * 1024
_MAX_SHOWN: Final = 4096
_OF_BERTH_SDK: Final = frozenset({"timestamp", "level", "logger", "event"})
_QUIET: Final = frozenset({"debug", "info"})
_LOG = get_logger()
Later: TypeAlias = Callable[[float, Callable[[], None]], object]


def _on_the_loop(delay_s: float, call: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(delay_s, call)


class OutputLog:
    """Lines of one child's standard error. `lines`: the last ones; `dropped`: not passed on to the log."""

    def __init__(
        self, plugins: str, clock: Callable[[], float] = time.monotonic, later: Later = _on_the_loop
    ) -> None:
        """`clock`: monotonic seconds; `later`: calls back after so many seconds, on the loop."""
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self.dropped = 0
        self._plugins = plugins
        self._clock = clock
        self._later = later
        self._window_s = 0.0
        self._in_window = 0
        self._dropped_in_window = 0

    async def follow(self, stream: asyncio.StreamReader) -> None:
        """Take every line of the stream, until it ends; then say what was left out."""
        try:
            await read_lines(stream, self.add)
        finally:
            self.report_dropped()

    def add(self, line: bytes) -> None:
        """One line, cut to 64 KiB; a record of berth-sdk's log may be several."""
        text = line[:MAX_LINE_BYTES].decode(errors="replace").rstrip()
        if not text:
            return
        now_s = self._clock()
        if now_s - self._window_s >= WINDOW_S:
            self.report_dropped()
            self._window_s, self._in_window = now_s, 0
        shown, fields = _shown(text)
        if fields.get("plugin_level") not in _QUIET:
            self.lines.append(_reason(shown))
        # A traceback comes whole or not at all.
        if self._in_window and self._in_window + len(shown) > LINES_PER_S:
            if not self._dropped_in_window:
                self._later(self._window_s + WINDOW_S - now_s, self.report_dropped)
            self.dropped += len(shown)
            self._dropped_in_window += len(shown)
            return
        self._in_window += len(shown)
        for one in shown:
            _LOG.info("plugin.logged", plugin=self._plugins, line=one, **fields)

    def report_dropped(self) -> None:
        """Say how many lines were left out, if any were since this was said."""
        if self._dropped_in_window:
            _LOG.warning("plugin.log_dropped", plugin=self._plugins, lines=self._dropped_in_window)
            self._dropped_in_window = 0

    @property
    def last(self) -> str:
        """The last line that may explain an end, empty if there is none: berth-sdk's remarks do not."""
        return self.lines[-1] if self.lines else ""


def _shown(text: str) -> tuple[list[str], dict[str, str]]:
    """A line as it is; a record of berth-sdk's log as its event and the lines of its traceback, with its
    level.
    """
    record = _record(text)
    if record is None:
        return [plain(text[:_MAX_SHOWN])], {}
    said = f"{record['event']}\n{record.get('exception') or ''}"
    lines = [plain(line[:_MAX_SHOWN]) for line in said.splitlines() if line.strip()]
    return lines or [plain(text[:_MAX_SHOWN])], {"plugin_level": str(record["level"])}


def _record(text: str) -> dict[str, Any] | None:
    """A record as `berth-sdk serve` writes it for its host. Other plugins' JSON is a line like any other."""
    if not text.startswith("{"):
        return None
    try:
        parsed = json.loads(text)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) and parsed.keys() >= _OF_BERTH_SDK else None


def _reason(lines: list[str]) -> str:
    """The event, and the error under its traceback unless the event has it."""
    first, last = lines[0], lines[-1]
    return first if last in first else f"{first}: {last}"


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
