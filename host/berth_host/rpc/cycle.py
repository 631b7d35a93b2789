"""`Cycle`: the one record of one attempt of one pod, with one `Part` for each plugin that took part. Its base
`CycleRecord` is also that of the records of groups (`rpc.group_cycle`).

The scheduler makes the record once per attempt (`cycle.attempt.Attempt` adds the scheduler's own parts),
and every step and every call gets it. A record lives until PostBind or until the end of Unreserve.
`explain.diagnosis.Diagnosis` holds what is kept afterwards.
Source: kube-scheduler `framework/cycle_state.go` (SkipFilterPlugins, SkipScorePlugins, ...), v1.36.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, Protocol

import numpy as np
from berth_sdk.cycle_state import PODS_TO_ACTIVATE, CycleState, SharedState, TrialRef, read_pods_to_activate
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.pod import Pod
from berth_sdk.results import ObjectPatch, PatchResult, PreBindResult, PreFlightResult
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeColumns, NodeTable, StateVersion
from numpy.typing import NDArray

from berth_host.metrics.points import CallObserver
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.nominated_pods import NOBODY, NominatedPods
from berth_host.model.pre_filter_outcome import PASSED, PreFilterOutcome
from berth_host.tracing.attempt_trace import AttemptTrace

DEFAULT_BUDGET_S: Final = 1.0
POD_DELETED: Final[str] = "the pod was deleted"
NO_VERSION: Final = StateVersion(0, 0)
NO_NODES: Final = NodeTable(NodeColumns())
_NO_ROWS: Final[NDArray[np.intp]] = np.zeros(0, dtype=np.intp)


class CycleEnd(Enum):
    """The outcomes of a cycle (the contract's CycleEnd.Outcome)."""

    BOUND = 1
    UNSCHEDULABLE = 2
    ABORTED = 3


@dataclass(frozen=True, slots=True, eq=False)
class EarlyScores:
    """Early scores: int64[n] for the slots `rows` (intp[n])."""

    rows: NDArray[np.intp]
    scores: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class EarlyVerdicts:
    """Early verdicts of Filter, for the slots `rows` (intp[n])."""

    rows: NDArray[np.intp]
    verdicts: Verdicts


@dataclass(frozen=True, slots=True, eq=False)
class Reserved:
    """The answer of Reserve. `status` None: the plugin did not decide.

    `pre_bind`: reads the first answer of PreBind, which came with Reserve. Returns None for an answer without
    a decision, and raises PluginProtocolError for an answer that cannot be read.
    """

    status: Status | None
    pre_flight: PreFlightResult | None = None
    pre_bind: Callable[[], PreBindResult | None] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """The patches that one PostFilter plugin asks for. `apply`: applies them, and returns one result per
    patch.
    """

    plugin: str
    patches: Sequence[ObjectPatch]
    apply: Callable[[], Awaitable[Sequence[PatchResult]]]


class KeptAnswers(Protocol):
    """The kept answers that hold for one cycle's pod, as far as code outside of `kept` reads them.

    `known`: the same object for equal pods while their answers are kept; None for the first pod of its kind.
    `merged`: the plugins whose answers are merged in `known`.
    """

    @property
    def known(self) -> object | None:
        """The object of the kept answers; see the class."""
        ...

    @property
    def merged(self) -> frozenset[str]:
        """The plugins whose answers are merged."""
        ...

    def filter(self, client: Any, cycle: Cycle, nodes: NodeTable) -> Awaitable[Verdicts]:
        """Return the verdicts of a plugin, given its client, with a call about those that are not kept."""
        ...


class Part:
    """One plugin's part of a cycle.

    Defaults are class attributes: most plugins use few fields, and a part is made for every call's plugin.
    """

    state: CycleState | None = None
    """The plugin's cycle state, with its token; None before `Cycle.state` makes it."""
    instance: Any = None
    """The transport of a served plugin's first call; later calls of the cycle use the same one."""
    is_known: bool = False
    """True when a call of the cycle, or of one that belongs to it, was sent to a served plugin: its instance
    may keep something of the cycle."""
    is_lost: bool = False
    """True when the plugin's new instance does not know this cycle: the cycle cannot go on."""
    open_call: ExtensionPoint | None = None
    """The point of the plugin's PostFilter, Reserve or Permit that runs now, during which the plugin may ask
    the host about the cycle."""
    questions: tuple[Callable[[], None], ...] = ()
    """Called when `open_call` ends: each ends a question of the plugin that has no answer yet."""
    is_repeating: bool = False
    """True while the second attempt of a call is being made."""

    early_verdicts: EarlyVerdicts | None = None
    """Verdicts that came with PreFilter."""
    early_scores: list[EarlyScores] | None = None
    """Scores that came with an earlier call, the latest last."""
    skips_score: bool = False
    """True when the plugin answered with an earlier call that it does not score this pod."""

    reserved_node: str | None = None
    """The node for which the plugin's Reserve succeeded, or its Permit answered WAIT after a SKIP of Reserve,
    and was not undone."""
    holds_nothing: bool = False
    """True when the plugin answered Reserve with SKIP, and neither Permit with WAIT nor, as far as the host
    knows, holds anything else of the cycle."""
    never_asked_to_reserve: bool = False
    """True when Reserve had to wait for an earlier Unreserve of a served plugin, and was not called."""
    early_pre_flight: PreFlightResult | None = None
    """The answer to PreBindPreFlight that came with Reserve."""
    early_pre_bind: Callable[[], PreBindResult | None] | None = None
    """Reads the first answer of PreBind that came with Reserve; None once PreBind has used it."""
    rounds: int = 0
    """The number of PreBind rounds so far."""
    rounds_end_s: float = 0.0
    """The deadline of all PreBind rounds (monotonic seconds)."""
    is_between_rounds: bool = False
    """True while PreBind has answered a round and awaits the next one."""
    pause: asyncio.Future[None] | None = None
    """Ends the pause between two rounds; None while the round's patches are applied."""
    is_bind_unknown: bool = False
    """True when Bind may have happened without a usable answer: the host reads the pod back."""


class CycleRecord:
    """The record that every call of one cycle gets: the cycle of a pod, of a group, or of a placement.

    `cycle_id`: also the id of the reservation. Fields with a default are class attributes, so that making a
    record costs little.
    """

    subject: Any
    """The pod, or the group (`GroupView`), that calls of the cycle are about."""
    parent: CycleRecord | None = None
    """The record that this one belongs to in a group's cycle: of a placement, or of a group. None: there is
    none."""
    payer: CycleRecord | None = None
    """The record whose budget pays for the calls: that of the group. None: this record's own."""
    trial: TrialRef | None = None
    """The trial of a pod in a group's cycle."""
    continues: str = ""
    """The id that this cycle had before (`Cycle.decide`): served plugins keep the state under it."""
    reserved: bool = False
    """Reserve has begun: the cycle cannot restart."""
    restarted: bool = False
    """The attempt has been restarted once, and is not restarted again."""
    is_question: bool = False
    """True for a question: the pod need not exist, and the cycle ends after the choice of a node."""
    binding: bool = False
    """The binding cycle has begun."""
    idle: bool = False
    """The binding cycle waits for time to pass, or for a decision on Permit, and for nothing else."""
    pod_deleted: bool = False
    """The pod was deleted while a PreBind plugin was between two rounds."""
    state_class: type[CycleState] = CycleState
    is_placement: bool = False
    """The record of a placement of a group."""

    # --- what kept answers bring, by plugin name; equal pods share the mappings
    inherited: Mapping[str, CycleState] = {}  # replaced, never changed
    """The cycle state that the plugin wrote for an equal pod and would write for this one."""
    signatures: Mapping[str, Hashable] = {}
    """The in-process plugin's signature of the pod, once made."""
    signed_at: Mapping[str, Hashable] = {}
    """The versions of the plugin's objects when the pod was signed."""

    _passed_over: tuple[str, ...] = ()

    sampler: CallObserver | None = None
    """Gets every call, in the cycles that are sampled or traced."""

    trace: AttemptTrace | None = None
    """The times of a traced attempt; None: the cycle is not traced."""

    def __init__(self, cycle_id: str, subject: Any, profile: str, budget_s: float) -> None:
        self.cycle_id = cycle_id
        self.subject = subject
        self.profile = profile
        self.budget_s = budget_s
        self.parts: dict[str, Part] = {}
        """By plugin name; see `part`."""
        self.shared = SharedState()
        self.timings_s: dict[tuple[str, str], float] = {}
        """Seconds spent per (plugin, call)."""
        self.left_out: dict[tuple[str, str], list[str]] = {}
        """The calls without an answer that the cycle went on without, by (plugin, why)."""
        self.overruns: list[str] = []
        """One sentence for each in-process call that took longer than its deadline."""
        self.wire: dict[str, Any] = {}
        """By attachment: what its instance got about this cycle. Only transports use this field."""
        self.changes: list[Changes] = []
        """The changes that PostFilter plugins ask for; applied when the cycle is over."""
        self._open_calls = 0
        self._opened_s = 0.0
        self._spent_s = 0.0

    # --- the plugins' parts ----------------------------------------------------------------------------

    def part(self, plugin: str) -> Part:
        """Return the plugin's part, made at its first use."""
        part = self.parts.get(plugin)
        if part is None:
            part = self.parts[plugin] = Part()
        return part

    def state(self, plugin: str) -> CycleState:
        """Return the cycle state of one plugin, made at its first use."""
        part = self.parts.get(plugin)
        if part is None:
            part = self.parts[plugin] = Part()
        state = part.state
        if state is None:
            state = part.state = self.state_class(self.cycle_id, plugin=plugin, shared=self.shared)
            state.signature = self.signatures.get(plugin)
            state.pod_deleted = self.pod_deleted
            state.signed_at = self.signed_at.get(plugin)
            if self.parent is not None:
                state.parent = self.parent.state(plugin)
            known = self.inherited.get(plugin)
            if known is not None:
                state.inherit(known)
        return state

    def instance(self, plugin: str) -> Any:
        """Return the transport of the plugin's first call in this cycle or in one that the cycle belongs to;
        None before that call.
        """
        record: CycleRecord | None = self
        while record is not None:
            part = record.parts.get(plugin)
            if part is not None and part.instance is not None:
                return part.instance
            record = record.parent
        return None

    @property
    def owner(self) -> CycleRecord:
        """The record that knows which instance has `subject`: of a placement, that of its group."""
        return self.parent if self.is_placement and self.parent is not None else self

    @property
    def root(self) -> CycleRecord:
        """The record that this one belongs to in the end: that of the group; without a group, this one."""
        record: CycleRecord = self
        while record.parent is not None:
            record = record.parent
        return record

    @property
    def may_restart(self) -> bool:
        """True if the cycle, or the group's cycle that it belongs to, can begin anew."""
        return not (self.reserved or self.restarted) and (self.parent is None or self.parent.may_restart)

    @property
    def lost(self) -> str:
        """The first plugin whose new instance does not know this cycle; empty where there is none."""
        return next((plugin for plugin, part in self.parts.items() if part.is_lost), "")

    # --- what is kept of it ----------------------------------------------------------------------------

    def leave_out(self, plugin: str, call: str, why: str) -> None:
        """Note that the cycle goes on without the plugin's answer.

        `why`: what the plugin did, and the setting that lets the pod pass, such as
        `is not attached (required: false)`.
        """
        calls = self.left_out.setdefault((plugin, why), [])
        if call not in calls:
            calls.append(call)

    @property
    def notes(self) -> list[str]:
        """One sentence for each omission, each overrun and each HTTP extender that was passed over."""
        return [*self.omissions, *self.overruns, *self._passed_over]

    def pass_over(self, note: str) -> None:
        """Note that the cycle goes on without an HTTP extender, in a sentence."""
        self._passed_over = (*self._passed_over, note)

    @property
    def omissions(self) -> list[str]:
        """One sentence for each plugin without whose answer the cycle went on, and each reason for it."""
        return [
            f'without plugin "{plugin}" at {", ".join(calls)}: it {why}'
            for (plugin, why), calls in self.left_out.items()
        ]

    # --- the budget for calls of served plugins ----------------------------------------------------------

    def served_call_begins(self) -> None:
        """Start the clock of a call to a served plugin; time in which calls overlap counts once."""
        if self.payer is not None:
            self.payer.served_call_begins()
            return
        if not self._open_calls:
            self._opened_s = time.monotonic()
        self._open_calls += 1

    def served_call_ends(self) -> None:
        """Stop the clock of a call to a served plugin."""
        if self.payer is not None:
            self.payer.served_call_ends()
            return
        self._open_calls -= 1
        if not self._open_calls:
            self._spent_s += time.monotonic() - self._opened_s

    @property
    def budget_left_s(self) -> float:
        """The seconds that calls of served plugins may still take in this cycle; 0 or less: none."""
        if self.payer is not None:
            return self.payer.budget_left_s
        running_s = time.monotonic() - self._opened_s if self._open_calls else 0.0
        return self.budget_s - self._spent_s - running_s


class Cycle(CycleRecord):
    """One attempt of one pod. `nodes`: the whole snapshot; it does not change until Permit has returned."""

    # --- how far the attempt is
    node_name: str = ""
    """The chosen node."""
    assumed: bool = False
    """The pod counts on its node in the cache."""
    in_pre_bind: bool = False
    """PreBind plugins run, and the attempt can still be undone."""
    pre_bind_began: bool = False
    """PreBind plugins were asked: they may have written what an undone attempt takes back."""
    in_bind: bool = False
    """Bind has begun. A Binding may take effect even if its call is cancelled, so an abort waits until the
    outcome is known. A bound pod is not undone."""
    is_told: bool = False
    """The event of the pod's binding is written."""
    aborted: str = ""
    """Why the attempt was cut short."""
    task: asyncio.Task[None] | None = None
    """The task that `abort` cancels; None: nothing to cancel."""
    cancellations: int = 0
    """The number of times that `abort` cancelled the task of the scheduling loop."""

    # --- what the search found
    statuses: NodeStatuses | None = None
    """Why nodes do not fit; None before Filter."""
    feasible: NDArray[np.intp] = _NO_ROWS
    """The nodes that fit: positions in `nodes`, in visiting order."""
    visited_count: int = 0
    """The number of feasible nodes and of nodes that a plugin rejected by name."""
    pre_filter: PreFilterOutcome = PASSED
    """The decisions of PreFilter about nodes."""
    nominated: NominatedPods = NOBODY
    """The pods with a nominated node that count for this pod."""
    kept: KeptAnswers | None = None
    """The kept answers about equal pods; None: there are none."""
    made_up: NDArray[np.bool_] | None = None
    """bool by slot: the nodes that only the question knows, as those of templates; None: there is none. An
    extender with nodes of its own (nodeCacheCapable) is not asked about them.
    """
    unknown_nodes: Mapping[str, Status] = {}  # replaced, never changed
    """Refusals by HTTP extenders of nodes that the snapshot lacks, by name. Their reasons count."""
    unexplained: Mapping[str, NDArray[np.intp]] = {}  # replaced, never changed
    """The nodes that HTTP extenders left out without a reason: rows of `nodes`, by extender."""
    is_shrunk: bool = False
    """HTTP extenders left fewer nodes than Filter."""
    is_short: bool = False
    """Filter and Score had nothing to ask but rows that moved."""
    pre_scored_s: float = 0.0
    """The end of PreScore (`instant_s`)."""

    # --- the plugins that skip a point, by name. Sets, because equal pods share them.
    skip: frozenset[str] = frozenset()
    """Plugins that the pod does not concern, to the end of the cycle."""
    skip_filter: frozenset[str] = frozenset()
    reserve_skipped: tuple[str, ...] = ()
    """Plugins that answered Reserve with SKIP."""

    def __init__(
        self,
        cycle_id: str,
        pod: Pod,
        profile: str,
        *,
        nodes: NodeTable = NO_NODES,
        version: StateVersion = NO_VERSION,
        budget_s: float = DEFAULT_BUDGET_S,
        restarted: bool = False,
    ) -> None:
        super().__init__(cycle_id, pod, profile, budget_s)
        self.pod = pod
        self.nodes = nodes
        self.version = version
        if restarted:
            self.restarted = True
        self.skip_score: set[str] = set()
        self.skip_pre_bind: set[str] = set()
        self.parallel_pre_bind: set[str] = set()

    def decide(self, cycle_id: str) -> None:
        """Go on from the trial that the group's cycle has chosen, after its reservation was given back.

        `cycle_id`: the new id, under which the pod is reserved for good. The plugins' states stay.
        """
        if self.trial is not None:
            self.trial = replace(self.trial, tentative=False)
        self.continues, self.cycle_id = self.cycle_id, cycle_id
        self.reserved = False
        self.wire = {}
        for part in self.parts.values():
            part.reserved_node, part.never_asked_to_reserve, part.holds_nothing = None, False, False
            part.early_pre_flight = part.early_pre_bind = None
            if part.state is not None:
                part.state.cycle_id = cycle_id
        # Reserve is asked again, and may answer something else than in the trial.
        self.reserve_skipped = ()
        self.skip_pre_bind.clear()
        self.parallel_pre_bind.clear()

    def take_over(self, written: Mapping[str, CycleState]) -> None:
        """Put what plugins wrote for an equal pod at a later point into the cycle states in use."""
        for plugin, part in self.parts.items():
            if part.state is not None and plugin in written:
                part.state.inherit(written[plugin])

    @contextmanager
    def without_early_scores(self, asked_again: Collection[str]) -> Iterator[None]:
        """Hide the scores that came early, for the block, and the skips of the plugins `asked_again`."""
        before = [(part, part.early_scores, part.skips_score) for part in self.parts.values()]
        for plugin, part in self.parts.items():
            part.early_scores = None
            part.skips_score = part.skips_score and plugin not in asked_again
        try:
            yield
        finally:
            for part in self.parts.values():
                part.early_scores, part.skips_score = None, False
            for part, scores, skips in before:
                part.early_scores, part.skips_score = scores, skips

    # --- how it ends early -----------------------------------------------------------------------------

    def abort(self, reason: str) -> None:
        """Cancel the outstanding calls; the attempt then undoes itself."""
        self.aborted = reason
        if self.in_bind:
            return
        # A caller inside the attempt runs on to the end: a cancellation of its own task would take effect
        # later, when the task works on another pod.
        if self.task is not None and self.task is not asyncio.current_task() and self.task.cancel():
            self.cancellations += 1

    def tell_pod_deleted(self) -> bool:
        """Call every PreBind plugin between two rounds a last time, now, with the news of the pod's deletion.

        Return False if no plugin is between two rounds.
        """
        waiting = [part for part in self.parts.values() if part.is_between_rounds]
        if not waiting:
            return False
        self.pod_deleted = True
        for part in self.parts.values():
            if part.state is not None:
                part.state.pod_deleted = True
        for part in waiting:
            if part.pause is not None and not part.pause.done():
                part.pause.set_result(None)
        return True

    def take_pods_to_activate(self) -> list[str]:
        """Return the pods (`namespace/name`) that plugins want in activeQ now; each is returned once."""
        shared = self.shared.values
        taken: list[str] = []
        for key in [key for key in shared if key.endswith(f"/{PODS_TO_ACTIVATE}")]:
            taken.extend(read_pods_to_activate(shared.pop(key)))
        return taken

    @property
    def is_claimed(self) -> bool:
        """True when a plugin answered that it has bound the pod, and the host is checking this."""
        return self.in_bind and self.is_told
