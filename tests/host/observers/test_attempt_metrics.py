"""The metrics of attempts."""

from __future__ import annotations

from berth_host.explain.diagnosis import Diagnosis, Outcome
from berth_host.metrics.scheduler_metrics import SchedulerMetrics
from support.hosts import World, node, pod


def results(metrics: SchedulerMetrics) -> dict[tuple[str, ...], int]:
    return {labels: series.count for labels, series in metrics.attempt_durations.items()}


async def test_each_attempt_counts_once_by_its_outcome() -> None:
    told: list[Diagnosis] = []
    async with World([node("a", cpu="2"), pod("web"), pod("big", cpu="9")], on_attempt=told.append) as world:
        await world.settle()
        metrics = world.host.metrics
    assert results(metrics) == {
        ("default-scheduler", "scheduled"): 1,
        ("default-scheduler", "unschedulable"): 1,
    }
    assert metrics.pod_attempts.of().count == 1
    assert metrics.algorithm_durations.of().count == 1, "only the attempt that chose a node"
    assert sorted((one.pod.name, one.outcome) for one in told) == [
        ("big", Outcome.UNSCHEDULABLE),
        ("web", Outcome.BOUND),
    ]
