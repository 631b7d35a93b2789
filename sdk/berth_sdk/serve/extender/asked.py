"""`AskedPlugin`: one plugin, asked about one request of an extender.

Each request is a cycle of its own: the plugin's PreFilter runs again, so that a later point of the same
request finds what PreFilter stored. Methods block, and run in the threads of `server`. Source of the rules
and texts: kube-scheduler `framework/runtime/framework.go`, v1.36.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from berth_sdk import chance
from berth_sdk.cycle_state import CycleState, SharedState
from berth_sdk.errors import BerthError, ScoreRefusedError
from berth_sdk.extension_points import ExtensionPoint, PodSensitivity, ScoreNormalization
from berth_sdk.pod import Pod
from berth_sdk.results import BindResult, FilterResult, PreFilterResult
from berth_sdk.runtime.answers import must_wait
from berth_sdk.runtime.normalization import normalized
from berth_sdk.runtime.plugin_runtime import PluginRuntime
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.serve.lanes import EventLoopThread
from berth_sdk.status import MAX_NODE_SCORE, MIN_NODE_SCORE, Code, Status, Verdicts
from berth_sdk.tables import NodeTable

MAX_EXTENDER_SCORE: Final = 10
_SCALE: Final = MAX_NODE_SCORE // MAX_EXTENDER_SCORE
_PRE_FILTER_CODES: Final = frozenset(
    {Code.SUCCESS, Code.SKIP, Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE}
)


class AnswerError(BerthError):
    """The plugin gave no valid answer. The text is kube-scheduler's."""


class Call:
    """One request, as `lanes.CallContext`. open -cancel-> cancelled, when its client no longer waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._callbacks: list[Callable[[], None]] = []

    def is_active(self) -> bool:
        """Return True until the call is cancelled."""
        return not self._cancelled

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Call `callback` on cancellation; return False if the call is cancelled already."""
        with self._lock:
            if not self._cancelled:
                self._callbacks.append(callback)
            return not self._cancelled

    def cancel(self) -> None:
        """Cancel the call, and the coroutine of the plugin that it waits for."""
        with self._lock:
            self._cancelled = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


@dataclass(frozen=True, slots=True)
class Found:
    """The nodes of a request. `whole`: the table that PreFilter gets. `rows` (intp[n]): the candidates in it,
    ascending. `unknown`: names of the request without a node.
    """

    whole: NodeTable
    rows: NDArray[np.intp]
    unknown: tuple[str, ...] = ()

    @property
    def candidates(self) -> NodeTable:
        """The candidates; the whole table itself where it has no other node."""
        return self.whole if len(self.rows) == len(self.whole) else self.whole.take(self.rows)


@dataclass(frozen=True, slots=True)
class _Filtered:
    """The answer of Filter about all candidates. `early`: raw scores (int64[n]); None: none were given."""

    verdicts: Verdicts
    early: NDArray[np.int64] | None = None
    skips_score: bool = False


