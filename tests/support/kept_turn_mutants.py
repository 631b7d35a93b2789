"""Mutants of the turn in which equal pods are placed, for `tests/host/cycle/test_loop.py`.

Each removes one condition under which the turn goes on with one more pod, or the turns after a long cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from berth_host.cycle import loop
from berth_host.cycle.loop import Scheduler
from berth_host.cycle.schedule_one import PodCycles
from berth_host.metrics.series import instant_s


def a_turn_has_no_most(patch: pytest.MonkeyPatch) -> None:
    """The pods of a turn are not counted."""

    def has_room(self: Any) -> bool:
        return self.before_pop is None and instant_s() - self._turn_began_s < loop.TURN_S

    patch.setattr(Scheduler, "_turn_has_room", has_room)


def a_turn_has_no_end(patch: pytest.MonkeyPatch) -> None:
    """The time of a turn does not count."""

    def has_room(self: Any) -> bool:
        return self.before_pop is None and self._popped < loop.MOST_IN_TURN

    patch.setattr(Scheduler, "_turn_has_room", has_room)


def a_turn_takes_no_heed_of_before_pop(patch: pytest.MonkeyPatch) -> None:
    """A simulation does not wait for the effects of the earlier attempts."""

    def has_room(self: Any) -> bool:
        began_s, popped = self._turn_began_s, self._popped
        return bool(instant_s() - began_s < loop.TURN_S and popped < loop.MOST_IN_TURN)

    patch.setattr(Scheduler, "_turn_has_room", has_room)


def a_turn_goes_on_after_a_long_cycle(patch: pytest.MonkeyPatch) -> None:
    """A cycle counts as short that asked plugins."""
    schedule = PodCycles.schedule_one

    async def one(self: Any, queued: Any) -> bool:
        await schedule(self, queued)
        return queued.uid in self._cache.assumed_uids

    patch.setattr(PodCycles, "schedule_one", one)


def a_turn_goes_on_after_a_failure(patch: pytest.MonkeyPatch) -> None:
    """A cycle without a node counts as short."""
    schedule = PodCycles.schedule_one

    async def one(self: Any, queued: Any) -> bool:
        return await schedule(self, queued) or queued.uid not in self._cache.assumed_uids

    patch.setattr(PodCycles, "schedule_one", one)


def a_long_cycle_gives_no_further_turn(patch: pytest.MonkeyPatch) -> None:
    """The time of a cycle does not count afterwards."""

    async def nothing(self: Any, cycle_s: float) -> None:
        pass

    patch.setattr(Scheduler, "_let_others_catch_up", nothing)


MUTANTS: Mapping[Callable[[pytest.MonkeyPatch], None], str] = {
    a_turn_has_no_most: "test_an_urgent_pod_that_comes_in_a_turn_is_next",
    a_turn_has_no_end: "test_a_turn_ends_after_its_time",
    a_turn_takes_no_heed_of_before_pop: "test_before_pop_has_its_turn_before_each_pod",
    a_turn_goes_on_after_a_long_cycle: "test_a_turn_ends_with_a_pod_that_plugins_are_asked_about",
    a_long_cycle_gives_no_further_turn: "test_changes_catch_up_after_a_long_cycle",
    a_turn_goes_on_after_a_failure: "test_a_turn_ends_with_a_pod_that_fits_no_node",
}
"""By mutant, the test that it fails."""
