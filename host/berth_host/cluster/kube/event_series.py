"""`EventSeries`: finds events that repeat, and writes them as a series.

Owned by `events`. Two events are equal if they differ only in text and time; the regarded object's resource
version counts. The first event is created. The second makes it a series (count 2). Later events are only
counted: the count is written after SERIES_END_S without a repetition, and every REFRESH_S before that.
Source: client-go `tools/events/event_broadcaster.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

from berth_host.cluster.kube.client import path_of
from berth_host.cluster.kube.event_body import event_body, event_name, micro_time
from berth_host.cluster.port import EventRecord
from berth_host.model.compact_json import compact_json

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
        return {"count": self.count, "lastObservedTime": micro_time(self.seen_at_s)}

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

    def __init__(self, host_name: str) -> None:
        self._host_name = host_name
        self._kept: dict[Key, KeptEvent] = {}
        self._last_sequence = 0

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, event: EventRecord, now_s: float) -> KeptEvent | None:
        """Count an event; return what must be written now, None if counting is enough."""
        key = _key(event)
        kept = self._kept.get(key)
        if kept is not None:
            kept.count += 1
            kept.seen_at_s = now_s
            if kept.count > 2:
                return None
            kept.written_at_s = now_s
            return kept
        # Nanoseconds as in client-go, but unique.
        self._last_sequence = max(self._last_sequence + 1, int(now_s * 1e9))
        name = event_name(event.regarding.name, self._last_sequence)
        body = event_body(event, name, now_s, self._host_name)
        kept = KeptEvent(
            namespace=body["metadata"]["namespace"],
            name=name,
            content=compact_json(body),
            seen_at_s=now_s,
            written_at_s=now_s,
        )
        # A pod is bound once: keeping this event would only push out events that repeat.
        if event.action != "Binding" or event.type != "Normal":
            self._kept[key] = kept
            if len(self._kept) > MAX_KEPT:
                del self._kept[next(iter(self._kept))]
        return kept

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
    )
