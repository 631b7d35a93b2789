"""Recorded exchanges with extenders on a real API server: a few of each kind, and all with `-m long`."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from berth_bench.versus.real_servers import RealServers, program
from support.certificates import Authority
from support.observed.extender_calls import call_of
from support.observed.extender_recording import record as recorded_again
from support.observed.extender_trial import extender_trial
from support.observed.replaying import read_scenarios
from support.observed.scenario import Outcome, run
from support.observed.stage import stage
from support.observed.trial import Stage

pytestmark = pytest.mark.long

Json = dict[str, Any]
RECORDS = {record["name"]: record for record in read_scenarios(Path(__file__).parent / "golden_extender")}
SHORTLY_S = 1.0


SCENARIOS = (
    "bind-error-field",
    "filter-nodes",
    "filter-all-failed",
    "https-insecure",
    "all-verbs",
    "preempt-full-victims",
)


@pytest.fixture
async def empty_stage(servers: RealServers, tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(servers, tmp_path) as ready:
        yield ready


async def kube_scheduler(record: Json, where: Stage, **options: Any) -> Outcome:
    return await run(record, where, str(program("kube-scheduler")), trials=extender_trial, **options)


def copy_of(name: str) -> Json:
    record: Json = json.loads(json.dumps(RECORDS[name]))
    return record


@pytest.mark.parametrize(
    "name",
    [*SCENARIOS, *(pytest.param(name, marks=pytest.mark.long) for name in RECORDS if name not in SCENARIOS)],
)
async def test_berth_calls_extenders_as_recorded(empty_stage: Stage, name: str) -> None:
    outcome = await run(RECORDS[name], empty_stage, "berth", trials=extender_trial)
    assert outcome.difference is None


def test_recording_has_every_scenario() -> None:
    assert len(RECORDS) == 41
    assert set(SCENARIOS) <= set(RECORDS)


# --- the replay itself, with the scheduler that was recorded --------------------------------------


async def test_kube_scheduler_is_found_identical_to_its_recording(empty_stage: Stage) -> None:
    outcome = await kube_scheduler(RECORDS["all-verbs"], empty_stage)
    assert outcome == Outcome(name="all-verbs", seconds=outcome.seconds)


def _change_a_body(observation: Json) -> None:
    observation["calls"][0]["request"]["body"]["PodNamespace"] = "other"


def _forget_a_call(observation: Json) -> None:
    del observation["calls"][1]


def _lack_a_side_effect(observation: Json) -> None:
    del observation["calls"][0]["sideEffect"]


def _add_an_event(observation: Json) -> None:
    observation["events"].append({**observation["events"][0], "note": "one more"})


def _change_a_write(observation: Json) -> None:
    observation["writes"][0]["status"] = 409


@pytest.mark.parametrize(
    ("name", "change", "part"),
    [
        ("bind", _change_a_body, "calls"),
        ("two-filters-in-sequence", _forget_a_call, "calls"),
        ("bind", _lack_a_side_effect, "pods"),
        ("bind", _add_an_event, "events"),
        ("bind", _change_a_write, "writes"),
    ],
)
async def test_every_part_of_a_recording_is_compared(
    empty_stage: Stage, name: str, change: Callable[[Json], None], part: str
) -> None:
    record = copy_of(name)
    change(record["expected"][0])
    outcome = await kube_scheduler(record, empty_stage, patience_s=SHORTLY_S)
    assert outcome.difference is not None
    assert (outcome.difference["step"], outcome.difference["part"]) == (1, part)


async def test_scenario_that_cannot_be_played_is_a_difference(empty_stage: Stage) -> None:
    record = copy_of("bind")
    record["expected"][0]["calls"][0]["sideEffect"] = "the extender sings"
    outcome = await kube_scheduler(record, empty_stage)
    assert "unknown side effect" in (outcome.difference or {})["problem"]


async def test_side_effect_that_fails_is_a_difference(empty_stage: Stage) -> None:
    record = copy_of("bind")
    record["expected"][0]["calls"][0]["sideEffect"] = {"bind": "nobody", "node": "n1"}
    outcome = await kube_scheduler(record, empty_stage, patience_s=SHORTLY_S)
    assert "side effect of the extender" in (outcome.difference or {})["problem"]


@pytest.mark.long
async def test_extender_may_stop_listening_and_listen_again(empty_stage: Stage) -> None:
    record = copy_of("filter-http-500-ignorable")
    step, seen = record["steps"][0], record["expected"][0]
    pods: Json = dict(seen["pods"])
    for name, calls in (("p2", []), ("p3", seen["calls"])):
        renamed = json.loads(json.dumps([step, {**seen, "calls": calls}]).replace("p1", name))
        pods |= renamed[1]["pods"]
        record["steps"].append(renamed[0])
        record["expected"].append({**renamed[1], "pods": dict(pods)})
    outcome = await kube_scheduler(record, empty_stage)
    assert outcome.difference is None
    record["expected"][1]["calls"] = record["expected"][2]["calls"]
    outcome = await kube_scheduler(record, empty_stage, patience_s=SHORTLY_S)
    assert (outcome.difference or {})["part"] == "calls"


@pytest.mark.long
async def test_namespace_of_a_scenario_may_exist_already(empty_stage: Stage) -> None:
    record = copy_of("filter-node-names")
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "team-a", "labels": {"a": "b"}},
    }
    record["setup"].insert(0, {"create": namespace})
    text = json.dumps(record).replace('"namespace": "default"', '"namespace": "team-a"')
    record = json.loads(text.replace("default/p1", "team-a/p1"))
    for _ in range(2):
        outcome = await kube_scheduler(record, empty_stage)
        assert outcome.difference is None


@pytest.mark.long
@pytest.mark.parametrize("server_name", ["", "extender.example.com"])
async def test_authority_of_a_recorded_configuration_is_replaced(
    empty_stage: Stage, server_name: str
) -> None:
    record = copy_of("https-insecure")
    other = base64.b64encode(Authority("another").pem).decode()
    tls = {"caData": other} | ({"serverName": server_name} if server_name else {})
    record["schedulerConfig"] = record["schedulerConfig"].replace('{"insecure": true}', json.dumps(tls))
    for program_name in (str(program("kube-scheduler")), "berth"):
        outcome = await run(record, empty_stage, program_name, trials=extender_trial)
        assert outcome.difference is None


# --- recording -----------------------------------------------------------------------------------


def draft_of(recorded: Json) -> Json:
    """Return what a recording was made of."""
    answers = [
        [
            {
                "path": call["request"]["path"],
                "response": call["response"],
                "sideEffect": call.get("sideEffect"),
            }
            for call in step["calls"]
        ]
        for step in recorded["expected"]
    ]
    return {key: item for key, item in recorded.items() if key not in ("expected", "secondRun")} | {
        "answers": answers
    }


@pytest.mark.long
@pytest.mark.parametrize("name", ["all-verbs", "bind-error-field", "prioritize-http-500"])
async def test_scenario_is_recorded_again_as_it_was(empty_stage: Stage, name: str) -> None:
    recorded = await recorded_again(draft_of(RECORDS[name]), empty_stage)
    assert recorded["secondRun"] == "same"
    for now, then in zip(recorded["expected"], RECORDS[name]["expected"], strict=True):
        assert (now["pods"], now["events"]) == (then["pods"], then["events"])
        assert [call_of(call).request for call in now["calls"]] == [
            call_of(call).request for call in then["calls"]
        ]
        assert sorted(map(str, now["writes"])) == sorted(map(str, then["writes"]))


@pytest.mark.long
async def test_scenario_that_cannot_be_played_is_not_recorded(empty_stage: Stage) -> None:
    draft = draft_of(RECORDS["bind"]) | {"setup": [{"sing": "a song"}]}
    with pytest.raises(RuntimeError, match="unknown operation"):
        await recorded_again(draft, empty_stage)
