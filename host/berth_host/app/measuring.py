"""The reports of the host's parts about their work -> `SchedulerMetrics`. Put between them by `parts`.

Sources: kube-scheduler `metrics/metrics.go`, `eventhandlers.go` and `schedule_one.go`, v1.36.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from berth_sdk.events import ActionType
from berth_sdk.status import Code

from berth_host.app.sort_reports import SortReports
from berth_host.cluster.port import WatchEvent
from berth_host.explain.diagnosis import Diagnosis, Outcome
from berth_host.metrics.scheduler_metrics import SchedulerMetrics
from berth_host.metrics.series import Histogram
from berth_host.queue.events import POD_ADD, UNSCHEDULABLE_POD, QueueEvent
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_host.queue.seams import HintVerdict, QueueObserver

_RESULTS = {Outcome.BOUND: "scheduled", Outcome.UNSCHEDULABLE: "unschedulable", Outcome.ERROR: "error"}
_POD_DELETE = QueueEvent(UNSCHEDULABLE_POD, ActionType.DELETE).label


class QueueMetrics(QueueObserver):
    """Counts the queue's reports, and passes them on to `told` and `sorts`. `labels`: events since the last
    reading.
    """

    def __init__(self, metrics: SchedulerMetrics, told: QueueObserver, sorts: SortReports) -> None:
        self._metrics = metrics
        self._sorts = sorts
        # The one that ignores everything need not be called for it.
        self._told = None if type(told) is QueueObserver else told
        self.labels: list[str] = []
        self._hints: dict[tuple[str, str, HintVerdict], Histogram] = {}
        self._gates: dict[tuple[str, Code], Histogram] = {}

    def event_received(self, event: QueueEvent, *, own_update: bool) -> None:
        """See QueueObserver."""
        self.labels.append(event.label)
        if self._told is not None:
            self._told.event_received(event, own_update=own_update)

    def hint_given(
        self, plugin: str, event: QueueEvent, pods: Collection[QueuedPodInfo], verdict: HintVerdict
    ) -> None:
        """See QueueObserver."""
        if self._told is not None:
            self._told.hint_given(plugin, event, pods, verdict)

    def hint_took(self, plugin: str, event: QueueEvent, verdict: HintVerdict, seconds: float) -> None:
        """See QueueObserver."""
        key = (plugin, event.label, verdict)
        series = self._hints.get(key)
        if series is None:
            series = self._metrics.hint_durations.of(event.label, verdict.value, plugin)
            self._hints[key] = series
        series.observe(seconds)

    def gates_ran(self, profile: str, code: Code, seconds: float) -> None:
        """See QueueObserver."""
        series = self._gates.get((profile, code))
        if series is None:
            series = self._metrics.point_durations.of("PreEnqueue", profile, code.kube_name)
            self._gates[profile, code] = series
        series.observe(seconds)

    def pod_entered(self, queue: str, label: str, count: int = 1) -> None:
        """See QueueObserver."""
        self._metrics.incoming_pods.add((label, queue), count)
        if label == POD_ADD:
            self.labels.append(label)
        if self._told is not None:
            self._told.pod_entered(queue, label, count)

    def pod_rejected(self, plugin: str, profile: str, count: int = 1) -> None:
        """See QueueObserver."""
        if self._told is not None:
            self._told.pod_rejected(plugin, profile, count)

    def sorted_by_fallback(self, plugin: str, info: QueuedPodInfo) -> None:
        """See QueueObserver."""
        self._sorts.sorted_by_fallback(plugin, info)
        if self._told is not None:
            self._told.sorted_by_fallback(plugin, info)

    def plugin_raised(self, plugin: str, call: str, error: Exception) -> None:
        """See QueueObserver."""
        if self._told is not None:
            self._told.plugin_raised(plugin, call, error)


class HandlerMetrics:
    """Times `handle`, which takes one watch event over, under the names of its effects."""

    def __init__(
        self, metrics: SchedulerMetrics, queue: QueueMetrics, handle: Callable[[WatchEvent], None]
    ) -> None:
        self._durations = metrics.event_durations
        self._labels = queue.labels
        self._handle = handle
        self._series: dict[str, Histogram] = {}

    def handle(self, event: WatchEvent) -> None:
        """Take the event over. One that no plugin registered for, and an update that changes nothing that
        scheduling looks at, are not counted.
        """
        labels = self._labels
        # Reports of the queue between two watch events belong to neither.
        labels.clear()
        started_s = time.perf_counter()
        self._handle(event)
        seconds = time.perf_counter() - started_s
        if not labels and event.kind == "Pod" and event.new is None:
            labels.append(_POD_DELETE)  # the queue takes it out, and says nothing
        for label in labels:
            series = self._series.get(label)
            if series is None:
                series = self._series[label] = self._durations.of(label)
            series.observe(seconds)


class AttemptMetrics:
    """Told of every attempt at its end. `now_s` reads the clock, Unix seconds."""

    def __init__(
        self, metrics: SchedulerMetrics, now_s: Callable[[], float], told: Callable[[Diagnosis], None]
    ) -> None:
        self._metrics = metrics
        self._algorithm = metrics.algorithm_durations.of()
        self._now_s = now_s
        self._told = told
        self._series: dict[tuple[str, str], Histogram] = {}

    def ended(self, diagnosis: Diagnosis) -> None:
        """One attempt is over."""
        metrics, outcome = self._metrics, diagnosis.outcome
        result = _RESULTS.get(outcome, "error")
        series = self._series.get((diagnosis.profile, result))
        if series is None:
            series = metrics.attempt_durations.of(diagnosis.profile, result)
            self._series[diagnosis.profile, result] = series
        series.observe(diagnosis.duration_ms / 1000)
        if diagnosis.algorithm_ms:
            self._algorithm.observe(diagnosis.algorithm_ms / 1000)
        if outcome is Outcome.BOUND:
            first_s = diagnosis.first_tried_at_s
            metrics.scheduled(diagnosis.attempt, None if first_s is None else self._now_s() - first_s)
            if diagnosis.after_flush:
                metrics.after_flush.add()
        self._told(diagnosis)
