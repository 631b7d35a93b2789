"""One question about one pod over a held snapshot: where would it go?

    ask_gates    PreEnqueue, as in the queue
    search_pod   PreFilter, Filter, Score, PostFilter, as in the pod's scheduling cycle -> `Found`
    ask_pod      the same, as the answer that users read (`PodFit`)

Nothing is assumed, reserved, nominated or evicted. `fit`, `drain` and `simulating` ask by it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.pod import Pod
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.attempt.cycle import Cycle, CycleEnd
from berth_host.cycle.attempt import Attempt, Failed, ScheduleResult, SearchStart
from berth_host.cycle.chooser import SmallestName
from berth_host.cycle.schedule_one import Algorithm, Profile, SearchSteps
from berth_host.errors.plugins import CycleRestartError
from berth_host.explain.diagnosis import NodeScore
from berth_host.explain.pod_fit import ClosedGate, PodFit, Preemption
from berth_host.framework.framework import Framework
from berth_host.framework.score_table import ScoreTable
from berth_host.metrics.series import instant_s
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.nominated_pods import NominatedPods
from berth_host.queue.queued_pod import QueuedPodInfo

LEFT_OUT: Final = Status.unresolvable("node(s) were left out of the question")
_DRAINED: Final = Status.unresolvable("node(s) were being drained")
Rows = NDArray[np.intp]
AboutAttempt = Callable[[Attempt | None], None]
"""A function that is told the attempt about which plugins may ask the host; None: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Among:
    """The nodes that a question is about, by row of the snapshot's table with n nodes.

    `allowed`: bool[n], the nodes that the pod may get. `stands_for`: intp[n], for each node the row whose
    verdict counts for it: its own, or that of a node that differs in nothing but its name. `preferred`:
    bool[n]; if the pod fits on some of these, it gets one of them. None: no node is preferred. `made_up`: see
    `Cycle.made_up`.
    """

    allowed: NDArray[np.bool_]
    stands_for: Rows
    preferred: NDArray[np.bool_] | None = None
    made_up: NDArray[np.bool_] | None = None

    def leaders_of(self, rows: Rows) -> Rows:
        """Return for each row the one that stands for it; the row itself if that one is not in `rows`."""
        here = np.zeros(len(self.allowed), dtype=np.bool_)
        here[rows] = True
        leaders = self.stands_for[rows]
        return np.where(here[leaders], leaders, rows)


@dataclass(slots=True, kw_only=True)
class Found:
    """The outcome of the search for one pod. Valid until the snapshot changes.

    `status`: of the search: SUCCESS, PreFilter's rejection of the pod, or an error. `fits`: the rows that
    passed. `result`: the choice; None if no node was chosen. `message`: why not. `error`: SUCCESS, or the
    error that ended the attempt.
    """

    attempt: Attempt
    status: Status = SUCCESS
    fits: Rows
    result: ScheduleResult | None = None
    message: str = ""
    error: Status = SUCCESS
    preemption: Preemption | None = None

    def as_fit(self) -> PodFit:
        """Return the answer that users read."""
        attempt, result = self.attempt, self.result
        verdicts = (
            _verdicts(attempt, self.status)
            if self.error.is_success
            else dict.fromkeys(attempt.nodes.names, self.error)
        )
        return PodFit(
            pod=attempt.pod.key,
            node="" if result is None else result.node_name,
            tied=0 if result is None else len(result.tied),
            message=self.message,
            verdicts=verdicts,
            scores=[] if result is None else list(_scores(attempt, result)),
            preemption=self.preemption,
            notes=list(attempt.diagnosis.notes),
        )


async def ask_gates(framework: Framework, pod: Pod) -> tuple[list[ClosedGate], list[str]]:
    """Ask every PreEnqueue plugin about the pod; return those that keep it out of the queue, and notes.

    The queue stops at the first closed gate, and asks again after a plugin failed; a question does neither.
    """
    gates, notes = [], []
    queued = QueuedPodInfo(pod, timestamp_us=0).as_queued_pod()
    for client in framework.plugins_at(ExtensionPoint.PRE_ENQUEUE):
        if client.in_scope(pod):
            (status,) = await client.pre_enqueue([queued])
            if not status.is_success:
                gates.append(ClosedGate(plugin=client.name, message=status.message))
            notes += [f"{client.name}: {reason}" for reason in status.reasons if status.is_success]
    return gates, notes


