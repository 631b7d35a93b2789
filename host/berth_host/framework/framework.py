"""Runs the plugins of one profile, point by point, and applies the rules of the status codes.

Called by the scheduler for every pod of the profile. Can be used alone: with a snapshot built by hand,
`run_pre_filter` and `run_filter` return whether a pod would fit. A `Framework` changes nothing outside the
cycle that it gets.
Source: kube-scheduler `framework/runtime/framework.go` and `schedule_one.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

import numpy as np
from berth_sdk.extension_points import Account, ExtensionPoint
from berth_sdk.permit_wait import MAX_WAIT_S
from berth_sdk.pod import Pod
from berth_sdk.results import BindResult, NodeRejections, PodGroupPostFilterResult, PostFilterResult
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.attempt.call_record import Changes, CycleRecord
from berth_host.attempt.cycle import Cycle, CycleEnd
from berth_host.framework import binding
from berth_host.framework.answers import Answers, AskEveryone, OneStep
from berth_host.framework.asked import Asked
from berth_host.framework.copies import count_copies
from berth_host.framework.filtering import Rows, filter_error
from berth_host.framework.filtering import all_rows as all_rows
from berth_host.framework.group_points import GroupPoints
from berth_host.framework.score_table import ScoreTable, WeightedPlugin
from berth_host.framework.scoring import score_nodes
from berth_host.framework.waiting_pods import WaitingPods
from berth_host.metrics.scheduler_metrics import SchedulerMetrics
from berth_host.metrics.series import SeriesBy, instant_s
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.nominated_pods import NOBODY, NominatedPods
from berth_host.model.pre_filter_outcome import PreFilterOutcome as PreFilterOutcome
from berth_host.model.pre_filter_outcome import rows_named
from berth_host.rpc.client import PluginClient

_STEPPED: Final = (ExtensionPoint.FILTER, ExtensionPoint.PRE_SCORE, ExtensionPoint.SCORE)
_EVERYONE: Final = AskEveryone()
_RANKS_NODES: Final = "DefaultPreemption"
_NOBODY_S: Final = 0.0
"""The seconds that an extension point takes without a plugin to call."""
Found = TypeVar("Found", PostFilterResult, PodGroupPostFilterResult)


class Framework:
    """The plugins of one profile by extension point, in order. Each point is measured (`metrics.points`)."""

    def __init__(
        self,
        profile: str,
        plugins: Mapping[ExtensionPoint, Sequence[WeightedPlugin]],
        waiting_pods: WaitingPods,
        pre_bind: binding.PreBindRunner | None = None,
        answers: Answers | None = None,
        metrics: SchedulerMetrics | None = None,
    ) -> None:
        """Prepare a framework. `answers` None: every plugin is called (`AskEveryone`). `metrics` None:
        measurements are dropped.
        """
        self.profile = profile
        self._answers = AskEveryone() if answers is None else answers
        self.waiting_pods = waiting_pods
        metrics = metrics or SchedulerMetrics()
        self._times = metrics.points(profile)
        self._permit_waits: SeriesBy[Code] = metrics.permit_waits.by(lambda code: (code.kube_name,))
        self._work = metrics.plugin_work
        self._scored: dict[tuple[str, ...], tuple[PluginClient, ...]] = {}
        self._pre_bind = pre_bind
        self._asked = Asked(plugins)
        self._score = tuple(plugins.get(ExtensionPoint.SCORE, ()))
        self._asks_all = self._asked.asks_all(*_STEPPED)
        """True if the same plugins judge all equal pods: none of them is served, and none has a scope."""
        self._score_sometimes = tuple(
            plugin for plugin in self._score if not plugin.client.always_asked_at(ExtensionPoint.SCORE)
        )
        self.clients: tuple[PluginClient, ...] = tuple(
            {client.name: client for point in ExtensionPoint for client in self.plugins_at(point)}.values()
        )
        self._pre_scoring = frozenset(client.name for client in self.plugins_at(ExtensionPoint.PRE_SCORE))
        self._served = [client for client in self.clients if client.is_served]
        # An in-process plugin's state is part of the cycle. One that reserves may want to hear of the end.
        self._reserving = [
            client for client in self.plugins_at(ExtensionPoint.RESERVE) if not client.is_served
        ]
        post_binding = self.plugins_at(ExtensionPoint.POST_BIND)
        self._told = [client for client in self.clients if client.is_served or client in post_binding]
        """The plugins that are told of a bound pod, whatever they keep."""
        self.ranks_nodes = all(
            any(client.name == _RANKS_NODES for client in self.plugins_at(point))
            for point in (ExtensionPoint.RESERVE, ExtensionPoint.POD_GROUP_POST_FILTER)
        )
        """True if the preemption of a group may rank nodes by their victims: DefaultPreemption, which ranks
        them, is at both points.
        Source: kube-scheduler `framework/runtime/framework.go` (NewFramework), v1.38.
        """
        self.groups = GroupPoints(
            plugins, self._times, self._served, self._with_patches, keeps=self._answers.keeps
        )
        """The points about groups of pods."""

    def plugins_at(self, point: ExtensionPoint) -> tuple[PluginClient, ...]:
        """Return the plugins of one point, in order."""
        return self._asked.at(point)

    def accounting_for(self, account: Account, point: ExtensionPoint) -> frozenset[str]:
        """Return the plugins of one point that keep an account as the host does."""
        return frozenset(
            client.name for client in self.plugins_at(point) if account in client.descriptor.accounts
        )

    @property
    def has_served(self) -> bool:
        """True if some plugin is served: cycles may then wait for an answer."""
        return bool(self._served)

    @property
    def has_post_filters(self) -> bool:
        """True if a PostFilter plugin is configured, which may help when no node fits."""
        return bool(self.plugins_at(ExtensionPoint.POST_FILTER))

    @property
    def has_scores(self) -> bool:
        """True if a Score plugin is configured."""
        return bool(self._score)

    def end_cycle(self, cycle: Cycle, outcome: CycleEnd) -> None:
        """Let every served plugin drop its state of the cycle. Tell plugins that reserve of a bound pod."""
        for client in self._served:
            client.end_cycle(cycle, outcome)
        if outcome is CycleEnd.BOUND:
            for client in self._reserving:
                if client.name in cycle.parts:  # else nothing of the cycle reached the plugin
                    client.end_cycle(cycle, outcome)

    def awaits_end(self, cycle: Cycle) -> tuple[str, ...]:
        """Return the plugins that may hold something for the pod of a cycle until they are told that it is
        bound, by PostBind or by the end of the cycle.
        """
        awaiting: list[str] = []
        if self._told:
            about = self._asked.about(cycle, ExtensionPoint.POST_BIND, cycle.skip)
            awaiting += [
                one.name for one in self._told if one.holds_until_told(cycle, post_bind=one in about)
            ]
        for client in self._reserving:
            part = cycle.parts.get(client.name)
            if part is not None and part.state is not None and part.state.awaits_end:
                awaiting.append(client.name)
        return tuple(dict.fromkeys(awaiting)) if awaiting else ()

    def those_told(self, plugins: Collection[str]) -> tuple[str, ...]:
        """Return those of the plugins of `awaits_end` that this framework has."""
        names = dict.fromkeys(one.name for one in (*self._told, *self._reserving))
        return tuple(name for name in names if name in plugins)

    def can_tell(self, plugins: Collection[str]) -> bool:
        """Return True if each of these plugins of `awaits_end` has an instance."""
        return all(client.available for client in self._told if client.name in plugins)

    def end_trials(self, cycle: Cycle) -> None:
        """Let other cycles try the instances that are on trial in this one, whose end is told later."""
        for client in self._served:
            client.route.cycle_ended(cycle)

    # --- PreFilter, Filter, PostFilter ---------------------------------------------------------

    async def run_pre_filter(self, cycle: Cycle) -> PreFilterOutcome:
        """Run PreFilter over all nodes. A plugin that answers Skip is not called at this cycle's Filter."""
        started_s = instant_s()
        times = self._times
        trace = cycle.trace
        cycle.sampler = times.sampler() if trace is None else trace.over(times.sampler())
        clients = self._asked.about(cycle, ExtensionPoint.PRE_FILTER)
        outcome = await self._answers.pre_filter(clients, cycle)
        times.at[ExtensionPoint.PRE_FILTER][outcome.status.code].since(started_s)
        times.asked_pre_filter.count(clients)
        return outcome

    async def run_filter(
        self, cycle: Cycle, statuses: NodeStatuses, rows: Rows, nominated: NominatedPods
    ) -> Rows:
        """Return the rows (positions in `statuses.table`) that all Filter plugins pass.

        A rejection is measured as a success; an error is not.
        """
        started_s = instant_s()
        step = self._filter_step(cycle, nominated)
        if step is not None and (self._asks_all or step.filters == self.filters_of(cycle)):
            clients = step.filters
            passed = await step.filter(cycle, statuses, rows)
        else:
            pre_score = self._asked.about(cycle, ExtensionPoint.PRE_SCORE, cycle.skip)
            clients = self.filters_of(cycle)
            passed = await self._answers.filter(clients, pre_score, cycle, statuses, rows, nominated)
        error = None if statuses.is_empty else filter_error(statuses, rows)
        self._times.at[ExtensionPoint.FILTER][Code.SUCCESS if error is None else Code.ERROR].since(started_s)
        if error is not None:
            self._work.filter_failed(error, self.accounting_for(Account.VOLUMES, ExtensionPoint.FILTER))
        self._times.asked_filter.count(clients)
        return passed

    def _filter_step(self, cycle: Cycle, nominated: NominatedPods) -> OneStep | None:
        # With nominated pods there are two passes.
        return None if nominated else self._answers.one_step(cycle)

    def filters_of(self, cycle: Cycle) -> tuple[PluginClient, ...]:
        """Return the Filter plugins that judge the cycle's pod, in order."""
        return self._asked.about(cycle, ExtensionPoint.FILTER, cycle.skip_filter)

    def row_signature(self, clients: tuple[PluginClient, ...], pod: Pod, nodes: NodeTable) -> Hashable | None:
        """Return the pod's signature for answers that follow from single rows; see `Answers`."""
        return self._answers.row_signature(clients, pod, nodes)

    def versions_of_rows(self) -> Hashable:
        """Return the versions of what such answers follow from beside the rows; see `Answers`."""
        return self._answers.versions_of_rows()

    async def judge(self, cycle: Cycle, node_name: str, *, without: str = "") -> Status:
        """Run PreFilter and Filter of a what-if's cycle about one node.

        Returns SUCCESS, the rejection of the pod or of the node, or an error. `without`: a plugin that is not
        asked, in whose call kept answers are left alone; "": none.
        """
        answers = _EVERYONE if without else self._answers
        before = self._asked.about(cycle, ExtensionPoint.PRE_FILTER)
        outcome = await answers.pre_filter(_but(before, without), cycle)
        if not outcome.status.is_success:
            return outcome.status
        if outcome.eligible is not None and node_name not in outcome.eligible:
            return outcome.absent
        statuses, rows = NodeStatuses(cycle.nodes), rows_named(cycle.nodes, [node_name])
        pre_score = self._asked.about(cycle, ExtensionPoint.PRE_SCORE, cycle.skip)
        filters = _but(self.filters_of(cycle), without)
        passed = await answers.filter(filters, pre_score, cycle, statuses, rows, NOBODY)
        return SUCCESS if len(passed) else statuses.status_of(node_name)

    async def run_post_filter(self, cycle: Cycle, rejections: NodeRejections) -> tuple[str, PostFilterResult]:
        """Run PostFilter; return (plugin, result) of the plugin that ends it, else why no plugin could
        help.
        """
        started_s = instant_s()
        plugin, result = await self._post_filter(cycle, rejections)
        self._times.at[ExtensionPoint.POST_FILTER][result.status.code].since(started_s)
        return plugin, result

    async def _post_filter(self, cycle: Cycle, rejections: NodeRejections) -> tuple[str, PostFilterResult]:
        reasons: list[str] = []
        kept: tuple[str, PostFilterResult] | None = None
        first = ""
        for client in self._asked.about(cycle, ExtensionPoint.POST_FILTER):
            first = first or client.name
            result = await client.post_filter(cycle, rejections)
            result = self._with_patches(client, cycle, result)
            code = result.status.code
            if code in (Code.SUCCESS, Code.UNSCHEDULABLE_AND_UNRESOLVABLE):
                return client.name, result
            if not result.status.is_rejected:
                return client.name, PostFilterResult(Status.error(*result.status.reasons))
            reasons.extend(result.status.reasons)
            if kept is None and (result.nominated_node or result.clear_nomination):
                kept = client.name, result
        status = Status(Code.UNSCHEDULABLE, tuple(reasons), first)
        if kept is None:
            return first, PostFilterResult(status)
        name, result = kept
        return name, PostFilterResult(status, result.nominated_node, result.clear_nomination, result.victims)

    def _with_patches(self, client: PluginClient, cycle: CycleRecord, result: Found) -> Found:
        """Return the answer, and keep its changes in the cycle; an error if they are not allowed."""
        if not result.patches or self._pre_bind is None or result.status.code is Code.ERROR:
            return result
        for patch in result.patches:
            problem = self._pre_bind.executor.refusal(client, cycle, patch)
            if problem:
                return type(result)(Status.error(f"patch of {patch.ref.key}: {problem}"))
        apply = partial(self._pre_bind.executor.apply, client, cycle, result.patches)
        cycle.changes.append(Changes(client.name, result.patches, apply))
        return result

    # --- Score ---------------------------------------------------------------------------------

    async def run_score(self, cycle: Cycle, nodes: NodeTable) -> ScoreTable | Status:
        """Run PreScore, Score and NormalizeScore of all plugins over the rows of `nodes`.

        An error of a step is measured at Score.
        """
        started_s = instant_s()
        times = self._times
        step = self._answers.one_step(cycle)
        table: ScoreTable | Status | None = None
        if step is not None and (self._asks_all or step.scores_with(*self._scoring(cycle))):
            table, pre_score = await step.score(cycle, nodes), step.pre_score
            cycle.is_short = table is not None
        if table is None:
            pre_score, score = self._scoring(cycle)
            table = await self._answers.score(pre_score, score, cycle, nodes)
        times.at[ExtensionPoint.PRE_SCORE][Code.SUCCESS].observe(cycle.pre_scored_s - started_s)
        times.asked_pre_score.count(pre_score)
        if isinstance(table, Status):
            times.at[ExtensionPoint.SCORE][table.code].since(cycle.pre_scored_s)
            return table
        times.at[ExtensionPoint.SCORE][Code.SUCCESS].since(cycle.pre_scored_s)
        times.asked_score.count(self._not_skipping(tuple(table.skipped)))
        return table

    def _not_skipping(self, skipped: tuple[str, ...]) -> tuple[PluginClient, ...]:
        """Return the Score plugins that did not skip; the identical tuple for the same plugins."""
        found = self._scored.get(skipped)
        if found is None:
            clients = self.plugins_at(ExtensionPoint.SCORE)
            found = self._scored[skipped] = tuple(one for one in clients if one.name not in skipped)
        return found

    async def run_score_apart(self, cycle: Cycle, nodes: NodeTable) -> ScoreTable | Status:
        """Score for a plugin that asks through its handle: call every plugin, and leave the cycle as it was.

        Scores that came early, with verdicts, are not used, because they do not cover rejected nodes.
        PreScore runs again, so earlier skips do not count.
        """
        before = cycle.skip_score, cycle.pre_scored_s
        cycle.skip_score = set()
        try:
            with cycle.without_early_scores(self._pre_scoring):
                pre_score, score = self._scoring(cycle)
                return await score_nodes(pre_score, score, cycle, nodes)
        finally:
            cycle.skip_score, cycle.pre_scored_s = before

    def _scoring(self, cycle: Cycle) -> tuple[tuple[PluginClient, ...], tuple[WeightedPlugin, ...]]:
        """Return the plugins for PreScore and Score; a plugin that the pod does not concern skips both."""
        score = self._score
        absent = [
            plugin
            for plugin in self._score_sometimes
            if ExtensionPoint.SCORE not in plugin.client.descriptor_in(cycle).points
            or not plugin.client.concerns(cycle)
        ]
        # Without absent plugins the tuple is the identical one as for the last pod: the kept roles are found
        # by it.
        if absent:
            score = tuple(plugin for plugin in score if plugin not in absent)
        pre_score = self._asked.about(cycle, ExtensionPoint.PRE_SCORE, cycle.skip)
        skipping = cycle.skip & self._pre_scoring
        if skipping:
            cycle.skip_score |= self._answers.skipping_score(skipping, cycle)
        return pre_score, score

    # --- Reserve, Permit -----------------------------------------------------------------------

    async def run_reserve(self, cycle: Cycle, node_name: str) -> Status:
        """Run Reserve in order until the first failure. A rejection names its plugin; other failures are
        errors. SKIP of a plugin: it holds nothing, and the next one is asked.
        """
        clients = self._asked.about(cycle, ExtensionPoint.RESERVE, cycle.skip)
        if not clients:
            self._times.at[ExtensionPoint.RESERVE][Code.SUCCESS].observe(_NOBODY_S)
            return SUCCESS
        started_s = instant_s()
        status = await self._reserve(clients, cycle, node_name)
        self._times.at[ExtensionPoint.RESERVE][status.code].since(started_s)
        if not status.is_success:
            volumes = self.accounting_for(Account.VOLUMES, ExtensionPoint.RESERVE)
            self._work.reserve_failed(status, volumes)
        return status

    def copies_of(self, cycle: Cycle, nodes: NodeTable) -> NDArray[np.int64] | None:
        """Return how many equal pods each of `nodes` takes, where the cycle's pod has passed Filter.

        None: some plugin cannot tell, or may reject the pod at Reserve.
        """
        reserving = self._asked.about(cycle, ExtensionPoint.RESERVE, cycle.skip)
        if any(client.answers_at(ExtensionPoint.RESERVE) for client in reserving):
            return None
        return count_copies(self.filters_of(cycle), cycle.pod, nodes)

    async def _reserve(self, clients: tuple[PluginClient, ...], cycle: Cycle, node_name: str) -> Status:
        for client in clients:
            status = await client.reserve(cycle, node_name)
            if status.is_rejected:
                return status.with_plugin(client.name)
            if not (status.is_success or status.code is Code.SKIP):
                return Status.error(f'running Reserve plugin "{client.name}": {status.message}')
        return SUCCESS

    async def run_unreserve(self, cycle: Cycle, node_name: str, reason: str) -> None:
        """Run Unreserve of every Reserve plugin that may hold something, in reverse, also of plugins whose
        Reserve never ran.
        """
        started_s = instant_s()
        for client in reversed(self._asked.about(cycle, ExtensionPoint.RESERVE, cycle.skip)):
            await client.unreserve(cycle, node_name, reason)
        self._times.unreserve[Code.SUCCESS].since(started_s)

    async def run_permit(self, cycle: Cycle, node_name: str) -> Status:
        """Run Permit; return SUCCESS, WAIT (the pod is now a waiting pod), a rejection, or an error."""
        clients = self._asked.about(cycle, ExtensionPoint.PERMIT, cycle.skip)
        if not clients:
            self._times.at[ExtensionPoint.PERMIT][Code.SUCCESS].observe(_NOBODY_S)
            return SUCCESS
        started_s = instant_s()
        status = await self._permit(clients, cycle, node_name)
        self._times.at[ExtensionPoint.PERMIT][status.code].since(started_s)
        return status

    async def _permit(self, clients: tuple[PluginClient, ...], cycle: Cycle, node_name: str) -> Status:
        pod = cycle.pod
        waits_s: dict[str, float] = {}
        self.waiting_pods.register(pod, cycle.cycle_id, node_name)
        held = False
        try:
            for client in clients:
                answer = await client.permit(cycle, node_name)
                if answer.status.is_rejected:
                    return answer.status.with_plugin(client.name)
                if answer.status.code is Code.WAIT:
                    timeout_s = answer.wait_timeout_s
                    waits_s[client.name] = MAX_WAIT_S if timeout_s is None else timeout_s
                    self.waiting_pods.will_hold(pod.uid, client.name, waits_s[client.name])
                elif not answer.status.is_success:
                    return Status.error(f'running Permit plugin "{client.name}": {answer.status.message}')
            if waits_s:
                self.waiting_pods.hold(pod.uid, waits_s)
                held = True
                return Status(Code.WAIT)
            return SUCCESS
        finally:
            if not held:
                self.waiting_pods.discard(pod.uid)

    # --- the binding cycle ---------------------------------------------------------------------

    async def run_pre_bind_pre_flight(self, cycle: Cycle, node_name: str) -> tuple[Status, bool]:
        """Return (status, whether a PreBind plugin will act). Measured as Skip if none will."""
        cycle.skip_pre_bind |= cycle.skip
        clients = self._asked.about(cycle, ExtensionPoint.PRE_BIND, frozenset(cycle.skip_pre_bind))
        if not clients:
            self._times.pre_bind_pre_flight[Code.SKIP].observe(_NOBODY_S)
            return SUCCESS, False
        started_s = instant_s()
        status, will_act = await binding.pre_flight(clients, cycle, node_name)
        nothing = status.is_success and not will_act
        self._times.pre_bind_pre_flight[Code.SKIP if nothing else status.code].since(started_s)
        return status, will_act

    async def wait_on_permit(self, cycle: Cycle) -> Status:
        """Wait until all plugins allowed the pod, or a plugin or the timeout rejected the pod."""
        started_s = instant_s()
        cycle.idle = True
        try:
            status = await self.waiting_pods.wait(cycle.pod.uid)
        finally:
            cycle.idle = False  # also after a cancellation: the cycle is then undone
        if status.code is Code.ERROR:
            status = Status(Code.ERROR, (f"waiting on permit for pod: {status.message}",), status.plugin)
        self._permit_waits[status.code].since(started_s)
        return status

    async def run_pre_bind(self, cycle: Cycle, node_name: str) -> Status:
        """Run the PreBind plugins that did not skip."""
        started_s, status = instant_s(), SUCCESS
        clients = self._asked.about(cycle, ExtensionPoint.PRE_BIND, frozenset(cycle.skip_pre_bind))
        if clients and self._pre_bind is not None:
            every = self._asked.about(cycle, ExtensionPoint.PRE_BIND)
            status = await self._pre_bind.run(every, cycle, node_name)
        self._times.at[ExtensionPoint.PRE_BIND][status.code].since(started_s)
        if not status.is_success:
            volumes = self.accounting_for(Account.VOLUMES, ExtensionPoint.PRE_BIND)
            self._work.pre_bind_failed(status, volumes)
        return status

    async def run_bind(self, cycle: Cycle, node_name: str) -> tuple[str, BindResult]:
        """Run Bind; return (plugin, answer) of the plugin that did not skip.

        The time in which the host writes the Binding is not measured here.
        """
        started_s = instant_s()
        clients = self._asked.about(cycle, ExtensionPoint.BIND, cycle.skip)
        plugin, answer = await binding.run_bind(clients, cycle, node_name)
        self._times.at[ExtensionPoint.BIND][answer.status.code].since(started_s)
        return plugin, answer

    def bind_was_untrue(self, cycle: Cycle, plugin: str, untrue: str) -> None:
        """Count a violation: the plugin answered Bind with success and did not bind the pod."""
        for client in self._asked.about(cycle, ExtensionPoint.BIND, cycle.skip):
            if client.name == plugin:
                client.bind_was_untrue(cycle, untrue)

    async def run_post_bind(self, cycle: Cycle, node_name: str) -> None:
        """Run PostBind of every plugin that did not answer Reserve with SKIP."""
        clients = self._asked.about(cycle, ExtensionPoint.POST_BIND, cycle.skip)
        if not clients:
            self._times.at[ExtensionPoint.POST_BIND][Code.SUCCESS].observe(_NOBODY_S)
            return
        started_s = instant_s()
        for client in clients:
            await client.post_bind(cycle, node_name)
        self._times.at[ExtensionPoint.POST_BIND][Code.SUCCESS].since(started_s)


def _but(clients: tuple[PluginClient, ...], name: str) -> tuple[PluginClient, ...]:
    """Return the clients without the plugin `name`. "": the identical tuple, by which kept answers go."""
    return tuple(one for one in clients if one.name != name) if name else clients
