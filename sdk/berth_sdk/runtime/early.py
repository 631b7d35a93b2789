"""Answers that a plugin in its own process gives before it is asked, so that a pod costs one round trip up to
Score.

    PreFilter   the verdicts of Filter, and the scores
    Filter      the scores
    PreScore    the scores of the very candidates

as far as the profile enables these points. Scores come before the candidates are known only where a node's
score does not depend on the others (`descriptor.EAGER`), and no answer is given early by a plugin that reads
values that others publish meanwhile. A class says by `answers_ahead` whether it wants that; left out, it is
done as long as it pays (`_worth`). A fault in an early answer fails nothing: the host asks, and meets it in
its place. Called by `serve.scheduling_servicer`; in process there is no round trip to save.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Answer, ExtensionPoint
from berth_sdk.pod import Pod
from berth_sdk.results import FilterResult, PreFilterResult
from berth_sdk.runtime.answers import Steps, run
from berth_sdk.runtime.descriptor import EAGER
from berth_sdk.runtime.plugin_runtime import PluginRuntime
from berth_sdk.runtime.worth import Worth
from berth_sdk.status import Code, Status, Verdicts
from berth_sdk.tables import NodeTable

Scores: TypeAlias = NDArray[np.int64]
Rows: TypeAlias = NDArray[np.intp]
LATEST_S: Final = 0.05
"""No scores are made ahead after so long: the call that came has a deadline, which covers all of it."""
_LOG: Final = logging.getLogger("berth_sdk.plugin")
_NO_SCORES: Final[tuple[Scores | None, bool]] = (None, False)


@dataclass(frozen=True, slots=True, eq=False)
class PreScored:
    """The answer of PreScore, and with SUCCESS perhaps the raw scores of its candidates, int64[n]."""

    status: Status
    scores: Scores | None = None


class Ahead:
    """One plugin of one profile, asked for as much as is known at each call."""

    def __init__(
        self,
        runtime: PluginRuntime,
        enabled: Collection[ExtensionPoint],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`enabled`: the points at which the host asks the plugin in this profile."""
        descriptor = runtime.descriptor
        asked = set(enabled).intersection(descriptor.points)
        wanted = descriptor.answers_ahead
        allowed = wanted is not False and not descriptor.reads_shared
        scores = allowed and ExtensionPoint.SCORE in asked
        self._runtime = runtime
        self._clock = clock
        self._filters = ExtensionPoint.FILTER in asked
        self._pre_scores = ExtensionPoint.PRE_SCORE in asked
        self._verdicts_early = allowed and self._filters
        self._scores_early = scores and descriptor.normalization in EAGER
        self._scores_of_candidates = scores
        self._worth = Worth() if wanted is None else None
        self._paid = True

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[PreFilterResult]:
        """PreFilter, with verdicts and scores for the nodes that it leaves."""
        if not (self._verdicts_early or self._scores_early):
            return self._runtime.pre_filter(state, pod, nodes)
        return run(self._pre_filter(state, pod, nodes))

    def filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[FilterResult]:
        """Filter, with scores for the nodes that pass."""
        if not self._scores_early:
            return self._runtime.filter(state, pod, nodes)
        return run(self._filter(state, pod, nodes))

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[PreScored]:
        """PreScore, with the scores of its candidates: these are asked for next in any case."""
        return run(self._pre_score(state, pod, nodes))

    def ended(self, *, bound: bool) -> None:
        """The host says that a cycle of the plugin is over."""
        if self._worth is not None:
            self._worth.ended(bound=bound)

    # --- how it is done ------------------------------------------------------------------------

    def _pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Steps[PreFilterResult]:
        result: PreFilterResult = yield self._runtime.pre_filter(state, pod, nodes)
        if result.status.code not in (Code.SUCCESS, Code.SKIP) or not self._begins():
            return result
        began_s = self._clock()
        result = yield from self._beyond(state, pod, nodes, result, began_s + LATEST_S)
        self._took(self._clock() - began_s)
        return result

    def _beyond(
        self, state: CycleState, pod: Pod, nodes: NodeTable, result: PreFilterResult, until_s: float
    ) -> Steps[PreFilterResult]:
        """The answer of PreFilter, with Filter and Score of the nodes that it leaves."""
        eligible = None if result.eligible is None else _positions(result.eligible, nodes)
        left = nodes if eligible is None else nodes.take(eligible)
        whole, scores, skip_score = result.eager_filter, result.eager_scores, result.skip_score
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
                scores, skip_score = _spread(filtered.eager_scores, eligible, nodes), filtered.skip_score
                scored = scores is not None or skip_score
        if self._scores_early and not scored and self._clock() <= until_s:
            found, skip_score = yield from self._scored(state, pod, left, verdicts)
            scores = _spread(found, eligible, nodes)
        return PreFilterResult(result.status, result.eligible, whole, scores, skip_score)

    def _filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Steps[FilterResult]:
        result: FilterResult = yield self._runtime.filter(state, pod, nodes)
        if result.eager_scores is not None or result.skip_score or not self._begins():
            return result
        began_s = self._clock()
        scores, skip_score = yield from self._scored(state, pod, nodes, result.verdicts)
        self._took(self._clock() - began_s)
        return FilterResult(result.verdicts, scores, skip_score)

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
        """(scores of `nodes`, 0 where `verdicts` reject; whether the plugin skips scoring)."""
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

    def _begins(self) -> bool:
        return self._worth is None or self._worth.begins()

    def _took(self, seconds: float) -> None:
        worth = self._worth
        if worth is None:
            return
        worth.took(seconds)
        if worth.pays is not self._paid:
            self._paid = worth.pays
            _LOG.info(
                "%s: answers ahead took %.2f ms lately: %s (answers_ahead decides it for good)",
                self._name,
                worth.spent_s * 1000,
                "given again" if worth.pays else "asked point by point for now",
            )

    @property
    def _name(self) -> str:
        return self._runtime.descriptor.name


def _positions(names: Collection[str], nodes: NodeTable) -> Rows:
    """The positions of these nodes, ascending; unknown names are left out."""
    known = [position for name in names if (position := nodes.position(name)) is not None]
    return np.sort(np.asarray(known, dtype=np.intp))


def _spread(
    scores: Scores | None, positions: Rows | NDArray[np.bool_] | None, nodes: NodeTable
) -> Scores | None:
    """Scores of some positions -> one for each of `nodes`, 0 elsewhere."""
    if scores is None or positions is None:
        return scores
    spread = np.zeros(len(nodes), dtype=np.int64)
    spread[positions] = scores
    return spread


def _spread_verdicts(verdicts: Verdicts, positions: Rows | None, nodes: NodeTable) -> Verdicts:
    """The same of verdicts: those elsewhere count for nothing."""
    if positions is None:
        return verdicts
    groups = np.zeros(len(nodes), dtype=np.int32)
    groups[positions] = verdicts.groups
    return Verdicts(groups, verdicts.statuses)
