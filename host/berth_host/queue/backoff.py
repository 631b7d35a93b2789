"""The backoff after a failed attempt, and backoffQ with the pods that wait.

backoffQ has two heaps, ordered by expiry, then by QueueSort. One has the pods that a plugin rejected, which
may be popped early when activeQ is empty. The other has the pods whose attempt ended in an error, and all pod
groups, which may not. Owned by `places`.
Source: kube-scheduler `backend/queue/backoff_queue.go`, v1.37.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from berth_host.queue.heap import KeyedHeap
from berth_host.queue.interfaces import QueueConfig
from berth_host.queue.queued_pod import QueuedEntity

SECOND_US: Final = 1_000_000


class BackoffTimes:
    """The backoff of an entity: 1, 2, 4, 8, 10, 10, ... seconds by default, from the end of the attempt."""

    def __init__(self, config: QueueConfig) -> None:
        self._initial_us = config.pod_initial_backoff_s * SECOND_US
        self._max_us = config.pod_max_backoff_s * SECOND_US

    def duration_us(self, info: QueuedEntity) -> int:
        """Return the backoff for the pod's last failures, in microseconds."""
        count = info.consecutive_errors_count or info.unschedulable_count
        if not count:
            return 0
        shift = count - 1
        return self._max_us if self._initial_us > self._max_us >> shift else self._initial_us << shift

    def expiry_us(self, info: QueuedEntity) -> int | None:
        """Return when the backoff ends, cut to a whole second (Unix microseconds); None without backoff.

        The result is stored in the pod.
        """
        if info.backoff_expiration_us is None:
            duration_us = self.duration_us(info)
            if not duration_us:
                return None
            expiry_us = info.timestamp_us + duration_us
            info.backoff_expiration_us = expiry_us - expiry_us % SECOND_US
        return info.backoff_expiration_us

    def is_backing_off(self, info: QueuedEntity, now_us: int) -> bool:
        """Return True while the backoff lasts.

        Whole seconds are compared: in the second of its expiry a pod still waits.
        """
        expiry_us = self.expiry_us(info)
        return expiry_us is not None and expiry_us >= now_us - now_us % SECOND_US


class BackoffQueue:
    """backoffQ: the pods whose backoff is not over."""

    def __init__(self, backoff: BackoffTimes) -> None:
        self._backoff = backoff
        self._rejected: KeyedHeap[QueuedEntity] = KeyedHeap()
        self._failed: KeyedHeap[QueuedEntity] = KeyedHeap()

    def __len__(self) -> int:
        return len(self._rejected) + len(self._failed)

    def __contains__(self, key: str) -> bool:
        return key in self._rejected or key in self._failed

    @property
    def poppable_count(self) -> int:
        """The number of pods that may be popped before their backoff is over."""
        return len(self._rejected)

    @property
    def first_poppable(self) -> QueuedEntity | None:
        """The pod that `pop_early` would remove."""
        return self._rejected.peek()

    def push(self, info: QueuedEntity) -> None:
        """Add a pod, which must have its sort key, or sort it again after a change."""
        expiry_us = self._backoff.expiry_us(info) or 0
        key = info.key
        if info.is_rejected:
            self._failed.remove(key)
            self._rejected.push(key, (expiry_us, info.sort_key), info)
        else:
            self._rejected.remove(key)
            self._failed.push(key, (expiry_us, info.sort_key), info)

    def get(self, key: str) -> QueuedEntity | None:
        """Return the pod called `namespace/name`, or None."""
        return self._rejected.get(key) or self._failed.get(key)

    def remove(self, key: str) -> QueuedEntity | None:
        """Remove and return a pod; None if it is not here."""
        if not (self._rejected.by_key or self._failed.by_key):
            return None
        return self._rejected.remove(key) or self._failed.remove(key)

    def pop_early(self) -> QueuedEntity | None:
        """Remove and return the rejected pod whose backoff ends first; None for none."""
        return self._rejected.pop()

    def pop_completed(self, now_us: int) -> Iterator[QueuedEntity]:
        """Remove and yield every pod whose backoff is over."""
        for heap in (self._rejected, self._failed):
            while (info := heap.peek()) is not None and not self._backoff.is_backing_off(info, now_us):
                heap.pop()
                yield info

    def rejected(self) -> Iterator[QueuedEntity]:
        """Return the pods that a plugin rejected, in order."""
        return iter(self._rejected)

    def failed(self) -> Iterator[QueuedEntity]:
        """Return the pods whose attempt ended in an error, in order."""
        return iter(self._failed)
