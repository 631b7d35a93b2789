"""The scheduling loop: pops pods and groups, one after the other, and lets questions in between two cycles.

Watches, binding tasks and replies share the asyncio loop with it: see `MOST_IN_TURN`. `app` runs
`Scheduler.run` as the host's main task. The cycle of a popped pod is in `schedule_one`, that of a group in
`groups.schedule_group`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Protocol

from berth_sdk.clocks import thread_s, work_s

from berth_host.cache.snapshot import Snapshot
from berth_host.cycle.attempt import (
    HOST_STOPS,
    Attempt,
)
from berth_host.cycle.schedule_one import (
    PodCycles,
    PodSteps,
    Profile,
)
from berth_host.queue.queued_group import QueuedGroupInfo
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_host.queue.scheduling_queue import SchedulingQueue

MOST_IN_TURN: Final = 8
"""The most pods that are popped in one turn of the asyncio loop."""

TURN_S: Final = 0.002
"""Seconds after the first pop of a turn, from which on no further pod is popped in it. After a cycle, the
asyncio loop gets a turn for each TURN_S that the cycle computed.
"""


class GroupInCycle(Protocol):
    """The attempt of a group whose cycle runs (`groups.group_attempt.GroupAttempt`)."""

    @property
    def key(self) -> str:
        """The group's key."""
        ...

    @property
    def tried_attempt(self) -> Attempt | None:
        """The attempt of the member whose steps are under way."""
        ...

    def attempts(self) -> list[Attempt]:
        """Return the attempts of the members that are not in their binding cycle."""
        ...

    def member_deleted(self, uid: str) -> bool:
        """Note that a member was deleted; return False for other pods."""
        ...

    def cut(self, reason: str) -> None:
        """Mark the attempt as cut short."""
        ...


class GroupCycles(Protocol):
    """The cycles of groups (`groups.schedule_group.GroupScheduler`)."""

    @property
    def in_cycle(self) -> GroupInCycle | None:
        """The attempt under way."""
        ...

    async def schedule_group(self, info: QueuedGroupInfo) -> None:
        """Make one attempt for one popped group."""
        ...


