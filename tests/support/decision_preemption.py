"""The answers of the host's PostFilter and its preemption in one attempt, overheard.

Used by `decision_host`.
"""

from __future__ import annotations

from typing import Any

from berth_host.app.host import Host
from berth_host.attempt.cycle import Cycle
from berth_host.framework.framework import Framework
from berth_host.model.node_statuses import NodeStatuses
from berth_host.preemption.eligibility import ineligible_reason
from berth_host.preemption.evaluator import Choice, Evaluation, SearchLimits
from berth_sdk.results import NodeRejections, PostFilterResult
from support.decision_configuration import PROFILE
from support.decision_seen import shown_status

Json = dict[str, Any]


class WatchedPreemption:
    """Writes down what the host's PostFilter and evaluator answered."""

    def __init__(self, host: Host) -> None:
        self._evaluation: Json = {}
        self._answer: tuple[str, PostFilterResult] | None = None
        evaluate = host.evaluator.evaluate
        framework = host.scheduler.profiles[PROFILE].framework
        run_post_filter = framework.run_post_filter

        async def watched_evaluate(
            framework: Framework, cycle: Cycle, limits: SearchLimits | None = None
        ) -> Evaluation:
            found = await evaluate(framework, cycle, limits)
            # At once: it speaks of rows of this snapshot.
            self._evaluation = _shown_evaluation(found)
            return found

        async def watched_post_filter(
            cycle: Cycle, rejections: NodeRejections
        ) -> tuple[str, PostFilterResult]:
            self._answer = await run_post_filter(cycle, rejections)
            if not self._evaluation:
                # Another plugin ended the search before preemption was asked about.
                statuses = NodeStatuses(cycle.nodes)
                statuses.absent = rejections.absent
                why_not = ineligible_reason(cycle.pod, cycle.nodes, statuses)
                self._evaluation = {"eligible": not why_not, "ineligibleReason": why_not}
            return self._answer

        host.evaluator.evaluate = watched_evaluate  # type: ignore[method-assign]  # the same, overheard
        framework.run_post_filter = watched_post_filter  # type: ignore[method-assign]  # the same

    def forget(self) -> None:
        """Another attempt begins."""
        self._evaluation, self._answer = {}, None

    def shown(self) -> Json:
        """In the format of the records."""
        if self._answer is None:
            return {}
        plugin, result = self._answer
        status = result.status
        shown: Json = {"code": status.code.kube_name, "message": status.message}
        if not status.is_success:
            shown["plugin"] = status.plugin or plugin
        nothing: Json = {"best": [], "candidates": [], "numPDBViolations": 0, "potentialNodes": []}
        # The other fields are there when they say something.
        found = {name: value for name, value in self._evaluation.items() if name in nothing or value}
        return shown | nothing | {"eligible": False} | found


def _shown_evaluation(found: Evaluation) -> Json:
    shown: Json = {"eligible": not found.ineligible, "ineligibleReason": found.ineligible}
    shown["clearNomination"] = found.clear_nomination
    names = found.statuses.table.take(found.potential).names
    shown["potentialNodes"] = sorted(names)
    candidates: list[Json] = []
    if found.choice is not None:
        choice = found.choice
        candidates = [_shown_candidate(choice, place) for place in range(len(choice.candidates))]
        shown["best"] = sorted(choice.node_name(place) for place in choice.best.tolist())
        nominated = candidates[choice.chosen]
        shown |= {"nominated": nominated["node"], "victims": nominated["victims"]}
        shown["numPDBViolations"] = nominated["numPDBViolations"]
    shown["candidates"] = sorted(candidates, key=lambda one: str(one["node"]))
    others = set(names) - {one["node"] for one in candidates}
    shown["nodeStatuses"] = {
        name: shown_status(found.statuses.status_of(name), signed=True) for name in sorted(others)
    }
    return shown


def _shown_candidate(choice: Choice, place: int) -> Json:
    return {
        "node": choice.node_name(place),
        "victims": sorted(pod.key for pod in choice.victims_of(place)),
        "numPDBViolations": int(choice.candidates.violations[place]),
    }
