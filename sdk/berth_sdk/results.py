"""Plugins' answers beyond a Status: narrowing, nominations, waits, and effects.

Effects (victims, host_binds, patches) are results. The host checks and executes them for in-process and
served plugins alike, so a plugin never needs the host's rights. Every method that returns one of these
results may return a bare Status instead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from berth_sdk.cycle_state import CycleState
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.parsing.frozen import maker_of
from berth_sdk.pod import Pod
from berth_sdk.pod_group import Assignment, PodGroup
from berth_sdk.status import SUCCESS, UNRESOLVABLE, Code, Status, Verdicts

MAX_PATCHES: Final = 64
"""The maximum of patches in one answer. The host refuses an answer with more."""


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """The answer of PreFilter. `eligible`: the names of the only nodes to check; None: all nodes. Names
    without a node have no effect.

    `early_filter`: verdicts for all rows of the table that PreFilter got; the host does not call Filter.
    `early_scores`, `skip_score`: as in FilterResult. The host ignores values for nodes that are not
    `eligible`. A class with the methods of Filter and Score need not return any of the three: the SDK makes
    them for a served plugin (`answers_early`).
    """

    status: Status = SUCCESS
    eligible: frozenset[str] | None = None
    early_filter: Verdicts | None = None
    early_scores: NDArray[np.int64] | None = None
    skip_score: bool = False

    @property
    def answers_early(self) -> bool:
        """True if the answer covers Filter or Score too."""
        return self.early_filter is not None or self.early_scores is not None or self.skip_score


@dataclass(frozen=True, slots=True)
class FilterResult:
    """The answer of Filter: verdicts, and optionally the scores as well.

    `early_scores`: int64[n]; the host ignores rejected rows. Allowed where a node's score does not depend on
    the other candidates: normalization NONE or HOST_*. `skip_score`: this plugin adds nothing for this pod.
    """

    verdicts: Verdicts
    early_scores: NDArray[np.int64] | None = None
    skip_score: bool = False


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """The answer of PostFilter. SUCCESS: `nominated_node` may become feasible once `victims` (on that node,
    of lower priority) are gone; the host checks and evicts them.

    `clear_nomination`: drop an older nomination. `patches`: changes to objects of declared kinds, made with
    any status.
    """

    status: Status
    nominated_node: str = ""
    clear_nomination: bool = False
    victims: tuple[ObjectRef, ...] = ()
    patches: tuple[ObjectPatch, ...] = ()


@dataclass(frozen=True, slots=True)
class PermitResult:
    """The answer of Permit. `wait_timeout_s` counts with code WAIT only; None: the host's maximum (15
    min).
    """

    status: Status
    wait_timeout_s: float | None = None

    @staticmethod
    def wait(timeout_s: float | None = None, *reasons: str) -> PermitResult:
        """Return the answer that holds the pod until this plugin allows it, any plugin rejects it, or the
        timeout ends.
        """
        return PermitResult(Status(Code.WAIT, reasons), timeout_s)


@dataclass(frozen=True, slots=True)
class PreFlightResult:
    """The answer of PreBindPreFlight. SUCCESS: PreBind has work to do. SKIP: the host does not call PreBind.
    `allow_parallel`: PreBind may run beside other plugins'.
    """

    status: Status
    allow_parallel: bool = False


class PatchAction(Enum):
    """The action on the object (the contract's ObjectPatch.Action)."""

    MERGE = 1
    """Merge the patch into the object."""
    CREATE = 2
    """Create the object, with the patch as its content. The API server completes a name that ends in "-".
    CONFLICT: the object exists already.
    """
    DELETE = 3
    """Delete the object. The patch is empty."""
    UNKNOWN = -1
    """An action that this host does not know, such as one of a later contract. The host refuses the patch. No
    plugin answers it.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectPatch:
    """A JSON merge patch (RFC 7386) for an object of a declared kind, or for the cycle's own pod (`pods`).

    `expected_resource_version` makes the patch conditional. `subresource`: "" or "status".
    """

    resource: str
    ref: ObjectRef
    merge_patch: Mapping[str, Any]
    expected_resource_version: str = ""
    subresource: str = ""
    action: PatchAction = PatchAction.MERGE


class PatchOutcome(Enum):
    """The outcome of a patch. After the first patch that is not APPLIED, the rest are SKIPPED."""

    APPLIED = 1
    CONFLICT = 2
    NOT_FOUND = 3
    REFUSED = 4
    SKIPPED = 5
    UNKNOWN = 6
    """The API server did not answer, so the patch may have been applied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchResult:
    """The outcome of one patch, with the object as it is now (APPLIED and CONFLICT)."""

    outcome: PatchOutcome
    ref: ObjectRef
    object: KubeObject | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class PreBindResult:
    """The answer of PreBind. SUCCESS with neither patches nor `ask_again_after_s`: the binding is ready.

    With patches, the host applies them and calls PreBind again with their results. With `ask_again_after_s`,
    the host calls again after that many seconds. One deadline covers all rounds. With `done_when_applied`,
    the host calls again only when some patch was not applied.
    """

    status: Status
    patches: tuple[ObjectPatch, ...] = ()
    ask_again_after_s: float | None = None
    done_when_applied: bool = False

    def is_done(self, patched: Sequence[PatchResult]) -> bool:
        """Return True if PreBind needs no further round after these results of its patches."""
        waits = self.ask_again_after_s is not None
        return (
            self.done_when_applied and not waits and all(r.outcome is PatchOutcome.APPLIED for r in patched)
        )


@dataclass(frozen=True, slots=True)
class ReserveResult:
    """The answer of Reserve, with the plugin's answers for the binding cycle, as far as known, which saves
    these calls.

    `pre_bind`: the answer of `pre_bind` to its first call, with `patched` empty. The host uses it when
    PreBind is due, and calls only for a further round. `pre_flight`: the answer of `pre_bind_pre_flight`;
    SKIP: the host does not call `pre_bind`. Both are for plugins that have `pre_bind`, which an older host
    calls in any case. They are read with the status SUCCESS only: with SKIP, the plugin holds nothing for the
    pod, and the host makes none of these calls.
    """

    status: Status
    pre_bind: PreBindResult | None = None
    pre_flight: PreFlightResult | None = None


@dataclass(frozen=True, slots=True)
class BindResult:
    """The answer of Bind. SUCCESS with `host_binds`: the host posts the Binding. SUCCESS without: the plugin
    has bound the pod. SKIP: the host calls the next Bind plugin.
    """

    status: Status
    host_binds: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedPod:
    """A pod in the queue, as PreEnqueue and QueueSort see it. Times: Unix seconds.

    `added_at_s`: when the pod was added, or last came back from an attempt. `victims_pending`: the host is
    still removing preempted pods for this pod.

    `group`: the group of an entry that is a group of pods, as QueueSort sees it; None: the entry is one pod.
    For a group, `attempts` and the times are the group's. `pod` is the first member, with the priority of the
    group, so that a plugin which reads only pods orders groups too.
    """

    pod: Pod
    attempts: int = 0
    added_at_s: float = 0.0
    first_attempt_at_s: float | None = None
    victims_pending: bool = False
    group: PodGroup | None = None
    _summary: QueuedPod | None = field(default=None, init=False, repr=False, compare=False)
    """The value of `as_summary`. None: not asked for yet."""

    def as_summary(self) -> QueuedPod:
        """Return this pod for a plugin that did not declare Need.whole_pod(), as `Pod.as_summary` does.

        Every call returns the same record: the host calls several plugins with it.
        """
        known = self._summary
        if known is None:
            known = queued_pod(
                pod=self.pod.as_summary(),
                attempts=self.attempts,
                added_at_s=self.added_at_s,
                first_attempt_at_s=self.first_attempt_at_s,
                victims_pending=self.victims_pending,
                group=None if self.group is None else replace(self.group, object=None),
            )
            object.__setattr__(self, "_summary", known)
        return known

    def of_group(self, group: PodGroup) -> QueuedPod:
        """Return the entry of a group whose first member is this pod: the pod has the group's priority."""
        pod, priority = self.pod, group.priority_among((self.pod,))
        if pod.priority != priority:
            pod = replace(pod, priority=priority)
        return replace(self, pod=pod, group=group)


queued_pod: Final = maker_of(QueuedPod)
"""Returns `QueuedPod(...)`, made faster, for code that makes one per pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPod:
    """A pod that waits at Permit. `deadline_s`: Unix seconds of the first timeout.

    A decision needs `pod` and `cycle_id` alone: a plugin may make one of them for a pod whose Permit is open.
    """

    pod: Pod
    cycle_id: str
    node_name: str = ""
    pending_plugins: tuple[str, ...] = ()
    deadline_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReservation:
    """A reservation whose cycle still runs, as `reconcile` gets it.

    `state`: the cycle's state in this process, with the token that the plugin left with the host. `pod`: has
    only name, namespace and uid after a restart of the process. `waiting_on_permit`: the pod waits for this
    plugin's decision, until `deadline_s` (Unix seconds).
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
    """A pod that is nominated to the node `node_name`. `pod.nominated_node` is the node in the pod's
    status.
    """

    pod: Pod
    node_name: str


class Nomination(Enum):
    """The outcome of a `nominate` (the contract's NominateResponse.Result)."""

    APPLIED = 1
    NOT_PENDING = 2
    """The pod is gone, bound, assumed on a node, or another scheduler's: there is no nomination."""
    UNKNOWN_NODE = 3
    NOT_PERMITTED = 4


@dataclass(frozen=True, slots=True, eq=False)
class PluginNodeScores:
    """One plugin's scores: int64[n], 0..100, after normalisation and before the weight."""

    plugin: str
    weight: int
    scores: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class NodeScores:
    """The answer of `run_scores` about n nodes. `totals`: int64[n], the sum of score times weight.

    `status`: SUCCESS, or the error of the first plugin that failed; the other fields are empty then.
    `plugins`: in the configured order, without plugins that skip the pod.
    """

    status: Status
    node_names: tuple[str, ...] = ()
    totals: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    plugins: tuple[PluginNodeScores, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRejections:
    """Why no node fits, as PostFilter sees it: rejected nodes by name, each with a status that names its
    plugin.

    `absent`: the status of a node that is not listed (UNSCHEDULABLE_AND_UNRESOLVABLE without reason, unless
    PreFilter rejected the pod for all nodes).
    """

    by_node: Mapping[str, Status] = field(default_factory=dict)
    absent: Status = UNRESOLVABLE

    def status(self, node_name: str) -> Status:
        """Return the verdict on one node."""
        return self.by_node.get(node_name, self.absent)

    def with_code(self, code: Code, node_names: Sequence[str]) -> list[str]:
        """Return the names in `node_names` whose verdict has `code`."""
        return [name for name in node_names if self.status(name).code is code]


@dataclass(frozen=True, slots=True)
class PodGroupPostFilterResult:
    """The answer of PodGroupPostFilter. SUCCESS: the group may fit once `victims` are gone.

    - `nominations`: the node for each member that gets one, "" to clear its nomination. Other members keep
      what they have.
    - `victims`: pods on any nodes, of lower priority than the group. The host evicts them.
    - `patches`: changes to objects of declared kinds, made with any status.
    """

    status: Status
    nominations: tuple[Assignment, ...] = ()
    victims: tuple[ObjectRef, ...] = ()
    patches: tuple[ObjectPatch, ...] = ()


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of one try to place a group. `assignments`: empty unless `status` is SUCCESS."""

    status: Status
    assignments: tuple[Assignment, ...] = ()


class Tries(Protocol):
    """What-ifs of PodGroupPostFilter. Usable while that call runs."""

    @property
    def reached_pre_filter(self) -> bool:
        """True if PreFilter of some member got as far as this plugin in the cycle.

        False where the cycle tried no member, or a plugin before this one rejected each of them.
        """
        ...

    def schedule(self, removed: Sequence[Pod]) -> Trial | Awaitable[Trial]:
        """Place the group in the snapshot without the pods `removed`, and return the outcome.

        Nothing is scheduled or evicted. In an in-process plugin, await the result. At most 32 tries per call,
        one after the other. Raises HandleError after the call, for one try too many, and for a pod that is
        not on a node of the snapshot.
        """
        ...

    def preempt(self) -> PodGroupPostFilterResult | Awaitable[PodGroupPostFilterResult]:
        """Run the host's own preemption for the group: find pods of lower priority in whose place the group
        fits.

        The host evicts no pod until `pod_group_post_filter` returns this result or another one. Counts as a
        try, and raises HandleError as `schedule` does. In an in-process plugin, await the result.
        """
        ...
