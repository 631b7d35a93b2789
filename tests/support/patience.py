"""Deadlines of served plugins that only a hang is longer than, where a test does not choose them.

A deadline by default is a quarter of a second. A busy machine may need longer for the answer of another
process, and a host whose clock stands still does not try again by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from berth_host.config.berth.points import POINT_RULES
from berth_host.config.configuration import LoadedConfiguration
from berth_host.rpc.call_rules import PointPolicy
from berth_host.rpc.calls import CALLS
from support.waiting import PATIENCE_S


def patient(points: Mapping[str, PointPolicy]) -> dict[str, PointPolicy]:
    """Return the highest deadline for every call whose time `points` do not choose."""
    chosen = dict(points)
    for call in CALLS:
        key = next((key for key in call.keys if key in points), call.keys[0])
        policy = chosen.get(key, PointPolicy())
        if policy.deadline_s is None:
            chosen[key] = replace(policy, deadline_s=POINT_RULES[key].max_deadline_ms / 1000)
    return chosen


def with_patience(loaded: LoadedConfiguration) -> LoadedConfiguration:
    """Return the configuration with such deadlines, and such a budget, where its text names none."""
    plugins = tuple(replace(plugin, points=patient(plugin.points)) for plugin in loaded.berth.plugins)
    is_given = "cycleBudget" in (loaded.berth_document or {})
    budget_s = loaded.berth.cycle_budget_s if is_given else PATIENCE_S
    return replace(loaded, berth=replace(loaded.berth, plugins=plugins, cycle_budget_s=budget_s))
