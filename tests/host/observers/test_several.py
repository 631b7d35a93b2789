"""Several observers of attempts as one."""

from __future__ import annotations

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
