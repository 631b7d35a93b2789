"""`QueuedEntity`: the queue's record of what is popped and requeued as one: a pod, or a pod group.

`QueuedPodInfo` is the record of one pod, from its arrival until it is bound or deleted: created by the queue,
popped by the scheduler, given back by the failure handler. `QueuedGroupInfo` (queued_group.py) is that of a
group; the records of its members are inside, with counters and times of their own. The places of the queue,
the backoff and the order know only entities; gates and hints judge the pods of an entity one by one.
Times are Unix microseconds as integers: backoff compares whole seconds, and floats could be rounded into
another second.
Source: kube-scheduler `framework/types.go` (QueuedEntityInfo, QueueingParams, QueuedPodInfo), v1.37.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from berth_sdk.pod import Pod
from berth_sdk.results import QueuedPod, queued_pod
from berth_sdk.status import Status

from berth_host.queue.registrations import Registration

SortKey = tuple[int, Any, int, int]
"""(keyed, fallback or awaited, the plugin's part, timestamp, order of arrival); see `order`."""

HistoryEntry = tuple[int, str, str]
"""(Unix microseconds, event, detail): one line of a pod's history; read by `explain.pod_state`."""
GATED: Final = "gated"
TRIED: Final = "tried"
WAITING: Final = "waiting"
PRE_BIND: Final = "preBind"
INCOMPLETE: Final = "incomplete"
"""The events of a pod's history other than entering a place of the queue: a gate is closed, an attempt began,
the pod waits at Permit, PreBind plugins run, the pod waits for the object of its group. The detail of an
entry is the plugin, the number of the attempt, or the key of the missing group.
"""
HISTORY_KEPT: Final = 32
"""The number of history entries that are always kept; there are at most twice as many."""


@dataclass(slots=True, eq=False, kw_only=True)
class QueuedEntity(ABC):
    """The part of the record that pods and groups share.

    timestamp_us: when the entity was added or last came back from an attempt.
    initial_attempt_timestamp_us: when it first entered activeQ.
    attempts: the number of pops.
    unschedulable_count: the number of rejections.
    consecutive_errors_count: the number of errors since the last rejection.
    backoff_expiration_us: when its backoff ends, in a whole second; None until computed after an attempt.
    gating_plugin: the plugin whose PreEnqueue gates the entity; gating_plugin_events: its registrations;
    gating_message: its answer, "" while it has not answered.
    was_flushed_from_unschedulable: the periodic flush, and no event, brought the entity to its next attempt.
    flushed_at_us: when the flush last took the entity out of the pool; None since its last attempt.
    sort_key: the key in QueueSort's order; None if it must be requested.
    """

    is_group: ClassVar[bool] = False

    timestamp_us: int
    attempts: int = 0
    initial_attempt_timestamp_us: int | None = None
    unschedulable_count: int = 0
    consecutive_errors_count: int = 0
    backoff_expiration_us: int | None = None
    gating_plugin: str = ""
    gating_plugin_events: tuple[Registration, ...] = ()
    gating_message: str = ""
    was_flushed_from_unschedulable: bool = False
    flushed_at_us: int | None = None
    sort_key: SortKey | None = None

    @property
    @abstractmethod
    def key(self) -> str:
        """`namespace/name` of a pod; the key of a group. No pod has the key of a group."""

    @property
    @abstractmethod
    def uid(self) -> str:
        """The uid of the pod or of the group."""

    @property
    @abstractmethod
    def priority(self) -> int:
        """The priority in the queue: that of the pod or of the group."""

    @property
    @abstractmethod
    def is_rejected(self) -> bool:
        """True if a plugin rejected the entity itself in its last attempt.

        False after an error, before the first attempt, and for groups: plugins reject their members.
        """

    @abstractmethod
    def pods(self) -> Sequence[QueuedPodInfo]:
        """Return the record of the pod, or of the members of the group in their order; at least one."""

    @abstractmethod
    def changed(self, info: QueuedPodInfo) -> None:
        """Take that the pod of one record, its gate or the plugins that rejected it have changed."""

    @abstractmethod
    def count_attempt(self) -> None:
        """Count a pop."""

    @abstractmethod
    def entered_active(self, now_us: int) -> None:
        """Record that the entity entered activeQ."""

    @abstractmethod
    def note(self, now_us: int, what: str, about: str) -> None:
        """Add an entry to the history of each pod."""

    @abstractmethod
    def as_queued_pod(self, *, victims_pending: bool = False) -> QueuedPod:
        """Return the form that PreEnqueue and QueueSort get."""

    @property
    def type(self) -> str:
        """The type in metrics: `pod`; see `QueuedGroupInfo` for groups."""
        return "pod"

    @property
    def is_gated(self) -> bool:
        """True while a PreEnqueue plugin gates the entity, or has not answered yet."""
        return bool(self.gating_plugin)

    def ungate(self) -> None:
        """Record that no PreEnqueue plugin gates the entity any more."""
        self.gating_plugin, self.gating_plugin_events, self.gating_message = "", (), ""

    def mark_flushed(self, *, flushed: bool = True) -> None:
        """Record for the entity and each pod whether the periodic flush brings it to its next attempt."""
        self.was_flushed_from_unschedulable = flushed
        for info in self.pods():
            info.was_flushed_from_unschedulable = flushed

    def gate_as(self, other: QueuedEntity) -> None:
        """Record that the plugin gates this entity that gates `other`."""
        self.gating_plugin = other.gating_plugin
        self.gating_plugin_events = other.gating_plugin_events
        self.gating_message = other.gating_message

    def find(self, pod: Pod) -> QueuedPodInfo | None:
        """Return the record of this very pod; None if the entity does not have it."""
        return next((info for info in self.pods() if info.uid == pod.uid), None)

    def has_any(self, uids: Collection[str]) -> bool:
        """Return True if `uids` has the uid of the entity or of one of its pods."""
        return self.uid in uids or (self.is_group and any(info.uid in uids for info in self.pods()))


@dataclass(slots=True, eq=False)
class QueuedPodInfo(QueuedEntity):
    """The record of one pod.

    unschedulable_plugins, pending_plugins: the plugins that rejected the pod in the last attempt, until the
    next failure; a Pending rejection is in both.
    cause: the plugin with which the last attempt failed, "" for none, and its reason; None before a failure.
    entered_without: why the pod passed a plugin's PreEnqueue without an answer, by plugin.
    signature: the last function that signed the pod, with the signature; None before the first.
    history: the pod's events, oldest first; shared with the diagnoses of its attempts.
    """

    pod: Pod
    unschedulable_plugins: set[str] = field(default_factory=set, kw_only=True)
    pending_plugins: set[str] = field(default_factory=set, kw_only=True)
    cause: tuple[str, str] | None = field(default=None, kw_only=True)
    entered_without: dict[str, str] = field(default_factory=dict, kw_only=True)
    history: list[HistoryEntry] = field(default_factory=list, kw_only=True)
    signature: tuple[Callable[[Pod], Hashable], Hashable] | None = field(default=None, kw_only=True)

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return self.pod.key

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return self.pod.uid

    @property
    def priority(self) -> int:
        """The pod's priority."""
        return self.pod.priority

    @property
    def is_rejected(self) -> bool:
        """True if a plugin rejected the pod; False after an error, and before the first attempt."""
        return bool(self.unschedulable_plugins or self.pending_plugins)

    @property
    def rejecting(self) -> set[str]:
        """The plugins that rejected the pod in the last attempt; the caller does not change the set."""
        if self.pending_plugins:
            return self.unschedulable_plugins | self.pending_plugins
        return self.unschedulable_plugins

    def is_rejected_by(self, plugin: str) -> bool:
        """Return True if `plugin` rejected the pod in the last attempt."""
        return plugin in self.unschedulable_plugins or plugin in self.pending_plugins

    def pods(self) -> tuple[QueuedPodInfo]:
        """Return this record alone."""
        return (self,)

    def changed(self, info: QueuedPodInfo) -> None:
        """See QueuedEntity. Has no effect: nothing is kept about a pod alone."""

    def count_attempt(self) -> None:
        """Count a pop."""
        self.attempts += 1

    def entered_active(self, now_us: int) -> None:
        """Record when the pod entered activeQ first."""
        if self.initial_attempt_timestamp_us is None:
            self.initial_attempt_timestamp_us = now_us

    def note(self, now_us: int, what: str, about: str) -> None:
        """Add a history entry; drop the oldest ones if there are too many.

        The same closed gate is recorded only once in a row.
        """
        history = self.history
        if what is GATED and history and history[-1][1:] == (what, about):
            return
        if len(history) >= 2 * HISTORY_KEPT:
            del history[:HISTORY_KEPT]
        history.append((now_us, what, about))

    def passed_gate(self, plugin: str, status: Status) -> None:
        """Record that the pod passed the plugin's PreEnqueue; reasons say why it passed without an answer."""
        if status.reasons:
            self.entered_without[plugin] = status.message
        elif self.entered_without:
            self.entered_without.pop(plugin, None)

    def replace_pod(self, pod: Pod) -> None:
        """Store a new version of the pod; its sort key must be requested again."""
        self.pod = pod
        self.sort_key = self.signature = None

    def signed_by(self, sign: Callable[[Pod], Hashable]) -> Hashable:
        """Return the signature of the pod. `sign`: a function of `QueueProfile.signs`.

        If `sign` raises, or returns what cannot be hashed, the signature equals no other.
        """
        known = self.signature
        if known is None or known[0] is not sign:
            try:
                signature = sign(self.pod)
                hash(signature)
            except Exception:  # noqa: BLE001 (without a signature the pod is judged by itself)
                signature = object()
            known = self.signature = sign, signature
        return known[1]

    def as_queued_pod(self, *, victims_pending: bool = False) -> QueuedPod:
        """Return the pod in the form that PreEnqueue and QueueSort get."""
        first_us = self.initial_attempt_timestamp_us
        return queued_pod(
            pod=self.pod,
            attempts=self.attempts,
            added_at_s=self.timestamp_us / 1e6,
            first_attempt_at_s=None if first_us is None else first_us / 1e6,
            victims_pending=victims_pending,
        )


def pods_of(entities: Iterable[QueuedEntity]) -> Iterator[QueuedPodInfo]:
    """Yield the records of the pods of all these entities, in order."""
    for entity in entities:
        yield from entity.pods()
