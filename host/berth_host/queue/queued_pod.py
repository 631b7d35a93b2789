"""`QueuedPodInfo`: the queue's record of one pod, from its arrival until it is bound or deleted.

Created by the queue, popped by the scheduler, given back by the failure handler. The record of a member of a
pod group is inside the record of its group (`queued_group`), with counters and times of its own.
Source: kube-scheduler `framework/types.go` (QueuedPodInfo), v1.37.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from berth_sdk.pod import Pod
from berth_sdk.results import QueuedPod
from berth_sdk.status import Status

from berth_host.queue.queued_entity import QueuedEntity

HistoryEntry = tuple[int, str, str]
"""(Unix microseconds, event, detail): one line of a pod's history; read by `whereabouts`."""
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


@dataclass(slots=True, eq=False)
class QueuedPodInfo(QueuedEntity):
    """The record of one pod.

    unschedulable_plugins, pending_plugins: the plugins that rejected the pod in the last attempt, until the
    next failure; a Pending rejection is in both.
    entered_without: why the pod passed a plugin's PreEnqueue without an answer, by plugin.
    history: the pod's events, oldest first; shared with the diagnoses of its attempts.
    """

    pod: Pod
    unschedulable_plugins: set[str] = field(default_factory=set, kw_only=True)
    pending_plugins: set[str] = field(default_factory=set, kw_only=True)
    entered_without: dict[str, str] = field(default_factory=dict, kw_only=True)
    history: list[HistoryEntry] = field(default_factory=list, kw_only=True)

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
        self.sort_key = None

    def as_queued_pod(self, *, victims_pending: bool = False) -> QueuedPod:
        """Return the pod in the form that PreEnqueue and QueueSort get."""
        first_us = self.initial_attempt_timestamp_us
        return QueuedPod(
            pod=self.pod,
            attempts=self.attempts,
            added_at_s=self.timestamp_us / 1e6,
            first_attempt_at_s=None if first_us is None else first_us / 1e6,
            victims_pending=victims_pending,
        )
