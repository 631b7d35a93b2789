"""Pods of short life: all are created, bound and ended, and nothing stays behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from berth_bench import own, running
from berth_bench.rendering.bench import results_text
from berth_bench.result import Level, Result
from berth_bench.running import Settings
from berth_bench.scheduler_perf.cases import read_workloads
from berth_bench.short_lived import growth
from berth_bench.workload import RunPods
from berth_host.errors.manifests import ManifestError

from .conftest import POD, ReadCase, nodes


def run_pods(count: int = 40, **more: Any) -> dict[str, Any]:
    op = {"opcode": "runPods", "count": count, "podsPerSecond": 400, "lifetime": "50ms"}
    return op | {"sampleInterval": "20ms"} | more


async def ran(case: ReadCase, *ops: dict[str, Any]) -> Result:
    return await running.run(case(*ops), Settings())


async def test_every_pod_is_bound_and_ends(case: ReadCase) -> None:
    result = await ran(case, nodes(1), run_pods(60), run_pods(5, namespace="later"))
    assert (result.figures.pods, result.figures.bound) == (65, 65)
    assert result.figures.cycle_p50_ms > 0
    assert not any("pending" in note for note in result.notes)
    # One node has room for 40 pods, so later pods got the room of those that had ended.
    assert result.levels[0].created > 0
    assert all(level.ended <= level.created <= 60 for level in result.levels)
    assert all(level.objects > 0 and level.tasks > 0 and level.rss_mb > 0 for level in result.levels)
    text = results_text([result])
    assert "AFTER S   BOUND/S   CREATED   ENDED   QUEUED   TASKS   OBJECTS   RSS MB" in text
    assert result.as_json("command")["levels"][0]["created"] == result.levels[0].created


@pytest.mark.long
async def test_pods_are_not_created_while_those_of_two_seconds_wait(case: ReadCase) -> None:
    # One node has room for 40 pods at a time. A rate of 5 a second allows 10 that wait.
    result = await ran(case, nodes(1), run_pods(50, podsPerSecond=100_000, lifetime="30ms"))
    assert result.figures.bound == 50
    result = await ran(case, nodes(1), run_pods(4, podsPerSecond=5, lifetime="10ms", sampleInterval="1ms"))
    assert max(level.queued for level in result.levels) <= 10
    (note,) = [note for note in result.notes if "created per second" in note]
    assert note.endswith("the workload asks for 5")


async def test_pods_that_fit_nowhere_are_reported_and_no_more_are_created(
    case: ReadCase, template: Callable[..., str]
) -> None:
    containers = [{"name": "app", "resources": {"requests": {"cpu": "1k"}}}]
    huge = template(POD | {"spec": {"containers": containers}}, "huge.yaml")
    result = await ran(case, nodes(1), run_pods(9, podsPerSecond=1, podTemplatePath=huge))
    assert (result.figures.pods, result.figures.bound) == (2, 0)
    (note,) = [note for note in result.notes if "pending" in note]
    assert note.startswith("9 of 9 pods stay pending; one of them: 0/1 nodes are available")


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        pytest.param("podsPerSecond", 0, "podsPerSecond: must be above 0", id="rate"),
        pytest.param("lifetime", "0s", "lifetime: must be above 0", id="lifetime"),
        pytest.param("sampleInterval", "", "sampleInterval: must be above 0", id="interval"),
        pytest.param("lifetime", "1 minute", "unknown unit", id="unit"),
        pytest.param("count", -1, "count", id="count"),
    ],
)
def test_wrong_field_is_refused(case: ReadCase, field: str, value: Any, problem: str) -> None:
    with pytest.raises(ManifestError, match=problem):
        case(nodes(1), run_pods(**{field: value}))


def test_sandbox_asks_for_what_it_says() -> None:
    (workload,) = read_workloads(own.FILE, ["Sandbox/2000Nodes"])
    (op,) = [step.op for step in workload.steps if isinstance(step.op, RunPods)]
    assert (op.count, op.per_second, op.lives_s, op.sample_s) == (150_000, 1500, 60.0, 60.0)
    assert not workload.notes


def level(rss_mb: float) -> Level:
    return Level(
        after_s=1.0, bound_per_s=1.0, created=1, ended=1, queued=0, tasks=1, objects=1, rss_mb=rss_mb
    )


@pytest.mark.parametrize(
    ("rss_mb", "risen"),
    [
        pytest.param([50, 80, 100, 110, 105], 0.1, id="highest level after the third"),
        pytest.param([50, 80, 100, 90], 0.0, id="fallen"),
        pytest.param([50, 80, 100], None, id="too few samples"),
    ],
)
def test_growth_begins_with_the_third_sample(rss_mb: list[float], risen: float | None) -> None:
    assert growth([level(one) for one in rss_mb]) == (None if risen is None else pytest.approx(risen))
