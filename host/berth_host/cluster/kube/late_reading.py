"""`LateReader`: reads the objects that the quick parser refuses, beside everything else.

One per `cluster.KubeCluster`, shared by its informers. Any user of a cluster can write objects that take
seconds to read, so the work is done in slices between which the loop is free for as long, and what is read
for one namespace is bounded. An object's last known state counts until it is read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final

from berth_host.cluster.kube.reading import in_slices
from berth_host.model.clock import Clock, sleep

BYTES_PER_S: Final = 256 * 1024
"""The bytes that are read per second for one namespace."""
BURST_BYTES: Final = 2 * 1024 * 1024
"""The bytes that are read at once for a namespace that was quiet: more than the largest object."""
MAX_WAITING_BYTES: Final = 32 * 1024 * 1024
"""The bytes of waiting work at which a watch reads no further lines until there is room."""
_SCANS: Final = None
"""The queue of lines of which nothing is known yet, not even the namespace."""


@dataclass(frozen=True, slots=True)
class _Work:
    steps: Generator[None, None, Any]
    size_bytes: int
    done: Callable[[Any], None]


class LateReader:
    """The queue of late work. `done` is called with each result, or with the ValueError that reading raised.

    `read_count`: the objects read so far.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queues: dict[str | None, deque[_Work]] = {}
        self._due_s: dict[str | None, float] = {}
        self._waiting_bytes = 0
        self._has_work = asyncio.Event()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.read_count = 0

    @property
    def waiting_count(self) -> int:
        """The number of documents that wait, or are being read."""
        return sum(map(len, self._queues.values()))

    def scan(self, steps: Generator[None, None, Any], size_bytes: int, done: Callable[[Any], None]) -> None:
        """Queue the search for the object in a line, before every reading: it may say a deletion."""
        self._add(_SCANS, _Work(steps, size_bytes, done))

    def read(
        self,
        namespace: str,
        steps: Generator[None, None, Any],
        size_bytes: int,
        done: Callable[[Any], None],
    ) -> None:
        """Queue the reading of an object of a namespace ("" for cluster-scoped objects)."""
        self._add(namespace, _Work(steps, size_bytes, done))

    async def has_room(self) -> None:
        """Wait while more than MAX_WAITING_BYTES wait."""
        while self._waiting_bytes > MAX_WAITING_BYTES:
            self._changed.clear()
            await self._changed.wait()

    def stop(self) -> None:
        """End the reading; what waits is dropped."""
        if self._task is not None:
            self._task.cancel()
        self._queues.clear()
        self._waiting_bytes = 0
        self._changed.set()

    def _add(self, queue: str | None, work: _Work) -> None:
        self._queues.setdefault(queue, deque()).append(work)
        self._waiting_bytes += work.size_bytes
        self._has_work.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="late reading")

    async def _run(self) -> None:
        while True:
            queue = self._next()
            if isinstance(queue, float):
                self._has_work.clear()
                await self._work_or(queue)
                continue
            waiting = self._queues.pop(queue)
            work = waiting[0]
            # Behind the other namespaces; the work stays in it, so that it counts as waiting.
            self._queues[queue] = waiting
            if queue is not _SCANS:
                now_s = self._clock.monotonic_s()
                due_s = max(now_s, self._due_s.get(queue, 0.0))
                self._due_s[queue] = due_s + work.size_bytes / BYTES_PER_S
                self._due_s = {name: at_s for name, at_s in self._due_s.items() if at_s > now_s}
            try:
                result = await in_slices(work.steps)
            except ValueError as err:
                result = err
            waiting.popleft()
            if not waiting:
                del self._queues[queue]
            self._waiting_bytes -= work.size_bytes
            self._changed.set()
            self.read_count += 1
            asyncio.get_running_loop().call_soon(work.done, result)

    def _next(self) -> str | float | None:
        """Return the queue whose turn it is, or the seconds until there is one (infinite: no work)."""
        if _SCANS in self._queues:
            return _SCANS
        now_s = self._clock.monotonic_s()
        soonest_s = float("inf")
        for namespace in self._queues:
            wait_s = self._due_s.get(namespace, 0.0) - BURST_BYTES / BYTES_PER_S - now_s
            if wait_s <= 0:
                return namespace
            soonest_s = min(soonest_s, wait_s)
        return soonest_s

    async def _work_or(self, wait_s: float) -> None:
        """Wait for further work, or for `wait_s`."""
        came = asyncio.ensure_future(self._has_work.wait())
        over = asyncio.ensure_future(sleep(self._clock, wait_s)) if wait_s < float("inf") else None
        try:
            await asyncio.wait([came] if over is None else [came, over], return_when=asyncio.FIRST_COMPLETED)
        finally:
            came.cancel()
            if over is not None:
                over.cancel()
