"""`MeasuredFramework`: a Framework that times its extension points and counts the plugins in them.

Used by `Host`; a framework that stands alone is not measured. `metrics.points` says which series it writes.
Source: kube-scheduler `framework/runtime/framework.go` and `schedule_one.go`, v1.36 (the defers that
observe FrameworkExtensionPointDuration, PermitWaitDuration).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.results import BindResult, NodeRejections, PostFilterResult
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeTable

from berth_host.framework import binding
from berth_host.framework.answers import Answers
from berth_host.framework.filtering import Rows, filter_error
from berth_host.framework.framework import Framework
from berth_host.framework.score_table import ScoreTable, WeightedPlugin
from berth_host.framework.waiting_pods import WaitingPods
from berth_host.metrics.scheduler_metrics import SchedulerMetrics
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.nominated_pods import NominatedPods
from berth_host.model.pre_filter_outcome import PreFilterOutcome
from berth_host.rpc.client import PluginClient
from berth_host.rpc.cycle import Cycle

_now_s: Final = time.perf_counter


class MeasuredFramework(Framework):
    """Behaves as a Framework does."""

    def __init__(
        self,
        profile: str,
        plugins: Mapping[ExtensionPoint, Sequence[WeightedPlugin]],
        waiting_pods: WaitingPods,
        pre_bind: binding.PreBindRunner | None,
        metrics: SchedulerMetrics,
        answers: Answers | None = None,
    ) -> None:
        super().__init__(profile, plugins, waiting_pods, pre_bind, answers)
        self._times = metrics.points(profile)
        self._permit_waits = metrics.permit_waits
        self._work = metrics.plugin_work
        self._scored: dict[tuple[str, ...], tuple[PluginClient, ...]] = {}

    async def run_pre_filter(self, cycle: Cycle) -> PreFilterOutcome:
        """See Framework."""
        started_s = _now_s()
        times = self._times
        cycle.sampler = times.sampler()
        outcome = await super().run_pre_filter(cycle)
        times.pre_filter.ended(outcome.status.code, started_s)
        times.asked_pre_filter.count(self._asked.about(cycle, ExtensionPoint.PRE_FILTER))
        return outcome

    async def run_filter(
        self, cycle: Cycle, statuses: NodeStatuses, rows: Rows, nominated: NominatedPods
    ) -> Rows:
        """See Framework. A rejection is a success here, only an error is none."""
        started_s = _now_s()
        passed = await super().run_filter(cycle, statuses, rows, nominated)
        error = None if statuses.is_empty else filter_error(statuses, rows)
        self._times.filter.ended(Code.SUCCESS if error is None else Code.ERROR, started_s)
        if error is not None:
            self._work.filter_failed(error)
        self._times.asked_filter.count(self.filters_of(cycle))
        return passed

    async def run_post_filter(self, cycle: Cycle, rejections: NodeRejections) -> tuple[str, PostFilterResult]:
        """See Framework."""
        started_s = _now_s()
        plugin, result = await super().run_post_filter(cycle, rejections)
        self._times.post_filter.ended(result.status.code, started_s)
        return plugin, result

    async def run_score(self, cycle: Cycle, nodes: NodeTable) -> ScoreTable | Status:
        """See Framework. An error of either step is counted for Score, where the cycle ends."""
        started_s = _now_s()
        times = self._times
        table = await super().run_score(cycle, nodes)
        times.pre_score.ended(Code.SUCCESS, started_s, cycle.pre_scored_s)
        times.asked_pre_score.count(self._asked.about(cycle, ExtensionPoint.PRE_SCORE, cycle.skip))
        if isinstance(table, Status):
            times.score.ended(table.code, cycle.pre_scored_s)
            return table
        times.score.ended(Code.SUCCESS, cycle.pre_scored_s)
        times.asked_score.count(self._without(tuple(table.skipped)))
        return table

    def _without(self, skipped: tuple[str, ...]) -> tuple[PluginClient, ...]:
        """The Score plugins that did not skip: the same tuple for the same ones."""
        found = self._scored.get(skipped)
        if found is None:
            clients = self.plugins_at(ExtensionPoint.SCORE)
            found = self._scored[skipped] = tuple(one for one in clients if one.name not in skipped)
        return found

    async def run_reserve(self, cycle: Cycle, node_name: str) -> Status:
        """See Framework."""
        started_s = _now_s()
        status = await super().run_reserve(cycle, node_name)
        self._times.reserve.ended(status.code, started_s)
        self._work.reserve_ended(status)
        return status

    async def run_unreserve(self, cycle: Cycle, node_name: str, reason: str) -> None:
        """See Framework."""
        started_s = _now_s()
        await super().run_unreserve(cycle, node_name, reason)
        self._times.unreserve.ended(Code.SUCCESS, started_s)

    async def run_permit(self, cycle: Cycle, node_name: str) -> Status:
        """See Framework."""
        started_s = _now_s()
        status = await super().run_permit(cycle, node_name)
        self._times.permit.ended(status.code, started_s)
        return status

    async def run_pre_bind_pre_flight(self, cycle: Cycle, node_name: str) -> tuple[Status, bool]:
        """See Framework. Skip if no plugin will act in PreBind."""
        started_s = _now_s()
        status, will_act = await super().run_pre_bind_pre_flight(cycle, node_name)
        nothing = status.is_success and not will_act
        self._times.pre_bind_pre_flight.ended(Code.SKIP if nothing else status.code, started_s)
        return status, will_act

    async def wait_on_permit(self, cycle: Cycle) -> Status:
        """See Framework."""
        started_s = _now_s()
        status = await super().wait_on_permit(cycle)
        self._permit_waits.of(status.code.kube_name).observe(_now_s() - started_s)
        return status

    async def run_pre_bind(self, cycle: Cycle, node_name: str) -> Status:
        """See Framework."""
        started_s = _now_s()
        status = await super().run_pre_bind(cycle, node_name)
        self._times.pre_bind.ended(status.code, started_s)
        self._work.pre_bind_ended(status)
        return status

    async def run_bind(self, cycle: Cycle, node_name: str) -> tuple[str, BindResult]:
        """See Framework. Writing the Binding is the host's, and not in this time."""
        started_s = _now_s()
        plugin, answer = await super().run_bind(cycle, node_name)
        self._times.bind.ended(answer.status.code, started_s)
        return plugin, answer

    async def run_post_bind(self, cycle: Cycle, node_name: str) -> None:
        """See Framework."""
        started_s = _now_s()
        await super().run_post_bind(cycle, node_name)
        self._times.post_bind.ended(Code.SUCCESS, started_s)
