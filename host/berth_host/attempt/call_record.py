"""`CycleRecord`: what every call of one cycle gets and needs, with one `Part` for each plugin that took part.

The base of the records of pods (`attempt.cycle`), of groups and of placements (`attempt.group_cycle`). `rpc`
reads nothing else of an attempt, but for the calls that are about a pod.
Source: kube-scheduler `framework/cycle_state.go`, v1.36.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from berth_sdk.clocks import monotonic_s
from berth_sdk.cycle_state import CycleState, SharedState, TrialRef
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.results import ObjectPatch, PatchResult, PreBindResult, PreFlightResult
from berth_sdk.status import Status, Verdicts
from numpy.typing import NDArray

from berth_host.attempt.account import Account
from berth_host.metrics.points import CallObserver
from berth_host.tracing.attempt_trace import AttemptTrace


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
    is_inside: bool | None = None
    """Whether the pod is in the plugin's scope; None: not read yet."""
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
        self.account = Account()
        """The times of its calls, and what it went on without."""
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

    # --- the budget for calls of served plugins ----------------------------------------------------------

    def served_call_begins(self) -> None:
        """Start the clock of a call to a served plugin; time in which calls overlap counts once."""
        if self.payer is not None:
            self.payer.served_call_begins()
            return
        if not self._open_calls:
            self._opened_s = monotonic_s()
        self._open_calls += 1

    def served_call_ends(self) -> None:
        """Stop the clock of a call to a served plugin."""
        if self.payer is not None:
            self.payer.served_call_ends()
            return
        self._open_calls -= 1
        if not self._open_calls:
            self._spent_s += monotonic_s() - self._opened_s

    @property
    def budget_left_s(self) -> float:
        """The seconds that calls of served plugins may still take in this cycle; 0 or less: none."""
        if self.payer is not None:
            return self.payer.budget_left_s
        running_s = monotonic_s() - self._opened_s if self._open_calls else 0.0
        return self.budget_s - self._spent_s - running_s
