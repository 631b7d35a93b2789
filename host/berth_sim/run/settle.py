"""Runs the host of a simulation until nothing can change any more.

A simulation goes in steps, so that the same input and the same seed give the same placements on every
machine. The host pops the next pod only after all effects of earlier attempts: bindings, evictions, status
writes, watch events, work of controllers. On a real cluster these overlap with the next attempt.

The host's clock stands still while pods are scheduled. When only timers of the queue or of Permit are left,
the clock jumps to the next timer. While a served plugin holds a pod at Permit, the run first waits
for the plugin's decision in real time. The host's clock stands still meanwhile, so that no placement depends
on the time of the decision. Deadlines of calls are always real time.

The run ends when no pod is active, in flight or waiting for a call, no attachment is being restored, and no
timer can change that. A pod that failed TRIES_WITHOUT_CHANGE times while nothing changed in the cluster is
not tried again. Such a pod ends in an error each time, or waits for other pods that time out together with
it.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable
from typing import Final

from berth_host.app.host import Host
from berth_host.model.clock import ManualClock
from berth_host.queue.queued_pod import QueuedEntity

TRIES_WITHOUT_CHANGE: Final = 5
_CYCLES_PER_LOOK: Final = 256
"""Scheduling cycles between two checks for pods that requeue each other without end."""
NEVER_FLUSHED_S: Final = 10.0**12
"""`HostOptions.max_in_pool_s` of a simulation. The flush is for missed events, and a simulation misses none.

