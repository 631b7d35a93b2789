"""`TracedFramework`: a `Framework` that records the times of its points in traced attempts.

`TracedGroupPoints` records those of the points about groups.

`app` makes it in place of a `Framework` if tracing is on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from berth_sdk.pod_group import Placement, PlacementProgress
from berth_sdk.results import BindResult, NodeRejections, PodGroupPostFilterResult, PostFilterResult
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeTable

from berth_host.framework.filtering import Rows, filter_error
from berth_host.framework.framework import Framework
from berth_host.framework.group_points import GroupPoints, PlacementTotals, WhatIfs
from berth_host.framework.score_table import ScoreTable
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.nominated_pods import NominatedPods
from berth_host.model.pre_filter_outcome import PreFilterOutcome
from berth_host.rpc.cycle import Cycle, CycleRecord
from berth_host.rpc.group_cycle import GroupCycle, PlacementCycle
from berth_host.tracing.attempt_trace import Step

T = TypeVar("T")


class TracedGroupPoints(GroupPoints):
    """The points about groups, with a step in the trace of the group's attempt for each."""

    async def run_placement_generate(
        self, cycle: GroupCycle, parent: Placement
    ) -> Sequence[Placement] | Status:
        """Run PlacementGenerate."""
        ran = super().run_placement_generate(cycle, parent)
        return await _at(cycle, "PlacementGenerate", ran, _code_of_found)

    async def run_placement_feasible(self, one: PlacementCycle, step: PlacementProgress) -> Status:
        """Run PlacementFeasible."""
        return await _at(one, "PlacementFeasible", super().run_placement_feasible(one, step), _code)

    async def run_placement_score(
        self, cycle: GroupCycle, tried: Sequence[PlacementCycle]
    ) -> PlacementTotals | Status:
        """Run PlacementScore and NormalizePlacementScore."""
        ran = super().run_placement_score(cycle, tried)
        return await _at(cycle, "PlacementScore", ran, _code_of_found)

    async def run_pod_group_post_filter(
        self, cycle: GroupCycle, what_ifs: WhatIfs
    ) -> tuple[str, PodGroupPostFilterResult]:
        """Run PodGroupPostFilter."""
        ran = super().run_pod_group_post_filter(cycle, what_ifs)
        return await _at(cycle, "PodGroupPostFilter", ran, lambda found: found[1].status.code)


class TracedFramework(Framework):
    """The plugins of one profile, with a step in the cycle's trace for each point."""

    group_points = TracedGroupPoints

    async def run_pre_filter(self, cycle: Cycle) -> PreFilterOutcome:
        """Run PreFilter over all nodes."""
        return await _at(cycle, "PreFilter", super().run_pre_filter(cycle), lambda found: found.status.code)

    async def run_filter(
        self, cycle: Cycle, statuses: NodeStatuses, rows: Rows, nominated: NominatedPods
    ) -> Rows:
        """Return the rows that all Filter plugins pass."""

        def code(passed: Rows) -> Code:
            if filter_error(statuses, rows) is not None:
                return Code.ERROR
            return Code.SUCCESS if len(passed) else Code.UNSCHEDULABLE

        return await _at(cycle, "Filter", super().run_filter(cycle, statuses, rows, nominated), code)

    async def run_post_filter(self, cycle: Cycle, rejections: NodeRejections) -> tuple[str, PostFilterResult]:
        """Run PostFilter."""
        ran = super().run_post_filter(cycle, rejections)
        return await _at(cycle, "PostFilter", ran, lambda found: found[1].status.code)

    async def run_score(self, cycle: Cycle, nodes: NodeTable) -> ScoreTable | Status:
        """Run PreScore, Score and NormalizeScore, as two steps of the trace."""

        if cycle.trace is None:
            return await super().run_score(cycle, nodes)
        with cycle.trace.at("Score") as step:
            found = await super().run_score(cycle, nodes)
            step.code = _code_of_found(found)
        if step.began_s < cycle.pre_scored_s < step.ended_s:
            cycle.trace.steps.append(Step("PreScore", step.began_s, cycle.pre_scored_s, Code.SUCCESS))
            step.began_s = cycle.pre_scored_s
        return found

    async def run_reserve(self, cycle: Cycle, node_name: str) -> Status:
        """Run Reserve."""
        return await _at(cycle, "Reserve", super().run_reserve(cycle, node_name), _code)

    async def run_unreserve(self, cycle: Cycle, node_name: str, reason: str) -> None:
        """Run Unreserve."""
        return await _at(cycle, "Unreserve", super().run_unreserve(cycle, node_name, reason), _done)

    async def run_permit(self, cycle: Cycle, node_name: str) -> Status:
        """Run Permit."""
        return await _at(cycle, "Permit", super().run_permit(cycle, node_name), _code)

    async def run_pre_bind_pre_flight(self, cycle: Cycle, node_name: str) -> tuple[Status, bool]:
        """Run PreBindPreFlight."""
        ran = super().run_pre_bind_pre_flight(cycle, node_name)
        return await _at(cycle, "PreBindPreFlight", ran, lambda found: found[0].code)

    async def wait_on_permit(self, cycle: Cycle) -> Status:
        """Wait for the decisions about the waiting pod."""
        return await _at(cycle, "WaitOnPermit", super().wait_on_permit(cycle), _code)

    async def run_pre_bind(self, cycle: Cycle, node_name: str) -> Status:
        """Run PreBind."""
        return await _at(cycle, "PreBind", super().run_pre_bind(cycle, node_name), _code)

    async def run_bind(self, cycle: Cycle, node_name: str) -> tuple[str, BindResult]:
        """Run Bind."""
        ran = super().run_bind(cycle, node_name)
        return await _at(cycle, "Bind", ran, lambda found: found[1].status.code)

    async def run_post_bind(self, cycle: Cycle, node_name: str) -> None:
        """Run PostBind."""
        return await _at(cycle, "PostBind", super().run_post_bind(cycle, node_name), _done)


async def _at(cycle: CycleRecord, name: str, ran: Awaitable[T], code: Callable[[T], Code]) -> T:
    """Return what `ran` returns; record its time and its code if the cycle is traced."""
    if cycle.trace is None:
        return await ran
    with cycle.trace.at(name) as step:
        found = await ran
        step.code = code(found)
        return found


def _code(status: Status) -> Code:
    return status.code


def _code_of_found(found: object) -> Code:
    """Return the code of a point whose answer is a Status only if there is no result."""
    return found.code if isinstance(found, Status) else Code.SUCCESS


def _done(_: None) -> Code:
    return Code.SUCCESS
