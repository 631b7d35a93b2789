"""`OutputLog`: a child's last lines, and a bounded number of its lines in the host's log.

Standard error is the child's log. Its last lines are kept, to explain an early end. At most LINES_PER_S lines
a second go to the host's log; the number of dropped lines is logged at the end of that second, or of the
child. Records of berth-sdk's log become lines. Standard output is read for one line, then discarded.
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
"""The longest line, in bytes. A record of berth-sdk's log is one line and may contain a traceback."""
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
    """The standard error of one child.

    `lines`: its last lines. `dropped`: the number of lines that were not logged.
    """

    def __init__(
        self, plugins: str, clock: Callable[[], float] = time.monotonic, later: Later = _on_the_loop
    ) -> None:
        """Create the log. `clock`: returns monotonic seconds. `later`: calls back after some seconds."""
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self.dropped = 0
        self._plugins = plugins
        self._clock = clock
        self._later = later
        self._window_s = 0.0
        self._in_window = 0
        self._dropped_in_window = 0

    async def follow(self, stream: asyncio.StreamReader) -> None:
        """Add every line of the stream until it ends; then log how many lines were dropped."""
        try:
            await read_lines(stream, self.add)
        finally:
            self.report_dropped()

    def add(self, line: bytes) -> None:
        """Add one line, cut to 64 KiB; a record of berth-sdk's log may become several lines."""
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
        # A traceback is logged whole or not at all.
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
        """Log how many lines were dropped since the last such report, if any."""
        if self._dropped_in_window:
            _LOG.warning("plugin.log_dropped", plugin=self._plugins, lines=self._dropped_in_window)
            self._dropped_in_window = 0

    @property
    def last(self) -> str:
        """The last line that may explain an end, without berth-sdk's info and debug lines; empty for none."""
        return self.lines[-1] if self.lines else ""


def _shown(text: str) -> tuple[list[str], dict[str, str]]:
    """Return the lines to log and their extra fields.

    A record of berth-sdk's log becomes its event and the lines of its traceback, with its level as a field.
    Any other line stays as it is.
    """
    record = _record(text)
    if record is None:
        return [plain(text[:_MAX_SHOWN])], {}
    said = f"{record['event']}\n{record.get('exception') or ''}"
    lines = [plain(line[:_MAX_SHOWN]) for line in said.splitlines() if line.strip()]
    return lines or [plain(text[:_MAX_SHOWN])], {"plugin_level": str(record["level"])}


def _record(text: str) -> dict[str, Any] | None:
    """Return the parsed record of berth-sdk's log; None for any other line, such as other JSON."""
    if not text.startswith("{"):
        return None
    try:
        parsed = json.loads(text)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) and parsed.keys() >= _OF_BERTH_SDK else None


def _reason(lines: list[str]) -> str:
    """Return the event, followed by the last line of its traceback unless the event contains that."""
    first, last = lines[0], lines[-1]
    return first if last in first else f"{first}: {last}"


async def read_lines(stream: asyncio.StreamReader, add: Callable[[bytes], None]) -> None:
    """Call `add` for every line of the stream until it ends; longer lines come in pieces."""
    rest = b""
    while chunk := await stream.read(_CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            add(line)
        while len(rest) > MAX_LINE_BYTES:
            add(rest[:MAX_LINE_BYTES])
            rest = rest[MAX_LINE_BYTES:]
        # A child that floods the pipe must not keep the loop from its other tasks.
        await asyncio.sleep(0)
    add(rest)


async def throw_away(stream: asyncio.StreamReader) -> None:
    """Read and discard the stream to its end, so that the writer never blocks."""
    await read_lines(stream, _ignore)


def _ignore(_line: bytes) -> None:
    return None
