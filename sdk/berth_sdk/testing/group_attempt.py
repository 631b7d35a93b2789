"""`GroupAttempt`: the cycle of one group of pods through one plugin. Made by `PluginHost.attempt_group`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from berth_sdk.cycle_state import GroupState, PlacementState, SharedState, TrialRef
from berth_sdk.errors import HandleError, PluginAnswerError
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.pod import Pod
from berth_sdk.pod_group import Assignment, GroupView, Placement, PlacementProgress
from berth_sdk.results import PodGroupPostFilterResult, Trial
from berth_sdk.runtime.group_runtime import FeasibleSteps, PlacementsNormalized, filled
from berth_sdk.status import MAX_NODE_SCORE, MIN_NODE_SCORE, Status
from berth_sdk.tables import NodeTable
from berth_sdk.testing.attempt import Attempt, Cycle, Seat

if TYPE_CHECKING:
    from berth_sdk.testing.host import PluginHost

T = TypeVar("T")
MAX_TRIES: Final = 32
"""The most what-ifs in one call of PodGroupPostFilter, as with a real host."""


class GroupAttempt:
    """One cycle of a group. Each method calls the plugin at one extension point.

    `view`: the group as the plugin gets it. `state`: the plugin's store of this cycle. `nodes`: the snapshot.
    """

    def __init__(
        self, host: PluginHost, seat: Seat, cycle_id: str, view: GroupView, nodes: NodeTable
    ) -> None:
        self._host = host
        self._seat = seat
        self._runtime = seat.runtime
        self._trials = 0
        self.cycle_id = cycle_id
        self.view = view
        self.nodes = nodes
        self.state = GroupState(cycle_id, plugin=self.name, shared=SharedState())

    @property
    def name(self) -> str:
        """The plugin's name."""
        return self._runtime.descriptor.name

    def generate(self, *names: str) -> dict[str, list[str]] | Status:
        """Run PlacementGenerate over all nodes, or the named ones. Return the nodes' names by placement.

        A Status is the plugin's rejection. Raises PluginAnswerError for two placements with one name, and
        for nodes that are not among those given.
        """
        parent = self._placement("", names)
        answer = self._host.run(self._runtime.placement_generate(self.state, self.view, parent))
        if not answer.status.is_success:
            return answer.status
        known, found = set(parent.nodes.names), dict[str, list[str]]()
        for placement in answer.placements:
            listed = placement.nodes.names
            if placement.name in found:
                raise PluginAnswerError(f"{self.name} returned two placements named {placement.name!r}")
            if not set(listed) <= known or len(set(listed)) != len(listed):
                raise PluginAnswerError(
                    f"{self.name} returned the placement {placement.name!r} with a node that is twice in it"
                    " or not among the given nodes: use parent.nodes.take"
                )
            found[placement.name] = listed
        return found

    def trial(self, name: str = "", nodes: Iterable[str] = ()) -> PlacementTrial:
        """Return the next trial: the placement `name` with these nodes; none given: with all nodes."""
        self._trials += 1
        placement = self._placement(name, tuple(nodes))
        return PlacementTrial(self._host, self._seat, self, placement, self._trials)

    def score(self, assigned: Mapping[PlacementTrial, Mapping[str, str]]) -> dict[str, int]:
        """Run PlacementScore for each trial, and the normalisation. Return the scores by placement.

        `assigned`: by trial, the node of each pod that has one, by the pod's name. Raises PluginAnswerError
        for a score outside 0..100 and for a failed Status.
        """
        raw: list[int] = []
        for trial, nodes in assigned.items():
            assignments = [Assignment(pod, nodes[pod.name]) for pod in self.view.pods if pod.name in nodes]
            scored = self._host.run(
                self._runtime.placement_score(trial.state, self.view, trial.placement, assignments)
            )
            self._check("placement_score", scored.status)
            raw.append(scored.score)
        placements = [trial.placement for trial in assigned]
        if self._runtime.descriptor.has(ExtensionPoint.NORMALIZE_PLACEMENT_SCORE):
            final: PlacementsNormalized = self._host.run(
                self._runtime.normalize_placements(
                    self.state, self.view, np.array(raw, dtype=np.int64), placements
                )
            )
            self._check("normalize_placements", final.status)
            raw = list(final.scores)
        for placement, score in zip(placements, raw, strict=True):
            if not MIN_NODE_SCORE <= score <= MAX_NODE_SCORE:
                raise PluginAnswerError(
                    f"{self.name} scores placement {placement.name!r} with {score}: it must be 0..100 after"
                    " normalisation"
                )
        return {placement.name: score for placement, score in zip(placements, raw, strict=True)}

    def post_filter(
        self,
        schedule: Callable[[Sequence[Pod]], Trial],
        *,
        preemption: PodGroupPostFilterResult | None = None,
        reached_pre_filter: bool = True,
    ) -> PodGroupPostFilterResult:
        """Run PodGroupPostFilter.

        Args:
            schedule: Answers the plugin's what-ifs, in place of the host.
            preemption: The result of the host's own preemption (`Tries.preempt`); None: it finds no victims.
            reached_pre_filter: What `Tries` says.
        """
        found = preemption or PodGroupPostFilterResult(Status.unschedulable())
        tries = _Tries(schedule, found, reached_pre_filter)
        try:
            return self._host.run(self._runtime.pod_group_post_filter(self.state, self.view, tries))
        finally:
            tries.is_open = False

    def _placement(self, name: str, names: Sequence[str]) -> Placement:
        if not names:
            return Placement(name, self.nodes)
        rows: list[int] = []
        for node in names:
            row = self.nodes.position(node)
            if row is None:
                raise KeyError(f"the cluster has no node {node}")
            rows.append(row)
        return Placement(name, self.nodes.take(np.array(sorted(rows), dtype=np.intp)))

    def _check(self, method: str, status: Status) -> None:
        if not status.is_success:
            raise PluginAnswerError(
                f"{self.name}.{method} returned {status.code.kube_name}: {status.message}"
            )


