"""Which reservations and waits of a plugin are alive, for `attach.reconciling`. Made by `parts`."""

from __future__ import annotations

from collections.abc import Sequence

from berth_host.app.late_parts import LateParts
from berth_host.attach.reconciling import LiveCycle
from berth_host.framework.waiting_pods import WaitingPods
from berth_host.rpc.relay import LOST


class CyclesUnderWay:
    """`attach.reconciling.LiveCycles` over Permit, the scheduling cycle and the binding cycles."""

    def __init__(self, waiting_pods: WaitingPods, later: LateParts) -> None:
        self._waiting_pods = waiting_pods
        self._later = later

    def live(self, plugin: str) -> list[LiveCycle]:
        """From a successful Reserve to the end of the binding, and while the plugin holds a pod at Permit."""
        deadlines_s = self._waiting_pods.deadlines_of(plugin)
        attempts = self._later.binding.attempts()
        in_cycle = self._later.scheduler.in_cycle
        if in_cycle is not None:
            attempts.append(in_cycle)
        found: dict[str, LiveCycle] = {}
        for attempt in attempts:
            if not attempt.has_cycle:
                continue
            context = attempt.cycle.context
            deadline_s = deadlines_s.get(context.cycle_id)
            if plugin in context.reservations or deadline_s is not None:
                found[context.cycle_id] = LiveCycle(context, attempt.node_name, deadline_s)
        return list(found.values())

    def lost(self, plugin: str, cycles: Sequence[LiveCycle]) -> None:
        """Pods that wait at Permit are sent back now, the others fail at their next step."""
        for item in cycles:
            item.context.lost_by.add(plugin)
            self._waiting_pods.preempt(item.context.pod.uid, plugin, f'plugin "{plugin}" {LOST}')
