"""The calls about groups of pods: rows of the table in `calls`, which explains the columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, TypeVarTuple

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Answer, ExtensionPoint
from berth_sdk.pod_group import Assignment, GroupView, Placement
from berth_sdk.results import PodGroupPostFilterResult, Tries
from berth_sdk.runtime.group_runtime import (
    FeasibleSteps,
    PlacementScored,
    PlacementsGenerated,
    PlacementsNormalized,
    StepsJudged,
)
from berth_sdk.runtime.plugin_runtime import PluginRuntime
from berth_sdk.status import Code, Status
from numpy.typing import NDArray

from berth_host.attempt.call_record import CycleRecord
from berth_host.rpc.call import AnyCall, Call, keys_of
from berth_host.rpc.group_checks import GroupChecks
from berth_host.rpc.validate import VERDICT_CODES, Checker

Args = TypeVarTuple("Args")
Raw = TypeVar("Raw")
Out = TypeVar("Out")

_ALWAYS: Final = frozenset({Code.SUCCESS, Code.ERROR})
_DONE: Final = frozenset({Code.SUCCESS})


def _group(
    point: ExtensionPoint,
    rpc: str = "",
    *,
    keys: tuple[str, ...] = (),
    pure: bool = True,
    codes: frozenset[Code] = _ALWAYS,
    local: Callable[[PluginRuntime, CycleState, GroupView, *Args], Answer[Raw]],
    sends: tuple[str, ...],
    answer: Any,
    unset: Code | None = Code.SUCCESS,
    full: frozenset[Code] | None = _DONE,
    check: Callable[[Checker, Call[*Args, Raw, Out], GroupView, Raw, *Args], Out],
) -> Call[*Args, Raw, Out]:
    """Return the row of a step of a group's cycle, within the budget of that cycle."""

    def checked(
        checker: Checker, call: Call[*Args, Raw, Out], cycle: CycleRecord, answer: Raw, *args: *Args
    ) -> Out:
        return check(checker, call, cycle.subject, answer, *args)

    return Call(
        rpc=rpc or point.kube_name,
        point=point,
        keys=keys or keys_of(point),
        pure=pure,
        budgeted=True,
        codes=codes,
        local=local,
        sends=sends,
        answer=answer,
        unset=unset,
        full=full,
        check=checked,
    )


PLACEMENT_GENERATE: Final[Call[Placement, PlacementsGenerated, PlacementsGenerated]] = _group(
    ExtensionPoint.PLACEMENT_GENERATE,
    codes=VERDICT_CODES,
    local=PluginRuntime.placement_generate,
    sends=("parent",),
    answer=PlacementsGenerated,
    check=lambda checker, call, group, answer, parent: GroupChecks(checker).placements(call, answer, parent),
)
PLACEMENT_SCORE: Final[Call[Placement, Sequence[Assignment], PlacementScored, PlacementScored]] = _group(
    ExtensionPoint.PLACEMENT_SCORE,
    local=PluginRuntime.placement_score,
    sends=("placement", "assignments"),
    answer=PlacementScored,
    check=lambda checker, call, group, answer, *_: GroupChecks(checker).score(call, answer),
)
NORMALIZE_PLACEMENT_SCORE: Final[
    Call[NDArray[np.int64], Sequence[Placement], PlacementsNormalized, PlacementsNormalized]
] = _group(
    ExtensionPoint.NORMALIZE_PLACEMENT_SCORE,
    local=PluginRuntime.normalize_placements,
    sends=("raw_scores", "placements"),
    answer=PlacementsNormalized,
    check=lambda checker, call, group, answer, scores, placements: GroupChecks(checker).scores(
        call, answer, len(placements)
    ),
)
PLACEMENT_FEASIBLE: Final[Call[FeasibleSteps, StepsJudged, Sequence[Status]]] = _group(
    ExtensionPoint.PLACEMENT_FEASIBLE,
    codes=frozenset({Code.SUCCESS, Code.WAIT, Code.UNSCHEDULABLE, Code.ERROR}),
    local=PluginRuntime.placement_feasible,
    sends=("steps",),
    answer=StepsJudged,
    check=lambda checker, call, group, answer, steps: GroupChecks(checker).steps(call, answer, steps),
)
POD_GROUP_POST_FILTER: Final[Call[Tries, PodGroupPostFilterResult, PodGroupPostFilterResult]] = _group(
    ExtensionPoint.POD_GROUP_POST_FILTER,
    pure=False,
    codes=VERDICT_CODES,
    local=PluginRuntime.pod_group_post_filter,
    sends=("tries",),
    answer=PodGroupPostFilterResult,
    unset=Code.UNSCHEDULABLE,
    full=None,
    check=lambda checker, call, group, answer, tries: GroupChecks(checker).post_filter(call, answer, group),
)

GROUP_CALLS: Final[tuple[AnyCall, ...]] = (
    PLACEMENT_GENERATE,
    PLACEMENT_SCORE,
    NORMALIZE_PLACEMENT_SCORE,
    PLACEMENT_FEASIBLE,
    POD_GROUP_POST_FILTER,
)
