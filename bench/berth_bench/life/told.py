"""`Told`: what the host said about pods in events and conditions, against what became of the pods."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod

_PREEMPTED_BY: Final = re.compile(r"Preempted by pod (\S+) on node ")


class Told:
    """The events of the hosts of one life.

    `in_order` False: events may come in another order than the attempts that they tell of, and a repetition
    comes without its text, as through a real API server. `requires`: while True, each binding needs a
    Scheduled event, and each failed attempt a condition. False while calls fail: a host may stop between a
    binding and its event, and gives up a status that the API server refuses.
    """

    def __init__(self, *, in_order: bool = True) -> None:
        self.requires = False
        self._in_order = in_order
        self._priorities: dict[str, int] = {}
        self._unsaid: dict[str, str] = {}
        """The keys of the pods that are bound and have no Scheduled event yet, by uid."""
        self._scheduled: set[str] = set()
        self._failed: dict[str, set[str]] = {}
        """The messages of which one is that of the last attempt, by the uid of each pod whose attempt failed.
        """

    def pod_is(self, pod: KubeObject) -> None:
        """Note a new or changed pod."""
        uid = pod.ref.uid
        is_new = uid not in self._priorities
        self._priorities[uid] = int(pod.get("spec.priority") or 0)
        if not pod.get("spec.nodeName"):
            return
        self._failed.pop(uid, None)
        if self.requires and not is_new and uid not in self._scheduled:
            self._unsaid[uid] = pod.ref.key

    def pod_is_gone(self, pod: KubeObject) -> None:
        """Forget a pod, except its priority: it may have preempted others."""
        self._failed.pop(pod.ref.uid, None)
        self._unsaid.pop(pod.ref.uid, None)

    def event(self, pod: Pod, reason: str, note: str) -> str:
        """Note an event about a pod. Return what is wrong with it; "" for nothing.

        `note`: "" for the repetition of an event, whose text nobody writes.
        """
        if reason == "Scheduled":
            self._scheduled.add(pod.uid)
            self._unsaid.pop(pod.uid, None)
        elif reason == "FailedScheduling":
            if self.requires and not pod.node_name:
                before = set() if self._in_order else self._failed.get(pod.uid, set())
                self._failed[pod.uid] = {*before, note}
        elif reason == "Preempted" and (found := _PREEMPTED_BY.match(note)):
            preemptor = self._priorities.get(found[1])
            if preemptor is not None and preemptor <= pod.priority:
                return (
                    f"pod {pod.key} of priority {pod.priority} was preempted by one of priority {preemptor}"
                )
        return ""

    def unsaid(self) -> Iterator[str]:
        """Return the pods that were bound without a Scheduled event."""
        yield from self._unsaid.values()

    def without_condition(self, pending: Iterable[KubeObject]) -> Iterator[str]:
        """Return the pods without the condition PodScheduled that says why their last attempt failed."""
        for pod in pending:
            said = self._failed.get(pod.ref.uid)
            if said is None or pod.get("spec.nodeName"):
                continue
            conditions = pod.get("status.conditions") or ()
            held = [one for one in conditions if one["type"] == "PodScheduled" and one["status"] == "False"]
            # An event has less room than a condition.
            begins = tuple(note.removesuffix("...")[:500] for note in said)
            if not any(one.get("reason") and str(one.get("message")).startswith(begins) for one in held):
                yield pod.ref.key
