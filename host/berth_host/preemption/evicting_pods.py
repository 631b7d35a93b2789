"""Pods whose victims are being evicted. PreEnqueue holds these pods back meanwhile.

    nobody -begin-> all victims are needed -last-> only that one is -it is gone or leaves, or end-> nobody
                                           -deleted-> held until the watch shows that all are gone or leave

Written by `evictions`, read by the queue. Source: kube-scheduler `framework/preemption/executor.go`
(IsPodRunningPreemption), v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from berth_sdk.pod import Pod

from berth_host.config.host_rules import RULES_1_37, HostRules


class LeavingPods(Protocol):
    """The pods that exist, as the watch last showed them (`cache.objects.ObjectStores`)."""

    def pod(self, key: str) -> Pod | None:
        """Return the pod called `namespace/name`."""
        ...

    def on_leaving(self, told: Callable[[str], None]) -> None:
        """Call `told` with the uid of every pod that is gone or has begun to leave, from now on."""
        ...


class Preempting:
    """The preemptions under way, by the uid of the preempting pod.

    `rules`: those of the version. 1.38 ends a preemption with the answer of the API server.
    """

    def __init__(self, pods: LeavingPods, rules: HostRules = RULES_1_37) -> None:
        self._pods = pods
        self._ends_with_deletion = rules.ends_preemption_with_deletion
        self._waits_for: dict[str, set[str] | None] = {}
        """Victims that have not begun to leave; None: more must be done even after they leave."""
        self.waited_for_by: dict[str, set[str]] = {}
        self._changed: set[str] = set()
        self._told_of_end: Callable[[str], None] = lambda _: None
        pods.on_leaving(self._left)

    def begin(self, uid: str) -> None:
        """Record that the evictions for the pod `uid` begin."""
        self.end(uid)
        self._waits_for[uid] = None

    def last(self, uid: str, victim: Pod) -> None:
        """Hold the pod until its last victim leaves, which may be seen before the eviction has returned."""
        self._wait(uid, (victim,))

    def end(self, uid: str) -> None:
        """Record that the evictions for the pod have ended, with or without success."""
        for victim in self._waits_for.pop(uid, None) or ():
            others = self.waited_for_by[victim]
            others.discard(uid)
            if not others:
                del self.waited_for_by[victim]
        self._changed.add(uid)
        self._told_of_end(uid)

    def on_end(self, told: Callable[[str], None]) -> None:
        """Call `told` with the uid of each pod whose hold ends or is renewed, from now on."""
        self._told_of_end = told

    def deleted(self, uid: str, victims: tuple[Pod, ...]) -> None:
        """Hold the pod until the watch shows that all its deleted victims are gone or leaving.

        If the pod were tried before that, it would find no room and preempt again.
        """
        self._wait(uid, () if self._ends_with_deletion else victims)

    def current(self, pod: Pod) -> Pod | None:
        """Return the newest record of a pod; None if the pod is gone."""
        found = self._pods.pod(pod.key)
        return found if found is not None and found.uid == pod.uid else None

    def is_preempting(self, uid: str) -> bool:
        """Return True while victims of this pod are being evicted."""
        return uid in self._waits_for

    def take_changed(self) -> Collection[str]:
        """Return the uids of pods whose hold may have begun or ended since the last call."""
        taken, self._changed = self._changed, set()
        return taken

    def __contains__(self, uid: object) -> bool:
        return uid in self._waits_for

    def __len__(self) -> int:
        return len(self._waits_for)

    def _wait(self, uid: str, victims: Iterable[Pod]) -> None:
        self.end(uid)
        left = {victim.uid for victim in victims if self._is_there(victim)}
        if left:
            self._waits_for[uid] = left
            for victim in left:
                self.waited_for_by.setdefault(victim, set()).add(uid)

    def _left(self, victim: str) -> None:
        for uid in self.waited_for_by.pop(victim, ()):
            left = self._waits_for[uid]
            if left is not None:
                left.discard(victim)
                if not left:
                    self.end(uid)

    def _is_there(self, victim: Pod) -> bool:
        now = self._pods.pod(victim.key)
        return now is not None and now.uid == victim.uid and not now.terminating