async def ask_pod(
    steps: SearchSteps,
    profile: Profile,
    nodes: NodeTable,
    pod: Pod,
    *,
    about: AboutAttempt = lambda _: None,
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
    algorithm = Algorithm(profile.framework, SmallestName(), extenders=profile.algorithm.extenders)
    asked = _Asked(steps, algorithm, without, promised, preempts=preempts, scores=scores)
    return (await _asked_about(asked, steps, profile, nodes, pod, about)).as_fit()


async def search_pod(
    steps: SearchSteps,
    profile: Profile,
    nodes: NodeTable,
    pod: Pod,
    among: Among,
    *,
    about: AboutAttempt = lambda _: None,
) -> Found:
    """Return the node that the pod would get among some. The other arguments are those of `ask_pod`."""
    algorithm = _SearchAmong(profile, among)
    asked = _Asked(steps, algorithm, "", None, preempts=False, scores=True, among=among)
    return await _asked_about(asked, steps, profile, nodes, pod, about)


async def _asked_about(
    asked: _Asked,
    steps: SearchSteps,
    profile: Profile,
    nodes: NodeTable,
    pod: Pod,
    about: AboutAttempt,
) -> Found:
    attempt = steps.begin(QueuedPodInfo(pod, timestamp_us=0), profile)
    attempt.is_question, attempt.trace = True, None
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


class _SearchAmong(Algorithm):
    """The search over the nodes of an `Among`."""

    def __init__(self, profile: Profile, among: Among) -> None:
        super().__init__(profile.framework, SmallestName(), extenders=profile.algorithm.extenders)
        self._among = among

    async def filtered(self, cycle: Cycle, statuses: NodeStatuses, rows: Rows) -> Rows:
        """Run Filter over the rows that stand for the others, or over all rows where that costs less."""
        among = self._among
        may = rows[among.allowed[rows]]
        leaders = among.leaders_of(may)
        asked = np.unique(leaders)
        if 2 * len(asked) > len(rows):
            # Kept answers of equal pods are merged for all rows at once.
            passed = await super().filtered(cycle, statuses, rows)
            passed = passed[among.allowed[passed]]
        else:
            led = await super().filtered(cycle, statuses, asked)
            has_passed = np.zeros(len(statuses.table), dtype=np.bool_)
            has_passed[led] = True
            passed = may[has_passed[leaders]]
            if not statuses.is_empty:
                statuses.groups[may] = statuses.groups[leaders]
        if len(may) < len(rows):
            statuses.groups[rows[~among.allowed[rows]]] = statuses.group_of(LEFT_OUT)
        return passed

    def nominated_row(self, cycle: Cycle) -> int | None:
        """Return the row of the node that the pod is nominated to, if the question is about that node."""
        row = super().nominated_row(cycle)
        return row if row is not None and self._among.allowed[row] else None


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
        among: Among | None = None,
    ) -> None:
        self._steps = steps
        self._algorithm = algorithm
        self._without = without
        self._promised = promised
        self._scores = scores
        self._preferred = None if among is None else among.preferred
        self._made_up = None if among is None else among.made_up
        self._make_room: Callable[[Attempt, NodeStatuses], Awaitable[str | None]] | None = (
            self._post_filter if preempts else None
        )
        self._preemption: Preemption | None = None

    async def ask(self, attempt: Attempt, nodes: NodeTable) -> Found:
        found = Found(attempt=attempt, fits=attempt.feasible)
        try:
            self._steps.open(attempt, nodes)
            attempt.made_up = self._made_up
            if self._promised is not None:
                attempt.nominated = NominatedPods.of(attempt.nodes, self._promised)
            found.status = await self._algorithm.find_feasible(attempt, SearchStart())
            if self._without:
                self._leave_out(attempt)
            found.fits = attempt.feasible
            if self._preferred is not None:
                better = attempt.feasible[self._preferred[attempt.feasible]]
                attempt.feasible = better if len(better) else attempt.feasible
            if self._scores:
                found.result = await self._steps.pick(
                    attempt, self._algorithm, found.status, instant_s(), self._make_room
                )
        except Failed as failed:
            found.message = failed.message
            found.error = SUCCESS if failed.fit_error else failed.status
        found.preemption = self._preemption
        return found

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
