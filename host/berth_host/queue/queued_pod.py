"""`QueuedPodInfo`: the queue's record of one pod, from its arrival until it is bound or deleted.

Created by the queue, popped by the scheduler, given back by the failure handler. Times are Unix microseconds
as
integers: backoff compares whole seconds, and floats could be rounded into another second.
Source: kube-scheduler `framework/types.go` (QueuedPodInfo), v1.36.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from berth_sdk.pod import Pod
from berth_sdk.results import QueuedPod
from berth_sdk.status import Status

from berth_host.queue.registrations import Registration

SortKey = tuple[int, Any, int, int]
"""(keyed, fallback or awaited, the plugin's part, timestamp, order of arrival); see `order`."""

HistoryEntry = tuple[int, str, str]
"""(Unix microseconds, event, detail): one line of a pod's history; read by `whereabouts`."""
GATED: Final = "gated"
TRIED: Final = "tried"
WAITING: Final = "waiting"
PRE_BIND: Final = "preBind"
"""The events of a pod's history other than entering a place of the queue: a gate is closed, an attempt began,
the pod waits at Permit, PreBind plugins run. The detail of an entry is the plugin or the number of the
attempt.
"""
HISTORY_KEPT: Final = 32
"""The number of history entries that are always kept; there are at most twice as many."""


@dataclass(slots=True, eq=False)
class QueuedPodInfo:
    """The record of one pod.

    timestamp_us: when the pod was added or last came back from an attempt.
    initial_attempt_timestamp_us: when it first entered activeQ.
    attempts: the number of pops.
    unschedulable_count: the number of rejections.
    consecutive_errors_count: the number of errors since the last rejection.
    backoff_expiration_us: when its backoff ends, in a whole second; None until computed after an attempt.
    unschedulable_plugins, pending_plugins: the plugins that rejected the pod in the last attempt, until the
    next failure; a Pending rejection is in both.
    gating_plugin: the plugin whose PreEnqueue gates the pod; gating_plugin_events: its registrations;
    gating_message: its answer, "" while it has not answered.
    entered_without: why the pod passed a plugin's PreEnqueue without an answer, by plugin.
    sort_key: the pod's key in QueueSort's order; None if it must be requested.
    history: the pod's events, oldest first; shared with the diagnoses of its attempts.
    """

    pod: Pod
    timestamp_us: int
    attempts: int = 0
    initial_attempt_timestamp_us: int | None = None
    unschedulable_count: int = 0
    consecutive_errors_count: int = 0
    backoff_expiration_us: int | None = None
    unschedulable_plugins: set[str] = field(default_factory=set)
    pending_plugins: set[str] = field(default_factory=set)
    gating_plugin: str = ""
    gating_plugin_events: tuple[Registration, ...] = ()
    gating_message: str = ""
    entered_without: dict[str, str] = field(default_factory=dict)
    was_flushed_from_unschedulable: bool = False
    sort_key: SortKey | None = None
    history: list[HistoryEntry] = field(default_factory=list)

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return self.pod.key

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return self.pod.uid

    @property
    def is_gated(self) -> bool:
        """True while a PreEnqueue plugin gates the pod, or has not answered yet."""
        return bool(self.gating_plugin)

    @property
    def is_rejected(self) -> bool:
        """True if a plugin rejected the pod; False after an error, and before the first attempt."""
        return bool(self.unschedulable_plugins or self.pending_plugins)

    def is_rejected_by(self, plugin: str) -> bool:
        """Return True if `plugin` rejected the pod in the last attempt."""
        return plugin in self.unschedulable_plugins or plugin in self.pending_plugins

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

    def ungate(self) -> None:
        """Record that no PreEnqueue plugin gates the pod any more."""
        self.gating_plugin, self.gating_plugin_events, self.gating_message = "", (), ""

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
