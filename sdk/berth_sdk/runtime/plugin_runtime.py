"""`PluginRuntime`: one interface to a plugin instance. Both transports and `testing` use it.

A plugin may have plain or `async def` methods, judge single nodes or tables, and return bare statuses or full
results. Each method of the runtime returns the full result, or an awaitable of it if the plugin's method has
to be awaited. The plugin's exceptions pass through. The transports name the plugin and apply the policy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import PluginAnswerError, UndeclaredError
from berth_sdk.events import ClusterEvent
from berth_sdk.extension_points import Answer, Concerned
from berth_sdk.handle import Handle
from berth_sdk.kept.follows import Follows, by_fields
from berth_sdk.kept.kept_answers import KeptAnswers, Missing, RowColumn, RowColumns, TableAnswers
from berth_sdk.kept.row_contents import Alike, alike_rows
from berth_sdk.pod import Pod
from berth_sdk.pod_fields import signing
from berth_sdk.refresher import Refresher, closed_on_error
from berth_sdk.results import (
    BindResult,
    FilterResult,
    LiveReservation,
    NodeRejections,
    PatchResult,
    PermitResult,
    PostFilterResult,
    PreBindResult,
    PreFilterResult,
    PreFlightResult,
    QueuedPod,
    ReserveResult,
)
from berth_sdk.runtime.answers import PLAIN, Steps, must_wait, run
from berth_sdk.runtime.convert import Answers, grouped
from berth_sdk.runtime.declarations import PARAMETERS
from berth_sdk.runtime.declared import Declared, DeclaredHandle
from berth_sdk.runtime.descriptor import EARLY, Descriptor, describe, describe_instance
from berth_sdk.runtime.group_runtime import GroupRuntime
from berth_sdk.scenarios import Scenarios
from berth_sdk.sort_keys import MAX_KEY_BYTES
from berth_sdk.status import SUCCESS, Status, Verdicts
from berth_sdk.tables import NodeTable

T = TypeVar("T")


class Narrowing(NamedTuple):
    """The methods of NarrowingPlugin: `keys_of` is `hint_keys`, `of_event` is `pre_queueing_hint`."""

    keys_of: Callable[[Pod], Collection[Hashable] | None]
    of_event: Callable[[ClusterEvent], Concerned]


class PluginRuntime(GroupRuntime):
    """A plugin instance and its descriptor. Holds no state of a cycle, so calls may overlap."""

    def __init__(
        self, plugin: object, *, name: str = "", handle: Handle | None = None, keeps_rows: bool = True
    ) -> None:
        """Wrap `plugin`. Raises PluginDefinitionError for an instance of a class that the host cannot call.

        `handle`: of the plugin. `keeps_rows` False: the caller keeps answers by row.
        """
        self.plugin = plugin
        self.descriptor: Descriptor = describe_instance(plugin, name)
        self._read = Answers(self.descriptor.name)
        self._declared = Declared(self.descriptor)
        self._methods = self._declared.methods(
            {method: function for method in PARAMETERS if callable(function := getattr(plugin, method, None))}
        )
        self._read_bind = self._read.due("bind", BindResult)
        # The methods about every pod of the queue.
        self._gate, self._key = self._methods.get("pre_enqueue"), self._methods.get("sort_key")
        self.follows = self._what_answers_follow_from(handle)
        self.sign_queue: Callable[[Pod], Hashable] | None = None
        """Returns the key of pods that get the same answers at PreEnqueue and from the hint; None: no key."""
        if self.descriptor.signs_queue:
            fields = self.descriptor.sign_fields
            self.sign_queue = self._methods.get("sign_queue") or signing(fields or ())
        self.narrows: Narrowing | None = None
        """The methods of NarrowingPlugin; None for a plugin without them, or without `sign_queue`."""
        if self.sign_queue is not None and self._has("pre_queueing_hint"):
            self.narrows = Narrowing(
                self._methods.get("hint_keys", _nothing), self._methods["pre_queueing_hint"]
            )
        self.sensitive_to: Callable[[Pod, Pod], bool] | None = self._methods.get("sensitive_to")
        """The method of SensitiveFilterPlugin; None for a plugin without it."""
        self.kept = KeptAnswers(self.follows, rows=keeps_rows)

    # --- the queue ---------------------------------------------------------------------------

    def pre_enqueue(self, pod: QueuedPod) -> Answer[Status]:
        """Return the answer of PreEnqueue; success for a plugin without the point."""
        ask = self._gate
        if ask is None:
            return SUCCESS
        answer = ask(pod)
        if type(answer) is Status:  # nearly always, and several plugins are asked about every pod
            return answer

        def read(answer: Any) -> Status:
            return self._read.status("pre_enqueue", answer)

        return _read_later(read, answer) if must_wait(answer) else read(answer)

    def sort_key(self, pod: QueuedPod) -> Answer[bytes]:
        """Return the sort key of a pod; empty for a plugin that has only `less`."""
        ask = self._key
        if ask is None:
            return b""
        answer = ask(pod)
        if type(answer) is bytes and len(answer) <= MAX_KEY_BYTES:  # nearly always, for every pod
            return answer
        return _read_later(self._read.sort_key, answer) if must_wait(answer) else self._read.sort_key(answer)

    def less(self, first: QueuedPod, second: QueuedPod) -> bool:
        """Return True if `first` comes before `second`. For in-process plugins only."""
        return self._read.flag("less", self._method("less")(first, second))

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> Answer[bool]:
        """Return True if the event may help the pod; True for a plugin without hints."""
        if not self._has("queueing_hint"):
            return True
        return self._ask("queueing_hint", lambda answer: self._read.flag("queueing_hint", answer), event, pod)

    # --- the scheduling cycle ----------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[PreFilterResult]:
        """Return the answer of PreFilter over all nodes."""
        return self._ask(
            "pre_filter", lambda answer: self._read_pre_filter(answer, len(nodes)), state, pod, nodes
        )

    def filter(
        self, state: CycleState, pod: Pod, nodes: NodeTable, *, own: bool = False
    ) -> Answer[FilterResult]:
        """Return the verdicts for the candidates, with early scores if the plugin returns them.

        `own`: call the plugin for every row, without kept answers.
        """
        if not own and self.kept.verdicts is not None:
            return self._kept_filter(self.kept.verdicts, state, pod, nodes)
        declared = self._declared
        seen, table = declared.pod(pod), declared.nodes(nodes)
        state.readable = declared.shared
        try:
            if "filter_nodes" in self._methods:
                answer = self._own_method("filter_nodes")(state, seen, table)
                if type(answer) in PLAIN or not must_wait(answer):
                    return self._read_filter(answer, len(nodes))
                return self._filter_later(answer, len(nodes))
            function, read = self._own_method("filter"), self._read.status
            alike = alike_rows(nodes, self.descriptor.reads)
            if alike is not None:
                table = table.take(alike.first)
            statuses: list[Status] = []
            each = iter(table)
            for node in each:
                answer = function(state, seen, node)
                if type(answer) not in PLAIN and must_wait(answer):
                    rest = (function(state, seen, later) for later in each)
                    return run(self._filter_rest(statuses, answer, rest, alike))
                statuses.append(read("filter", answer))
        except UndeclaredError as err:
            declared.name(err)
            raise
        return FilterResult(grouped(statuses, alike))

    def filter_scenarios(self, state: CycleState, pod: Pod, scenarios: Scenarios) -> Answer[Verdicts]:
        """Return one verdict per scenario, from the plugin's own method or derived from its Filter."""
        return run(self._filter_scenarios(state, pod, scenarios))

    def post_filter(
        self, state: CycleState, pod: Pod, rejections: NodeRejections
    ) -> Answer[PostFilterResult]:
        """Return the answer of PostFilter."""
        return self._ask("post_filter", self._read.post_filter, state, pod, rejections)

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[Status]:
        """Return the answer of PreScore over the feasible nodes; success for a plugin without the point."""
        if not self._has("pre_score"):
            return SUCCESS
        return self._ask(
            "pre_score", lambda answer: self._read.status("pre_score", answer), state, pod, nodes
        )

    def score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[NDArray[np.int64]]:
        """Return the raw scores, int64[n]."""
        kept = self.kept.scores
        if kept is None:
            return self._own_score(state, pod, nodes)
        if not isinstance(kept, RowColumns) or not nodes.is_snapshot:
            return run(self._score(state, pod, nodes))
        column = kept.column(state, pod, nodes)
        missing = column.missing(nodes)
        if not len(missing):
            return column.read(nodes)
        return run(self._score_rows(column, missing, state, pod, nodes))

    def normalize(
        self, state: CycleState, pod: Pod, scores: NDArray[np.int64], nodes: NodeTable
    ) -> Answer[NDArray[np.int64]]:
        """Return the scores that the plugin normalised, int64[n]. The plugin gets a copy of `scores`."""
        return self._ask(
            "normalize",
            lambda answer: self._read.scores("normalize", answer, len(nodes)),
            state,
            pod,
            scores.copy(),
            nodes,
        )

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Answer[ReserveResult | None]:
        """Return the answer of Reserve; None if the plugin did not decide.

        Has the answer to PreBindPreFlight too, for a plugin that has PreBind without PreBindPreFlight.
        """
        return self._ask("reserve", self._read_reserve, state, pod, node_name)

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> Answer[None]:
        """Call `unreserve`, if the plugin has it, and report the end to the state."""
        if not self._has("unreserve"):
            state.was_ended()
            return None
        return self._ask("unreserve", lambda _: state.was_ended(), state, pod, node_name)

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Answer[PermitResult | None]:
        """Return the answer of the plugin; None if the plugin did not decide."""
        return self._ask("permit", self._read.due("permit", PermitResult), state, pod, node_name)

    def reconcile(self, live: Sequence[LiveReservation]) -> Answer[frozenset[str]]:
        """Return the ids of the cycles that the plugin cannot continue; empty without the method."""
        if not self.has_reconcile:
            return frozenset()
        return self._ask("reconcile", lambda answer: self._read.refused(answer, live), live)

    @property
    def has_reconcile(self) -> bool:
        """True if the plugin decides itself which reservations it continues."""
        return self._has("reconcile")

    # --- the binding cycle -------------------------------------------------------------------

    def pre_bind_pre_flight(self, state: CycleState, pod: Pod, node_name: str) -> Answer[PreFlightResult]:
        """Return whether PreBind has work to do; success, which means yes, without the method."""
        if not self._has("pre_bind_pre_flight"):
            return PreFlightResult(SUCCESS)
        return self._ask("pre_bind_pre_flight", self._read.pre_flight, state, pod, node_name)

    def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult] = ()
    ) -> Answer[PreBindResult | None]:
        """Return the answer of one round of PreBind; None if the plugin did not decide."""
        read = self._read.due("pre_bind", PreBindResult)
        return self._ask("pre_bind", read, state, pod, node_name, patched)

    def bind(self, state: CycleState, pod: Pod, node_name: str) -> Answer[BindResult | None]:
        """Return the answer of the plugin; None if the plugin did not decide."""
        return self._ask("bind", self._read_bind, state, pod, node_name)

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> Answer[None]:
        """Call `post_bind`."""
        return self._ask("post_bind", _nothing, state, pod, node_name)

    # --- the end -----------------------------------------------------------------------------

    @property
    def has_close(self) -> bool:
        """True if the plugin has `close`, or a Refresher as an attribute."""
        return self._has("close") or bool(self._refreshers())

    def close(self) -> Answer[None]:
        """Call `close`, if the plugin has it, then close its Refreshers. The caller calls once, after every
        other call has ended.
        """
        return run(self._close())

    def _close(self) -> Steps[None]:
        try:
            if self._has("close"):
                yield self._method("close")()
        finally:
            for refresher in self._refreshers():
                refresher.close()

    def _refreshers(self) -> list[Refresher[Any]]:
        attributes: Mapping[str, Any] = getattr(self.plugin, "__dict__", {})
        return [value for value in attributes.values() if isinstance(value, Refresher)]

    # --- how it is done ----------------------------------------------------------------------

    def _what_answers_follow_from(self, handle: Handle | None) -> Follows:
        """Return the signature of the plugin's `sign` or `sign_spec`, else of the fields in `sign_fields`."""
        how = self.descriptor
        sign, sign_spec = self._methods.get("sign"), self._methods.get("sign_spec")
        if how.sign_fields is not None and sign is None and sign_spec is None:
            sign, sign_spec = by_fields(how.sign_fields)
        return Follows(how.name, how.depends_on, how.needs, handle, sign, sign_spec, reads=how.reads)

    def _has(self, method: str) -> bool:
        return method in self._methods

    def _method(self, method: str) -> Callable[..., Any]:
        function = self._methods.get(method)
        if function is None:
            raise PluginAnswerError(
                f"{self.descriptor.name} has no method `{method}`: it does not take part in that point"
            )
        return function

    def _own_method(self, method: str) -> Callable[..., Any]:
        """Return the plugin's own method. The caller, a loop over nodes, limits the data that it may read."""
        function: Callable[..., Any] = getattr(self.plugin, method)
        return function

    def _ask(self, method: str, read: Callable[[Any], T], *args: Any) -> Answer[T]:
        answer = self._method(method)(*args)
        if type(answer) in PLAIN or not must_wait(answer):
            return read(answer)
        return _read_later(read, answer)

    def _read_reserve(self, answer: Any) -> ReserveResult | None:
        pre_binds = self._has("pre_bind")
        result = self._read.reserve(answer, pre_binds=pre_binds)
        acts_always = pre_binds and not self._has("pre_bind_pre_flight")
        if result is None or not acts_always or result.pre_flight is not None:
            return result
        return ReserveResult(result.status, result.pre_bind, PreFlightResult(SUCCESS))

    def _kept_filter(
        self, kept: RowColumns | TableAnswers[FilterResult], state: CycleState, pod: Pod, nodes: NodeTable
    ) -> Answer[FilterResult]:
        """Return the kept verdicts, and call the plugin for the other rows."""
        if not isinstance(kept, RowColumns) or not nodes.is_snapshot:
            return run(self._filter(state, pod, nodes))
        column = kept.column(state, pod, nodes)
        missing = column.missing(nodes)
        if not len(missing):
            return FilterResult(column.verdicts(nodes))
        return run(self._filter_rows(column, missing, state, pod, nodes))

    def _filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Steps[FilterResult]:
        kept = self.kept.verdicts
        table = kept if isinstance(kept, TableAnswers) and nodes.is_snapshot else None
        result = None if table is None else table.find(state, pod, nodes)
        if result is None:
            writes = state.writes
            answer = self.filter(state, pod, nodes, own=True)
            result = answer if isinstance(answer, FilterResult) else (yield answer)
            if table is not None and state.writes == writes and not _has_errors(result.verdicts):
                table.keep(state, pod, nodes, result)
        return result

    def _filter_rows(
        self, column: RowColumn, missing: Missing, state: CycleState, pod: Pod, nodes: NodeTable
    ) -> Steps[FilterResult]:
        """Call the plugin for the changed rows, and keep the answers."""
        result: FilterResult = yield self.filter(state, pod, missing.of(nodes), own=True)
        if result.early_scores is not None or result.skip_score:
            # Values beside the verdicts are valid for this call only, so no verdicts are kept any more.
            self.kept.verdicts = None
            return (yield from self._filter(state, pod, nodes))
        column.keep_verdicts(nodes, missing, result.verdicts)
        verdicts = column.verdicts(nodes)
        if _has_errors(result.verdicts):
            # An error is no verdict on the row, so it is not kept.
            column.forget(nodes, missing)
        return FilterResult(verdicts)

    async def _filter_later(self, answer: Awaitable[Any], count: int) -> FilterResult:
        """Read the answer of an `async def filter_nodes`."""
        try:
            return self._read_filter(await answer, count)
        except UndeclaredError as err:
            self._declared.name(err)
            raise

    def _filter_rest(
        self, statuses: list[Status], answer: Any, answers: Iterator[Any], alike: Alike | None
    ) -> Steps[FilterResult]:
        """Continue a per-node Filter after an answer that has to be awaited. `answers`: the later ones.
        `alike`: the rows that they are about; None: all rows.
        """
        read = self._read.status
        try:
            statuses.append(read("filter", (yield answer)))
            for later in answers:
                statuses.append(read("filter", (yield later) if must_wait(later) else later))
        except UndeclaredError as err:
            self._declared.name(err)
            raise
        return FilterResult(grouped(statuses, alike))

    def _read_pre_filter(self, answer: Any, count: int) -> PreFilterResult:
        result = self._read.pre_filter(answer, count)
        self._check_early("pre_filter", result)
        return result

    def _read_filter(self, answer: Any, count: int) -> FilterResult:
        if type(answer) is Verdicts and len(answer.groups) == count:  # nearly always
            return FilterResult(answer)
        result = self._read.filter_nodes(answer, count)
        self._check_early("filter_nodes", result)
        return result

    def _check_early(self, method: str, result: PreFilterResult | FilterResult) -> None:
        if result.early_scores is not None and self.descriptor.normalization not in EARLY:
            raise PluginAnswerError(
                f"{self.descriptor.name}.{method} answered early scores with normalization"
                f" {self.descriptor.normalization.name}: declare HOST_MAX, HOST_MAX_REVERSED, HOST_MIN_MAX or"
                " NONE if a score does not depend on the other candidates, else leave them out"
            )

    def _filter_scenarios(self, state: CycleState, pod: Pod, scenarios: Scenarios) -> Steps[Verdicts]:
        if self._has("filter_scenarios"):
            answer = yield self._method("filter_scenarios")(state, pod, scenarios)
            return self._read.verdicts("filter_scenarios", answer, len(scenarios))
        if self._has("filter_nodes") and not self.descriptor.has_add_remove:
            answer = yield self._method("filter_nodes")(state, pod, scenarios.nodes)
            return self._read.filter_nodes(answer, len(scenarios)).verdicts
        statuses = []
        seen, what_ifs = self._declared.pod(pod), self._declared.scenarios(scenarios)
        state.readable = self._declared.shared
        try:
            for i in range(len(scenarios)):
                verdict = yield from _scenario_verdict(self.plugin, self._read, state, seen, (what_ifs, i))
                statuses.append(verdict)
        except UndeclaredError as err:
            self._declared.name(err)
            raise
        return Verdicts.of(statuses)

    def _score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Steps[NDArray[np.int64]]:
        kept = self.kept.scores
        table = kept if isinstance(kept, TableAnswers) and nodes.is_snapshot else None
        scores = None if table is None else table.find(state, pod, nodes)
        if scores is None:
            writes = state.writes
            answer = self._own_score(state, pod, nodes)
            scores = answer if isinstance(answer, np.ndarray) else (yield answer)
            if table is not None and state.writes == writes:
                table.keep(state, pod, nodes, scores)
        return scores

    def _score_rows(
        self, column: RowColumn, missing: Missing, state: CycleState, pod: Pod, nodes: NodeTable
    ) -> Steps[NDArray[np.int64]]:
        """Call the plugin for the changed rows, and keep the answers."""
        column.keep(nodes, missing, (yield self._own_score(state, pod, missing.of(nodes))))
        return column.read(nodes)

    def _own_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[NDArray[np.int64]]:
        """Call the plugin for the score of every row, without kept answers."""
        ask = self._methods.get("score_nodes")
        if ask is None:
            return run(self._score_each(state, pod, nodes))
        answer = ask(state, pod, nodes)
        if must_wait(answer):
            return _read_later(lambda answer: self._read.scores("score_nodes", answer, len(nodes)), answer)
        return self._read.scores("score_nodes", answer, len(nodes))

    def _score_each(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Steps[NDArray[np.int64]]:
        function = self._own_method("score")
        seen = self._declared.pod(pod)
        state.readable = self._declared.shared
        scores: list[int] = []
        try:
            table, alike = self._declared.nodes(nodes), alike_rows(nodes, self.descriptor.reads)
            for node in table if alike is None else table.take(alike.first):
                answer = function(state, seen, node)
                scores.append(self._read.score((yield answer) if must_wait(answer) else answer))
        except UndeclaredError as err:
            self._declared.name(err)
            raise
        found = np.asarray(scores, dtype=np.int64)
        return found if alike is None else found.take(alike.group)


def make_plugin(cls: type, args: Mapping[str, Any], handle: Handle, name: str = "") -> object:
    """Return a new instance. A class without its own `__init__` gets neither arguments nor handle.

    `name`: the plugin's name, if it is not the name of the class. Raises the errors of `__init__`:
    PluginArgsError for arguments that the plugin refuses. Raises PluginDefinitionError for what `__init__`
    declared wrongly on the instance, and UndeclaredError for objects that it asked for and did not declare.
    """
    if cls.__init__ is object.__init__:  # type: ignore[misc]  # compared, not called
        return cls()
    declared = DeclaredHandle(handle, describe(cls, name))
    with closed_on_error():
        plugin: object = cls(args, declared)
        declared.made(describe_instance(plugin, name))
    return plugin


async def _read_later(read: Callable[[Any], T], answer: Awaitable[Any]) -> T:
    return read(await answer)


def _has_errors(verdicts: Verdicts) -> bool:
    """Return True if one of the verdicts is an error, which is not kept."""
    return any(not one.is_success and not one.is_rejected for one in verdicts.statuses)


def _nothing(_answer: Any) -> None:
    return None


def _scenario_verdict(
    plugin: Any, read: Answers, state: CycleState, pod: Pod, which: tuple[Scenarios, int]
) -> Steps[Status]:
    """Return the verdict on scenario `which[1]` of `which[0]`, for a plugin without `filter_scenarios`.

    Clones the cycle's state, calls the plugin for each pod that leaves or comes, then calls its Filter for
    the changed node. Source: kube-scheduler `framework/runtime/framework.go` (RunPreFilterExtensionAddPod,
    RunPreFilterExtensionRemovePod), v1.36.
    """
    scenarios, i = which
    state = state.clone()
    view = scenarios.view(i)
    for method, changes in (("remove_pod", scenarios.removed), ("add_pod", scenarios.added)):
        change = getattr(plugin, method, None)
        if change is None:
            continue
        for other in changes.pods(i):
            status = read.status(method, (yield change(state, pod, other, view)))
            if not status.is_success:
                word = "AddPod" if method == "add_pod" else "RemovePod"
                return Status.error(f"running {word} on PreFilter plugin: {status.message}")
    if callable(getattr(plugin, "filter_nodes", None)):
        answer = yield plugin.filter_nodes(state, pod, scenarios.nodes.take([i]))
        return read.filter_nodes(answer, 1).verdicts.status(0)
    return read.status("filter", (yield plugin.filter(state, pod, view)))
