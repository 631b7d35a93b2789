"""`CycleContext`: what all calls about one attempt of one pod share.

Made by the scheduler at the start of a cycle, after the snapshot was brought up to date, and handed to
every call; lives until PostBind or the end of Unreserve.
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
    """Scores that came before Score was due: int64[n] for the slots `rows` (intp[n])."""

    rows: NDArray[np.intp]
    scores: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class EarlyVerdicts:
    """Filter's verdicts that came with PreFilter, for the slots `rows` (intp[n])."""

    rows: NDArray[np.intp]
    verdicts: Verdicts


@dataclass(frozen=True, slots=True, eq=False)
class Reserved:
    """What Reserve answered. `status` None: the plugin did not decide.

    `pre_bind` reads PreBind's first answer, which came along: None where that is no decision. Raises
    PluginProtocolError for one that cannot be read.
    """

    status: Status | None
    pre_flight: PreFlightResult | None = None
    pre_bind: Callable[[], PreBindResult | None] | None = None


class CycleContext:
    """One attempt. `cycle_id` is also the id of the reservation.

    `notes`: what a policy swallowed and what overran, for the diagnosis. `timings_s`: seconds spent per
    (plugin, call). `restarted`: this attempt was begun anew already, it cannot be once more.
    `binding`: the binding cycle has begun; set by the scheduler.
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
        "lost_by",
        "notes",
        "open_calls",
        "pod",
        "profile",
        "repeating",
        "reservations",
        "reserved",
        "restarted",
        "rounds",
        "sampler",
        "shared",
        "signatures",
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
        self.reserved = False
        self.shared = SharedState()
        self.notes: list[str] = []
        self.sampler: CallSampler | None = None
        """Who is told of every call, in some cycles."""
        self.timings_s: dict[tuple[str, str], float] = {}
        self.early: dict[str, list[EarlyScores]] = {}
        self.early_filter: dict[str, EarlyVerdicts] = {}
        self.early_pre_flight: dict[str, PreFlightResult] = {}
        """What plugins answered to PreBindPreFlight with Reserve already."""
        self.early_pre_bind: dict[str, Callable[[], PreBindResult | None]] = {}
        """What they answered to the first round of PreBind with Reserve, until that is due."""
        self.skip_score: set[str] = set()
        self.unknown_outcome: set[str] = set()
        """Plugins whose Bind may have happened although it gave no usable answer: read the pod back."""
        self.instances: dict[str, Any] = {}
        """The transport that each remote plugin's first call went to; later calls go there as well."""
        self.reservations: dict[str, str] = {}
        """Per plugin whose Reserve has succeeded, and was not undone, the node."""
        self.lost_by: set[str] = set()
        """Plugins that came back and know nothing of their part of this cycle: it cannot go on."""
        self.rounds: dict[str, tuple[int, float]] = {}
        """Per plugin the PreBind rounds made and the deadline of all of them (monotonic seconds)."""
        self.open_calls: dict[str, ExtensionPoint] = {}
        """Plugins whose PostFilter, Reserve or Permit runs now: they may ask about the cycle meanwhile."""
        self.repeating: set[str] = set()
        """Plugins whose call is being repeated right now."""
        self.wire: dict[str, Any] = {}
        """What the instances were told of this cycle, by attachment; the transports' own."""
        self.inherited: Mapping[str, CycleState] = {}
        """What plugins wrote for an equal pod, and would write for this one."""
        self.signatures: Mapping[str, Hashable] = {}
        """What plugins in the host have signed of the pod already."""
        self._states: dict[str, CycleState] = {}
        self._open_calls = 0
        self._opened_s = 0.0
        self._spent_s = 0.0

    def state(self, plugin: str) -> CycleState:
        """The store of one plugin, made at its first use."""
        state = self._states.get(plugin)
        if state is None:
            state = self._states[plugin] = CycleState(self.cycle_id, plugin=plugin, shared=self.shared)
            state.signature = self.signatures.get(plugin)
            known = self.inherited.get(plugin)
            if known is not None:
                state.inherit(known)
        return state

    def take_over(self, written: Mapping[str, CycleState]) -> None:
        """What plugins wrote for an equal pod at a later point goes to the stores that are in use by now."""
        for plugin, state in self._states.items():
            if plugin in written:
                state.inherit(written[plugin])

    # --- the budget of remote time -------------------------------------------------------------------

    def remote_begins(self) -> None:
        """A remote call is sent; calls that overlap are counted once."""
        if not self._open_calls:
            self._opened_s = time.monotonic()
        self._open_calls += 1

    def remote_ends(self) -> None:
        """A remote call is over."""
        self._open_calls -= 1
        if not self._open_calls:
            self._spent_s += time.monotonic() - self._opened_s

    @property
    def budget_left_s(self) -> float:
        """Remote time that this cycle may still take; 0 or less: none."""
        running_s = time.monotonic() - self._opened_s if self._open_calls else 0.0
        return self.budget_s - self._spent_s - running_s
