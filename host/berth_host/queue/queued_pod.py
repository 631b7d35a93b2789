"""`QueuedPodInfo`: the queue's record of one pod, from its arrival until it is bound or gone.

Made by the queue, popped by the scheduler, handed back by the failure handler. Times are Unix
microseconds, whole numbers: backoff compares whole seconds, which floats would miss by a rounding.
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
"""(keyed before fallback before awaited, the plugin's part, timestamp, order of arrival); see `order`."""

HistoryEntry = tuple[int, str, str]
"""(Unix microseconds, event, detail): one line of a pod's history; read by `whereabouts`."""
GATED: Final = "gated"
TRIED: Final = "tried"
WAITING: Final = "waiting"
PRE_BIND: Final = "preBind"
"""History events beside coming into one of the queue's three places: a gate closed, an attempt
began, Permit holds the pod, PreBind plugins are at work. The detail of an entry is the plugin, or the
attempt.
"""
HISTORY_KEPT: Final = 32
"""So many entries are kept at least; at most twice as many."""


@dataclass(slots=True, eq=False)
class QueuedPodInfo:
    """One pod and its history.

    timestamp_us: when it was added or last came back from an attempt.
    initial_attempt_timestamp_us: when it first entered activeQ. attempts: pops.
    unschedulable_count: rejections so far; consecutive_errors_count: errors since the last rejection.
    backoff_expiration_us: a whole second, None until it is asked for after an attempt.
    unschedulable_plugins, pending_plugins: the plugins that rejected it in the last attempt (a Pending
    rejection is in both); kept until the next failure. gating_plugin: the plugin whose PreEnqueue keeps it
    out, with its registrations and its answer ("" while it has not answered). entered_without: by plugin why
    the pod passed its PreEnqueue without an answer. sort_key: its place in
    QueueSort's order, None when it has to be asked for. history: its events, the oldest first; shared with
    the diagnoses of its attempts.
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
        """True while a PreEnqueue plugin keeps it out, or has not answered yet."""
        return bool(self.gating_plugin)

    @property
    def is_rejected(self) -> bool:
        """True when some plugin rejected it; False after an error, and before the first attempt."""
        return bool(self.unschedulable_plugins or self.pending_plugins)

    def is_rejected_by(self, plugin: str) -> bool:
        """Whether `plugin` is among those that rejected it."""
        return plugin in self.unschedulable_plugins or plugin in self.pending_plugins

    def note(self, now_us: int, what: str, about: str) -> None:
        """Keep a line of history; the oldest ones make room. That a gate is still closed is no news."""
        history = self.history
        if what is GATED and history and history[-1][1:] == (what, about):
            return
        if len(history) >= 2 * HISTORY_KEPT:
            del history[:HISTORY_KEPT]
        history.append((now_us, what, about))

    def ungate(self) -> None:
        """No PreEnqueue plugin keeps it out any more."""
        self.gating_plugin, self.gating_plugin_events, self.gating_message = "", (), ""

    def passed_gate(self, plugin: str, status: Status) -> None:
        """Note that the plugin's PreEnqueue lets the pod in; a reason: why it does so unanswered."""
        if status.reasons:
            self.entered_without[plugin] = status.message
        elif self.entered_without:
            self.entered_without.pop(plugin, None)

    def replace_pod(self, pod: Pod) -> None:
        """The pod was updated; its place in the order has to be asked for again."""
        self.pod = pod
        self.sort_key = None

    def as_queued_pod(self, *, victims_pending: bool = False) -> QueuedPod:
        """The pod as PreEnqueue and QueueSort see it."""
        first_us = self.initial_attempt_timestamp_us
        return QueuedPod(
            pod=self.pod,
            attempts=self.attempts,
            added_at_s=self.timestamp_us / 1e6,
            first_attempt_at_s=None if first_us is None else first_us / 1e6,
            victims_pending=victims_pending,
        )
