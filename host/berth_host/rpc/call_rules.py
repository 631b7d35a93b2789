"""The deadline and the policies of every call to one plugin, from configuration, wishes and limits.

Called by the relay, and by `attach`, which sends an instance its deadlines. Defaults and limits are in
BerthConfiguration's table of points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from berth_sdk.extension_points import ExtensionPoint

from berth_host.config.berth.points import FailurePolicy, PointRules
from berth_host.config.berth.points import PointPolicy as PointPolicy
from berth_host.rpc.call import AnyCall
from berth_host.rpc.calls import CALLS, END_CYCLES, SIMULATE_FILTER

Policy = FailurePolicy

_SCORING: Final = frozenset(
    {
        ExtensionPoint.PRE_SCORE,
        ExtensionPoint.SCORE,
        ExtensionPoint.NORMALIZE_SCORE,
        ExtensionPoint.PLACEMENT_SCORE,
        ExtensionPoint.NORMALIZE_PLACEMENT_SCORE,
    }
)


@dataclass(frozen=True, slots=True)
class CallRule:
    """The deadline and the policies of one call to one plugin.

    `policy`: for a call that was made and failed. `unasked`: for a call that cannot be made, because no
    instance is attached, ready and trusted, or because the circuit breaker is open.
    """

    deadline_s: float
    policy: Policy
    unasked: Policy


def call_rules(
    overrides: Mapping[str, PointPolicy], wishes_s: Mapping[str, float], *, required: bool
) -> dict[str, CallRule]:
    """Return the rule of every RPC for one plugin, by the RPC's name.

    `overrides` (the operator's) and `wishes_s` (the plugin's) are keyed by point (`preBind`). A wish
    is clamped by the operator's deadline, or else by the call's maximum.

    If the plugin cannot be called, the point's policy applies. A plugin that is not required is left out
    instead, except at points whose policy the operator set.
    """
    rules: dict[str, CallRule] = {}
    nothing_chosen = PointPolicy()
    for call, of_point in _calls():
        key = next((key for key in call.keys if key in overrides), "") if overrides else ""
        chosen = overrides.get(key, nothing_chosen)
        # The operator sets Filter's deadline; SimulateFilter gets twice that, as it has by default.
        factor = 2.0 if call is SIMULATE_FILTER and key == "filter" else 1.0
        default_s, max_s = of_point.deadline_ms / 1000, of_point.max_deadline_ms / 1000
        own_s = default_s if chosen.deadline_s is None else factor * chosen.deadline_s
        limit_s = max_s if chosen.deadline_s is None else own_s
        left_out = Policy.NEUTRAL if call.point in _SCORING else Policy.IGNORE
        policy = chosen.policy or of_point.policy
        rules[call.rpc] = CallRule(
            deadline_s=min(wishes_s.get(call.keys[0], own_s), limit_s, max_s),
            policy=policy,
            unasked=policy if required else (chosen.policy or left_out),
        )
    return rules


@cache
def _calls() -> tuple[tuple[AnyCall, PointRules], ...]:
    """Return every call with the defaults and limits of its point."""
    return tuple((call, call.rules) for call in CALLS)


def deadlines_by_point(rules: Mapping[str, CallRule]) -> dict[str, float]:
    """Return the deadline of each point's own call in seconds, by the point's name (`preBind`)."""
    return {
        call.point.config_name: rules[call.rpc].deadline_s
        for call in CALLS
        if call.keys[0] == call.point.config_name and call is not END_CYCLES
    }
