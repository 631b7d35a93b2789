"""`InFlight`: the pods with a running attempt, and the events since they were popped.

An event during a pod's attempt may help the pod, but finds it in no queue. So events are kept while any pod
is in flight, and a pod that comes back rejected is judged by the events after its pop.
Source: kube-scheduler `backend/queue/active_queue.go` (inFlightPods, inFlightEvents), v1.36.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from berth_host.queue.events import PluginRequest, QueueEvent
from berth_host.queue.queued_pod import QueuedPodInfo

Remembered = QueueEvent | PluginRequest


@dataclass(frozen=True, slots=True)
class _Marker:
    info: QueuedPodInfo
    position: int  # The number of the first event after the pop.


class InFlight:
    """The markers of popped pods and the events, in one order; events before the first marker are dropped."""

    def __init__(self) -> None:
        self._markers: dict[str, _Marker] = {}
        self._events: list[Remembered] = []
        self._first_number = 0

    def __len__(self) -> int:
        return len(self._markers)

    def __contains__(self, uid: str) -> bool:
        return uid in self._markers

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        """Return the pods in flight, in the order of their pops."""
        return (marker.info for marker in self._markers.values())

    @property
    def event_count(self) -> int:
        """The number of kept events."""
        return len(self._events)

    def labels(self) -> Counter[str]:
        """Return the number of kept events by label."""
        return Counter(event.label for event in self._events)

    def start(self, info: QueuedPodInfo) -> None:
        """Record that a pod was popped."""
        self._markers[info.uid] = _Marker(info, self._first_number + len(self._events))

    def remember(self, event: Remembered) -> None:
        """Keep an event if there are pods in flight."""
        if self._markers:
            self._events.append(event)

    def events_since(self, uid: str) -> Sequence[Remembered] | None:
        """Return the events since the pod was popped; None for a pod that is not in flight."""
        marker = self._markers.get(uid)
        if marker is None:
            return None
        return self._events[marker.position - self._first_number :]

    def end(self, uid: str) -> bool:
        """Remove a pod whose attempt has ended, or can no longer requeue it.

        Returns False if the pod was not in flight.
        """
        if self._markers.pop(uid, None) is None:
            return False
        oldest = next(iter(self._markers.values()), None)
        kept_from = self._first_number + len(self._events) if oldest is None else oldest.position
        if kept_from > self._first_number:
            del self._events[: kept_from - self._first_number]
            self._first_number = kept_from
        return True

    def log(self) -> list[QueuedPodInfo | Remembered]:
        """Return the pods in flight and the events in their order."""
        result: list[QueuedPodInfo | Remembered] = []
        done = self._first_number
        for marker in self._markers.values():
            result.extend(self._events[done - self._first_number : marker.position - self._first_number])
            result.append(marker.info)
            done = marker.position
        result.extend(self._events[done - self._first_number :])
        return result
