"""`LateReader`: reads the objects that the quick parser refuses, beside everything else.

One per `cluster.KubeCluster`, shared by its informers. Any user of a cluster can write objects that take
seconds to read, so the work is done in slices between which the loop is free for as long, what is read for
one namespace is bounded, and so are the bytes that wait: an object beyond them is asked for again when its
turn comes. An object's last known state counts until it is read.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Hashable
from dataclasses import dataclass
from typing import Any, Final

from berth_host.errors.cluster import ClusterError
from berth_host.log import get_logger
from berth_host.model.clock import Clock, sleep

from berth_kube.reading import in_slices

log = get_logger()

BYTES_PER_S: Final = 256 * 1024
"""The bytes that are read per second for one namespace."""
BURST_BYTES: Final = 2 * 1024 * 1024
"""The bytes that are read at once for a namespace that was quiet: more than the largest object."""
MAX_HELD_BYTES: Final = 4 * 1024 * 1024
"""The bytes of objects of one namespace that are held until they are read."""
MAX_ALL_HELD_BYTES: Final = 32 * 1024 * 1024
"""The bytes of objects of all namespaces that are held until they are read."""
MAX_SCAN_BYTES: Final = 32 * 1024 * 1024
"""The bytes of lines of which nothing is known yet at which a watch reads no further ones."""
PAUSE_S: Final = 5.0
"""The pause of a namespace, in seconds, after one of its objects could not be read again."""
_SCANS: Final = None
"""The queue of lines of which nothing is known yet, not even the namespace."""
Reading = Generator[None, None, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LateObject:
    """An object to read. `key`: a later object with the same key takes its place in the queue.

    `steps`: reads the bytes at hand. `again`: asks for the object and returns the steps that read it, for the
    case that too many bytes wait. `is_wanted`: False when a later state was handed over.
    """

    key: Hashable
    namespace: str
    size_bytes: int
    steps: Reading
    again: Callable[[], Awaitable[Reading]]
    is_wanted: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class _Work:
    size_bytes: int
    done: Callable[[Any], None]
    steps: Reading | None
    again: Callable[[], Awaitable[Reading]] | None = None
    is_wanted: Callable[[], bool] = lambda: True


class LateReader:
    """The queue of late work. `done` is called with each result, or with the ValueError that reading raised.

    `read_count`: the objects read so far. `held_bytes`: the bytes of the objects that wait, by namespace.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queues: dict[str | None, dict[Hashable, _Work]] = {}
        self._due_s: dict[str | None, float] = {}
        self._scan_bytes = 0
        self._is_reading = False
        self._has_work = asyncio.Event()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.read_count = 0
        self.held_bytes: Counter[str] = Counter()

    @property
    def waiting_count(self) -> int:
        """The number of documents that wait, or are being read."""
        return sum(map(len, self._queues.values())) + self._is_reading

    def scan(self, steps: Reading, size_bytes: int, done: Callable[[Any], None]) -> None:
        """Queue the search for the object in a line, before every reading: it may say a deletion."""
        self._scan_bytes += size_bytes
        self._queues.setdefault(_SCANS, {})[object()] = _Work(size_bytes, done, steps)
        self._begin()

    def read(self, item: LateObject, done: Callable[[Any], None]) -> bool:
        """Queue the reading of an object. Return True if it took the place of an earlier state of it, whose
        `done` is then not called.
        """
        queue = self._queues.setdefault(item.namespace, {})
        before = queue.get(item.key)
        if before is not None:
            self._let_go(item.namespace, before)
        held = self.held_bytes
        is_held = (
            held[item.namespace] + item.size_bytes <= MAX_HELD_BYTES
            and held.total() + item.size_bytes <= MAX_ALL_HELD_BYTES
        )
        if is_held:
            held[item.namespace] += item.size_bytes
        steps = item.steps if is_held else None
        queue[item.key] = _Work(item.size_bytes, done, steps, item.again, item.is_wanted)
        self._begin()
        return before is not None

    async def has_room(self) -> None:
        """Wait while the lines of which nothing is known have more than MAX_SCAN_BYTES."""
        while self._scan_bytes > MAX_SCAN_BYTES:
            self._changed.clear()
            await self._changed.wait()

    def stop(self) -> None:
        """End the reading; what waits is dropped."""
        if self._task is not None:
            self._task.cancel()
        self._queues.clear()
        self.held_bytes.clear()
        self._scan_bytes = 0
        self._changed.set()

    def _begin(self) -> None:
        self._has_work.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="late reading")

    def _let_go(self, queue: str | None, work: _Work) -> None:
        """Count the bytes of work that has ended no longer."""
        if queue is _SCANS:
            self._scan_bytes -= work.size_bytes
            self._changed.set()
        elif work.steps is not None:
            self.held_bytes[queue] -= work.size_bytes
            if not self.held_bytes[queue]:
                del self.held_bytes[queue]

    async def _run(self) -> None:
        while True:
            queue = self._next()
            if isinstance(queue, float):
                self._has_work.clear()
                await self._work_or(queue)
                continue
            # Behind the other namespaces.
            waiting = self._queues.pop(queue)
            key = next(iter(waiting))
            work = waiting.pop(key)
            if waiting:
                self._queues[queue] = waiting
            self._is_reading = True
            try:
                result = await self._result(queue, work)
            except ClusterError as err:
                log.warning("watch.late_reading_failed", namespace=queue, error=str(err))
                self._due_s[queue] = self._clock.monotonic_s() + BURST_BYTES / BYTES_PER_S + PAUSE_S
                # Unless a later state of the object came meanwhile, which has its own place.
                again = self._queues.setdefault(queue, {})
                again[key if key not in again else object()] = work
                continue
            finally:
                self._is_reading = False
            self._let_go(queue, work)
            self.read_count += 1
            asyncio.get_running_loop().call_soon(work.done, result)

    async def _result(self, queue: str | None, work: _Work) -> Any:
        """Do the work. Raises ClusterError if the object could not be asked for."""
        if not work.is_wanted():
            return None
        if queue is not _SCANS:
            now_s = self._clock.monotonic_s()
            due_s = max(now_s, self._due_s.get(queue, 0.0))
            self._due_s[queue] = due_s + work.size_bytes / BYTES_PER_S
            self._due_s = {name: at_s for name, at_s in self._due_s.items() if at_s > now_s}
        try:
            steps = work.steps
            if steps is None:
                assert work.again is not None
                steps = await work.again()
            return await in_slices(steps)
        except ValueError as err:
            return err
        except ClusterError:
            raise
        except Exception as err:  # One object must not end the reading of all others.
            log.error("watch.late_reading_failed", namespace=queue, exc_info=True)
            return ValueError(f"{type(err).__name__}: {err}")

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
