"""Recorded scenarios on a real API server: a few of each kind here; the tool itself replays all of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from berth_bench.versus.real_servers import RealServers, program
from support.observed.replaying import read_scenarios, summary
from support.observed.scenario import Outcome, run
from support.observed.stage import stage
from support.observed.trial import Stage

pytestmark = pytest.mark.long

GOLDEN = Path(__file__).parent / "golden_observability"
RECORDS = {record["name"]: record for record in read_scenarios(GOLDEN, "events*")}
SCENARIOS = (
    "priority-order",
    "preemption-one-victim",
    "bind-conflict",
    "pvc-wait-for-first-consumer-static",
)
MORE_SCENARIOS = (
    "bind-refused-by-admission",
    "leader-election",
    "claim-allocated",
    "plugin-permit-wait-preempted",
    "pod-deleted-in-pre-bind",
    "pre-bind-refused-by-admission",
    "plugin-pre-bind-unschedulable",
)
"""Those of `make test-all`."""


@pytest.fixture
async def empty_stage(servers: RealServers, tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(servers, tmp_path) as ready:
        yield ready


@pytest.mark.parametrize(
    "name", [*SCENARIOS, *(pytest.param(name, marks=pytest.mark.long) for name in MORE_SCENARIOS)]
)
async def test_scenario_equals_its_recording(empty_stage: Stage, name: str) -> None:
    outcome = await run(RECORDS[name], empty_stage, "berth")
    assert outcome.difference is None


async def test_error_of_a_score_plugin_is_reported_like_any_scoring_failure(empty_stage: Stage) -> None:
    record = RECORDS["plugin-score-out-of-range"]
    (message,) = {event["note"] for event in record["expected"][0]["events"]}
    text = json.dumps(record).replace('"toobig"', '"error:no price"')
    wanted = 'running Score plugins: plugin "Probe" failed with: no price'  # kube-scheduler's RunScorePlugins
    text = text.replace(json.dumps(message), json.dumps(wanted))
    outcome = await run(json.loads(text), empty_stage, "berth")
    assert outcome.difference is None


async def test_kube_scheduler_is_found_identical_to_its_recording(empty_stage: Stage) -> None:
    outcome = await run(RECORDS["scheduled"], empty_stage, str(program("kube-scheduler")))
    assert outcome == Outcome(name="scheduled", seconds=outcome.seconds)


async def test_scenario_may_use_every_kind_that_the_api_server_serves(empty_stage: Stage) -> None:
    made: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}},
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "r"}, "handler": "r"},
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "t"},
            "spec": {"spec": {}},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": "s"},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"a": "b"}},
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                },
            },
        },
    ]
    record = RECORDS["scheduled"]
    setup = [*({"create": content} for content in made), *record["setup"]]
    outcome = await run({**record, "setup": setup}, empty_stage, "berth")
    assert outcome.difference is None
    for content in made:
        assert await empty_stage.api.get(content["kind"], content["metadata"]["name"]) is None


async def test_kind_that_is_not_served_is_named(empty_stage: Stage) -> None:
    with pytest.raises(ValueError, match="serves no kind Nonsense"):
        await empty_stage.api.create({"kind": "Nonsense", "metadata": {"name": "n"}})


async def test_different_message_is_a_difference(empty_stage: Stage) -> None:
    text = json.dumps(RECORDS["insufficient-cpu"])
    record = json.loads(text.replace("2 Insufficient cpu", "2 Insufficient memory"))
    outcome = await run(record, empty_stage, "berth", patience_s=1.0)
    assert outcome.difference is not None
    assert (outcome.difference["step"], outcome.difference["part"]) == (1, "pods")


async def test_scheduler_that_does_not_start_is_a_difference(empty_stage: Stage) -> None:
    record = {**RECORDS["scheduled"], "schedulerConfig": "kind: Nonsense\n"}
    outcome = await run(record, empty_stage, "berth")
    assert outcome.difference is not None
    assert outcome.difference["exit"] == 1


def test_recording_has_every_scenario() -> None:
    assert len(RECORDS) == 66
    assert {*SCENARIOS, *MORE_SCENARIOS} <= set(RECORDS)


def test_summary_is_that_of_the_other_replays() -> None:
    fine, odd = Outcome(name="a"), Outcome(name="b", difference={"step": 1})
    assert summary([fine]) == {"records": 1, "identical": 1, "first_difference": None}
    assert summary([fine, odd])["first_difference"] == {"name": "b", "step": 1}
