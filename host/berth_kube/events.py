"""`EventWriter`: writes Kubernetes events in the background, so that no caller waits for one.

Owned by `cluster.KubeCluster`. Limits: queued events (MAX_WAITING), concurrent requests (MAX_UNDER_WAY),
tries (MAX_TRIES), and a rate limit of its own, so that events do not slow down bindings. Dropped events are
counted by cause. The caller, often a scheduling or binding cycle, only queues the record and its time. Name,
key and object of an event are made when its turn to be sent comes, in the order of the records.

`EventSeries` finds events that repeat, and writes them as a series. Two events are equal if they differ only
in text and time; the regarded object's resource version counts. The first event is created. The second makes
it a series (count 2). Later events are only counted: the count is written after SERIES_END_S without a
repetition, and every REFRESH_S before that.
The events.k8s.io/v1 objects have kube-scheduler's shape.
Source: client-go `tools/events/event_recorder.go`, `event_broadcaster.go`, v1.36.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

import orjson
from berth_host.cluster.port import EventRecord
from berth_host.errors.cluster import (
    ClusterError,
    ConflictError,
    NotFoundError,
    TooManyRequestsError,
    UnavailableError,
)
from berth_host.log import get_logger
from berth_host.model.backoff import Backoff
from berth_host.model.clock import Clock, Timer
from berth_host.model.compact_json import compact_json
from berth_host.model.patch_type import PatchType
from berth_sdk import chance
from berth_sdk.kube_object import ObjectRef
from berth_sdk.rfc3339 import format_micro_time

from berth_kube.client import KubeClient, path_of
from berth_kube.limiter import RequestRate, request_backoff

NOTE_MAX_BYTES: Final = 1024
"""The longest note, in bytes, that the API server accepts."""
_CUT_MARK: Final = " ..."
_NAME_MAX: Final = 253
_HEX_MAX: Final = 16


def event_body(
    event: EventRecord, name: str, now_s: float, host_name: str, api_version_of: Callable[[str], str]
) -> dict[str, Any]:
    """Return the object to create. `now_s`: Unix seconds; `host_name`: the reporting machine;
    `api_version_of`: returns the API version of a kind.
    """
    body: dict[str, Any] = {
        "kind": "Event",
        "apiVersion": "events.k8s.io/v1",
        "metadata": {"name": name, "namespace": event.regarding.namespace or "default"},
        "eventTime": format_micro_time(now_s),
        "reportingController": event.reporter,
        "reportingInstance": f"{event.reporter}-{host_name}",
        "action": event.action,
        "reason": event.reason,
        "regarding": _reference(event.regarding_kind, event.regarding, api_version_of),
    }
    if event.related is not None:
        body["related"] = _reference(event.related_kind, event.related, api_version_of)
    body["note"] = cut_note(event.note)
    body["type"] = event.type
    body["deprecatedSource"] = {}
    body["deprecatedFirstTimestamp"] = None
    body["deprecatedLastTimestamp"] = None
    return body


def event_name(regarding_name: str, sequence: int) -> str:
    """Return `<name>.<hex>`; the name is cut at its end if the whole would be too long."""
    return f"{regarding_name[: _NAME_MAX - _HEX_MAX - 1].rstrip('-.')}.{sequence:x}"


def cut_note(note: str) -> str:
    """Return the note in at most NOTE_MAX_BYTES bytes; a text that was cut ends in ` ...`."""
    raw = note.encode()
    if len(raw) <= NOTE_MAX_BYTES:
        return note
    return raw[: NOTE_MAX_BYTES - len(_CUT_MARK)].decode(errors="ignore") + _CUT_MARK


def own_host_name() -> str:
    """Return this machine's host name."""
    return socket.gethostname()


def _reference(kind: str, ref: ObjectRef, api_version_of: Callable[[str], str]) -> dict[str, str]:
    reference = {
        "kind": kind,
        "namespace": ref.namespace,
        "name": ref.name,
        "uid": ref.uid,
        "apiVersion": api_version_of(kind),
        "resourceVersion": ref.resource_version,
    }
    if "" in reference.values():
        return {name: value for name, value in reference.items() if value}
    return reference


