"""QueueSort: the order of pods and pod groups in activeQ, and of those whose backoff ends in the same second.

The plugin returns a key as bytes, or (in process) compares two pods. The heaps compare tuples made of these.
A pod whose key has not arrived is sorted behind all others and is not popped. A pod whose plugin failed, is
absent or gave no key is sorted by priority and time, behind all pods with a key. The observer gets a report
of such a pod, and the key is requested again when the plugin recovers.
A pod group is sorted by the priority and the time of the group.
Called by `places`. Source: kube-scheduler `framework/plugins/queuesort/priority_sort.go`, v1.37, for the
fallback.
"""

from __future__ import annotations

import itertools

from berth_sdk.results import QueuedPod

from berth_host.queue.interfaces import DEFERRED, Less, QueueSeams, SortKeyQuestion
from berth_host.queue.queued_pod import QueuedEntity, SortKey

_KEYED = 0
_FALLBACK = 1
_AWAITED = 2


def is_awaited(info: QueuedEntity) -> bool:
    """Return True if the pod's key was requested and has not arrived."""
    return info.sort_key is not None and info.sort_key[0] == _AWAITED


class LessKey:
    """A sort key that compares with a plugin's `less`."""

    __slots__ = ("_less", "_pod")

    def __init__(self, pod: QueuedPod, less: Less) -> None:
        self._pod = pod
        self._less = less

    def __lt__(self, other: LessKey) -> bool:
        return self._less(self._pod, other._pod)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LessKey):
            return NotImplemented
        return not self._less(self._pod, other._pod) and not self._less(other._pod, self._pod)

    __hash__ = None  # type: ignore[assignment]  # Equality is the plugin's.


class PodOrder:
    """The sort keys of pods, and the questions that have no answer yet."""

    def __init__(self, seams: QueueSeams) -> None:
        self._sort = seams.sort
        self._observer = seams.observer
        self._evicting = seams.evicting
        self._arrivals = itertools.count()
        self._last_asked = -1
        self._open: dict[str, tuple[SortKeyQuestion, QueuedEntity, int]] = {}
        """The question, its entity and its number, by uid; the oldest question first."""
        self._keyless: dict[str, QueuedEntity] = {}

    @property
    def open_count(self) -> int:
        """The number of pods whose key was requested and has not arrived."""
        return len(self._open)

    @property
    def last_asked(self) -> int:
        """The number of the latest question; see `awaits_any_to`."""
        return self._last_asked

    def awaits_any_to(self, number: int) -> bool:
        """Return True if a question up to this number has no answer yet."""
        oldest = next(iter(self._open.values()), None)
        return oldest is not None and oldest[2] <= number

    def assign(self, info: QueuedEntity) -> None:
        """Set the pod's sort key if it has none."""
        if info.sort_key is None:
            info.sort_key = self._ask(info)

    def renew(self, info: QueuedEntity) -> None:
        """Request the key of a queued pod again; the old key is dropped."""
        info.sort_key = self._ask(info)

    def forget(self, info: QueuedEntity) -> None:
        """Drop the question about a pod that left the queue; a late answer is ignored."""
        if not (self._open or self._keyless):
            return
        uid = info.uid
        self._open.pop(uid, None)
        self._keyless.pop(uid, None)

    def answered(self, question: SortKeyQuestion, key: bytes) -> QueuedEntity | None:
        """Set a key that arrived and return its pod; an empty key means the fallback order.

        None if a newer question replaced this one, or the pod left the queue.
        """
        uid = question.uid
        found = self._open.get(uid)
        if found is None or found[0] is not question:
            return None
        del self._open[uid]
        _, info, number = found
        info.sort_key = self._key_or_fallback(info, key, number)
        return info

    def take_keyless(self) -> list[QueuedEntity]:
        """Return and clear the pods without a key; the caller requests their keys again."""
        found = list(self._keyless.values())
        self._keyless.clear()
        return found

    def _ask(self, info: QueuedEntity) -> SortKey:
        self.forget(info)
        sort, number = self._sort, next(self._arrivals)
        if sort.sort_key is None and sort.less is None:
            return _by_priority(_FALLBACK, info, number)
        uid = info.uid
        pod = info.as_queued_pod(victims_pending=uid in self._evicting)
        if sort.sort_key is None:
            return (_KEYED, LessKey(pod, self._less), info.timestamp_us, number)
        question = SortKeyQuestion(pod, uid)
        try:
            key = sort.sort_key(question)
        except Exception as err:  # noqa: BLE001  # A plugin's error must not lose the pod.
            self._observer.plugin_raised(sort.plugin, "SortKey", err)
            return self._key_or_fallback(info, b"", number)
        if key is DEFERRED:
            self._open[uid] = (question, info, number)
            self._last_asked = number
            return _by_priority(_AWAITED, info, number)
        return self._key_or_fallback(info, key, number)

    def _less(self, first: QueuedPod, second: QueuedPod) -> bool:
        if self._sort.less is not None:
            try:
                return self._sort.less(first, second)
            except Exception as err:  # noqa: BLE001  # An error inside `heapq` would break the heap.
                self._observer.plugin_raised(self._sort.plugin, "Less", err)
        return (-first.pod.priority, first.added_at_s) < (-second.pod.priority, second.added_at_s)

    def _key_or_fallback(self, info: QueuedEntity, key: bytes, number: int) -> SortKey:
        if key:
            return (_KEYED, key, info.timestamp_us, number)
        # The plugin gave no key, or not in time: request it again when the plugin recovers.
        self._keyless[info.uid] = info
        for pod in info.pods():
            self._observer.sorted_by_fallback(self._sort.plugin, pod)
        return _by_priority(_FALLBACK, info, number)


def _by_priority(rank: int, info: QueuedEntity, number: int) -> SortKey:
    return (rank, -info.priority, info.timestamp_us, number)
