"""Runs of pods in one turn of the asyncio loop."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from berth_host.cluster.port import MAX_EVENTS_PER_TURN
from berth_host.cycle import loop
from berth_host.cycle.attempt import Attempt
from support import kept_turn_mutants
from support.hosts import World, node, pod
from support.waiting import until


class Turns:
    """Pods that are created while the scheduler waits, and then placed. `on_start`: called at the start of
    each binding cycle.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bound: list[tuple[str, str]] = []
        """The pods with their nodes, in the order of their bindings."""
        self.counts: list[int] = []
        """The pops by turn of the loop."""
        self.on_start: Callable[[World], None] = lambda world: None
        self._patch = monkeypatch

    async def place(
        self, pods: Sequence[dict[str, Any]], before_pop: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Place the pods. `before_pop`: that of the scheduler, once it goes on."""
        loop, all_wait = asyncio.get_running_loop(), asyncio.Event()
        async with World([node(f"n{number}") for number in range(6)]) as world:
            scheduler, queue, binding = world.host.scheduler, world.host.queue, world.host.binding
            pop, start = queue.pop, binding.start
            is_over = True

            def ends() -> None:
                nonlocal is_over
                is_over = True

            def popped_in_turn() -> Any:
                nonlocal is_over
                if is_over:
                    self.counts.append(0)
                    loop.call_soon(ends)
                    is_over = False
                self.counts[-1] += 1
                return pop()

            def started(attempt: Attempt) -> None:
                self.bound.append((attempt.pod.name, attempt.node_name))
                start(attempt)
                self.on_start(world)

            async def paused() -> None:
                await all_wait.wait()

            self._patch.setattr(queue, "pop", popped_in_turn)
            self._patch.setattr(binding, "start", started)
            scheduler.before_pop = paused
            for item in pods:
                world.server.create(item)
            await until(lambda: queue.active_pod_count == len(pods))
            scheduler.before_pop = before_pop
            all_wait.set()
            if before_pop is not None:  # `settle` sets its own
                await until(lambda: len(self.bound) == len(pods))
            await world.settle()
            assert [world.node_of(name) for name, _ in self.bound] == [place for _, place in self.bound]
            assert world.everything_is_accounted_for()


async def _places(monkeypatch: pytest.MonkeyPatch, most: int) -> tuple[list[tuple[str, str]], list[int]]:
    """Return the pods with their nodes in the order of their bindings, and the pops by turn of the loop."""
    monkeypatch.setattr(loop, "MOST_IN_TURN", most)
    monkeypatch.setattr(loop, "TURN_S", 60.0)
    turns = Turns(monkeypatch)
    await turns.place([pod(f"p{number}") for number in range(40)])
    return turns.bound, turns.counts


async def test_a_run_of_equal_pods_is_placed_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one, single = await _places(monkeypatch, 1)
    in_runs, several = await _places(monkeypatch, 8)
    assert in_runs == one_by_one
    assert (len(in_runs), sum(several)) == (40, 40)
    assert max(single) == 1
    # Bindings and watches get a turn after eight pods.
    assert max(several) == 8


async def test_a_turn_ends_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "work_s", itertools.count(0.0, 60.0).__next__)
    placed, turns = await _places(monkeypatch, 8)
    assert len(placed) == 40
    # Each reading of the clock is a minute later, and a turn has a minute.
    assert max(turns) == 1


async def test_a_turn_ends_with_a_pod_that_plugins_are_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "TURN_S", 60.0)
    turns = Turns(monkeypatch)
    await turns.place([pod(f"p{number}", cpu=f"{number + 1}m") for number in range(20)])
    assert len(turns.bound) == 20
    assert max(turns.counts) == 1


async def test_a_turn_ends_with_a_pod_that_fits_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "TURN_S", 60.0)
    turns = Turns(monkeypatch)
    await turns.place([pod(f"p{number}", cpu="1000") for number in range(12)])
    assert turns.bound == []
    assert max(turns.counts) == 1


async def test_before_pop_has_its_turn_before_each_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once() -> None:
        pass

    monkeypatch.setattr(loop, "TURN_S", 60.0)
    turns = Turns(monkeypatch)
    await turns.place([pod(f"p{number}") for number in range(20)], at_once)
    assert len(turns.bound) == 20
    assert max(turns.counts) == 1


async def test_an_urgent_pod_that_comes_in_a_turn_is_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "TURN_S", 60.0)
    turns = Turns(monkeypatch)

    def comes(world: World) -> None:
        if len(turns.bound) == 5:
            world.server.create(pod("urgent", priority=100))

    turns.on_start = comes
    await turns.place([pod(f"p{number}") for number in range(40)])
    names = [name for name, _ in turns.bound]
    # A watch event waits for the end of the turn, and its pod for that of the next one at most.
    assert names.index("urgent") <= 5 + 2 * loop.MOST_IN_TURN
    assert max(turns.counts) == loop.MOST_IN_TURN


async def test_changes_catch_up_after_a_long_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns(monkeypatch)
    cpu_s = 0.0
    seen: list[int] = []

    def comes(world: World) -> None:
        # The cycle of the first pod takes a second, in which ten turns' worth of nodes are made.
        nonlocal cpu_s
        if len(turns.bound) == 1:
            cpu_s += 1.0
            for number in range(10 * MAX_EVENTS_PER_TURN):
                world.server.create(node(f"late{number}"))
        seen.append(sum(1 for _ in world.host.cache.node_infos()))

    turns.on_start = comes
    monkeypatch.setattr(loop, "thread_s", lambda: cpu_s)
    monkeypatch.setattr(loop, "MOST_IN_TURN", 1)
    await turns.place([pod(f"p{number}") for number in range(3)])
    assert seen == [6, 6 + 10 * MAX_EVENTS_PER_TURN, 6 + 10 * MAX_EVENTS_PER_TURN]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("mutant", kept_turn_mutants.MUTANTS, ids=lambda mutant: mutant.__name__)
async def test_a_mutant_of_the_turn_is_killed(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    test = globals()[kept_turn_mutants.MUTANTS[mutant]]
    with monkeypatch.context() as sound:
        await test(sound)
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        await test(monkeypatch)
