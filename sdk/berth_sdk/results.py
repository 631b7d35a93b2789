"""Plugins' answers beyond a Status: narrowing, nominations, waits, and effects.

Effects (victims, host_binds, patches) are results: the host checks and executes them, in process and
remote alike, so a plugin never needs the host's rights. A bare Status is accepted in place of each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from berth_sdk.cycle_state import CycleState
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.status import SUCCESS, UNRESOLVABLE, Code, Status, Verdicts


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """`eligible`: the only nodes worth asking about, by name (None: all; they need not exist).

    `early_filter`: verdicts for all rows of the table that PreFilter was shown; Filter is skipped.
    `early_scores`, `skip_score`: as in FilterResult. Values for nodes that are not `eligible` are ignored.
    A class that has the methods of Filter and Score need not answer any of the three: in a
    process of its own the SDK asks these at once (`answers_early`).
    """

    status: Status = SUCCESS
    eligible: frozenset[str] | None = None
    early_filter: Verdicts | None = None
    early_scores: NDArray[np.int64] | None = None
    skip_score: bool = False

    @property
    def answers_early(self) -> bool:
        """Whether the answer covers Filter or Score too."""
        return self.early_filter is not None or self.early_scores is not None or self.skip_score


@dataclass(frozen=True, slots=True)
class FilterResult:
    """Verdicts, and with `early_scores` (int64[n], rejected rows ignored) the scores as well.

    Early scores are allowed where a node's score does not depend on the other candidates:
    normalisation NONE or HOST_*. `skip_score`: this plugin adds nothing for this pod.
    """

    verdicts: Verdicts
    early_scores: NDArray[np.int64] | None = None
    skip_score: bool = False


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """SUCCESS: `nominated_node` may become feasible once `victims` (on that node, of lower priority)
    are gone; the host checks and evicts them. `clear_nomination` drops an older nomination. `patches`:
    changes to objects of declared kinds, made whatever the status is.
    """

    status: Status
    nominated_node: str = ""
    clear_nomination: bool = False
    victims: tuple[ObjectRef, ...] = ()
    patches: tuple[ObjectPatch, ...] = ()


@dataclass(frozen=True, slots=True)
class PermitResult:
    """`wait_timeout_s` counts with code WAIT only; None means the host's maximum (15 min)."""

    status: Status
    wait_timeout_s: float | None = None

    @staticmethod
    def wait(timeout_s: float | None = None, *reasons: str) -> PermitResult:
        """Hold the pod until this plugin allows it, any plugin rejects it, or the time is over."""
        return PermitResult(Status(Code.WAIT, reasons), timeout_s)


@dataclass(frozen=True, slots=True)
class PreFlightResult:
    """SUCCESS: PreBind will do work; SKIP: it is not called. `allow_parallel`: it may run beside others."""

    status: Status
    allow_parallel: bool = False


class PatchAction(Enum):
    """What the host does with the object (the contract's ObjectPatch.Action)."""

    MERGE = 1
    """The patch is merged into it."""
    CREATE = 2
    """It is made, with the patch as its content. The API server completes a name that ends in "-".
    CONFLICT: there is one already.
    """
    DELETE = 3
    """It is deleted; the patch is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectPatch:
    """A JSON merge patch (RFC 7386) on a declared kind, or on the cycle's own pod (`pods`).

    `expected_resource_version` makes it conditional. `subresource`: "" or "status".
    """

    resource: str
    ref: ObjectRef
    merge_patch: Mapping[str, Any]
    expected_resource_version: str = ""
    subresource: str = ""
    action: PatchAction = PatchAction.MERGE


class PatchOutcome(Enum):
    """The outcome of a patch; after the first that is not APPLIED the rest are SKIPPED."""

    APPLIED = 1
    CONFLICT = 2
    NOT_FOUND = 3
    REFUSED = 4
    SKIPPED = 5
    UNKNOWN = 6
    """It is unknown whether it was applied: the API server did not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchResult:
    """Outcome of one patch, with the object as it is now (APPLIED and CONFLICT)."""

    outcome: PatchOutcome
    ref: ObjectRef
    object: KubeObject | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class PreBindResult:
    """SUCCESS with neither patches nor `ask_again_after_s` means satisfied.

    With patches the host applies them and calls PreBind again with their results; with
    `ask_again_after_s` it calls again after that time. One deadline covers all rounds. With
    `done_when_applied` it calls again only when some patch was not applied.
    """

    status: Status
    patches: tuple[ObjectPatch, ...] = ()
    ask_again_after_s: float | None = None
    done_when_applied: bool = False

    def is_done(self, patched: Sequence[PatchResult]) -> bool:
        """Whether PreBind needs no further round after these results of its patches."""
        waits = self.ask_again_after_s is not None
        return (
            self.done_when_applied and not waits and all(r.outcome is PatchOutcome.APPLIED for r in patched)
        )


