"""Which reservations and waits of a plugin are alive, for `attach.reconciling`. Made by `HostAttachments`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from berth_host.attach.reconciling import LiveCycle
from berth_host.framework.waiting_pods import WaitingPods
from berth_host.rpc.relay import LOST
from berth_host.scheduler.binding_cycle import BindingCycle
from berth_host.scheduler.schedule_one import Scheduler


class CyclesOfHost(Protocol):
    """The parts of the host that run cycles."""

    scheduler: Scheduler
    binding: BindingCycle
    waiting_pods: WaitingPods


class CyclesUnderWay:
    """`attach.reconciling.LiveCycles` over the scheduling cycle and the binding cycles of a host."""

    def __init__(self, host: CyclesOfHost) -> None:
        self._host = host

    def live(self, plugin: str) -> list[LiveCycle]:
        """From a successful Reserve to the end of the binding, and while the plugin holds a pod at Permit."""
        host = self._host
        deadlines_s = {waiting.cycle_id: waiting.deadline_s for waiting in host.waiting_pods.list(plugin)}
        attempts = host.binding.attempts()
        if host.scheduler.in_cycle is not None:
            attempts.append(host.scheduler.in_cycle)
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
        """Whoever waits at Permit is sent back now, the others fail at their next step."""
        for item in cycles:
            item.context.lost_by.add(plugin)
            self._host.waiting_pods.preempt(item.context.pod.uid, plugin, f'plugin "{plugin}" {LOST}')
