"""`Backend`: the host as handles see it, made of the host's parts.

The same backend answers in-process plugins (`handle.in_process`) and served plugins (`handle.service`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

import numpy as np
from berth_sdk.errors import HandleError
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.handle import ObjectReader
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroupReader
from berth_sdk.results import (
    Cancellation,
    Decision,
    NodeScores,
    NominatedPod,
    Nomination,
    PluginNodeScores,
    PodGroupPostFilterResult,
    PostFilterResult,
    Trial,
    WaitingPod,
)
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.scenarios import Scenario
from berth_sdk.status import SUCCESS, Status
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.cache.cache import Cache
from berth_host.cache.objects import ObjectStores
from berth_host.cache.snapshot import Snapshot
from berth_host.cycle.attempt import Attempt
from berth_host.cycle.loop import Scheduler
from berth_host.cycle.pod_status import PodStatusWriter
from berth_host.cycle.schedule_one import BindingCycle
from berth_host.errors.plugins import CycleRestartError
from berth_host.framework.group_points import OpenTries
from berth_host.framework.waiting_pods import WaitingPods
from berth_host.handle.backend import (
    NoOpenCallError,
    QuestionUnderWayError,
    ScenarioError,
    UnknownNodesError,
    UnknownPodError,
)
from berth_host.handle.calls import ReadScenarios
from berth_host.handle.scenario_reader import ScenarioReader
from berth_host.log import get_logger
from berth_host.metrics.group_metrics import PreemptionMetrics
from berth_host.metrics.series import instant_s
from berth_host.plugins.clients import Clients
from berth_host.preemption.evaluator import Evaluator, SearchLimits
from berth_host.questions.what_ifs import IncompleteNodeError, WhatIfs
from berth_host.queue.events import PluginRequest
from berth_host.queue.scheduling_queue import SchedulingQueue

log = get_logger()
POST_FILTER: Final = ExtensionPoint.POST_FILTER
"""The point during whose call a plugin may run the others' filters, and preemption."""
SCORED_FROM: Final = (POST_FILTER, ExtensionPoint.RESERVE, ExtensionPoint.PERMIT)
"""The points during whose call a plugin may run scores."""


