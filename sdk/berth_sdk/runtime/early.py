"""Early answers of a served plugin: its reply to one call also has the answers to later calls.

So a pod needs one round trip up to Score.

    PreFilter   the verdicts of Filter, and the scores
    Filter      the scores
    PreScore    the scores of its candidates

Only points that the profile enables are answered early. Scores before PreScore are answered early only if a
node's score does not depend on other candidates (`descriptor.EARLY`). A plugin that reads values of other
plugins gives no early answers. A class sets `answers_early`; without it, early answers are given as long as
they save time (`worth`). An error in an early answer has no effect: the host makes the call, and gets the
error there. `serve.scheduling_servicer` uses it; in-process plugins have no round trips.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from berth_sdk.clocks import work_s
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Answer, ExtensionPoint
from berth_sdk.pod import Pod
from berth_sdk.results import FilterResult, PreFilterResult
from berth_sdk.runtime.answers import Steps, run
from berth_sdk.runtime.descriptor import EARLY
from berth_sdk.runtime.plugin_runtime import PluginRuntime
from berth_sdk.runtime.worth import Worth
from berth_sdk.status import Code, Status, Verdicts
from berth_sdk.tables import NodeTable

T = TypeVar("T")
Scores: TypeAlias = NDArray[np.int64]
Rows: TypeAlias = NDArray[np.intp]
LATEST_S: Final = 0.05
"""Seconds after the begin of a call when no early answer is begun any more, as the call has a deadline."""
_LOG: Final = logging.getLogger("berth_sdk.plugin")
_NO_SCORES: Final[tuple[Scores | None, bool]] = (None, False)


@dataclass(frozen=True, slots=True, eq=False)
class PreScored:
    """The answer of PreScore. `scores`: with SUCCESS, the raw scores of its candidates, int64[n], or None."""

    status: Status
    scores: Scores | None = None


class Early:
    """One plugin of one profile, with early answers."""

    def __init__(
        self,
        runtime: PluginRuntime,
        enabled: Collection[ExtensionPoint],
        clock: Callable[[], float] = work_s,
    ) -> None:
        """Wrap `runtime`. `enabled`: the points at which the host calls the plugin in this profile."""
        descriptor = runtime.descriptor
        asked = set(enabled).intersection(descriptor.points)
        wanted = descriptor.answers_early
        allowed = wanted is not False and not descriptor.reads_shared
        scores = allowed and ExtensionPoint.SCORE in asked
        self._runtime = runtime
        self._clock = clock
        self._filters = ExtensionPoint.FILTER in asked
        self._pre_scores = ExtensionPoint.PRE_SCORE in asked
        self._verdicts_early = allowed and self._filters
        self._scores_early = scores and descriptor.normalization in EARLY
        self._scores_of_candidates = scores
        self._worth = Worth() if wanted is None else None
        self._paid = True

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[PreFilterResult]:
        """Return the answer of PreFilter, with verdicts and scores for the nodes that it leaves."""
        if not (self._verdicts_early or self._scores_early):
            return self._runtime.pre_filter(state, pod, nodes)
        return run(self._pre_filter(state, pod, nodes))

    def filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[FilterResult]:
        """Return the answer of Filter, with scores for the nodes that pass."""
        if not self._scores_early:
            return self._runtime.filter(state, pod, nodes)
        return run(self._filter(state, pod, nodes))

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[PreScored]:
        """Return the answer of PreScore, with the scores of its candidates, which the host needs next."""
        return run(self._pre_score(state, pod, nodes))

    def ended(self, *, bound: bool) -> None:
        """Count a cycle of the plugin that has ended."""
        if self._worth is not None:
            self._worth.ended(bound=bound)

    # --- how it is done ------------------------------------------------------------------------

    def _pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Steps[PreFilterResult]:
        until_s = self._clock() + LATEST_S
        result: PreFilterResult = yield self._runtime.pre_filter(state, pod, nodes)
        if result.status.code not in (Code.SUCCESS, Code.SKIP) or not self._begins(until_s):
            return result
        return (yield from self._timed(self._beyond(state, pod, nodes, result, until_s)))

    def _beyond(
        self, state: CycleState, pod: Pod, nodes: NodeTable, result: PreFilterResult, until_s: float
    ) -> Steps[PreFilterResult]:
        """Return the answer of PreFilter, with Filter and Score of the nodes that it leaves."""
        eligible = None if result.eligible is None else _positions(result.eligible, nodes)
        left = nodes if eligible is None else nodes.take(eligible)
        whole, scores, skip_score = result.early_filter, result.early_scores, result.skip_score
        verdicts = whole if whole is None or eligible is None else whole.take(eligible)
        scored = scores is not None or skip_score
        if verdicts is None and self._filters and result.status.is_success:
            try:
                filtered: FilterResult = yield self._runtime.filter(state, pod, left)
            except Exception:  # noqa: BLE001 (the host meets the fault at Filter)
                _LOG.debug("%s: no early verdicts", self._name, exc_info=True)
                return result
            verdicts = filtered.verdicts
            whole = _spread_verdicts(verdicts, eligible, nodes)
            if not scored:
                scores, skip_score = _spread(filtered.early_scores, eligible, nodes), filtered.skip_score
                scored = scores is not None or skip_score
        if self._scores_early and not scored and self._clock() <= until_s:
            found, skip_score = yield from self._scored(state, pod, left, verdicts)
            scores = _spread(found, eligible, nodes)
        return PreFilterResult(result.status, result.eligible, whole, scores, skip_score)

    def _filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Steps[FilterResult]:
        until_s = self._clock() + LATEST_S
        result: FilterResult = yield self._runtime.filter(state, pod, nodes)
        if result.early_scores is not None or result.skip_score or not self._begins(until_s):
            return result
        # Filter may be about a part of the nodes. A Skip of PreScore for them is not valid for the others.
        scores, _ = yield from self._timed(self._scored(state, pod, nodes, result.verdicts))
        return FilterResult(result.verdicts, scores)

    def _pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Steps[PreScored]:
        status: Status = yield self._runtime.pre_score(state, pod, nodes)
        if not status.is_success or not self._scores_of_candidates:
            return PreScored(status)
        try:
            return PreScored(status, (yield self._runtime.score(state, pod, nodes)))
        except Exception:  # noqa: BLE001 (the host meets the fault at Score)
            _LOG.debug("%s: no early scores", self._name, exc_info=True)
            return PreScored(status)

    def _scored(
        self, state: CycleState, pod: Pod, nodes: NodeTable, verdicts: Verdicts | None
    ) -> Steps[tuple[Scores | None, bool]]:
        """Return the scores of `nodes`, 0 where `verdicts` reject, and True if the plugin skips scoring."""
        if verdicts is None or verdicts.all_passed:
            passed, feasible = None, nodes
        else:
            passed = verdicts.passed
            feasible = nodes.take(passed)
        if not len(feasible):
            return _NO_SCORES
        try:
            if self._pre_scores:
                status: Status = yield self._runtime.pre_score(state, pod, feasible)
                if status.code is Code.SKIP:
                    return None, True
                if not status.is_success:
                    return _NO_SCORES
            scores: Scores = yield self._runtime.score(state, pod, feasible)
        except Exception:  # noqa: BLE001 (the host meets the fault at PreScore or Score)
            _LOG.debug("%s: no early scores", self._name, exc_info=True)
            return _NO_SCORES
        return _spread(scores, passed, nodes), False

    def _begins(self, until_s: float) -> bool:
        return self._clock() <= until_s and (self._worth is None or self._worth.begins())

    def _timed(self, steps: Steps[T]) -> Steps[T]:
        """Run `steps` and count their time, also if the call is cancelled meanwhile."""
        began_s = self._clock()
        try:
            result = yield from steps
        except (GeneratorExit, asyncio.CancelledError):
            self._took(self._clock() - began_s, cancelled=True)
            raise
        self._took(self._clock() - began_s, cancelled=False)
        return result

    def _took(self, seconds: float, *, cancelled: bool) -> None:
        worth = self._worth
        if worth is None:
            return
        worth.took(seconds, cancelled=cancelled)
        if worth.pays is not self._paid:
            self._paid = worth.pays
            _LOG.info(
                "%s: early answers took %.2f ms lately: %s (answers_early decides it for good)",
                self._name,
                worth.spent_s * 1000,
                "given again" if worth.pays else "asked point by point for now",
            )

    @property
    def _name(self) -> str:
        return self._runtime.descriptor.name


def _positions(names: Collection[str], nodes: NodeTable) -> Rows:
    """Return the positions of these nodes, ascending, without unknown names."""
    known = [position for name in names if (position := nodes.position(name)) is not None]
    return np.sort(np.asarray(known, dtype=np.intp))


def _spread(
    scores: Scores | None, positions: Rows | NDArray[np.bool_] | None, nodes: NodeTable
) -> Scores | None:
    """Return one score for each of `nodes`: `scores` at `positions`, and 0 elsewhere."""
    if scores is None or positions is None:
        return scores
    spread = np.zeros(len(nodes), dtype=np.int64)
    spread[positions] = scores
    return spread


def _spread_verdicts(verdicts: Verdicts, positions: Rows | None, nodes: NodeTable) -> Verdicts:
    """Return verdicts for all of `nodes`: `verdicts` at `positions`; those elsewhere are not used."""
    if positions is None:
        return verdicts
    groups = np.zeros(len(nodes), dtype=np.int32)
    groups[positions] = verdicts.groups
    return Verdicts(groups, verdicts.statuses)
