"""The calls of the contract as the relay makes them: which point's settings count, repeat, budget.

One row per RPC of the plugin's services that stands for a decision; `PluginClient._call` reads nothing
else. Deadlines and policies stand in one place, BerthConfiguration's table of points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from berth_sdk.extension_points import ExtensionPoint

from berth_host.config.berth.points import POINT_RULES, FailurePolicy, PointRules
from berth_host.config.berth.points import PointPolicy as PointPolicy

Policy = FailurePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One RPC. `keys`: under which an operator may set its deadline and policy, the first that is given
    counts; defaults are those of the first. `pure`: repeated once if the plugin is unavailable.
    `budgeted`: remote time of it counts against the cycle's budget.
    """

    rpc: str
    point: ExtensionPoint
    keys: tuple[str, ...]
    pure: bool = False
    budgeted: bool = False

    @property
    def rules(self) -> PointRules:
        """Default deadline, highest one, default policy."""
        return POINT_RULES[self.keys[0]]

    @property
    def default_deadline_s(self) -> float:
        """The deadline where nobody sets one."""
        return self.rules.deadline_ms / 1000


def _queue(rpc: str, point: ExtensionPoint, key: str, *, pure: bool = False) -> Call:
    return Call(rpc=rpc, point=point, keys=(key,), pure=pure)


def _cycle(rpc: str, point: ExtensionPoint, *keys: str, pure: bool) -> Call:
    return Call(rpc=rpc, point=point, keys=keys, pure=pure, budgeted=True)


def _binding(rpc: str, point: ExtensionPoint, *keys: str) -> Call:
    return Call(rpc=rpc, point=point, keys=keys)


_POINT = ExtensionPoint
PRE_ENQUEUE: Final = _queue("PreEnqueue", _POINT.PRE_ENQUEUE, "preEnqueue")
SORT_KEYS: Final = _queue("SortKeys", _POINT.QUEUE_SORT, "queueSort", pure=True)
QUEUEING_HINTS: Final = _queue("QueueingHints", _POINT.FILTER, "queueingHints")
PRE_FILTER: Final = _cycle("PreFilter", _POINT.PRE_FILTER, "preFilter", pure=True)
FILTER: Final = _cycle("Filter", _POINT.FILTER, "filter", pure=True)
SIMULATE_FILTER: Final = _cycle("SimulateFilter", _POINT.FILTER, "simulateFilter", "filter", pure=True)
POST_FILTER: Final = _cycle("PostFilter", _POINT.POST_FILTER, "postFilter", pure=False)
PRE_SCORE: Final = _cycle("PreScore", _POINT.PRE_SCORE, "preScore", pure=True)
SCORE: Final = _cycle("Score", _POINT.SCORE, "score", pure=True)
NORMALIZE_SCORE: Final = _cycle(
    "NormalizeScore", _POINT.NORMALIZE_SCORE, "normalizeScore", "score", pure=True
)
RESERVE: Final = _cycle("Reserve", _POINT.RESERVE, "reserve", pure=False)
PERMIT: Final = _cycle("Permit", _POINT.PERMIT, "permit", pure=False)
# Undoing is never left out for want of budget.
UNRESERVE: Final = _binding("Unreserve", _POINT.RESERVE, "unreserve")
PRE_BIND_PRE_FLIGHT: Final = _binding("PreBindPreFlight", _POINT.PRE_BIND, "preBindPreFlight", "preBind")
PRE_BIND: Final = _binding("PreBind", _POINT.PRE_BIND, "preBind")
BIND: Final = _binding("Bind", _POINT.BIND, "bind")
POST_BIND: Final = _binding("PostBind", _POINT.POST_BIND, "postBind")
# Sent when there is nothing else to do, and treated as PostBind is.
END_CYCLES: Final = _binding("EndCycles", _POINT.POST_BIND, "postBind")

CALLS: Final[tuple[Call, ...]] = (
    PRE_ENQUEUE,
    SORT_KEYS,
    QUEUEING_HINTS,
    PRE_FILTER,
    FILTER,
    SIMULATE_FILTER,
    POST_FILTER,
    PRE_SCORE,
    SCORE,
    NORMALIZE_SCORE,
    RESERVE,
    UNRESERVE,
    PERMIT,
    PRE_BIND_PRE_FLIGHT,
    PRE_BIND,
    BIND,
    POST_BIND,
    END_CYCLES,
)
_SCORING: Final = frozenset({_POINT.PRE_SCORE, _POINT.SCORE, _POINT.NORMALIZE_SCORE})


@dataclass(frozen=True, slots=True)
class CallRule:
    """A call as it applies to one plugin. `absent`: the policy while no instance is attached."""

    deadline_s: float
    policy: Policy
    absent: Policy


def call_rules(
    overrides: Mapping[str, PointPolicy], wishes_s: Mapping[str, float], *, required: bool
) -> dict[str, CallRule]:
    """The rule of every RPC for one plugin, by the RPC's name.

    `overrides` (the operator's) and `wishes_s` (the plugin's) are keyed by point (`preBind`). A wish
    is clamped by the operator's deadline, or else by the call's maximum.

    While an optional plugin is absent its points count for nothing, unless the operator chose Fail for
    the point by name; a required one fails the pods in its scope.
    """
    rules: dict[str, CallRule] = {}
    for call in CALLS:
        key = next((key for key in call.keys if key in overrides), "")
        chosen = overrides.get(key, PointPolicy())
        # SimulateFilter gets twice the time that an operator gives Filter, as it has by default.
        factor = 2.0 if (call, key) == (SIMULATE_FILTER, "filter") else 1.0
        default_s, max_s = call.default_deadline_s, call.rules.max_deadline_ms / 1000
        own_s = default_s if chosen.deadline_s is None else factor * chosen.deadline_s
        limit_s = max_s if chosen.deadline_s is None else own_s
        nothing = Policy.NEUTRAL if call.point in _SCORING else Policy.IGNORE
        rules[call.rpc] = CallRule(
            deadline_s=min(wishes_s.get(call.keys[0], own_s), limit_s, max_s),
            policy=chosen.policy or call.rules.policy,
            absent=Policy.FAIL if required else (chosen.policy or nothing),
        )
    return rules


def deadlines_by_point(rules: Mapping[str, CallRule]) -> dict[str, float]:
    """The deadline of each point's own call, by the point's name (`preBind`), in seconds."""
    return {
        call.point.config_name: rules[call.rpc].deadline_s
        for call in CALLS
        if call.keys[0] == call.point.config_name and call is not END_CYCLES
    }
