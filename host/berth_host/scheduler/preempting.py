"""Pods whose victims are being evicted: they are held back by PreEnqueue meanwhile.

    nobody -begin-> all victims are needed -last-> only that one is -it is gone or leaves, or end-> nobody
                                           -deleted-> held until the watch shows that all are gone or leave

Written by `evictions`, asked by the queue. Source: kube-scheduler `framework/preemption/executor.go`
(IsPodRunningPreemption), v1.36.
"""

from __future__ import annotations

from typing import Final

from berth_sdk.pod import Pod

from berth_host.queue.seams import PodLister

TIDY_AT: Final = 64


class Preempting:
    """By the uid of the preempting pod."""

    def __init__(self, pods: PodLister) -> None:
        self._pods = pods
        self._last: dict[str, Pod | None] = {}
        self._deleted: dict[str, tuple[Pod, ...]] = {}
        self._tidy_at = TIDY_AT

    def begin(self, uid: str) -> None:
        """The evictions begin."""
        self._last[uid] = None
        self._deleted.pop(uid, None)

    def last(self, uid: str, victim: Pod) -> None:
        """All victims but this one are evicted. Its leaving may be seen before its eviction has returned."""
        self._last[uid] = victim

    def end(self, uid: str) -> None:
        """The evictions are over, one way or the other."""
        self._last.pop(uid, None)
        self._deleted.pop(uid, None)

    def deleted(self, uid: str, victims: tuple[Pod, ...]) -> None:
        """All victims are deleted, and the watch may be behind: tried now, the pod would not find the room
        that was made, and make more.
        """
        self.end(uid)
        if len(self._deleted) >= self._tidy_at:
            # A preemptor that was deleted meanwhile is never asked about again.
            self._deleted = {
                one: gone for one, gone in self._deleted.items() if any(map(self._is_there, gone))
            }
            self._tidy_at = 2 * len(self._deleted) + TIDY_AT
        self._deleted[uid] = victims

    def __contains__(self, uid: str) -> bool:
        if uid in self._deleted:
            if any(self._is_there(victim) for victim in self._deleted[uid]):
                return True
            del self._deleted[uid]
        if uid not in self._last:
            return False
        victim = self._last[uid]
        return victim is None or self._is_there(victim)

    def _is_there(self, victim: Pod) -> bool:
        now = self._pods.pod(victim.key)
        return now is not None and now.uid == victim.uid and not now.terminating
