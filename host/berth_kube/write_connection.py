"""`WriteConnection`: what a connection of the lane promises, over HTTP/1.1 (`http1`) or HTTP/2 (`http2`).

Opened by `connect` for `write_client`. A request ends in its answer or in one of these errors:

    NotActedOnError       the server cannot have acted on the request: it may be sent again
    ConnectionLostError   the server may have acted on it
    TimeoutError          no whole answer in time; the server may have acted on it
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Final, cast

MAX_ANSWER: Final = 2**25
"""The largest answer, in bytes. An API server stores no object that is larger than 1.5 MiB."""
PART_BYTES: Final = 64
"""Bytes that each received part of an answer counts beside its content, so that many tiny parts end too."""


class ConnectionLostError(ConnectionError):
    """The request may have been acted on: its connection ended, or its answer cannot be read."""


class NotActedOnError(ConnectionLostError):
    """The server cannot have acted on the request."""


class Asked:
    """One request and its answer. `answer`: done when the whole answer came.

    `ends_s`: the loop's time at which the request times out. `status`: 0 until the answer's head came.
    `size`: bytes of the answer so far, with PART_BYTES for each part.
    """

    __slots__ = ("answer", "ends_s", "parts", "retry_after", "size", "status")

    def __init__(self, ends_s: float, answer: asyncio.Future[None]) -> None:
        self.ends_s = ends_s
        self.answer = answer
        self.status = 0
        self.retry_after = ""
        self.parts: list[bytes] = []
        self.size = 0

    def add_part(self, part: bytes) -> bool:
        """Keep a part of the answer; return False if the answer is larger than MAX_ANSWER."""
        self.parts.append(part)
        self.size += len(part) + PART_BYTES
        return self.size <= MAX_ANSWER


class WriteConnection(asyncio.Protocol, ABC):
    """One connection.

    `on_change`: called with the connection when it has room again, has none any more for another reason than
    a request of `begin`, or has ended.

    Attributes: has_room (True if it takes another request now), is_retired (it takes none any more),
    is_closed, heard_s (the loop's time at which the server sent something last), looked_s (at which the lane
    last looked whether it still stands), and ready (done when requests may be sent).
    """

    def __init__(self, on_change: Callable[[WriteConnection], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self.has_room = False
        self.is_retired = False
        self.is_closed = False
        self.heard_s = self.looked_s = self._loop.time()
        self._on_change = on_change
        self._transport: asyncio.Transport | None = None

    @property
    @abstractmethod
    def asked(self) -> Collection[Asked]:
        """The requests under way."""
        ...

    @property
    @abstractmethod
    def room_count(self) -> int:
        """The number of requests that it takes now."""
        ...

    @property
    @abstractmethod
    def needs_checks(self) -> bool:
        """True as long as `check` must be called."""
        ...

    @abstractmethod
    def begin(self, method: str, path: str, body: bytes | None, content_type: str, ends_s: float) -> Asked:
        """Send a request, at the latest at the end of this turn of the event loop. Needs `has_room`."""
        ...

    @abstractmethod
    def drop(self, asked: Asked, error: Exception) -> None:
        """Give up a request that is under way: it ends in `error`. The server may act on it all the same."""
        ...

    def check(self, now_s: float) -> None:
        """End the requests whose time is over. `now_s`: the loop's time. Called several times a second."""
        for one in [one for one in self.asked if one.ends_s <= now_s]:
            self.drop(one, TimeoutError())

    def retire(self) -> None:
        """Take no new request; close when the last one has ended."""
        if not self.is_retired:
            self.is_retired = True
            self.has_room = False
            self._on_change(self)
        if not self.asked:
            self.close()

    def close(self) -> None:
        """Close the connection; requests under way are lost."""
        if self._transport is not None and not self.is_closed:
            # No TLS shutdown, which would wait for the server.
            self._transport.abort()
        self._ended(ConnectionLostError("it was closed here"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """End all requests."""
        self._ended(ConnectionLostError(str(exc) if exc else "the server closed it"))

    def _ended(self, error: ConnectionLostError) -> None:
        """Mark the connection as closed, and end every request: in `error` if it was written."""
        if self.is_closed:
            return
        self.is_closed = True
        self.has_room = False
        if not self.ready.done():
            # Nothing was asked over it yet.
            self.ready.set_exception(NotActedOnError(str(error)))
            self.ready.exception()  # Seen, even if nobody waits for it any more.
        for one in list(self.asked):
            self._fail(one, error if self._is_written(one) else NotActedOnError(str(error)))
        self._on_change(self)

    @abstractmethod
    def _is_written(self, asked: Asked) -> bool:
        """Return True if bytes of the request may have left."""
        ...

    @abstractmethod
    def _fail(self, asked: Asked, error: Exception) -> None:
        """End one request in an error."""
        ...
