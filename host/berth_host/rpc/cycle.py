"""`CycleContext`: one attempt of one pod, as all its calls see it.

Made by the scheduler at the start of a cycle, after the snapshot was brought up to date, and handed to
every call. It lives until PostBind or the end of Unreserve.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import numpy as np
from berth_sdk.cycle_state import CycleState, SharedState
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.pod import Pod
from berth_sdk.results import PreBindResult, PreFlightResult
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import StateVersion
from numpy.typing import NDArray

from berth_host.metrics.points import CallSampler

DEFAULT_BUDGET_S: Final = 1.0


class CycleEnd(Enum):
    """How a cycle ended (the contract's CycleEnd.Outcome)."""

    BOUND = 1
    UNSCHEDULABLE = 2
    ABORTED = 3


NO_VERSION: Final = StateVersion(0, 0)


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

    `pre_bind` reads the first answer of PreBind, which came with it: None where that is no decision.
    It raises PluginProtocolError for an answer that cannot be read.
    """

    status: Status | None
    pre_flight: PreFlightResult | None = None
    pre_bind: Callable[[], PreBindResult | None] | None = None


class CycleContext:
    """One attempt. `cycle_id` is also the id of the reservation.

    `left_out`: the calls without an answer that the cycle went on without, by (plugin, why). `overruns`: one
    sentence for each call in process that took too long. `timings_s`: seconds spent per
    (plugin, call). `restarted`: this attempt has begun anew once; it does not do so again.
    `binding`: the binding cycle has begun; set by the scheduler. `pod_deleted`: the pod was deleted while a
    PreBind plugin was between two rounds.
    """

    __slots__ = (
        "_open_calls",
        "_opened_s",
        "_spent_s",
        "_states",
        "binding",
        "budget_s",
        "cycle_id",
        "early",
        "early_filter",
        "early_pre_bind",
        "early_pre_flight",
        "inherited",
        "instances",
        "left_out",
        "lost_by",
        "never_asked_to_reserve",
        "open_calls",
        "overruns",
        "pod",
        "pod_deleted",
        "profile",
        "repeating",
        "reservations",
        "reserved",
        "restarted",
        "rounds",
        "sampler",
        "shared",
        "signatures",
        "signed_at",
        "skip_score",
        "timings_s",
        "unknown_outcome",
        "version",
        "wire",
    )

    def __init__(
        self,
        cycle_id: str,
        pod: Pod,
        profile: str,
        *,
        version: StateVersion = NO_VERSION,
        budget_s: float = DEFAULT_BUDGET_S,
        restarted: bool = False,
    ) -> None:
        self.cycle_id = cycle_id
        self.pod = pod
        self.profile = profile
        self.version = version
        self.budget_s = budget_s
        self.restarted = restarted
        self.binding = False
        self.pod_deleted = False
        self.reserved = False
        self.shared = SharedState()
        self.left_out: dict[tuple[str, str], list[str]] = {}
        self.overruns: list[str] = []
        self.sampler: CallSampler | None = None
        """The recorder of every call, in the cycles that are sampled."""
        self.timings_s: dict[tuple[str, str], float] = {}
        self.early: dict[str, list[EarlyScores]] = {}
        self.early_filter: dict[str, EarlyVerdicts] = {}
        self.early_pre_flight: dict[str, PreFlightResult] = {}
        """Per plugin the answer to PreBindPreFlight that came with Reserve."""
        self.early_pre_bind: dict[str, Callable[[], PreBindResult | None]] = {}
        """Per plugin the first answer of PreBind that came with Reserve, until PreBind is due."""
        self.skip_score: set[str] = set()
        self.unknown_outcome: set[str] = set()
        """Plugins whose Bind may have happened without a usable answer: the pod has to be read back."""
        self.instances: dict[str, Any] = {}
        """Per served plugin the transport of its first call; later calls of the cycle use the same one."""
        self.never_asked_to_reserve: set[str] = set()
        """Served plugins whose Reserve had to wait for an earlier Unreserve, and was not made."""
        self.reservations: dict[str, str] = {}
        """Per plugin the node for which its Reserve succeeded and was not undone."""
        self.lost_by: set[str] = set()
        """Plugins whose new instance knows nothing of this cycle: the cycle cannot go on."""
        self.rounds: dict[str, tuple[int, float]] = {}
        """Per plugin the PreBind rounds made and the deadline of all of them (monotonic seconds)."""
        self.open_calls: dict[str, ExtensionPoint] = {}
        """Plugins whose PostFilter, Reserve or Permit runs now: these may ask the host about the cycle."""
        self.repeating: set[str] = set()
        """Plugins whose call is being repeated right now."""
        self.wire: dict[str, Any] = {}
        """By attachment what its instance was told of this cycle. Only transports use it."""
        self.inherited: Mapping[str, CycleState] = {}
        """Per plugin the cycle state that it wrote for an equal pod and would write for this one."""
        self.signatures: Mapping[str, Hashable] = {}
        """Per plugin in the host its signature of the pod, once made."""
        self.signed_at: Mapping[str, Hashable] = {}
        """Per plugin in the host that keeps answers itself, the versions of its objects at that time."""
        self._states: dict[str, CycleState] = {}
        self._open_calls = 0
        self._opened_s = 0.0
        self._spent_s = 0.0

    def state(self, plugin: str) -> CycleState:
        """The cycle state of one plugin, made at its first use."""
        state = self._states.get(plugin)
        if state is None:
            state = self._states[plugin] = CycleState(self.cycle_id, plugin=plugin, shared=self.shared)
            state.signature = self.signatures.get(plugin)
            state.pod_deleted = self.pod_deleted
            state.signed_at = self.signed_at.get(plugin)
            known = self.inherited.get(plugin)
            if known is not None:
                state.inherit(known)
        return state

    def note_pod_deleted(self) -> None:
        """Show every plugin that the pod was deleted (`CycleState.pod_deleted`)."""
        self.pod_deleted = True
        for state in self._states.values():
            state.pod_deleted = True

    def take_over(self, written: Mapping[str, CycleState]) -> None:
        """Put what plugins wrote for an equal pod at a later point into the cycle states in use."""
        for plugin, state in self._states.items():
            if plugin in written:
                state.inherit(written[plugin])

    # --- what is said of the cycle ------------------------------------------------------------------

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
        """One sentence for each omission and each overrun."""
        return [*self.omissions, *self.overruns]

    @property
    def omissions(self) -> list[str]:
        """One sentence for each plugin without whose answer the cycle went on, and each reason for it."""
        return [
            f'without plugin "{plugin}" at {", ".join(calls)}: it {why}'
            for (plugin, why), calls in self.left_out.items()
        ]

    # --- the budget for served plugins -------------------------------------------------------------------

    def served_call_begins(self) -> None:
        """A call to a served plugin begins; time that calls overlap counts once."""
        if not self._open_calls:
            self._opened_s = time.monotonic()
        self._open_calls += 1

    def served_call_ends(self) -> None:
        """A call to a served plugin ends."""
        self._open_calls -= 1
        if not self._open_calls:
            self._spent_s += time.monotonic() - self._opened_s

    @property
    def budget_left_s(self) -> float:
        """Time for served plugins that this cycle may still take; 0 or less: none."""
        running_s = time.monotonic() - self._opened_s if self._open_calls else 0.0
        return self.budget_s - self._spent_s - running_s
