"""A deleted pod -> its running attempt ends. Made by `parts`, used by the handlers."""

from __future__ import annotations

from berth_host.framework.cycle import POD_DELETED
from berth_host.framework.waiting_pods import WaitingPods
from berth_host.scheduler.binding_cycle import BindingCycle
from berth_host.scheduler.schedule_one import Scheduler


class RunningAttempts:
    """`cluster.handlers.Attempts` over Permit, the scheduling cycle and the binding cycles."""

    def __init__(self, waiting_pods: WaitingPods, scheduler: Scheduler, binding: BindingCycle) -> None:
        self._waiting_pods = waiting_pods
        self._scheduler = scheduler
        self._binding = binding

    def reject_waiting(self, uid: str) -> bool:
        """End the pod's wait on Permit."""
        return self._waiting_pods.reject_pod(uid)

    def abort(self, uid: str) -> None:
        """The pod is gone: cancel the wait of its attempt."""
        in_cycle = self._scheduler.in_cycle
        if in_cycle is not None and in_cycle.pod.uid == uid:
            in_cycle.abort(POD_DELETED)
        else:
            self._binding.abort_pod(uid)
