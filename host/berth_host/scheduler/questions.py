"""Questions over a held snapshot, which leave no trace: where would a pod go, who could not leave a node?

    ask_pod          one pod: PreFilter, Filter, Score, PostFilter, as in its scheduling cycle, over all nodes
    Questions.fit    `ask_pod` between two cycles of a running host
    Questions.refit  the same about a pod of the cluster, which may be on a node
    Questions.drain  the pods of one node, one after the other, each with the room that the others left

Nothing is assumed, reserved, nominated or evicted. `FrameworkAlone` asks by `ask_pod`, too.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

import numpy as np
from berth_sdk.pod import Pod
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.tables import NodeTable

from berth_host.cache.cache import Cache
from berth_host.cache.objects import ObjectStores
from berth_host.cache.snapshot import Snapshot
from berth_host.config.configuration import LoadedConfiguration
from berth_host.errors.endpoints import QuestionError, UnknownObjectError
from berth_host.errors.plugins import CycleRestartError
from berth_host.explain.diagnosis import NodeScore
from berth_host.explain.nearest_fit import FIT_PLUGIN, Shortage, counted_in, grouped, lacking
from berth_host.explain.pod_fit import DrainAnswer, PodFit, Preemption
from berth_host.framework.framework import Framework
from berth_host.framework.score_table import ScoreTable
from berth_host.metrics.series import instant_s
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.nominated_pods import NominatedPods
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_host.rpc.cycle import CycleEnd
from berth_host.scheduler.attempt import Attempt, Failed
from berth_host.scheduler.chooser import SmallestName
from berth_host.scheduler.pod_steps import SearchSteps
from berth_host.scheduler.schedule_one import Algorithm, Profile, Scheduler
from berth_host.scheduler.search import ScheduleResult, SearchStart

_MIRROR: Final = "kubernetes.io/config.mirror"
_DRAINED: Final = Status.unresolvable("node(s) were being drained")


class AskedHost(Protocol):
    """The parts of a host that questions read."""

    configuration: LoadedConfiguration

    @property
    def scheduler(self) -> Scheduler:
        """The scheduling loop."""
        ...

    @property
    def cache(self) -> Cache:
        """The nodes with their pods."""
        ...

    @property
    def objects(self) -> ObjectStores:
        """The objects from the watches."""
        ...

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot of the scheduling cycles."""
        ...