@dataclass(frozen=True, slots=True)
class ReserveResult:
    """SUCCESS, and the plugin's answers for the binding cycle, as far as known: these calls are saved.

    `pre_bind`: the answer of `pre_bind` to its first call, with `patched` empty. The host takes it
    when PreBind is due, and calls only for a further round. `pre_flight`: the answer of
    `pre_bind_pre_flight`; SKIP: `pre_bind` is not called at all. Both are for plugins that have `pre_bind`,
    which an older host calls all the same.
    """

    status: Status
    pre_bind: PreBindResult | None = None
    pre_flight: PreFlightResult | None = None


@dataclass(frozen=True, slots=True)
class BindResult:
    """SUCCESS with `host_binds`: the host posts the Binding; without: the plugin has bound the pod.

    SKIP passes to the next Bind plugin.
    """

    status: Status
    host_binds: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedPod:
    """A pod in the queue, as PreEnqueue and QueueSort see it. Times: Unix seconds.

    `added_at_s`: when it was added or last came back from an attempt; `victims_pending`: the host is
    still removing preempted pods for it.
    """

    pod: Pod
    attempts: int = 0
    added_at_s: float = 0.0
    first_attempt_at_s: float | None = None
    victims_pending: bool = False
    _summary: QueuedPod | None = field(default=None, init=False, repr=False, compare=False)
    """See `as_summary`, once asked."""

    def as_summary(self) -> QueuedPod:
        """Return this pod for a plugin that did not declare Need.whole_pod(), as `Pod.as_summary` does.

        The same record each time: several plugins are asked about it.
        """
        known = self._summary
        if known is None:
            known = QueuedPod(
                pod=self.pod.as_summary(),
                attempts=self.attempts,
                added_at_s=self.added_at_s,
                first_attempt_at_s=self.first_attempt_at_s,
                victims_pending=self.victims_pending,
            )
            object.__setattr__(self, "_summary", known)
        return known


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPod:
    """A pod held at Permit. `deadline_s`: Unix seconds of the first timeout."""

    pod: Pod
    cycle_id: str
    node_name: str
    pending_plugins: tuple[str, ...]
    deadline_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReservation:
    """A reservation whose cycle still runs, as `reconcile` gets it.

    `state`: the cycle's state in this process, with the token that the plugin left with the host.
    `pod` has no more than name, namespace and uid where the process was restarted.
    `waiting_on_permit`: the pod waits for this plugin's decision, until `deadline_s` (Unix seconds).
    """

    state: CycleState
    pod: Pod
    node_name: str
    waiting_on_permit: bool = False
    deadline_s: float | None = None


class Decision(Enum):
    """The outcome of an allow or a reject (the contract's DecideWaitingPodsResponse.Result)."""

    APPLIED = 1
    STORED_EARLY = 2
    ALREADY_DECIDED = 3
    NOT_WAITING = 4
    STALE_CYCLE = 5
    NOT_PERMITTED = 6


class Cancellation(Enum):
    """The outcome of a `cancel_binding` (the contract's CancelBindingResponse.Result)."""

    CANCELLED = 1
    NOT_IN_PRE_BIND = 2
    STALE_CYCLE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class NominatedPod:
    """A pod that is promised a node: `node_name`. `pod.nominated_node` is the node in its status."""

    pod: Pod
    node_name: str


class Nomination(Enum):
    """The outcome of a `nominate` (the contract's NominateResponse.Result)."""

    APPLIED = 1
    NOT_PENDING = 2
    """The pod is gone, bound, assumed on a node, or another scheduler's: it is promised nothing."""
    UNKNOWN_NODE = 3
    NOT_PERMITTED = 4


@dataclass(frozen=True, slots=True, eq=False)
class PluginNodeScores:
    """One plugin's say: int64[n], 0..100, after normalisation and before the weight."""

    plugin: str
    weight: int
    scores: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class NodeScores:
    """The answer of `run_scores` about n nodes. `totals`: int64[n], the sum of score times weight.

    `status` SUCCESS, or the error of the first plugin that failed: then the rest is empty. `plugins`: in the
    configured order, without plugins that skip the pod.
    """

    status: Status
    node_names: tuple[str, ...] = ()
    totals: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    plugins: tuple[PluginNodeScores, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRejections:
    """Why no node fits, as PostFilter sees it: rejected nodes by name, each with its signed status.

    A node that is not listed has `absent` (UNSCHEDULABLE_AND_UNRESOLVABLE without reason, unless
    PreFilter rejected the pod everywhere).
    """

    by_node: Mapping[str, Status] = field(default_factory=dict)
    absent: Status = UNRESOLVABLE

    def status(self, node_name: str) -> Status:
        """The verdict on one node."""
        return self.by_node.get(node_name, self.absent)

    def with_code(self, code: Code, node_names: Sequence[str]) -> list[str]:
        """The names of `node_names` whose verdict has `code`."""
        return [name for name in node_names if self.status(name).code is code]
