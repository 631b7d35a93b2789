"""`GroupClient`: the calls of `PluginClient` that are about groups of pods.

The client asks an in-process plugin about PlacementFeasible step by step. It asks a served plugin about many
steps in one call, before they happen: about steps with few failed members first. When a cycle gets beyond
them, the client asks again, with twice as many failures.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.pod_group import Placement, PlacementProgress
from berth_sdk.results import PodGroupPostFilterResult, Tries
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.runtime.group_runtime import FeasibleSteps, PlacementScored, PlacementsNormalized, filled
from berth_sdk.status import SUCCESS, Code, Status
from numpy.typing import NDArray

from berth_host.attempt.call_record import CycleRecord
from berth_host.attempt.group_cycle import GroupCycle, JudgedSteps, PlacementCycle
from berth_host.errors.plugins import PluginError
from berth_host.errors.state import InvariantError
from berth_host.rpc import group_calls as calls
from berth_host.rpc.call_rules import Policy
from berth_host.rpc.group_checks import MAX_STEPS
from berth_host.rpc.relay import PluginRelay
from berth_host.rpc.validate import Checker, ScoreRangeError

FIRST_FAILURES: Final = 1
"""The failed members that the first question to a served plugin allows for."""


class GroupClient(ABC):
    """The calls about groups to one plugin of one profile."""

    name: str
    _relay: PluginRelay

    @property
    @abstractmethod
    def is_served(self) -> bool:
        """True for a served plugin."""

    @abstractmethod
    def descriptor_in(self, cycle: CycleRecord) -> Descriptor:
        """Return the descriptor of the instance that the cycle began with."""

    @abstractmethod
    def _stand_in(self, policy: Policy, failure: PluginError, otherwise: Status = SUCCESS) -> Status: ...

    async def placement_generate(self, cycle: GroupCycle, parent: Placement) -> Sequence[Placement] | Status:
        """Return the placements of the group in `parent`; `parent` itself where the policy leaves it out."""

        def stand_in(policy: Policy, failure: PluginError) -> Sequence[Placement] | Status:
            return self._stand_in(policy, failure) if policy is Policy.FAIL else [parent]

        return await self._relay.ask(
            calls.PLACEMENT_GENERATE,
            cycle,
            (parent,),
            stand_in,
            lambda _checker, found: found.placements if found.status.is_success else found.status,
        )

    async def placement_score(self, one: PlacementCycle) -> PlacementScored | None:
        """Return the raw score of one placement, or an error with its text.

        None: the policy leaves the plugin's scores out.
        """

        def scored(checker: Checker, found: PlacementScored) -> PlacementScored:
            if not found.status.is_success:
                return PlacementScored(self._score_error(found.status.message))
            if ExtensionPoint.NORMALIZE_PLACEMENT_SCORE not in checker.descriptor.points:
                checker.final_scores(calls.PLACEMENT_SCORE, np.array([found.score], dtype=np.int64))
            return found

        return await self._relay.ask(
            calls.PLACEMENT_SCORE,
            one,
            (one.placement, one.assignments),
            lambda policy, failure: (
                PlacementScored(self._score_failure(failure)) if policy is Policy.FAIL else None
            ),
            scored,
        )

    def normalizes_placements(self, cycle: GroupCycle) -> bool:
        """Return True if the plugin's scores of placements have a second step."""
        return ExtensionPoint.NORMALIZE_PLACEMENT_SCORE in self.descriptor_in(cycle).points

    async def normalize_placement_score(
        self, cycle: GroupCycle, raw: NDArray[np.int64], placements: Sequence[Placement]
    ) -> NDArray[np.int64] | Status | None:
        """Return the scores in 0..100, int64[n], or an error with its text; None: as in `placement_score`."""

        def normalized(checker: Checker, found: PlacementsNormalized) -> NDArray[np.int64] | Status:
            if not found.status.is_success:
                return self._score_error(found.status.message)
            final = np.array(found.scores, dtype=np.int64)
            return checker.final_scores(calls.NORMALIZE_PLACEMENT_SCORE, final)

        return await self._relay.ask(
            calls.NORMALIZE_PLACEMENT_SCORE,
            cycle,
            (raw, placements),
            lambda policy, failure: self._score_failure(failure) if policy is Policy.FAIL else None,
            normalized,
        )

    def _score_failure(self, failure: PluginError) -> Status:
        if isinstance(failure, ScoreRangeError):
            return Status(Code.ERROR, (failure.text,), self.name)
        return self._score_error(failure.text)

    def _score_error(self, text: str) -> Status:
        reason = f'running PlacementScore plugins: plugin "{self.name}" failed with: {text}'
        return Status(Code.ERROR, (reason,), self.name)

    async def placement_feasible(self, one: PlacementCycle, step: PlacementProgress) -> Status:
        """Return SUCCESS, WAIT, UNSCHEDULABLE or an error about one step of a trial."""
        if not self.is_served:
            now = FeasibleSteps(step.scheduled, step.remaining, unschedulable=step.unschedulable)
            judged = await self._judged(one, now)
            return judged if isinstance(judged, Status) else self._filled(judged, step)
        known = one.judged.get(self.name)
        found = None if known is None else known.at(step)
        if known is None or found is None:
            before = FIRST_FAILURES if known is None else 2 * (known.steps.max_failures or FIRST_FAILURES)
            steps = FeasibleSteps(step.scheduled, step.remaining, before, step.unschedulable)
            answer = await self._judged(one, _limited(steps))
            if isinstance(answer, Status):
                return answer
            known = one.judged[self.name] = answer
        return self._filled(known, step)

    def _filled(self, judged: JudgedSteps, step: PlacementProgress) -> Status:
        found = judged.at(step)
        if found is None:
            raise InvariantError(f"{self.name} was not asked about {step}")
        return filled(found, step)

    async def _judged(self, one: PlacementCycle, steps: FeasibleSteps) -> JudgedSteps | Status:
        """Ask about `steps`. A Status stands for an answer that did not come."""
        return await self._relay.ask(
            calls.PLACEMENT_FEASIBLE,
            one,
            (steps,),
            self._stand_in,
            lambda _checker, statuses: JudgedSteps(steps, statuses),
        )

    async def pod_group_post_filter(self, cycle: GroupCycle, tries: Tries) -> PodGroupPostFilterResult:
        """Call PodGroupPostFilter, which may make room. Nominations and victims are checked."""
        part = cycle.part(self.name)
        part.open_call = ExtensionPoint.POD_GROUP_POST_FILTER
        try:
            return await self._relay.ask(
                calls.POD_GROUP_POST_FILTER,
                cycle,
                (tries,),
                lambda policy, failure: PodGroupPostFilterResult(
                    self._stand_in(policy, failure, otherwise=Status(Code.UNSCHEDULABLE, (), self.name))
                ),
            )
        finally:
            part.open_call = None


def _limited(steps: FeasibleSteps) -> FeasibleSteps:
    """Return the steps with fewer failures where they are too many for one question."""
    failures = steps.max_failures or 0
    while len(steps) > MAX_STEPS and failures > 0:
        failures //= 2
        steps = replace(steps, max_failures=failures)
    return steps
