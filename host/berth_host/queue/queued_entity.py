"""`QueuedEntity`: the queue's record of what is popped and requeued as one: a pod, or a pod group.

`QueuedPodInfo` (queued_pod.py) and `QueuedGroupInfo` (queued_group.py) are the two kinds. The places of the
queue, the backoff and the order know only this class; gates and hints judge the pods of an entity one by one.
Times are Unix microseconds as integers: backoff compares whole seconds, and floats could be rounded into
another second.
Source: kube-scheduler `framework/types.go` (QueuedEntityInfo, QueueingParams), v1.37.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from berth_sdk.pod import Pod
from berth_sdk.results import QueuedPod

from berth_host.queue.registrations import Registration

if TYPE_CHECKING:
    from berth_host.queue.queued_pod import QueuedPodInfo

SortKey = tuple[int, Any, int, int]
"""(keyed, fallback or awaited, the plugin's part, timestamp, order of arrival); see `order`."""


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
        """The type in metrics: `pod` or `podgroup`."""
        return "podgroup" if self.is_group else "pod"

    @property
    def is_gated(self) -> bool:
        """True while a PreEnqueue plugin gates the entity, or has not answered yet."""
        return bool(self.gating_plugin)

    def ungate(self) -> None:
        """Record that no PreEnqueue plugin gates the entity any more."""
        self.gating_plugin, self.gating_plugin_events, self.gating_message = "", (), ""

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


def pods_of(entities: Iterable[QueuedEntity]) -> Iterator[QueuedPodInfo]:
    """Yield the records of the pods of all these entities, in order."""
    for entity in entities:
        yield from entity.pods()
