"""`GroupRuntime`: the points of `PluginRuntime` about groups of pods, and the records of their answers.

Methods may be plain or `async def`, as everywhere. Each returns the full record, or an awaitable of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import ScoreRefusedError
from berth_sdk.extension_points import Answer
from berth_sdk.pod_group import Assignment, GroupView, Placement, PlacementProgress
from berth_sdk.results import PodGroupPostFilterResult, Tries
from berth_sdk.runtime.answers import Steps, must_wait, run
from berth_sdk.runtime.convert import Answers
from berth_sdk.status import SUCCESS, Code, Status

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PlacementsGenerated:
    """The answer of PlacementGenerate."""

    status: Status
    placements: tuple[Placement, ...] = ()


@dataclass(frozen=True, slots=True)
class PlacementScored:
    """The answer of PlacementScore: the raw score. A `status` of ERROR: the plugin's own error."""

    status: Status
    score: int = 0


@dataclass(frozen=True, slots=True)
class PlacementsNormalized:
    """The answer of NormalizePlacementScore: one score per placement. `status`: as in PlacementScored."""

    status: Status
    scores: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FeasibleSteps:
    """The steps that one call of PlacementFeasible asks about: after each member that is tried from here on.

    `max_failures`: the most members that fail in a step that is asked about; None: the present step alone.
    `unschedulable`: the members that have failed so far.

    The order of the steps: by failures, then by members tried. After k tried members, of which f failed (k is
    f to `remaining`), a step has `scheduled + k - f` scheduled members and `remaining - k` left.
    """

    scheduled: int
    remaining: int
    max_failures: int | None = None
    unschedulable: int = 0

    def __len__(self) -> int:
        """Return the number of steps."""
        if self.max_failures is None:
            return 1
        count = min(self.max_failures, self.remaining) + 1
        return count * (self.remaining + 1) - count * (count - 1) // 2

    def all(self) -> Sequence[PlacementProgress]:
        """Return the steps, in order."""
        if self.max_failures is None:
            return [PlacementProgress(self.remaining, self.scheduled, self.unschedulable)]
        return [
            PlacementProgress(
                self.remaining - tried, self.scheduled + tried - failed, self.unschedulable + failed
            )
            for failed in range(min(self.max_failures, self.remaining) + 1)
            for tried in range(failed, self.remaining + 1)
        ]

    def position(self, step: PlacementProgress) -> int | None:
        """Return the place of a step in the order; None for a step that is not among them."""
        tried = self.remaining - step.remaining
        failed = self.scheduled + tried - step.scheduled
        most = 0 if self.max_failures is None else self.max_failures
        if not 0 <= failed <= min(most, tried) or tried > self.remaining:
            return None
        if self.max_failures is None:
            return 0 if tried == 0 else None
        return failed * (self.remaining + 1) - failed * (failed - 1) // 2 + tried - failed


@dataclass(frozen=True, slots=True)
class FeasibleRun:
    """One status for `count` steps in a row."""

    count: int
    status: Status


@dataclass(frozen=True, slots=True)
class StepsJudged:
    """The answer of PlacementFeasible: one status per step, in runs. `status`: always SUCCESS."""

    status: Status
    runs: tuple[FeasibleRun, ...] = ()


class GroupRuntime(ABC):
    """The points about groups of a plugin instance."""

    _read: Answers

    @abstractmethod
    def _ask(self, method: str, read: Callable[[Any], T], *args: Any) -> Answer[T]: ...

    @abstractmethod
    def _method(self, method: str) -> Callable[..., Any]: ...

    def placement_generate(
        self, state: CycleState, group: GroupView, parent: Placement
    ) -> Answer[PlacementsGenerated]:
        """Return the placements for a group."""

        def read(answer: Any) -> PlacementsGenerated:
            if isinstance(answer, Status):
                return PlacementsGenerated(answer)
            return PlacementsGenerated(SUCCESS, self._read.placements("placement_generate", answer))

        return self._ask("placement_generate", read, state, group, parent)

    def placement_score(
        self, state: CycleState, group: GroupView, placement: Placement, assignments: Sequence[Assignment]
    ) -> Answer[PlacementScored]:
        """Return the raw score of one placement."""

        def read(answer: Any) -> PlacementScored:
            try:
                return PlacementScored(SUCCESS, self._read.score(answer, "placement_score"))
            except ScoreRefusedError as err:
                return PlacementScored(Status(Code.ERROR, err.reasons))

        return self._ask("placement_score", read, state, group, placement, tuple(assignments))

    def normalize_placements(
        self, state: CycleState, group: GroupView, scores: NDArray[np.int64], placements: Sequence[Placement]
    ) -> Answer[PlacementsNormalized]:
        """Return the scores that the plugin normalised. The plugin gets a copy of `scores`."""

        def read(answer: Any) -> PlacementsNormalized:
            try:
                final = self._read.scores("normalize_placements", answer, len(placements), "placements")
            except ScoreRefusedError as err:
                return PlacementsNormalized(Status(Code.ERROR, err.reasons))
            return PlacementsNormalized(SUCCESS, tuple(final.tolist()))

        return self._ask("normalize_placements", read, state, group, scores.copy(), tuple(placements))

    def placement_feasible(
        self, state: CycleState, group: GroupView, steps: FeasibleSteps
    ) -> Answer[StepsJudged]:
        """Return one status per step, in runs of equal ones. The plugin is called for each step."""
        return run(self._judge(state, group, steps))

    def _judge(self, state: CycleState, group: GroupView, steps: FeasibleSteps) -> Steps[StepsJudged]:
        function = self._method("placement_feasible")
        runs: list[tuple[int, Status]] = []
        for step in steps.all():
            answer = function(state, group, step)
            status = self._read.status("placement_feasible", (yield answer) if must_wait(answer) else answer)
            if runs and runs[-1][1] == status:
                runs[-1] = (runs[-1][0] + 1, status)
            else:
                runs.append((1, status))
        return StepsJudged(SUCCESS, tuple(FeasibleRun(count, status) for count, status in runs))

    def pod_group_post_filter(
        self, state: CycleState, group: GroupView, tries: Tries
    ) -> Answer[PodGroupPostFilterResult]:
        """Return the answer of PodGroupPostFilter."""
        return self._ask("pod_group_post_filter", self._read.pod_group_post_filter, state, group, tries)


def filled(status: Status, step: PlacementProgress) -> Status:
    """Return a status with the numbers of a step in place of `{scheduled}`, `{unschedulable}` and
    `{remaining}`.
    """
    if not any("{" in reason for reason in status.reasons):
        return status
    numbers = {
        "{scheduled}": str(step.scheduled),
        "{unschedulable}": str(step.unschedulable),
        "{remaining}": str(step.remaining),
    }
    reasons = list(status.reasons)
    for name, number in numbers.items():
        reasons = [reason.replace(name, number) for reason in reasons]
    return Status(status.code, tuple(reasons), status.plugin)
