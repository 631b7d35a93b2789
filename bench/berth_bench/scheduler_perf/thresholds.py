"""The threshold of a workload: the pods per second that Kubernetes itself must reach with it.

Source: `test/integration/scheduler_perf/scheduler_perf.go` (thresholds, thresholdMetricSelector), v1.36.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from berth_bench.scheduler_perf.fields import Fields

THROUGHPUT: Final = "SchedulingThroughput"


def topic_of(path: Path) -> str:
    """Return Kubernetes' name for the runs of a file: `eventhandling` for the file in `event_handling`."""
    return path.resolve().parent.name.replace("_", "")


def threshold_of(case: Fields, own: Fields, notes: list[str]) -> float | None:
    """Return the threshold in pods per second; None if there is none, or if it is for another metric, which
    is noted.
    """
    metric = _metric(case, own)
    value = own.any("threshold")
    if isinstance(value, dict):
        topic = topic_of(own.problems.path)
        if topic not in value:
            notes.append(f"its threshold is for {', '.join(map(str, value))}, and not for {topic}")
            return None
        value = value[topic]
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        own.refuse("threshold", f"must be a number, 0 or more, and is {_shown(value)}")
        return None
    if metric != THROUGHPUT:
        notes.append(f"its threshold is for {metric}, not for pods per second")
        return None
    return float(value) or None


def _metric(case: Fields, own: Fields) -> str:
    metric = THROUGHPUT
    for fields, name in ((case, "defaultThresholdMetricSelector"), (own, "thresholdMetricSelector")):
        if (selector := fields.child(name)) is not None:
            metric = selector.text("name")
            bucket = selector.text("dataBucket")
            metric += f" {bucket}" if bucket not in ("", "Average") else ""
            selector.labels("labels")
            selector.flag("expectLower")
            selector.done()
    return metric


def _shown(value: Any) -> str:
    return f"{value!r:.60}"