class PlacementTrial:
    """One placement that the group's cycle tries. `state`: the plugin's store of this trial."""

    def __init__(
        self, host: PluginHost, seat: Seat, group: GroupAttempt, placement: Placement, number: int
    ) -> None:
        self._host = host
        self._seat = seat
        self._group = group
        self._members = 0
        self.placement = placement
        self.number = number
        self.state = PlacementState(f"{group.cycle_id}.{number}", plugin=group.name)
        self.state.parent = group.state

    def feasible(self, *, scheduled: int, remaining: int) -> Status:
        """Run PlacementFeasible for one step. The numbers stand in place of `{scheduled}`, `{remaining}`."""
        steps = FeasibleSteps(scheduled, remaining)
        judged = self._host.run(self._seat.runtime.placement_feasible(self.state, self._group.view, steps))
        (run,) = judged.runs
        return filled(run.status, PlacementProgress(remaining, scheduled))

    def attempt(self, pod: Pod) -> Attempt:
        """Return the cycle of a member in this trial. Its reservations are tentative."""
        self._members += 1
        cycle_id = f"{self.state.cycle_id}.{self._members}"
        attempt = Attempt(self._host, self._seat, Cycle(cycle_id, pod, self.placement.nodes, SharedState()))
        attempt.state.parent = self.state
        attempt.state.trial = TrialRef(
            self._group.view.group.key, self.placement.name, self.number, tentative=True
        )
        return attempt

    def decide(self, attempt: Attempt) -> None:
        """Choose this trial for the member of `attempt`: its next reservation is for good, with a new id."""
        state, trial = attempt.state, attempt.state.trial
        if trial is None or state.parent is not self.state:
            raise ValueError(f"{attempt.pod.key} was not tried in this trial: use its `attempt`")
        state.cycle_id = f"{state.cycle_id}-decided"
        state.trial = TrialRef(trial.group, trial.placement, trial.number, tentative=False)


class _Tries:
    """What-ifs that a function of the test answers."""

    def __init__(
        self,
        schedule: Callable[[Sequence[Pod]], Trial],
        preemption: PodGroupPostFilterResult,
        reached_pre_filter: bool,
    ) -> None:
        self.reached_pre_filter = reached_pre_filter
        self._schedule = schedule
        self._preemption = preemption
        self._left = MAX_TRIES
        self.is_open = True

    def schedule(self, removed: Sequence[Pod]) -> Trial | Awaitable[Trial]:
        """Return the answer of the test."""
        self._count()
        return _here_or_later(self._schedule(removed))

    def preempt(self) -> PodGroupPostFilterResult | Awaitable[PodGroupPostFilterResult]:
        """Return the preemption of the test."""
        self._count()
        return _here_or_later(self._preemption)

    def _count(self) -> None:
        if not self.is_open:
            raise HandleError("no PodGroupPostFilter is open")
        if not self._left:
            raise HandleError(f"this call of PodGroupPostFilter has made its {MAX_TRIES} tries: answer it")
        self._left -= 1


def _here_or_later(found: T) -> T | Awaitable[T]:
    """Return the answer; to an `async def` method, which awaits it, an awaitable of it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return found
    return _awaited(found)


async def _awaited(found: T) -> T:
    return found