The moment is after the year 9999: no answer names it.
"""
_POLL_S: Final = 0.002
_QUIET_LOOKS: Final = 3
"""Consecutive turns of the loop without a change after which nothing changes any more. More than one, as a
task that is woken in one turn runs in the next.
"""
_SPINS: Final = 64
"""Turns of the loop that a step is polled without a pause. A longer step waits for another process."""
STEP_S: Final = 3.0
"""Real seconds that the next pod waits for the effects of earlier attempts, at most. After them, the run
ignores a binding cycle that is still open: the cycle may wait for a later pod.
"""
DECISION_S: Final = 3.0
"""Real seconds without any change that the run waits for a served plugin's decision about a pod at Permit.
After them the clock jumps to its next timer, as the plugin may never decide.
"""


def is_busy(host: Host) -> bool:
    """Return True while the host has work that needs no step of its clock."""
    return bool(
        host.queue.has_ready
        or host.scheduler.is_busy
        or host.binding.active_count
        or host.waiting_pods.has_untaken_decision
        or host.status.pending_count
        or host.group_status.pending_count
        or not host.coscheduling.is_idle
        or len(host.evictions)
        or not host.repair.is_idle
        or host.wiring.busy
        or host.cluster.undelivered_count
        or host.attachments.restoring
        or len(host.binding.ends or ())
    )


def _delivers(host: Host) -> bool:
    """Return True while a plugin has yet to get an Unreserve, or a PostBind that may be held."""
    return host.attachments.delivering or bool(len(host.binding.ends or ()))


async def settle(host: Host) -> None:
    """Run the host until nothing changes any more, and move its clock.

    Raises the error that ended the host, and TypeError for a host without a ManualClock.
    """
    if not isinstance(host.clock, ManualClock):
        raise TypeError("only a host on a ManualClock can be settled, as `settle` moves its time")
    await Settling(host, host.clock).run()


class Settling:
    """One run of a host until nothing changes."""

    def __init__(
        self,
        host: Host,
        clock: ManualClock,
        others_move: Callable[[], bool] | None = None,
    ) -> None:
        """Prepare the run.

        `others_move`: returns True while a part outside the host, such as a controller, is about to change
        the cluster. With `others_move`, the host's scheduler goes in steps from now on.
        """
        self._host = host
        self._others_move = others_move or (lambda: False)
        self._slow: set[str] = set()
        """Ids of the binding cycles that the run ignores, as they took longer than STEP_S."""
        self._delivers_slowly = False
        """True while the steps do not wait for Unreserve and PostBind, as these took longer than STEP_S."""
        host.scheduler.before_pop = None if others_move is None else self._before_pop
        self._clock = clock
        self._changes = -1
        self._attempts_before: dict[str, int] = {}
        self._gate_jumps = 0
        self._cycles_looked_at = 0
        self._is_circling = False
        self._awaited = (0, 0)
        self._awaited_s = 0.0

    async def run(self) -> None:
        """Wait until nothing changes. Raises the error that ended the host, if any."""
        host = self._host
        while True:
            host.check()
            if self._is_busy():
                if self._is_circling or (host.scheduler.before_pop is None and self._runs_in_circles()):
                    return
                await asyncio.sleep(_POLL_S)
                continue
            if not await self._stays_quiet(self._is_busy):
                continue
            if self._awaits_decision():
                await self._wait_for_decision()
            elif not self._jump():
                return

    def _is_busy(self) -> bool:
        return is_busy(self._host) or self._others_move()

    @staticmethod
    async def _stays_quiet(moves: Callable[[], bool]) -> bool:
        """Return True if nothing changes for _QUIET_LOOKS turns of the loop."""
        for _ in range(_QUIET_LOOKS):
            await asyncio.sleep(0)
            if moves():
                return False
        return True

    async def _before_pop(self) -> None:
        """Wait for all effects of the earlier attempts, before the next pod is popped."""
        await self._step_is_over()
        self._is_circling = self._runs_in_circles()
        if self._is_circling:
            # The run ends here. The stop of the host cancels this wait.
            await asyncio.get_running_loop().create_future()

    async def _step_is_over(self) -> None:
        """Wait for all effects of the attempts so far, for STEP_S at most."""
        ends_s = time.monotonic() + STEP_S
        for turn in itertools.count():
            if not self._step_moves() and await self._stays_quiet(self._step_moves):
                return
            if turn < _SPINS:
                await asyncio.sleep(0)
                continue
            await asyncio.sleep(_POLL_S / 4)
            if time.monotonic() >= ends_s:
                self._slow.update(attempt.cycle_id for attempt in self._host.binding.attempts())
                self._delivers_slowly = _delivers(self._host)
                return

    def _step_moves(self) -> bool:
        """Return True while an effect of an attempt that is over is pending."""
        host = self._host
        delivers = _delivers(host)
        self._delivers_slowly &= delivers
        return bool(
            host.cluster.undelivered_count
            or (delivers and not self._delivers_slowly)
            or host.status.pending_count
            or host.group_status.pending_count
            or host.waiting_pods.has_untaken_decision
            or len(host.evictions)
            or not host.repair.is_idle
            or host.wiring.busy
            or self._others_move()
            or any(
                not attempt.idle and attempt.cycle_id not in self._slow for attempt in host.binding.attempts()
            )
        )

    def _awaits_decision(self) -> bool:
        """Return True while a served plugin holds a pod, until DECISION_S after the last change."""
        host = self._host
        elsewhere = host.attachments.attached_places.plugins
        held = [
            pod for pod in host.waiting_pods.list() if not elsewhere.keys().isdisjoint(pod.pending_plugins)
        ]
        if not held:
            return False
        awaited = (host.changes, len(held))
        if awaited != self._awaited:
            self._awaited, self._awaited_s = awaited, 0.0
        return self._awaited_s < DECISION_S

    async def _wait_for_decision(self) -> None:
        """Sleep for a moment of real time, without a change of the host's clock."""
        began_s = time.monotonic()
        await asyncio.sleep(_POLL_S)
        self._awaited_s += time.monotonic() - began_s

    def _jump(self) -> bool:
        """Move the clock to the next timer that can requeue a pod; return False if there is none."""
        host = self._host
        next_s = self._clock.next_timer_s()
        if next_s is None:
            return False
        movable = [*host.queue.places.backoff.failed(), *host.binding.queued()]
        is_awaited = any(attempt.is_claimed for attempt in host.binding.attempts())
        if not (self._worth_another_try(movable) or self._gates_may_open() or is_awaited):
            return False
        self._clock.advance_to(next_s)
        return True

    def _worth_another_try(self, infos: Iterable[QueuedEntity]) -> bool:
        """Return True if one was tried fewer than TRIES_WITHOUT_CHANGE times since the last change."""
        changes = self._host.changes
        if changes != self._changes:
            self._changes = changes
            self._attempts_before.clear()
            self._gate_jumps = 0
        worth = False
        for info in infos:
            before = self._attempts_before.setdefault(info.uid, info.attempts - 1)
            worth = worth or info.attempts - before < TRIES_WITHOUT_CHANGE
        return worth

    def _gates_may_open(self) -> bool:
        """Return True if a PreEnqueue plugin that failed may answer at the next timer."""
        if not self._host.wiring.retries:
            return False
        self._gate_jumps += 1
        return self._gate_jumps < TRIES_WITHOUT_CHANGE

    def _runs_in_circles(self) -> bool:
        """Return True if pods requeue each other without end and each is rejected again.

        The clock would never move.
        """
        host = self._host
        if host.queue.scheduling_cycle - self._cycles_looked_at < _CYCLES_PER_LOOK:
            return False
        self._cycles_looked_at = host.queue.scheduling_cycle
        places = host.queue.places
        waiting = [*places.active, *places.backoff.rejected(), *places.backoff.failed()]
        return bool(waiting) and not self._worth_another_try([*waiting, *host.binding.queued()])