class Questions:
    """The questions to one running host. One runs at a time, while no scheduling cycle runs."""

    def __init__(self, host: AskedHost) -> None:
        self._host = host

    async def fit(self, pod: Pod) -> PodFit:
        """Return where the pod would go now. Raises QuestionError."""
        scheduler = self._host.scheduler
        profile = self._profile(pod)
        async with scheduler.undisturbed() as about:
            found = await ask_pod(
                scheduler.steps, profile, self._host.snapshot.nodes, pod, about=about, preempts=True
            )
        return replace(found, nearest=nearest(pod, found.verdicts, self._host))

    async def refit(self, key: str) -> PodFit | None:
        """Return where the pod `namespace/name` of the cluster would go now; None if there is no such pod.

        A pod that has a node, or is being bound to one, is asked about as if it had left this node. Its own
        nomination does not count, so that every node is asked about. Nobody is preempted for it. Raises
        QuestionError.
        """
        scheduler, snapshot = self._host.scheduler, self._host.snapshot
        async with scheduler.undisturbed() as about:
            pod = self._host.objects.pod(key)
            if pod is None:
                return None
            profile = self._profile(pod)
            left = ""
            if snapshot.pods.position(pod.uid) is not None:
                left = snapshot.remove(pod.uid).node_name
            asked = replace(pod, node_name="", nominated_node="")
            found = await ask_pod(scheduler.steps, profile, snapshot.nodes, asked, about=about)
        return replace(found, left=left)

    async def drain(self, node_name: str) -> DrainAnswer:
        """Return which pods of a node could go elsewhere, and which could not.

        All these pods leave the node at once, as in a drain, and are then placed one after the other, those
        of the highest priority first. Nobody is preempted for them. Raises UnknownObjectError.
        """
        scheduler, snapshot = self._host.scheduler, self._host.snapshot
        moves: list[PodFit] = []
        async with scheduler.undisturbed() as about:
            node = snapshot.nodes.node_named(node_name)
            if node is None:
                names = difflib.get_close_matches(node_name, snapshot.nodes.names, n=3)
                cure = f": did you mean {', '.join(names)}?" if names else ""
                raise UnknownObjectError(f"there is no node {node_name}{cure}")
            stay = {pod.key: why for pod in node.pods if (why := self._why_stays(pod))}
            leaving = [pod for pod in node.pods if pod.key not in stay]
            leaving.sort(key=lambda pod: (-pod.priority, pod.key))
            for pod in leaving:
                snapshot.remove(pod.uid)
            for pod in leaving:
                asked = replace(pod, node_name="", nominated_node="")
                found = await ask_pod(
                    scheduler.steps,
                    self._profile(pod),
                    snapshot.nodes,
                    asked,
                    about=about,
                    without=node_name,
                )
                if found.node:
                    snapshot.assume(asked.on_node(found.node))
                others = {name: status for name, status in found.verdicts.items() if name != node_name}
                moves.append(replace(found, verdicts=others))
        return DrainAnswer(node=node_name, moves=moves, stay=dict(sorted(stay.items())))

    def _profile(self, pod: Pod) -> Profile:
        profiles = self._host.scheduler.profiles
        profile = profiles.get(pod.scheduler_name)
        if profile is None:
            raise QuestionError(
                f"pod {pod.key} has the schedulerName {pod.scheduler_name!r}, and this scheduler places"
                f" {', '.join(sorted(profiles))}: ask the other one, or write one of these names"
            )
        return profile

    def _why_stays(self, pod: Pod) -> str:
        """Return why a drain leaves a pod alone, or why nobody here knows where it goes; "" if it moves."""
        owners = () if pod.object is None else pod.object.get("metadata.ownerReferences") or ()
        if any(owner.get("kind") == "DaemonSet" and owner.get("controller") for owner in owners):
            return "belongs to a DaemonSet"
        if pod.object is not None and _MIRROR in (pod.object.get("metadata.annotations") or {}):
            return "is a static pod"
        if pod.terminating:
            return "is being deleted"
        if self._host.cache.is_assumed(pod.uid):
            return "is being bound to the node now"
        if pod.scheduler_name not in self._host.scheduler.profiles:
            return f"is placed by another scheduler, {pod.scheduler_name}"
        return ""


def nearest(pod: Pod, verdicts: Mapping[str, Status], host: AskedHost) -> list[Shortage]:
    """Return what nodes lack that only NodeResourcesFit rejected, nearest first; empty if the pod fits."""
    if any(status.is_success for status in verdicts.values()):
        return []
    counts = counted_in(host.configuration.profile(pod.scheduler_name))
    found = []
    for name, status in verdicts.items():
        info, node = host.cache.node_info(name), host.objects.node(name)
        if status.plugin == FIT_PLUGIN and info is not None and node is not None:
            used = {**info.requested, "pods": len(info.pods)}
            found.append((name, lacking(pod, node, used, counts)))
    return grouped(pod, found)


async def ask_pod(
    steps: SearchSteps,
    profile: Profile,
    nodes: NodeTable,
    pod: Pod,
    *,
    about: Callable[[Attempt | None], None] = lambda _: None,
    without: str = "",
    preempts: bool = False,
    scores: bool = True,
    promised: Mapping[str, Sequence[Pod]] | None = None,
) -> PodFit:
    """Return where the pod would go: the verdict about each node, all scores, the best node.

    `nodes`: the whole snapshot. `about`: told of the attempt, about which plugins may ask the host.
    `without`: a node that the pod may not go to; "" for none. `preempts`: ask PostFilter if no node fits.
    `scores` False: choose no node among those that fit. `promised`: pods that count on a node, by its name;
    None: the nominated pods that `steps` knows.
    """
    attempt = steps.begin(QueuedPodInfo(pod, timestamp_us=0), profile)
    attempt.is_question, attempt.trace = True, None
    algorithm = Algorithm(profile.framework, SmallestName(), extenders=profile.algorithm.extenders)
    asked = _Asked(steps, algorithm, without, promised, preempts=preempts, scores=scores)
    try:
        while True:
            about(attempt)
            try:
                return await asked.ask(attempt, nodes)
            except CycleRestartError as restart:
                attempt = steps.restart(attempt, restart)
            finally:
                steps.nominations.release()
    finally:
        profile.framework.end_cycle(attempt, CycleEnd.UNSCHEDULABLE)
        about(None)


