"""Runs a simulated host until nothing can move any more. Called by `berth simulate` and tests; `berth bench`
asks `is_busy`.

A simulation goes in steps, so that the same input and the same seed give the same placements, whatever the
machine does meanwhile: the next pod is popped only after all effects of the earlier attempts are there:
bindings, evictions, status writes, watch events, controllers. In a real cluster these overlap with the next
attempt.

The host's clock stands still while pods are scheduled; when only timers of the queue or of Permit are left
it jumps to the next one. While a plugin in another process holds a pod at Permit, the decision may be on its
way: the run waits for it in real time, and the host's clock stands still meanwhile, so that no placement
depends on how long the decision took. RPC deadlines are real throughout.

It ends when no pod is active, in flight or awaiting a call, no attachment is being restored, and no timer can
change that. A pod that was tried several times in a row while nothing changed in the cluster will not be
helped by one more try, be it that it ends in an error each time, or that it waits for siblings that time out
with it.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from berth_host.attach.host_attachments import HostAttachments
from berth_host.cluster.port import ClusterPort
from berth_host.framework.waiting_pods import WaitingPods
from berth_host.model.clock import ManualClock
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_host.queue.scheduling_queue import SchedulingQueue
from berth_host.queue.wiring import QueueWiring
from berth_host.scheduler.binding_cycle import BindingCycle
from berth_host.scheduler.evictions import Evictions
from berth_host.scheduler.pod_status import PodStatusWriter
from berth_host.scheduler.schedule_one import Scheduler

TRIES_WITHOUT_CHANGE: Final = 5
_CYCLES_PER_LOOK: Final = 256
NEVER_FLUSHED_S: Final = 10.0**9
"""`HostOptions.max_in_pool_s` of a simulation: the 5-minute flush is for missed events; none are missed."""
_POLL_S: Final = 0.002
_QUIET_LOOKS: Final = 3
"""Turns of the loop in a row without any movement, after which nothing moves: a task that was woken in one
turn runs in the next.
"""
_SPINS: Final = 64
"""Turns of the loop for which a step is looked at without a pause; longer ones wait for another process."""
STEP_S: Final = 3.0
"""Real seconds for which the next pod waits for the effects of the earlier attempts at most. A binding cycle
that takes longer, as it may wait for a later pod, is not waited for any more.
"""
DECISION_S: Final = 3.0
"""Real seconds, without any change, for which a decision about a pod at Permit is awaited from a plugin in
another process. After them the clock jumps to its next timer: nobody can tell a plugin that will not decide
from one that takes its time.
"""


class MovingHost(Protocol):
    """The parts of the host in which something may be under way."""

    cluster: ClusterPort
    queue: SchedulingQueue
    wiring: QueueWiring
    scheduler: Scheduler
    binding: BindingCycle
    waiting_pods: WaitingPods
    status: PodStatusWriter
    evictions: Evictions
    attachments: HostAttachments

    @property
    def changes(self) -> int:
        """Counts the changes that may help a pod that ended in an error."""
        ...

    def check(self) -> None:
        """Raise the error that broke the host, if any."""
        ...


def is_busy(host: MovingHost) -> bool:
    """Whether anything moves without time passing on the host's clock."""
    return bool(
        host.queue.has_ready
        or host.scheduler.in_cycle is not None
        or host.binding.active_count
        or host.status.pending_count
        or len(host.evictions)
        or host.wiring.busy
        or host.cluster.undelivered_count
        or host.attachments.restoring
    )


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is."""

    bound_count: int
    waiting_count: int


class Settling:
    """One run. `host` must have been made with `clock`."""

    def __init__(
        self,
        host: MovingHost,
        clock: ManualClock,
        progress: Callable[[Progress], None] | None = None,
        others_move: Callable[[], bool] | None = None,
    ) -> None:
        """`others_move`: returns True while somebody else than the host, as a controller, is about to change
        the cluster. Where it is given, the host's scheduler goes in steps from now on.
        """
        self._host = host
        self._others_move = others_move or (lambda: False)
        self._slow: set[str] = set()
        """Cycle ids of the binding cycles that are not waited for any more."""
        host.scheduler.before_pop = None if others_move is None else self._before_pop
        self._clock = clock
        self._progress = progress
        self._changes = -1
        self._attempts_before: dict[str, int] = {}
        self._gate_jumps = 0
        self._cycles_looked_at = 0
        self._is_circling = False
        self._awaited = (0, 0)
        self._awaited_s = 0.0

    async def run(self) -> None:
        """Wait until nothing moves. Raises the error that ended the scheduling loop, if any."""
        host = self._host
        while True:
            host.check()
            if self._progress is not None:
                self._progress(Progress(host.binding.bound_count, len(host.waiting_pods)))
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
        """Look again, and again: True if nothing moves for several turns of the loop."""
        for _ in range(_QUIET_LOOKS):
            await asyncio.sleep(0)
            if moves():
                return False
        return True

    async def _before_pop(self) -> None:
        """Wait until the next pod may be tried: not before the effects of the earlier attempts are there."""
        await self._step_is_over()
        self._is_circling = self._runs_in_circles()
        if self._is_circling:
            # The run ends here; the host's end cancels the wait.
            await asyncio.get_running_loop().create_future()

    async def _step_is_over(self) -> None:
        """Wait until the attempts so far have had all their effects, for STEP_S at most."""
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
                return

    def _step_moves(self) -> bool:
        """Return True while an attempt that is over still has an effect to come."""
        host = self._host
        return bool(
            host.cluster.undelivered_count
            or host.status.pending_count
            or len(host.evictions)
            or host.wiring.busy
            or self._others_move()
            or any(
                not attempt.idle and attempt.cycle_id not in self._slow for attempt in host.binding.attempts()
            )
        )

    def _awaits_decision(self) -> bool:
        """Whether a plugin elsewhere holds a pod, and something changed a short while ago."""
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
        """Let a moment of real time pass, and none on the host's clock."""
        began_s = time.monotonic()
        await asyncio.sleep(_POLL_S)
        self._awaited_s += time.monotonic() - began_s

    def _jump(self) -> bool:
        """Move the clock to the next timer that can move a pod; False if there is none."""
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

    def _worth_another_try(self, infos: Iterable[QueuedPodInfo]) -> bool:
        """Whether some of these pods was not yet tried often enough with nothing changing."""
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
        """Whether a PreEnqueue plugin that failed is worth being asked again."""
        if not self._host.wiring.retries:
            return False
        self._gate_jumps += 1
        return self._gate_jumps < TRIES_WITHOUT_CHANGE

    def _runs_in_circles(self) -> bool:
        """Pods that wake each other up without end, each rejected again: time would never move."""
        host = self._host
        if host.queue.scheduling_cycle - self._cycles_looked_at < _CYCLES_PER_LOOK:
            return False
        self._cycles_looked_at = host.queue.scheduling_cycle
        places = host.queue.places
        waiting = [*places.active, *places.backoff.rejected(), *places.backoff.failed()]
        return bool(waiting) and not self._worth_another_try([*waiting, *host.binding.queued()])
