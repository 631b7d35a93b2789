"""The pods that the search for a preemption asks about. Made by `parts`, used by the evaluator."""

from __future__ import annotations

from berth_sdk.pod import Pod

from berth_host.cache.objects import ObjectStores
from berth_host.scheduler.preempting import Preempting


class Preemptors:
    """`scheduler.preemption.evaluator.PodsAndPreemptions`."""

    def __init__(self, objects: ObjectStores, preempting: Preempting) -> None:
        self._objects = objects
        self._preempting = preempting

    def current(self, pod: Pod) -> Pod | None:
        """The newest record of a pod; None: it is gone."""
        found = self._objects.pod(pod.key)
        return found if found is not None and found.uid == pod.uid else None

    def is_preempting(self, uid: str) -> bool:
        """Whether victims of the pod are being evicted."""
        return uid in self._preempting