class AskedPlugin:
    """A plugin, and the loop that runs its `async def` methods. Holds no state of a request."""

    def __init__(self, runtime: PluginRuntime, loop: EventLoopThread) -> None:
        self._runtime = runtime
        self._loop = loop
        self.descriptor = runtime.descriptor
        self.name = runtime.descriptor.name
        # An answer is kept for as long as the host says that nothing has changed. There is no such host.
        runtime.kept.verdicts = runtime.kept.scores = None

    # --- the verbs -------------------------------------------------------------------------------------

    def filter(self, call: Call, pod: Pod, found: Found) -> Verdicts:
        """Return the verdicts about the candidates: SUCCESS or a rejection. Raises AnswerError."""
        state = self._state()
        return self._filter(call, state, pod, found, self._pre_filter(call, state, pod, found)).verdicts

    def prioritize(self, call: Call, pod: Pod, found: Found) -> list[int]:
        """Return the score of each candidate, 0..10. Raises AnswerError."""
        state = self._state()
        before = self._pre_filter(call, state, pod, found)
        filtered = self._filter(call, state, pod, found, before)
        nodes = found.candidates
        if filtered.skips_score or not len(nodes):
            return [0] * len(nodes)
        raw = filtered.early
        if raw is None:
            status = self._ask(call, self._runtime.pre_score(state, pod, nodes))
            if status.code is Code.SKIP:
                return [0] * len(nodes)
            if not status.is_success:
                raise AnswerError(f'running PreScore plugin "{self.name}": {status.message}')
            raw = self._scores(call, lambda: self._runtime.score(state, pod, nodes), "running Score plugins")
        return self._scaled(self._normalized(call, state, pod, raw, nodes), nodes)

    def preempt(self, call: Call, pod: Pod, found: Found, victims: Mapping[str, Sequence[Pod]]) -> list[str]:
        """Return the candidates that pass the pod once the victims on them are gone. Raises AnswerError."""
        state = self._state()
        before = self._pre_filter(call, state, pod, found)
        names = found.candidates.names
        if before.status.code is Code.SKIP:
            return names
        filters = self.descriptor.has(ExtensionPoint.FILTER)
        is_final = before.status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        if is_final or (not before.status.is_success and not filters):
            return []
        if before.eligible is not None:
            names = [name for name in names if name in before.eligible]
        if not filters or not names:
            return names
        if self.descriptor.pod_sensitivity is PodSensitivity.NONE:
            rows = np.asarray([_row(found.whole, name) for name in names], dtype=np.intp)
            verdicts = self._ask(call, self._runtime.filter(state, pod, found.whole.take(rows))).verdicts
        else:
            changes = [Scenario(name, removed=tuple(victims[name])) for name in names]
            scenarios = Scenarios(found.whole, changes)
            verdicts = self._ask(call, self._runtime.filter_scenarios(state, pod, scenarios))
        self._check(verdicts)
        return [name for name, passes in zip(names, verdicts.passed.tolist(), strict=True) if passes]

    def bind(self, call: Call, pod: Pod, node_name: str) -> BindResult:
        """Return the answer of Bind: SUCCESS, SKIP, or a failure. Raises AnswerError."""
        result: BindResult | None = self._ask(call, self._runtime.bind(self._state(), pod, node_name))
        if result is None:
            raise AnswerError(f"{self.name}.bind returned None, but must decide: return a Status")
        return result

    # --- the points ------------------------------------------------------------------------------------

    def _pre_filter(self, call: Call, state: CycleState, pod: Pod, found: Found) -> PreFilterResult:
        if not self.descriptor.has(ExtensionPoint.PRE_FILTER):
            return PreFilterResult()
        result: PreFilterResult = self._ask(call, self._runtime.pre_filter(state, pod, found.whole))
        if result.status.code not in _PRE_FILTER_CODES:
            raise AnswerError(f'running PreFilter plugin "{self.name}": {result.status.message}')
        return result

    def _filter(
        self, call: Call, state: CycleState, pod: Pod, found: Found, before: PreFilterResult
    ) -> _Filtered:
        """Return the verdicts and the early scores about all candidates."""
        nodes, status = found.candidates, before.status
        early = None if before.early_scores is None else before.early_scores[found.rows]
        if status.code is Code.SKIP:
            return _Filtered(Verdicts.feasible(len(nodes)), early, before.skip_score)
        if not status.is_success:
            return _Filtered(Verdicts.all(len(nodes), status), early, before.skip_score)
        outside = self._outside(before, nodes)
        if before.early_filter is not None:
            result = FilterResult(before.early_filter.take(found.rows))
        elif not self.descriptor.has(ExtensionPoint.FILTER):
            result = FilterResult(Verdicts.feasible(len(nodes)))
        else:
            inside = np.flatnonzero(~outside)
            asked = nodes if len(inside) == len(nodes) else nodes.take(inside)
            result = self._ask(call, self._runtime.filter(state, pod, asked))
            result = _spread(result, inside, len(nodes))
        if early is None:
            early = result.early_scores
        text = f"node(s) didn't satisfy plugin(s) [{self.name}]"
        verdicts = Verdicts(np.where(outside, np.int32(0), result.verdicts.groups), result.verdicts.statuses)
        verdicts = verdicts.otherwise(outside, Status.unresolvable(text))
        self._check(verdicts)
        return _Filtered(verdicts, early, before.skip_score or result.skip_score)

    def _outside(self, before: PreFilterResult, nodes: NodeTable) -> NDArray[np.bool_]:
        """Return bool[n]: the candidates that PreFilter left out."""
        eligible = before.eligible
        if eligible is None:
            return np.zeros(len(nodes), dtype=np.bool_)
        return np.asarray([name not in eligible for name in nodes.names], dtype=np.bool_)

    def _check(self, verdicts: Verdicts) -> None:
        for row in np.flatnonzero(verdicts.groups).tolist():
            status = verdicts.status(row)
            if not status.is_success and not status.is_rejected:
                raise AnswerError(f'running "{self.name}" filter plugin: {status.message}')

    def _scores(self, call: Call, ask: Callable[[], Any], what: str) -> NDArray[np.int64]:
        try:
            scores: NDArray[np.int64] = self._ask(call, ask())
        except ScoreRefusedError as err:
            raise AnswerError(f'{what}: plugin "{self.name}" failed with: {err}') from err
        return scores

    def _normalized(
        self, call: Call, state: CycleState, pod: Pod, raw: NDArray[np.int64], nodes: NodeTable
    ) -> NDArray[np.int64]:
        how = self.descriptor.normalization
        if how is not ScoreNormalization.RPC:
            return normalized(raw, how)
        what = "running Normalize on Score plugins"
        return self._scores(call, lambda: self._runtime.normalize(state, pod, raw, nodes), what)

    def _scaled(self, scores: NDArray[np.int64], nodes: NodeTable) -> list[int]:
        """Return the scores as an extender's: score / 10, rounded to the nearest, .5 up.

        The scheduler multiplies by 10 again. Rounding to the nearest changes a score by 5 at most and by
        nothing on average; truncating would change it by up to 9, always down.
        """
        wrong = np.flatnonzero((scores < MIN_NODE_SCORE) | (scores > MAX_NODE_SCORE))
        if len(wrong):
            raise AnswerError(
                f'plugin "{self.name}" returns an invalid score {scores[wrong[0]]} for node'
                f" {nodes.name(int(wrong[0]))}, it should in the range of [{MIN_NODE_SCORE},"
                f" {MAX_NODE_SCORE}] after normalizing"
            )
        scaled: list[int] = ((scores + _SCALE // 2) // _SCALE).tolist()
        return scaled

    # --- calls -----------------------------------------------------------------------------------------

    def _state(self) -> CycleState:
        return CycleState(chance.token_hex(16), plugin=self.name, shared=SharedState())

    def _ask(self, call: Call, answer: Any) -> Any:
        """Return the answer, waiting for that of an `async def` method."""
        return self._loop.wait_for(answer, call) if must_wait(answer) else answer


def _row(table: NodeTable, name: str) -> int:
    row = table.position(name)
    if row is None:
        raise KeyError(name)
    return row


def _spread(result: FilterResult, rows: NDArray[np.intp], count: int) -> FilterResult:
    """Return an answer about some of `count` rows as one about all of them; the others pass, with score 0."""
    if len(rows) == count:
        return result
    groups = np.zeros(count, dtype=np.int32)
    groups[rows] = result.verdicts.groups
    early = None
    if result.early_scores is not None:
        early = np.zeros(count, dtype=np.int64)
        early[rows] = result.early_scores
    return FilterResult(Verdicts(groups, result.verdicts.statuses), early, result.skip_score)
