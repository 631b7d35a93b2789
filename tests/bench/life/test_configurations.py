"""The configuration of a life's hosts: its plugins at their points, and the guard that is required."""

from __future__ import annotations

import random

from berth_bench.life.configurations import configuration
from berth_bench.life.guard import GUARD
from berth_bench.life.plugins import KEEPER, keeper


def test_guard_is_served_and_required() -> None:
    classes = {KEEPER: keeper(random.Random(0), 0.0)[0]}
    alone = configuration(classes, has_guard=False)
    guarded = configuration(classes, has_guard=True)
    assert alone.berth.plugins == ()
    (found,) = guarded.berth.plugins
    assert (found.name, found.required) == (GUARD, True)


def test_configurations_of_reloads_differ_and_keep_the_guard_required() -> None:
    classes = {KEEPER: keeper(random.Random(0), 0.0)[0]}
    drawn = [configuration(classes, random.Random(seed), has_guard=True) for seed in range(20)]
    assert {one.berth.plugins[0].required for one in drawn} == {True}
    assert len({repr(one.berth.plugins[0].points) for one in drawn}) > 3
    again = configuration(classes, random.Random(0), has_guard=True)
    assert again.berth == drawn[0].berth