class Scheduler:
    """The scheduling loop. All parts of the host run on one asyncio loop and need no locks."""

    def __init__(
        self,
        queue: SchedulingQueue,
        snapshot: Snapshot,
        steps: PodSteps,
        pods: PodCycles,
        groups: GroupCycles,
    ) -> None:
        """Make the loop. `pods`, `groups`: make an attempt for what was popped."""
        self.queue = queue
        self.snapshot = snapshot
        self.steps = steps
        self.pods = pods
        self.groups = groups
        self._stopping = False
        self._next_question = asyncio.Lock()
        """Held by the one question that has the snapshot or is the next one to get it."""
        self._rest_ends_s = 0.0
        """Before this reading of `work_s`, no question delays a scheduling cycle that pods wait for."""
        self._questions = asyncio.Lock()
        """Held while a question has the snapshot; the next scheduling cycle waits for its end."""
        self._between = asyncio.Event()
        """Set when the loop is between two cycles and waits for a question, and when the loop ends."""
        self._asked: Attempt | None = None
        """The attempt of a question, so that plugins may ask the host about it during PostFilter."""
        self.before_pop: Callable[[], Awaitable[None]] | None = None
        """Awaited before each pop. A simulation waits in this function for the effects of the earlier
        attempts.
        """
        self._turns = 0
        """The number of turns with pops in which the asyncio loop has run every task that was ready."""
        self._counted_turn = -1
        """The value of `_turns` at the latest pop."""
        self._popped = 0
        """The number of pops in this turn."""
        self._turn_began_s = 0.0

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """The profiles by schedulerName."""
        return self.pods.profiles

    @property
    def in_cycle(self) -> Attempt | None:
        """The attempt whose scheduling cycle runs now. While it runs, the snapshot must not change."""
        group = self.groups.in_cycle
        if group is None:
            return self.pods.in_cycle or self._asked
        return group.tried_attempt

    @property
    def is_busy(self) -> bool:
        """True while a scheduling cycle runs."""
        return self.pods.in_cycle is not None or self.groups.in_cycle is not None

    async def run(self) -> None:
        """Schedule pods until `stop` or `stop_popping` is called.

        The caller of `stop` then cancels the task of `run`, which may be waiting for a pod or for a plugin.
        """
        try:
            await self._run()
        finally:
            self._between.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._stopping:
            await self.queue.ready()
            if self.before_pop is not None:
                await self.before_pop()
            if self._questions.locked():
                self._between.set()
                async with self._questions:
                    pass
            queued = self.queue.pop()
            turns = self._turns
            if turns != self._counted_turn:
                self._counted_turn, self._popped, self._turn_began_s = turns, 0, work_s()
                loop.call_soon(self._count_turn)
            self._popped += 1
            began_s = thread_s()
            if isinstance(queued, QueuedPodInfo):
                may_go_on = await self.pods.schedule_one(queued)
            else:
                may_go_on = False
                if queued is not None:
                    await self.groups.schedule_group(queued)
            # Watches, binding tasks and replies get a turn of the asyncio loop after each pod, or after a run
            # of pods with short cycles: the bindings of a run share a write. If a cycle waited for a served
            # plugin, they have had their turn, at no extra time.
            cycle_s = thread_s() - began_s
            if self._turns == turns and not (may_go_on and self._turn_has_room()):
                await asyncio.sleep(0)
            await self._let_others_catch_up(cycle_s)

    async def _let_others_catch_up(self, cycle_s: float) -> None:
        """Give the other tasks the turns of the asyncio loop that they had in `cycle_s` of short cycles.

        One turn hands over few changes. After a preemption of a group, which may take seconds, its victims
        would seem to stay for many cycles, and be evicted again and again.
        """
        for _ in range(int(cycle_s / TURN_S)):
            await asyncio.sleep(0)

    def _count_turn(self) -> None:
        self._turns += 1

    def _turn_has_room(self) -> bool:
        """Return True if one more pod may be popped in this turn of the asyncio loop."""
        return (
            self._popped < MOST_IN_TURN and self.before_pop is None and work_s() - self._turn_began_s < TURN_S
        )

    @asynccontextmanager
    async def undisturbed(self) -> AsyncIterator[Callable[[Attempt | None], None]]:
        """Hold the newest snapshot for a question, between two scheduling cycles.

        Yields a function that names the attempt of the question, about which plugins may ask the host. The
        next cycle begins after the block, in which no trial step is left. While pods wait for a cycle, the
        next question begins after the cycles have had as much time as this one took.
        """
        # The other questions wait here, so that a cycle waits for one question, however many there are.
        async with self._next_question:
            rest_s = self._rest_ends_s - work_s()
            if rest_s > 0 and self.queue.has_ready and not self._stopping:
                await asyncio.sleep(rest_s)
            async with self._questions:
                while self.is_busy:
                    self._between.clear()
                    await self._between.wait()
                began_s = work_s()
                self.steps.hold_snapshot()
                try:
                    yield self._ask_about
                finally:
                    self._asked = None
                    self.snapshot.release()
                    ended_s = work_s()
                    self._rest_ends_s = ended_s + (ended_s - began_s)

    def _ask_about(self, attempt: Attempt | None) -> None:
        self._asked = attempt

    def stop_popping(self) -> None:
        """Pop no more pods; let the scheduling cycle under way finish."""
        self._stopping = True

    @property
    def is_stopping(self) -> bool:
        """True after `stop` or `stop_popping` was called."""
        return self._stopping

    def stop(self) -> None:
        """Pop no more pods; mark the scheduling cycle under way as aborted, so that its cancellation undoes
        it.
        """
        self._stopping = True
        if self.pods.in_cycle is not None:
            self.pods.in_cycle.aborted = HOST_STOPS
        if self.groups.in_cycle is not None:
            self.groups.in_cycle.cut(HOST_STOPS)
