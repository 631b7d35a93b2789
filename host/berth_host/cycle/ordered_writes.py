"""`OrderedWrites`: writes to the cluster in the background, one after the other for each object.

Used by `pod_status` and `group_status`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from berth_sdk.clocks import monotonic_s

from berth_host.errors.cluster import ClusterError
from berth_host.errors.state import InvariantError
from berth_host.log import get_logger

log = get_logger()
Write: TypeAlias = Callable[[], Awaitable[None]]


class _Line:
    """The pending writes for one object, in order, and the task that does them."""

    __slots__ = ("task", "writes")

    def __init__(self) -> None:
        self.task: asyncio.Future[None]
        self.writes: deque[tuple[Write, asyncio.Future[None]]] = deque()


class OrderedWrites:
    """The pending writes by the uid of their object. Its length is the number of objects with pending writes.

    `resource`: the objects' resource, for errors. A write that fails does not stop the later ones.
    """

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._lines: dict[str, _Line] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def __contains__(self, uid: str) -> bool:
        """Return True while writes for the object are pending."""
        return uid in self._lines

    def add(self, uid: str, write: Write) -> asyncio.Future[None]:
        """Do `write` in the background, after the earlier writes for the object. The future ends with it."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._lines.get(uid)
        if line is None:
            line = self._lines[uid] = _Line()
            line.task = asyncio.ensure_future(self._write(uid, line.writes))
            # A task that is cancelled before it begins cannot end the line itself.
            line.task.add_done_callback(partial(self._ended, uid, line))
        line.writes.append((write, done))
        return done

    async def settled(self, uid: str) -> None:
        """Wait until all writes for the object are done."""
        while (line := self._lines.get(uid)) is not None:
            await asyncio.wait({line.task})

    async def flush(self, timeout_s: float) -> bool:
        """Wait until everything is written, at most `timeout_s` (real time), then cancel the other writes.

        Returns True if everything was written.
        """
        ends_s = monotonic_s() + timeout_s
        while self._lines and (left_s := ends_s - monotonic_s()) > 0:
            await asyncio.wait({line.task for line in self._lines.values()}, timeout=left_s)
        is_written = not self._lines
        for line in self._lines.values():
            line.task.cancel()
        return is_written

    async def _write(self, uid: str, writes: deque[tuple[Write, asyncio.Future[None]]]) -> None:
        """Do the writes for one object, one after the other, until none is left."""
        while writes:
            await self._written(uid, *writes.popleft())
        del self._lines[uid]

    def _ended(self, uid: str, line: _Line, _task: asyncio.Future[None]) -> None:
        if self._lines.get(uid) is line:
            del self._lines[uid]
        for _, done in line.writes:
            done.cancel()

    async def _written(self, uid: str, write: Write, done: asyncio.Future[None]) -> None:
        """Write, then set `done` for the callers that wait."""
        try:
            await write()
        except Exception as err:
            if not isinstance(err, ClusterError):
                log.error("task.failed", resource=self._resource, uid=uid, exc_info=err)
            if isinstance(err, InvariantError):
                # This error must stop the host, also if no caller waits for `done`.
                told = {"message": f"writing a status of {self._resource}", "exception": err}
                asyncio.get_running_loop().call_exception_handler(told)
            if not done.done():
                done.set_exception(err)
                done.exception()  # marks the error as retrieved, also if no caller waits
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                done.cancel()
                raise
            # The task itself was not cancelled: the client gave up this write. The others are still due.
            if not done.done():
                done.set_exception(ClusterError(self._resource, uid, "the write was cancelled by the client"))
                done.exception()
        else:
            if not done.done():
                done.set_result(None)
