"""`Cycle`: the record of one attempt of one pod. To what a call needs (`CycleRecord`) it adds how far the
attempt is, and what the search found.

The scheduler makes the record once per attempt (`cycle.attempt.Attempt` adds the scheduler's own parts),
and every step and every call gets it. A record lives until PostBind or until the end of Unreserve; its
`account` explains it.
Source: kube-scheduler `framework/cycle_state.go` (SkipFilterPlugins, SkipScorePlugins, ...), v1.36.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from typing import Any, Final, Protocol

import numpy as np
from berth_sdk.cycle_state import PODS_TO_ACTIVATE, CycleState, read_pods_to_activate
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeColumns, NodeTable, StateVersion
from numpy.typing import NDArray

from berth_host.attempt.call_record import CycleRecord
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.nominated_pods import NOBODY, NominatedPods
from berth_host.model.pre_filter_outcome import PASSED, PreFilterOutcome

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
    is_undoing: bool = False
    """Unreserve runs. An abort does not cut it short."""
    is_told: bool = False
    """The event of the pod's binding is written."""
    was_gone: bool = False
    """A read of the bound pod found that it is gone or finished, before the watch showed it."""
    written: tuple[tuple[str, ObjectRef], ...] = ()
    """The objects other than the pod that PreBind plugins changed, each with its resource, in the version
    that the write returned."""
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
    outside_scopes: tuple[str, ...] = ()
    """Plugins that are not called, because the pod is outside their scope."""

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

    def forget_search(self) -> None:
        """Drop what the search found, which may be large: the record lives on after the binding cycle."""
        self.nodes, self.pre_filter, self.nominated = NO_NODES, PASSED, NOBODY
        self.statuses = self.kept = self.made_up = None
        self.feasible = _NO_ROWS
        self.unknown_nodes, self.unexplained = {}, {}
        for part in self.parts.values():
            part.early_verdicts = part.early_scores = None

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
        """Cancel the outstanding calls, unless they are those of the undo; the attempt then undoes itself."""
        self.aborted = reason
        # What is under way is then the undo itself: cut short, it would leave reservations with plugins.
        if self.in_bind or self.is_undoing:
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
        if not shared:
            return taken
        for key in [key for key in shared if key.endswith(f"/{PODS_TO_ACTIVATE}")]:
            taken.extend(read_pods_to_activate(shared.pop(key)))
        return taken

    @property
    def is_claimed(self) -> bool:
        """True when a plugin answered that it has bound the pod, and the host is checking this."""
        return self.in_bind and self.is_told
