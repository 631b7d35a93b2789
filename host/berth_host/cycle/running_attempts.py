"""The running attempts of a host, found by pod (`RunningAttempts`) or by plugin (`CyclesUnderWay`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from berth_host.attach.interfaces import LiveCycle
from berth_host.attempt.cycle import POD_DELETED
from berth_host.cycle.loop import Scheduler
from berth_host.cycle.schedule_one import BindingCycle
from berth_host.framework.waiting_pods import WaitingPods
from berth_host.rpc.relay import LOST


class RunningAttempts:
    """Ends the attempt of a deleted pod; implements `cluster.handlers.Attempts`."""

    def __init__(self, waiting_pods: WaitingPods, scheduler: Scheduler, binding: BindingCycle) -> None:
        self._waiting_pods = waiting_pods
        self._scheduler = scheduler
        self._binding = binding

    def reject_waiting(self, uid: str) -> bool:
        """End the pod's wait at Permit; return False if it does not wait."""
        return self._waiting_pods.reject_pod(uid)

    def abort(self, uid: str) -> None:
        """Cancel the call or the wait of the attempt of a deleted pod."""
        group = self._scheduler.groups.in_cycle
        if group is not None and group.member_deleted(uid):
            return
        in_cycle = self._scheduler.in_cycle
        if in_cycle is not None and in_cycle.pod.uid == uid:
            in_cycle.abort(POD_DELETED)
        else:
            self._binding.abort_pod(uid)


class HostCycles(Protocol):
    """The parts of the host that run cycles. Read when needed, because attachments are made before them."""

    @property
    def scheduler(self) -> Scheduler:
        """The scheduling cycle."""
        ...

    @property
    def binding(self) -> BindingCycle:
        """The binding cycles."""
        ...


class CyclesUnderWay:
    """The current reservations and waits of a plugin. Implements `attach.reconciling.LiveCycles`."""

    def __init__(self, waiting_pods: WaitingPods, cycles: HostCycles) -> None:
        self._waiting_pods = waiting_pods
        self._cycles = cycles

    def live(self, plugin: str) -> list[LiveCycle]:
        """Return the cycles in which the plugin has a reservation or holds the pod at Permit.

        A reservation lasts from a successful Reserve, or from a WAIT of Permit after a SKIP of Reserve, to
        the end of the binding cycle.
        """
        deadlines_s = self._waiting_pods.deadlines_of(plugin)
        attempts = self._cycles.binding.attempts()
        scheduler = self._cycles.scheduler
        if scheduler.groups.in_cycle is not None:
            attempts.extend(scheduler.groups.in_cycle.attempts())
        elif scheduler.in_cycle is not None:
            attempts.append(scheduler.in_cycle)
        found: dict[str, LiveCycle] = {}
        for attempt in attempts:
            deadline_s = deadlines_s.get(attempt.cycle_id)
            if attempt.part(plugin).reserved_node is not None or deadline_s is not None:
                found[attempt.cycle_id] = LiveCycle(attempt, deadline_s)
        return list(found.values())

    def bound(self, plugin: str) -> list[LiveCycle]:
        """Return the cycles whose end is held (`bound_ends`) and in which the plugin has a reservation."""
        ends = self._cycles.binding.ends
        return [
            LiveCycle(attempt)
            for attempt in (() if ends is None else ends.attempts(plugin))
            if attempt.part(plugin).reserved_node is not None
        ]

    def lost(self, plugin: str, cycles: Sequence[LiveCycle]) -> None:
        """Fail cycles whose reservation the plugin lost: pods at Permit at once, the others at their next
        step.
        """
        for item in cycles:
            item.cycle.part(plugin).is_lost = True
            self._waiting_pods.preempt(item.cycle.pod.uid, plugin, f'plugin "{plugin}" {LOST}')