class _Asked:
    """One question about one pod. `ask` is called again for the record of a restarted attempt."""

    def __init__(
        self,
        steps: SearchSteps,
        algorithm: Algorithm,
        without: str,
        promised: Mapping[str, Sequence[Pod]] | None,
        *,
        preempts: bool,
        scores: bool,
    ) -> None:
        self._steps = steps
        self._algorithm = algorithm
        self._without = without
        self._promised = promised
        self._scores = scores
        self._make_room: Callable[[Attempt, NodeStatuses], Awaitable[str | None]] | None = (
            self._post_filter if preempts else None
        )
        self._preemption: Preemption | None = None

    async def ask(self, attempt: Attempt, nodes: NodeTable) -> PodFit:
        result: ScheduleResult | None = None
        found, message, error = SUCCESS, "", SUCCESS
        try:
            self._steps.open(attempt, nodes)
            if self._promised is not None:
                attempt.nominated = NominatedPods.of(attempt.nodes, self._promised)
            found = await self._algorithm.find_feasible(attempt, SearchStart())
            if self._without:
                self._leave_out(attempt)
            if self._scores:
                result = await self._steps.pick(attempt, self._algorithm, found, instant_s(), self._make_room)
        except Failed as failed:
            message = failed.message
            error = SUCCESS if failed.fit_error else failed.status
        names = attempt.nodes.names
        scores = [] if result is None else list(_scores(attempt, result))
        return PodFit(
            pod=attempt.pod.key,
            node="" if result is None else result.node_name,
            tied=0 if result is None else len(result.tied),
            message=message,
            verdicts=dict.fromkeys(names, error) if not error.is_success else _verdicts(attempt, found),
            scores=scores,
            preemption=self._preemption,
            notes=list(attempt.diagnosis.notes),
        )

    def _leave_out(self, attempt: Attempt) -> None:
        """Take the node that is left out from the feasible ones, with a reason for the message."""
        row = attempt.nodes.position(self._without)
        attempt.feasible = attempt.feasible[attempt.feasible != row]
        if row is not None and attempt.statuses is not None:
            attempt.statuses.groups[row] = attempt.statuses.group_of(_DRAINED)

    async def _post_filter(self, attempt: Attempt, statuses: NodeStatuses) -> str | None:
        """Ask PostFilter, and keep its answer; nothing of it is done."""
        framework: Framework = attempt.framework
        plugin, answer = await framework.run_post_filter(attempt, statuses.rejections())
        attempt.diagnosis.post_filter_message = answer.status.message
        self._preemption = Preemption(
            plugin=plugin,
            node=answer.nominated_node if answer.status.is_success else "",
            victims=[f"{victim.namespace}/{victim.name}" for victim in answer.victims],
            message=answer.status.message,
        )
        return None


def _verdicts(attempt: Attempt, found: Status) -> dict[str, Status]:
    """Return per node SUCCESS or its rejection. `found`: the status of the search."""
    names, statuses = attempt.nodes.names, attempt.statuses
    if not found.is_success or statuses is None:
        return dict.fromkeys(names, found)
    verdicts = {name: statuses.status_of(name) for name in names}
    for extender, rows in attempt.unexplained.items():
        left_out = Status(Code.UNSCHEDULABLE, (), extender)
        verdicts |= dict.fromkeys((names[row] for row in rows.tolist()), left_out)
    return verdicts | dict.fromkeys((names[row] for row in attempt.feasible.tolist()), SUCCESS)


def _scores(attempt: Attempt, result: ScheduleResult) -> Iterator[NodeScore]:
    """Yield the nodes that fit with their scores, the best first, equal ones by name."""
    table = result.scores
    if not isinstance(table, ScoreTable):
        for row in np.sort(attempt.feasible).tolist():
            yield NodeScore(attempt.nodes.name(row), 0, {})
        return
    columns = [
        (item.plugin, item.raw.tolist(), item.normalized.tolist(), item.weight) for item in table.plugins
    ]
    names, totals = table.nodes.names, table.total.tolist()
    for row in sorted(range(len(names)), key=lambda row: (-totals[row], names[row])):
        plugins = {plugin: (raw[row], normal[row], weight) for plugin, raw, normal, weight in columns}
        yield NodeScore(names[row], totals[row], plugins)