SERIES_END_S: Final = 360.0
REFRESH_S: Final = 1800.0
MAX_KEPT: Final = 10_000
"""The most events kept. The oldest is dropped first; its repetition is then a new event."""
_GROUP: Final = "/apis/events.k8s.io/v1"

Key = tuple[Any, ...]


@dataclass(slots=True)
class KeptEvent:
    """One event object. `count`: 1 until it is a series. `is_written`: the server has stored it."""

    namespace: str
    name: str
    content: bytes
    seen_at_s: float
    written_at_s: float
    count: int = 1
    is_written: bool = False
    is_pending: bool = False

    @property
    def create_path(self) -> str:
        """The path where the event is created."""
        return path_of(_GROUP, "events", self.namespace)

    @property
    def patch_path(self) -> str:
        """The path where its series is patched."""
        return path_of(_GROUP, "events", self.namespace, self.name)

    @property
    def series(self) -> dict[str, Any]:
        """The object's `series` field now."""
        return {"count": self.count, "lastObservedTime": format_micro_time(self.seen_at_s)}

    def patch(self) -> bytes:
        """Return the patch that updates the stored series."""
        return orjson.dumps({"series": self.series})

    def whole(self) -> bytes:
        """Return the whole object; with its series if the event repeated before it was (re)created."""
        if self.count == 1:
            return self.content
        return orjson.dumps({**orjson.loads(self.content), "series": self.series})


class EventSeries:
    """The events of the last minutes, by the fields in which equal events agree."""

    def __init__(self, host_name: str, api_version_of: Callable[[str], str]) -> None:
        self._host_name = host_name
        self._api_version_of = api_version_of
        self._kept: dict[Key, KeptEvent] = {}
        self._last_sequence = 0

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, event: EventRecord, now_s: float) -> KeptEvent | None:
        """Count an event; return what must be written now, None if counting is enough."""
        # A pod is bound once: keeping this event would only push out events that repeat.
        is_kept = event.action != "Binding" or event.type != "Normal"
        key = _key(event) if is_kept else ()
        kept = self._kept.get(key) if is_kept else None
        if kept is not None:
            kept.count += 1
            kept.seen_at_s = max(kept.seen_at_s, now_s)  # Later ones may have been counted first.
            if kept.count > 2:
                return None
            kept.written_at_s = now_s
            return kept
        # Nanoseconds as in client-go, but unique.
        self._last_sequence = max(self._last_sequence + 1, int(now_s * 1e9))
        name = event_name(event.regarding.name, self._last_sequence)
        body = event_body(event, name, now_s, self._host_name, self._api_version_of)
        kept = KeptEvent(
            namespace=body["metadata"]["namespace"],
            name=name,
            content=compact_json(body) if is_kept else orjson.dumps(body),
            seen_at_s=now_s,
            written_at_s=now_s,
        )
        if is_kept:
            self._kept[key] = kept
            if len(self._kept) > MAX_KEPT:
                del self._kept[next(iter(self._kept))]
        return kept

    def counts(self, event: EventRecord, now_s: float) -> bool:
        """Count an event and return True, if that is enough: its series will be written in any case."""
        kept = self._kept.get(_key(event))
        if kept is None or not (kept.count > 1 or kept.is_pending):
            return False
        kept.count += 1
        kept.seen_at_s = max(kept.seen_at_s, now_s)
        return True

    def forget(self, kept: KeptEvent) -> None:
        """Drop an event that could not be written, so that its repetition is a new event."""
        for key, other in self._kept.items():
            if other is kept:
                del self._kept[key]
                return

    def due(self, now_s: float) -> Iterator[KeptEvent]:
        """Yield the series that must be written again; drop events that ended."""
        for key, kept in list(self._kept.items()):
            is_series = kept.count > 1
            if now_s - kept.seen_at_s >= SERIES_END_S:
                del self._kept[key]
            elif not is_series or now_s - kept.written_at_s < REFRESH_S:
                continue
            if is_series:
                kept.written_at_s = now_s
                yield kept


