"""The table of points in BerthConfiguration: default deadline, highest one, legal and default policy.

One line per call that a plugin may be asked. Read by the checks of BerthConfiguration and by the relay
that makes the calls.
"""

# RUF009 is off: json_field returns a dataclass field, and its default values are immutable.
# ruff: noqa: RUF009

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from berth_sdk.extension_points import ExtensionPoint

from berth_host.config.decoding.go_types import DURATION, json_field, one_of, pointer_to


class FailurePolicy(Enum):
    """The effect of a failed call on its pod."""

    FAIL = "Fail"
    """The cycle ends with an error, and the pod is queued again."""
    IGNORE = "Ignore"
    """The host goes on as if the plugin were not configured for this call."""
    NEUTRAL = "Neutral"
    """All candidates get the same score."""


@dataclass(frozen=True, slots=True)
class PointPolicy:
    """An operator's choice for one plugin at one point; None: no choice, so the default holds."""

    deadline_s: float | None = json_field("deadline", pointer_to(DURATION))
    policy: FailurePolicy | None = json_field("policy", one_of(FailurePolicy))


@dataclass(frozen=True, slots=True, kw_only=True)
class PointRules:
    """The settings that an operator may make at one point.

    `policies`: the legal ones, empty where the outcome of a failure is fixed; `fixed` then describes it.
    `config_point` is the point of KubeSchedulerConfiguration that the call belongs to, None if none.
    """

    deadline_ms: int
    max_deadline_ms: int
    policy: FailurePolicy
    policies: tuple[FailurePolicy, ...]
    config_point: str | None
    fixed: str = ""


_FAIL, _IGNORE, _NEUTRAL = FailurePolicy.FAIL, FailurePolicy.IGNORE, FailurePolicy.NEUTRAL
_FAIL_OR_IGNORE: Final = (_FAIL, _IGNORE)
_CYCLE_MAX_MS: Final = 10_000
_BINDING_MAX_MS: Final = 600_000


def _cycle(deadline_ms: int, policy: FailurePolicy, config_point: str | None) -> PointRules:
    return PointRules(
        deadline_ms=deadline_ms,
        max_deadline_ms=_CYCLE_MAX_MS,
        policy=policy,
        policies=_FAIL_OR_IGNORE,
        config_point=config_point,
    )


def _score(config_point: str) -> PointRules:
    return PointRules(
        deadline_ms=250,
        max_deadline_ms=_CYCLE_MAX_MS,
        policy=_FAIL,
        policies=(_FAIL, _IGNORE, _NEUTRAL),
        config_point=config_point,
    )


def _binding(deadline_ms: int, config_point: str) -> PointRules:
    return PointRules(
        deadline_ms=deadline_ms,
        max_deadline_ms=_BINDING_MAX_MS,
        policy=_FAIL,
        policies=_FAIL_OR_IGNORE,
        config_point=config_point,
    )


_OWN_RULES: Final[Mapping[str, PointRules]] = {
    "preEnqueue": _cycle(250, _FAIL, "preEnqueue"),
    "queueSort": PointRules(
        deadline_ms=250,
        max_deadline_ms=_CYCLE_MAX_MS,
        policy=_IGNORE,
        policies=(),
        config_point="queueSort",
        fixed="pods without a key are sorted by the fallback key",
    ),
    "queueingHints": PointRules(
        deadline_ms=250,
        max_deadline_ms=_CYCLE_MAX_MS,
        policy=_IGNORE,
        policies=(),
        config_point=None,
        fixed="the event counts as one that may help the pod",
    ),
    "preFilter": _cycle(250, _FAIL, "preFilter"),
    "filter": _cycle(250, _FAIL, "filter"),
    "simulateFilter": _cycle(500, _FAIL, "filter"),
    "postFilter": _cycle(1_000, _IGNORE, "postFilter"),
    "preScore": _score("preScore"),
    "score": _score("score"),
    "normalizeScore": _score("score"),
    "reserve": _cycle(1_000, _FAIL, "reserve"),
    "unreserve": PointRules(
        deadline_ms=1_000,
        max_deadline_ms=_CYCLE_MAX_MS,
        policy=_IGNORE,
        policies=(),
        config_point="reserve",
        fixed="it is repeated until it is delivered",
    ),
    "permit": _cycle(1_000, _FAIL, "permit"),
    "placementGenerate": _cycle(1_000, _FAIL, "placementGenerate"),
    "placementScore": _score("placementScore"),
    "normalizePlacementScore": _score("placementScore"),
    "placementFeasible": _cycle(250, _FAIL, None),
    "podGroupPostFilter": _cycle(10_000, _IGNORE, "podGroupPostFilter"),
    "preBindPreFlight": _binding(60_000, "preBind"),
    "preBind": _binding(60_000, "preBind"),
    "bind": PointRules(
        deadline_ms=10_000,
        max_deadline_ms=_BINDING_MAX_MS,
        policy=_FAIL,
        policies=(_FAIL,),
        config_point="bind",
    ),
    "postBind": PointRules(
        deadline_ms=5_000,
        max_deadline_ms=_BINDING_MAX_MS,
        policy=_IGNORE,
        policies=(_IGNORE,),
        config_point="postBind",
    ),
}
POINT_RULES: Final[Mapping[str, PointRules]] = {
    **_OWN_RULES,
    **{
        point.config_name: _cycle(1_000, _FAIL, point.config_name if point.assembled else None)
        for point in ExtensionPoint
        if point.config_name not in _OWN_RULES
    },
}
"""The rules by point, spelled as in BerthConfiguration. `preBind` covers all rounds of one pod."""

MIN_DEADLINE_MS: Final = 1
"""The shortest deadline that can be set: no plugin answers a call faster."""
DEFAULT_CYCLE_BUDGET_MS: Final = 1_000
MIN_CYCLE_BUDGET_MS: Final = 10
MAX_CYCLE_BUDGET_MS: Final = 60_000
MAX_CONCURRENCY: Final = 1_024
MAX_PLUGINS: Final = 256
MILLION: Final = 1_000_000
