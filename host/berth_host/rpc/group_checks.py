"""Checks the answers of plugins about groups of pods, as `validate` does for those about pods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NoReturn

import numpy as np
from berth_sdk.pod import Pod
from berth_sdk.pod_group import Assignment, GroupView, Placement
from berth_sdk.results import PodGroupPostFilterResult
from berth_sdk.runtime.group_runtime import (
    FeasibleSteps,
    PlacementScored,
    PlacementsGenerated,
    PlacementsNormalized,
    StepsJudged,
)
from berth_sdk.status import Status

from berth_host.rpc.call import AnyCall
from berth_host.rpc.validate import Checker

MAX_PLACEMENTS: Final = 10_000
"""The most placements of an answer, where the parent has no more nodes than that."""
MAX_NAME_BYTES: Final = 256
MAX_STEPS: Final = 32_768
"""The most steps in one question about PlacementFeasible: the host limits the failures for that."""
MIN_INT64: Final = -(2**63)
MAX_INT64: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class GroupChecks:
    """The checks for one plugin. `checker`: its other checks."""

    checker: Checker

    def placements(
        self, call: AnyCall, answer: PlacementsGenerated, parent: Placement
    ) -> PlacementsGenerated:
        """Check that names are different, and that all nodes are the parent's. Return placements with rows of
        the parent's table, in its order.
        """
        status = self.checker.status(call, answer.status)
        if not status.is_success:
            return PlacementsGenerated(status)
        limit = max(MAX_PLACEMENTS, len(parent.nodes))
        if len(answer.placements) > limit:
            self._violation(call, f"answered {len(answer.placements)} placements; {limit} is the limit")
        seen: set[str] = set()
        found: list[Placement] = []
        slots = parent.nodes.slots
        for placement in answer.placements:
            name = placement.name
            if not isinstance(name, str) or len(name.encode()) > MAX_NAME_BYTES:
                self._violation(
                    call, f"answered the placement {name!r:.80}: a name has at most {MAX_NAME_BYTES} bytes"
                )
            if name in seen:
                self._violation(call, f"answered two placements named {name!r}")
            seen.add(name)
            if placement.nodes is parent.nodes:
                found.append(placement)
                continue
            own = placement.nodes.slots
            mask = np.isin(slots, own)
            if np.count_nonzero(mask) != len(own):
                self._violation(
                    call,
                    f"answered the placement {name!r} with a node that is twice in it or not in its parent",
                )
            found.append(Placement(name, parent.nodes if mask.all() else parent.nodes.take(mask)))
        return PlacementsGenerated(status, tuple(found))

    def score(self, call: AnyCall, answer: PlacementScored) -> PlacementScored:
        """Check that a raw score fits into 64 bits."""
        status = self.checker.status(call, answer.status)
        if not MIN_INT64 <= answer.score <= MAX_INT64:
            self._violation(call, f"answered the score {answer.score}, which has more than 64 bits")
        return answer if status is answer.status else PlacementScored(status)

    def scores(self, call: AnyCall, answer: PlacementsNormalized, count: int) -> PlacementsNormalized:
        """Check that there is one score for each of `count` placements. The range is checked later."""
        status = self.checker.status(call, answer.status)
        if status.is_success and len(answer.scores) != count:
            self._violation(call, f"answered {len(answer.scores)} scores for {count} placements")
        return answer if status is answer.status else PlacementsNormalized(status)

    def steps(self, call: AnyCall, answer: StepsJudged, steps: FeasibleSteps) -> Sequence[Status]:
        """Check that the runs add up to the steps that were asked about. Return one status per step."""
        status = self.checker.status(call, answer.status)
        count = len(steps)
        if not status.is_success:
            return [status] * count
        total = 0
        for run in answer.runs:
            if run.count < 1:
                self._violation(call, f"answered a run of {run.count} steps")
            total += run.count
        if total != count:
            self._violation(call, f"answered about {total} steps and was asked about {count}")
        found: list[Status] = []
        for run in answer.runs:
            found.extend([self.checker.status(call, run.status)] * run.count)
        return found

    def post_filter(
        self, call: AnyCall, answer: PodGroupPostFilterResult, group: GroupView
    ) -> PodGroupPostFilterResult:
        """Check that members are nominated to nodes that exist, and that victims have a lower priority."""
        status = self.checker.status(call, answer.status)
        facts = self.checker.facts
        members = {pod.uid: pod for pod in _members(group)}
        nominated: set[str] = set()
        for one in answer.nominations:
            if one.pod.uid not in members:
                self._violation(call, f"nominated {one.pod.key}, which is no unscheduled member of the group")
            if one.pod.uid in nominated:
                self._violation(call, f"nominated {one.pod.key} twice")
            nominated.add(one.pod.uid)
            if one.node_name and not facts.has_node(one.node_name):
                self._violation(call, f"nominated the unknown node {one.node_name!r}")
        if (answer.victims or answer.nominations) and not status.is_success and not status.is_rejected:
            self._violation(call, f"named victims or nominations with the code {status.code.kube_name}")
        for ref in answer.victims:
            victim = facts.pod_on_some_node(ref.uid)
            if victim is None:
                self._violation(call, f"named the victim {ref.namespace}/{ref.name}, which is on no node")
            priority = facts.preemption_priority(victim)
            if priority >= group.priority:
                self._violation(
                    call,
                    f"named the victim {victim.key} of priority {priority},"
                    f" not below the group's {group.priority}",
                )
        self.checker.patches(call, answer.patches, None)
        nominations = tuple(Assignment(members[one.pod.uid], one.node_name) for one in answer.nominations)
        return replace(answer, status=status, nominations=nominations)

    def _violation(self, call: AnyCall, detail: str) -> NoReturn:
        self.checker.violation(call, detail)


def _members(group: GroupView) -> list[Pod]:
    return [*group.pods, *(pod for child in group.children for pod in _members(child))]