def _key(event: EventRecord) -> Key:
    return (
        event.type,
        event.action,
        event.reason,
        event.reporter,
        event.regarding_kind,
        event.regarding,
        event.related,
        event.related_kind,
    )


log = get_logger()

MAX_WAITING: Final = 10_000
MAX_UNDER_WAY: Final = 16
MAX_TRIES: Final = 12
FLUSH_S: Final = 3.0
"""Seconds that `stop` waits for the remaining events."""
TIMEOUT_S: Final = 10.0


class EventWriter:
    """A background writer of events.

    Counts: written_count, and dropped by cause (full, rejected, unreachable, stopped).
    """

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        before_sending: Callable[[], None],
        api_version_of: Callable[[str], str],
        *,
        host_name: str = "",
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._client = client
        self._clock = clock
        self._before_sending = before_sending
        self._limiter = RequestRate(client.connection.qps, client.connection.burst, clock)
        self._series = EventSeries(host_name or own_host_name(), api_version_of)
        self.max_waiting = max_waiting
        self._waiting: deque[KeptEvent | tuple[EventRecord, float]] = deque()
        """Records with their time in Unix seconds, and events that are made."""
        self._unmade_count = 0
        """The number of records in `_waiting`."""
        self._under_way: set[asyncio.Task[None]] = set()
        self._writing_count = 0
        self._sweep: Timer | None = None
        self._is_stopped = False
        self.written_count = 0
        self.dropped: Counter[str] = Counter()

    @property
    def waiting_count(self) -> int:
        """The number of events that are not written yet."""
        return len(self._waiting) + self._writing_count

    def add(self, event: EventRecord) -> None:
        """Queue an event; drop and count it if the queue is full or the writer was stopped."""
        if self._is_stopped:
            self.dropped["stopped"] += 1
            return
        now_s = self._clock.now_s()
        if len(self._waiting) >= self.max_waiting and not self._aggregated():
            if not self._series.counts(event, now_s):
                self._drop("full", None)
            return
        self._unmade_count += 1
        self._queue((event, now_s))
        if self._sweep is None:
            self._plan_sweep()

    @property
    def kept_count(self) -> int:
        """The number of events kept, so that their repetitions become a series."""
        return len(self._series)

    async def stop(self, within_s: float = FLUSH_S) -> None:
        """Write the remaining events for at most `within_s` seconds, then drop the rest."""
        self._is_stopped = True
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + within_s
        while self._under_way and (left_s := ends_s - loop.time()) > 0:
            await asyncio.wait(self._under_way, timeout=left_s)
        self.cut()

    def cut(self) -> None:
        """Drop all events at once."""
        self._is_stopped = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        if self.waiting_count:
            self.dropped["stopped"] += self.waiting_count
            log.info("event.dropped", cause="stopped", dropped_count=self.dropped["stopped"])
        self._waiting.clear()
        self._unmade_count = 0
        for task in self._under_way:
            task.cancel()

    def _plan(self, kept: KeptEvent) -> None:
        if kept.is_pending:
            return  # A queued event is written in its newest form; one in a request is queued again after.
        kept.is_pending = True
        self._queue(kept)

    def _queue(self, entry: KeptEvent | tuple[EventRecord, float]) -> None:
        self._waiting.append(entry)
        if len(self._under_way) < MAX_UNDER_WAY:
            task = asyncio.get_running_loop().create_task(self._write_waiting())
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    def _next(self) -> KeptEvent | None:
        """Take the oldest entry of the queue; return the event to write, None if counting was enough."""
        entry = self._waiting.popleft()
        return entry if isinstance(entry, KeptEvent) else self._made(*entry)

    def _made(self, event: EventRecord, now_s: float) -> KeptEvent | None:
        """Return the event to write for a record, None if counting it was enough."""
        self._unmade_count -= 1
        try:
            kept = self._series.add(event, now_s)
        except Exception as err:
            # The error concerns this event only; the other events must still be written.
            log.error("task.failed", exc_info=err)
            self._drop("rejected", err)
            return None
        if kept is None or kept.is_pending:
            return None
        kept.is_pending = True
        return kept

    def _aggregated(self) -> bool:
        """Make the events of all queued records, so that repetitions share an entry; True if that made room.

        Only where the queue has enough records, as the whole queue is read for it.
        """
        if self._unmade_count * 10 < self.max_waiting:
            return False
        entries = list(self._waiting)
        self._waiting.clear()
        for entry in entries:
            kept = entry if isinstance(entry, KeptEvent) else self._made(*entry)
            if kept is not None:
                self._waiting.append(kept)
        return len(self._waiting) < self.max_waiting

    async def _write_waiting(self) -> None:
        try:
            while self._waiting:
                await self._write_next()
        finally:
            # Not by a callback of the task, which runs later: an entry queued before it would find the task
            # under way, and wait for the next entry.
            self._under_way.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _write_next(self) -> None:
        kept = self._next()
        if kept is None:
            return
        count = kept.count
        self._writing_count += 1
        try:
            if self._limiter.is_on:
                await self._limiter.take()
            await self._write(kept)
        except ClusterError as err:
            cause = "unreachable" if isinstance(err, UnavailableError) else "rejected"
            self._series.forget(kept)
            self._drop(cause, err)
        except Exception as err:
            # The error concerns this event only; the other events must still be written.
            log.error("task.failed", exc_info=err)
            self._series.forget(kept)
            self._drop("rejected", err)
        else:
            self.written_count += 1
            kept.is_pending = False
            if count == 1 and kept.count > 1 and not self._is_stopped:
                self._plan(kept)  # It became a series while it was created.
        finally:
            self._writing_count -= 1

    async def _write(self, kept: KeptEvent) -> None:
        backoff: Backoff | None = None
        for tries_left in reversed(range(MAX_TRIES)):
            try:
                await self._send(kept)
            except (UnavailableError, TooManyRequestsError):
                if not tries_left or self._is_stopped:
                    raise
                if backoff is None:
                    backoff = request_backoff(chance.generator())  # Only when needed: seeding is expensive.
                await asyncio.sleep(backoff.next_s())
            else:
                return

    async def _send(self, kept: KeptEvent) -> None:
        if kept.is_written:
            try:
                await self._client.send(
                    "PATCH",
                    kept.patch_path,
                    body=kept.patch(),
                    content_type=PatchType.STRATEGIC.value,
                    timeout_s=TIMEOUT_S,
                    resource="events.k8s.io/events",
                    key=f"{kept.namespace}/{kept.name}",
                    limited=False,
                    frequent=True,
                    before_sending=self._before_sending,
                )
            except NotFoundError:
                kept.is_written = False  # The stored event has expired: create it again.
            else:
                return
        try:
            await self._client.send(
                "POST",
                kept.create_path,
                body=kept.whole(),
                timeout_s=TIMEOUT_S,
                resource="events.k8s.io/events",
                key=f"{kept.namespace}/{kept.name}",
                limited=False,
                frequent=True,
                before_sending=self._before_sending,
            )
        except ConflictError:
            # An earlier try, whose answer was lost, created the event.
            log.debug("event.written_before", key=f"{kept.namespace}/{kept.name}")
        kept.is_written = True

    def _drop(self, cause: str, err: Exception | None) -> None:
        self.dropped[cause] += 1
        count = self.dropped[cause]
        # A terminating namespace refuses hundreds of events: log the 1st, 10th, 100th and so on.
        if str(count).strip("0") == "1":
            log.warning("event.dropped", cause=cause, dropped_count=count, error=str(err or ""))

    def _plan_sweep(self) -> None:
        self._sweep = self._clock.call_at(self._clock.monotonic_s() + SERIES_END_S, self._sweep_series)

    def _sweep_series(self) -> None:
        self._sweep = None
        for kept in self._series.due(self._clock.now_s()):
            self._plan(kept)
        if len(self._series) or self._waiting:
            self._plan_sweep()
