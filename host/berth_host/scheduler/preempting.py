"""Pods whose victims are being evicted: they are held back by PreEnqueue meanwhile.

    nobody -begin-> all victims are needed -last-> only that one is -it is gone or leaves, or end-> nobody

Written by `evictions`, asked by the queue. Source: kube-scheduler `framework/preemption/executor.go`
(IsPodRunningPreemption), v1.36.
"""

from __future__ import annotations

from berth_sdk.pod import Pod

from berth_host.queue.seams import PodLister


class Preempting:
    """By the uid of the preempting pod."""

    def __init__(self, pods: PodLister) -> None:
        self._pods = pods
        self._last: dict[str, Pod | None] = {}

    def begin(self, uid: str) -> None:
        """The evictions begin."""
        self._last[uid] = None

    def last(self, uid: str, victim: Pod) -> None:
        """All victims but this one are evicted. Its leaving may be seen before its eviction has returned."""
        self._last[uid] = victim

    def end(self, uid: str) -> None:
        """The evictions are over, one way or the other."""
        self._last.pop(uid, None)

    def __contains__(self, uid: str) -> bool:
        if uid not in self._last:
            return False
        victim = self._last[uid]
        if victim is None:
            return True
        now = self._pods.pod(victim.key)
        return now is not None and now.uid == victim.uid and not now.terminating