class LateParts:
    """The parts that are made of the plugins, for the parts that plugins call.

    A plugin gets its handle before queue and cycles exist, as these are made of the plugins. So the parts
    behind handles and attachments hold `LateParts`, and read its attributes at each call. An attribute that
    is read too early raises HandleError, as when a plugin calls its handle in `__init__`.
    """

    clients: Clients
    queue: SchedulingQueue
    scheduler: Scheduler
    binding: BindingCycle

    def __getattr__(self, name: str) -> NoReturn:
        raise HandleError(
            f"the host is not ready (no {name} yet): call it from a method of a point, not in __init__"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSeams:
    """The parts of the host that plugins may call."""

    objects: ObjectStores
    cache: Cache
    snapshot: Snapshot
    waiting_pods: WaitingPods
    status: PodStatusWriter
    open_calls: OpenCalls
    later: LateParts


class Backend:
    """One host; implements `handle.backend.HandleBackend`, which says what each method returns."""

    def __init__(self, seams: BackendSeams) -> None:
        self._seams = seams
        self._later = seams.later

    def waiting_pods(self, plugin: str, only_mine: bool) -> list[WaitingPod]:
        """Return the pods held at Permit; `only_mine`: those that the plugin holds."""
        return self._seams.waiting_pods.list(plugin if only_mine else None)

    def allow(self, plugin: str, uid: str, cycle_id: str, holder: str) -> Decision:
        """End the wait of `holder`; empty: the plugin's own."""
        return self._seams.waiting_pods.allow(plugin, uid, cycle_id, holder)

    def reject(self, plugin: str, uid: str, cycle_id: str, message: str) -> Decision:
        """Reject the waiting pod, whichever plugins hold it."""
        return self._seams.waiting_pods.reject(plugin, uid, cycle_id, message)

    def cancel_binding(self, plugin: str, uid: str, cycle_id: str, message: str) -> Cancellation:
        """Cancel the binding cycle of a pod while its PreBind plugins run."""
        reason = f'cancelled by plugin "{plugin}"'
        return self._later.binding.cancel(uid, cycle_id, f"{reason}: {message}" if message else reason)

    def objects(self, resource: str) -> ObjectReader:
        """Return the reader of a resource's objects."""
        return self._seams.objects.of_resource(resource)

    def snapshot(self) -> NodeTable:
        """Return the nodes of the snapshot."""
        return self._seams.snapshot.nodes

    def pod_groups(self) -> PodGroupReader:
        """Return the live groups."""
        return self._seams.cache.groups

    def evaluate_preemption(
        self, plugin: str, cycle_id: str, percentage: int, absolute: int
    ) -> Awaitable[PostFilterResult]:
        """Return the node on which to preempt for the pod of a cycle, and the victims."""
        return self._seams.open_calls.evaluate_preemption(plugin, cycle_id, percentage, absolute)

    def run_filters(
        self, plugin: str, cycle_id: str, scenarios: Sequence[Scenario]
    ) -> Awaitable[list[Status]]:
        """Return per scenario SUCCESS or the first rejection of the other plugins."""
        return self._seams.open_calls.run_own(plugin, cycle_id, scenarios)

    def run_scores(self, plugin: str, cycle_id: str, node_names: Sequence[str]) -> Awaitable[NodeScores]:
        """Return the scores of these nodes for the pod of a cycle."""
        return self._seams.open_calls.run_scores(plugin, cycle_id, node_names)

    def nominated_pods(self, plugin: str, node_names: Iterable[str] | None) -> list[NominatedPod]:
        """Return the pods that are nominated to one of these nodes; None: to any node."""
        nominator = self._later.queue.nominator
        names = sorted(nominator.by_node()) if node_names is None else dict.fromkeys(node_names)
        return [NominatedPod(pod=pod, node_name=name) for name in names for pod in nominator.on_node(name)]

    def nominate(self, plugin: str, uid: str, node_name: str | None) -> Nomination:
        """Nominate a pending pod to a node."""
        seams, queue = self._seams, self._later.queue
        pod = seams.objects.pod_by_uid(uid)
        # An assumed pod counts on its node already. The host does not see the end of another scheduler's pod.
        if (
            pod is None
            or pod.node_name
            or pod.scheduler_name not in self._later.scheduler.profiles
            or seams.cache.is_assumed(uid)
        ):
            return Nomination.NOT_PENDING
        if node_name and seams.objects.node(node_name) is None:
            return Nomination.UNKNOWN_NODE
        queue.nominate(pod, node_name)
        log.info("pod.nominated_by_plugin", pod=pod.key, plugin=plugin, node=queue.nominator.node_of(uid))
        return Nomination.APPLIED

    def served_descriptor(self, plugin: str) -> Descriptor | None:
        """Return the descriptor of a served plugin that is attached; None for others."""
        return self._later.clients.served_descriptor(plugin)

    def requeue(
        self, plugin: str, uids: Iterable[str] | None, reason: str, skip_backoff: bool, asking: str = ""
    ) -> int:
        """Drop the plugin's kept answers and requeue these pods; return how many pods moved."""
        self._later.clients.forget(plugin, asking)
        wanted = None if uids is None else frozenset(uids)
        return self._later.queue.requeue(PluginRequest(plugin=plugin, uids=wanted, skip_backoff=skip_backoff))

    def invalidate_sort_keys(self, plugin: str, uids: Iterable[str] | None) -> None:
        """Ask the plugin again for the sort keys of these pods; None: of all."""
        self._later.queue.invalidate_sort_keys(None if uids is None else frozenset(uids))

    def record_event(
        self, plugin: str, regarding: ObjectRef, type: str, reason: str, action: str, note: str
    ) -> bool:
        """Write a Kubernetes Event in the background; return False if the host does not know the pod."""
        pod = self._seams.objects.pod_by_uid(regarding.uid) or self._seams.objects.pod(regarding.key)
        if pod is None:
            return False
        self._seams.status.event(pod, type, reason, action, note)
        return True


class OpenCalls:
    """Filters, preemption and scores that a plugin may run during a call to it, for the pod of that call.

    During PostFilter all three; during Reserve and Permit scores only. During PodGroupPostFilter, tries and
    the preemption of the group. Implements `handle.calls.FilterRunner`.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        snapshot: Snapshot,
        later: LateParts,
        metrics: PreemptionMetrics | None = None,
    ) -> None:
        self._evaluator = evaluator
        self._metrics = metrics or PreemptionMetrics()
        self._snapshot = snapshot
        self._later = later
        self._scoring: set[str] = set()
        """The plugin for which scores are being run, if any."""
        self._what_if = asyncio.Lock()
        """Held while filters are run: a new node is in the snapshot meanwhile, for one question alone."""

    async def run_filters(self, plugin: str, cycle_id: str, read: ReadScenarios) -> list[Status]:
        """Return per scenario SUCCESS or the first rejection of the other plugins. One question at a time.

        `read`: returns the scenarios, over the nodes of the cycle. Raises NoOpenCallError, also if PostFilter
        ends before the answer is there, and ScenarioError.
        """
        self._attempt(plugin, cycle_id, POST_FILTER)
        async with self._what_if:
            attempt = self._attempt(plugin, cycle_id, POST_FILTER)
            what_ifs = WhatIfs(attempt.framework, self._snapshot, without=plugin)
            question = asyncio.ensure_future(what_ifs.run(attempt, read(attempt.nodes)))
            part = attempt.part(plugin)

            def end() -> None:
                question.cancel()
                self._snapshot.drop_new_nodes()
                attempt.version = self._snapshot.version

            part.questions = (end,)
            try:
                return await question
            except IncompleteNodeError as err:
                raise ScenarioError(str(err)) from err
            except asyncio.CancelledError:
                task = asyncio.current_task()
                # `end` cancels the question, not the task that waits for it.
                if task is None or not task.cancelling():
                    self._attempt(plugin, cycle_id, POST_FILTER)
                raise
            finally:
                part.questions = ()

    async def run_own(self, plugin: str, cycle_id: str, scenarios: Sequence[Scenario]) -> list[Status]:
        """Return what `run_filters` returns, for scenarios with an in-process plugin's records."""

        def read(nodes: NodeTable) -> list[Scenario]:
            reader = ScenarioReader(nodes)
            return [reader.checked(one) for one in scenarios]

        return await self.run_filters(plugin, cycle_id, read)

    async def evaluate_preemption(
        self, plugin: str, cycle_id: str, percentage: int, absolute: int
    ) -> PostFilterResult:
        """Run the host's preemption. Both limits 0: the defaults. Raises NoOpenCallError."""
        attempt = self._attempt(plugin, cycle_id, POST_FILTER)
        limits = SearchLimits(percentage, absolute) if percentage or absolute else None
        self._metrics.attempted()
        started_s = instant_s()
        found = await self._evaluator.evaluate(attempt.framework, attempt, limits)
        self._metrics.evaluated(found.status.code, instant_s() - started_s)
        return found.result()

    async def run_scores(self, plugin: str, cycle_id: str, node_names: Sequence[str]) -> NodeScores:
        """Run PreScore and Score over some nodes.

        Raises NoOpenCallError, QuestionUnderWayError and UnknownNodesError.
        """
        attempt = self._attempt(plugin, cycle_id, *SCORED_FROM)
        if self._scoring:
            # Two runs would overwrite each other's PreScore, and a Score that asks would wait for itself.
            raise QuestionUnderWayError(f"scores are being run for {', '.join(self._scoring)} already")
        if not node_names:
            return NodeScores(SUCCESS)
        nodes = attempt.nodes
        rows, back = np.unique(_rows(nodes, node_names), return_inverse=True)
        self._scoring.add(plugin)
        try:
            table = await attempt.framework.run_score_apart(attempt, nodes.take(rows))
        except CycleRestartError as err:
            # The cycle cannot restart now: the plugin's own call is open, and has to end first.
            return NodeScores(Status.error(str(err)))
        finally:
            self._scoring.discard(plugin)
        # The cycle may have ended while the plugins answered.
        self._attempt(plugin, cycle_id, *SCORED_FROM)
        if isinstance(table, Status):
            return NodeScores(table)
        plugins = tuple(
            PluginNodeScores(item.plugin, item.weight, item.normalized.take(back)) for item in table.plugins
        )
        return NodeScores(SUCCESS, tuple(node_names), table.total.take(back), plugins)

    async def try_pod_group(self, plugin: str, cycle_id: str, removed: Sequence[ObjectRef]) -> Trial:
        """Place the group of an open PodGroupPostFilter in the snapshot without some pods.

        Raises NoOpenCallError, QuestionUnderWayError and UnknownPodError.
        """
        tries = self._tries(plugin, cycle_id)
        pods: list[Pod] = []
        for ref in removed:
            pod = self._snapshot.pod_on_some_node(ref.uid)
            if pod is None:
                raise UnknownPodError(f"pod {ref.namespace}/{ref.name} ({ref.uid}) is on no node")
            pods.append(pod)
        return await tries.schedule(pods)

    async def preempt_for_pod_group(self, plugin: str, cycle_id: str) -> PodGroupPostFilterResult:
        """Run the host's preemption for the group of an open PodGroupPostFilter.

        Raises NoOpenCallError and QuestionUnderWayError.
        """
        return await self._tries(plugin, cycle_id).preempt()

    def _tries(self, plugin: str, cycle_id: str) -> OpenTries:
        tries = next(
            (
                open_tries
                for profile in self._later.scheduler.profiles.values()
                if (open_tries := profile.framework.groups.open_tries) is not None
                and (open_tries.plugin, open_tries.cycle_id) == (plugin, cycle_id)
            ),
            None,
        )
        if tries is None:
            raise NoOpenCallError(f"no PodGroupPostFilter of {plugin} is open in cycle {cycle_id}")
        if tries.refusal:
            raise QuestionUnderWayError(tries.refusal)
        return tries

    def _attempt(self, plugin: str, cycle_id: str, *points: ExtensionPoint) -> Attempt:
        attempt = self._later.scheduler.in_cycle
        if attempt is not None and attempt.cycle_id == cycle_id and attempt.part(plugin).open_call in points:
            return attempt
        *others, last = [point.config_name[0].upper() + point.config_name[1:] for point in points]
        calls = f"{', '.join(others)} or {last}" if others else last
        raise NoOpenCallError(f"no {calls} of {plugin} is open in cycle {cycle_id}")


def _rows(nodes: NodeTable, names: Sequence[str]) -> NDArray[np.intp]:
    """Return the rows of the nodes. Raises UnknownNodesError."""
    rows = [nodes.position(name) for name in names]
    if None in rows:
        raise UnknownNodesError(f"node {names[rows.index(None)]!r} is not in the snapshot")
    return np.asarray(rows, dtype=np.intp)
