"""`AttemptMetrics`: counts the attempts whose outcome is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from berth_host.cycle.attempt import Attempt
from berth_host.cycle.observer import Unobserved
from berth_host.explain.diagnosis import Outcome
from berth_host.metrics.scheduler_metrics import SchedulerMetrics

_RESULTS: Final = {
    Outcome.BOUND: "scheduled",
    Outcome.DECIDED: "scheduled",
    Outcome.UNSCHEDULABLE: "unschedulable",
    Outcome.ERROR: "error",
}
"""The outcomes as labels of kube-scheduler's metrics."""


class AttemptMetrics(Unobserved):
    """The metrics of attempts. `now_s`: returns Unix seconds.

    Source: kube-scheduler `schedule_one.go` and `metrics/metrics.go`, v1.36.
    """

    def __init__(self, metrics: SchedulerMetrics, now_s: Callable[[], float]) -> None:
        self._metrics = metrics
        self._algorithm = metrics.algorithm_durations.of()
        self._now_s = now_s

    def settled(self, attempt: Attempt) -> None:
        """Count an attempt."""
        metrics, diagnosis = self._metrics, attempt.diagnosis
        outcome = diagnosis.outcome
        result = _RESULTS.get(outcome, "error")
        metrics.attempt_durations.of(diagnosis.profile, result).observe(diagnosis.duration_ms / 1000)
        if diagnosis.algorithm_ms:
            self._algorithm.observe(diagnosis.algorithm_ms / 1000)
        if outcome is Outcome.BOUND:
            first_s = diagnosis.first_tried_at_s
            metrics.scheduled(diagnosis.attempt, None if first_s is None else self._now_s() - first_s)
            if diagnosis.after_flush:
                metrics.after_flush.add()
