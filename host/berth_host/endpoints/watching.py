"""`Watches`: answers of `/berth/v1` with `watch=true`: the answer, then its changes, as server-sent events.

    event: state    the whole answer without its list, the first rows of the list, and the host's time
    event: change   what differs from before: the answer without its list, changed rows, keys of removed rows
    event: at       the host's time, once per look
    event: problem  a Status object: the answer cannot be made now

The answer is made again once per period, for all its readers together, and only while it has a reader. Each
reader gets the difference to what this reader got last, so a slow reader skips states.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from berth_host.endpoints.request_response import NO_SNIFF, Answer, Request, failure

CONTENT_TYPE: Final = "text/event-stream"
PERIOD_S: Final = 1.0
"""Seconds between two looks; more where the answer takes long to make, see SHARE."""
SHARE: Final = 20
"""The pause after a look is at least this many times as long as the look, and at most MOST_PAUSE_S."""
MOST_PAUSE_S: Final = 15.0
"""The most seconds between looks. The page and `kubectl berth ui` leave a stream silent for 30 s."""
STREAM_S: Final = 300.0
"""Seconds after which a stream ends. The browser asks again, and its right is checked again."""
MOST_READERS: Final = 64
ROWS_PER_EVENT: Final = 500
"""The most rows of one event, so that the page draws between two events."""

Value = dict[str, Any]
Make = Callable[[Request], Awaitable[Value | Answer]]
_AT: Final = "answeredAt"


@dataclass(frozen=True, slots=True)
class Listed:
    """The list of an answer: its name, and the key of its rows; a number for rows that are lists."""

    name: str
    key: str | int


@dataclass(frozen=True, slots=True)
class _Look:
    """An answer, when it was begun (the loop's clock), and the seconds that it took."""

    began_s: float
    took_s: float
    value: Value | Answer


class Watches:
    """The streams of a process. `lists`: the list of each path that has one. `make`: makes an answer."""

    def __init__(self, make: Make, lists: Mapping[str, Listed], period_s: float = PERIOD_S) -> None:
        self._make = make
        self._lists = lists
        self._period_s = period_s
        self._kept: dict[Hashable, _Look] = {}
        self._making = asyncio.Lock()
        """Held while an answer is made, which may take several turns of the loop: its other readers wait."""
        self.reader_count = 0
        """The number of open streams."""

    async def answer(self, request: Request) -> Answer:
        """Return the stream, or the error of its first answer."""
        if self.reader_count >= MOST_READERS:
            return _too_many()
        first = await self._look(request)
        if isinstance(first.value, Answer):
            return first.value
        if self.reader_count >= MOST_READERS:  # others came while the answer was made
            return _too_many()
        parts = self._parts(request)
        # Counts the reader now, before others are let in. Closing the stream ends the count.
        await anext(parts)
        headers = {**NO_SNIFF, "X-Accel-Buffering": "no"}
        return Answer(content_type=CONTENT_TYPE, headers=headers, parts=parts)

    async def _parts(self, request: Request) -> AsyncGenerator[bytes, None]:
        clock = asyncio.get_running_loop().time
        ends_s = clock() + STREAM_S
        shown = _Shown(self._lists.get(request.path))
        self.reader_count += 1
        try:
            yield b""
            yield b"retry: 1000\n\n"
            while clock() < ends_s:
                look = await self._look(request)
                value = look.value
                if isinstance(value, Answer):
                    yield _event("problem", json.loads(value.body))
                else:
                    for name, data in shown.changes(value):
                        yield _event(name, data)
                    yield _event("at", value.get(_AT))
                await asyncio.sleep(max(self._period_s, min(SHARE * look.took_s, MOST_PAUSE_S)))
        finally:
            self.reader_count -= 1
            if not self.reader_count:
                self._kept.clear()

    async def _look(self, request: Request) -> _Look:
        """Return the answer, at most half a period old."""
        clock = asyncio.get_running_loop().time
        key = (request.path, tuple((name, tuple(values)) for name, values in request.query.items()))
        async with self._making:
            kept = self._kept.get(key)
            if kept is not None and clock() - kept.began_s < self._period_s / 2:
                return kept
            began_s = clock()
            value = await self._make(replace(request, query={**request.query, "watch": ()}))
            if len(self._kept) > MOST_READERS:
                self._kept.clear()
            look = self._kept[key] = _Look(began_s, clock() - began_s, value)
            return look


@dataclass(slots=True)
class _Shown:
    """The state that one reader got last."""

    listed: Listed | None
    head: Value | None = None
    rows: dict[Any, Any] = field(default_factory=dict)

    def changes(self, value: Value) -> Iterator[tuple[str, Value]]:
        """Yield the events that lead from the last state to `value`."""
        listed = self.listed
        rows = {} if listed is None else {row[listed.key]: row for row in value[listed.name]}
        hidden = (_AT,) if listed is None else (_AT, listed.name)
        head = {name: part for name, part in value.items() if name not in hidden}
        changed = [row for key, row in rows.items() if self.rows.get(key) != row]
        gone = [key for key in self.rows if key not in rows]
        is_first, is_other_head = self.head is None, head != self.head
        self.head, self.rows = head, rows
        if not is_first and not is_other_head and not changed and not gone:
            return
        for first in range(0, len(changed) or 1, ROWS_PER_EVENT):
            data: Value = {"rows": changed[first : first + ROWS_PER_EVENT]}
            if not first:
                data["gone"] = gone
                if is_first:
                    data["at"] = value.get(_AT)
                if is_first and listed is not None:
                    data |= {"list": listed.name, "key": listed.key}
                if is_other_head:
                    data["value"] = head
            yield ("state" if is_first and not first else "change"), data


def _too_many() -> Answer:
    message = f"{MOST_READERS} streams are open, which is the most: close a page, and try again"
    return failure(429, "TooManyRequests", message)


def _event(name: str, data: Any) -> bytes:
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return f"event: {name}\ndata: {text}\n\n".encode()
