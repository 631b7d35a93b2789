"""`EventLog`: the latest Kubernetes events that the host wrote.

Filled by the embedded server; read by `berth simulate` (which pod preempted which) and by tests.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from berth_host.cluster.port import EventRecord

CAPACITY: Final = 20_000


class EventLog:
    """A bounded log, newest event last. `total_count` includes the events that were dropped from it."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._recent: deque[EventRecord] = deque(maxlen=capacity)
        self.total_count = 0

    def add(self, event: EventRecord) -> None:
        """Append an event; drop the oldest one if the log is full."""
        self._recent.append(event)
        self.total_count += 1

    def latest(self, reason: str, key: str) -> EventRecord | None:
        """Return the newest event with `reason` about the object `key` (`namespace/name`) in the log; None
        without one.
        """
        for event in reversed(self._recent):
            if event.reason == reason and event.regarding.key == key:
                return event
        return None

    @property
    def recent(self) -> list[EventRecord]:
        """The events in the log, oldest first."""
        return list(self._recent)
