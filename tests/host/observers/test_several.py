"""Several observers of attempts as one."""

from __future__ import annotations

from berth_host.attempt.call_record import CycleRecord
from berth_host.cycle.observer import Unobserved
from berth_host.observers.several import observing
from support.hosts import World, node, pod
from support.moments import Moments


def test_one_observer_alone_has_nothing_around_it() -> None:
    alone = Moments()
    assert observing([alone]) is alone


async def test_all_observers_see_the_same_moments() -> None:
    first, second = Moments(), Moments()
    async with World([node("a"), pod("web")], observers=[first, second]) as world:
        await world.settle()
    assert first.seen == second.seen
    assert first.of("web")[0] == "begun"
    assert first.of("web")[-1] == "ended"


async def test_an_observer_may_note_one_moment_alone() -> None:
    class Ends(Unobserved):
        def __init__(self) -> None:
            self.count = 0

        def ended(self, attempt: CycleRecord) -> None:
            self.count += 1

    ends, moments = Ends(), Moments()
    async with World([node("a"), pod("web"), pod("db")], observers=[ends, moments]) as world:
        await world.settle()
    assert ends.count == 2
    assert moments.of("db")[-1] == "ended"
