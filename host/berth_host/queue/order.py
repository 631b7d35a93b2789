"""QueueSort: where a pod stands in activeQ, and among pods that are free in the same second.

The plugin answers key bytes (or, in process, compares two pods); heaps compare the tuples made of them.
A pod whose key was asked for and has not come stands behind all others and is not popped. A pod whose
plugin failed, is absent or gave no key is ordered by priority and time behind all pods that have a key;
the observer is told of it, and the plugin is asked again when it recovers.
Called by `places`. Source: kube-scheduler `framework/plugins/queuesort/priority_sort.go`, v1.36, for the
fallback.
"""

from __future__ import annotations

import itertools

from berth_sdk.results import QueuedPod

from berth_host.queue.queued_pod import QueuedPodInfo, SortKey
from berth_host.queue.seams import DEFERRED, Less, QueueSeams, SortKeyQuestion

_KEYED = 0
_FALLBACK = 1
_AWAITED = 2


def is_awaited(info: QueuedPodInfo) -> bool:
    """Return whether the pod's key was asked for and has not come."""
    return info.sort_key is not None and info.sort_key[0] == _AWAITED


class LessKey:
    """Makes a plugin's `less` usable where keys are compared."""

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

    __hash__ = None  # type: ignore[assignment]  # equal only as far as the plugin can tell


class PodOrder:
    """Gives pods their sort keys, and remembers which of them still wait for an answer."""

    def __init__(self, seams: QueueSeams) -> None:
        self._sort = seams.sort
        self._observer = seams.observer
        self._evicting = seams.evicting
        self._arrivals = itertools.count()
        self._last_asked = -1
        self._open: dict[str, tuple[SortKeyQuestion, QueuedPodInfo, int]] = {}
        """By uid: the question, its pod, and the number of its arrival; the oldest question first."""
        self._keyless: dict[str, QueuedPodInfo] = {}

    @property
    def open_count(self) -> int:
        """Pods whose key was asked for and has not come."""
        return len(self._open)

    @property
    def last_asked(self) -> int:
        """The number of the latest question; see `awaits_any_to`."""
        return self._last_asked

    def awaits_any_to(self, number: int) -> bool:
        """Return whether a question up to this one has no answer yet."""
        oldest = next(iter(self._open.values()), None)
        return oldest is not None and oldest[2] <= number

    def assign(self, info: QueuedPodInfo) -> None:
        """Give the pod a key, unless it has a valid key."""
        if info.sort_key is None:
            info.sort_key = self._ask(info)

    def renew(self, info: QueuedPodInfo) -> None:
        """Ask again for a pod that stays where it is; its previous key does not count any more."""
        info.sort_key = self._ask(info)

    def forget(self, info: QueuedPodInfo) -> None:
        """The pod left the queue: an answer that is still to come is of no use."""
        uid = info.uid
        self._open.pop(uid, None)
        self._keyless.pop(uid, None)

    def answered(self, question: SortKeyQuestion, key: bytes) -> QueuedPodInfo | None:
        """The pod that the key is for, which has it now; empty: the fallback order. None if a later
        question took this one's place, or the pod is gone.
        """
        uid = question.pod.pod.uid
        found = self._open.get(uid)
        if found is None or found[0] is not question:
            return None
        del self._open[uid]
        _, info, number = found
        info.sort_key = self._key_or_fallback(info, key, number)
        return info

    def take_keyless(self) -> list[QueuedPodInfo]:
        """The pods whose plugin did not answer; the caller asks about them again."""
        found = list(self._keyless.values())
        self._keyless.clear()
        return found

    def _ask(self, info: QueuedPodInfo) -> SortKey:
        self.forget(info)
        sort, number = self._sort, next(self._arrivals)
        if sort.sort_key is None and sort.less is None:
            return _by_priority(_FALLBACK, info, number)
        pod = info.as_queued_pod(victims_pending=info.uid in self._evicting)
        if sort.sort_key is None:
            return (_KEYED, LessKey(pod, self._less), info.timestamp_us, number)
        question = SortKeyQuestion(pod)
        try:
            key = sort.sort_key(question)
        except Exception as err:  # noqa: BLE001  # a plugin's error must not lose the pod
            self._observer.plugin_raised(sort.plugin, "SortKey", err)
            return self._key_or_fallback(info, b"", number)
        if key is DEFERRED:
            self._open[info.uid] = (question, info, number)
            self._last_asked = number
            return _by_priority(_AWAITED, info, number)
        return self._key_or_fallback(info, key, number)

    def _less(self, first: QueuedPod, second: QueuedPod) -> bool:
        if self._sort.less is not None:
            try:
                return self._sort.less(first, second)
            except Exception as err:  # noqa: BLE001  # raised inside the heap, it would leave it broken
                self._observer.plugin_raised(self._sort.plugin, "Less", err)
        return (-first.pod.priority, first.added_at_s) < (-second.pod.priority, second.added_at_s)

    def _key_or_fallback(self, info: QueuedPodInfo, key: bytes, number: int) -> SortKey:
        if key:
            return (_KEYED, key, info.timestamp_us, number)
        # No key, or none in time, which look alike: asked for once more when the plugin is back.
        self._keyless[info.uid] = info
        self._observer.sorted_by_fallback(self._sort.plugin, info)
        return _by_priority(_FALLBACK, info, number)


def _by_priority(rank: int, info: QueuedPodInfo, number: int) -> SortKey:
    return (rank, -info.pod.priority, info.timestamp_us, number)
