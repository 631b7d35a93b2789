"""Recorded scripts of pod groups are replayed with equal fields; altered lines are noticed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from berth_host.cache.pod_groups import PodGroups
from berth_host.groups import group_status
from parity.replay_podgroups import main, outcome, read_records
from support.served import default_plugin_server

GOLDEN = Path(__file__).parent / "golden_podgroups"
RECORDS = {record["name"]: record for record in read_records(GOLDEN)}
OF_1_38 = {record["name"]: record for record in read_records(Path(__file__).parent / "golden_podgroups_1.38")}
FIRST_OF_1_38 = (
    "composite-01",
    "group-preempts-00",
    "preemption-ongoing-00",
    "topology-10",
    "v138-composite-14",
    "v138-groups-again-06",
    "v138-placements-10",
)
CATEGORIES = sorted({record["category"] for record in RECORDS.values()})
FIRST = [next(name for name in RECORDS if RECORDS[name]["category"] == category) for category in CATEGORIES]
SAMPLE = (
    "gang-min-count-00",
    "basic-policy-00",
    "basic-policy-01",
    "topology-13",
    "gates-and-updates-01",
    "late-pods-01",
    "preemption-ongoing-03",
    "quorum-lost-03",
)
Json = dict[str, Any]


def _further(others: Collection[str]) -> list[str]:
    """Return all scripts but `others` as parameters."""
    return [name for name in RECORDS if name not in others]


@pytest.fixture(scope="module")
def plugin_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve all default plugins from a process; return its endpoint."""
    with default_plugin_server(tmp_path_factory.mktemp("plugins")) as endpoint:
        yield endpoint


def test_every_script_is_here() -> None:
    assert (len(RECORDS), len(CATEGORIES)) == (139, 20)


@pytest.mark.parametrize("name", FIRST)
def test_script_goes_as_recorded(name: str) -> None:
    assert outcome(RECORDS[name])[0] is None


@pytest.mark.long
@pytest.mark.parametrize("name", _further(FIRST))
def test_further_script_goes_as_recorded(name: str) -> None:
    assert outcome(RECORDS[name])[0] is None


@pytest.mark.parametrize("name", FIRST_OF_1_38)
def test_script_goes_as_recorded_of_1_38(name: str) -> None:
    assert outcome(OF_1_38[name], "1.38")[0] is None


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in OF_1_38 if name not in FIRST_OF_1_38])
def test_further_script_goes_as_recorded_of_1_38(name: str) -> None:
    assert outcome(OF_1_38[name], "1.38")[0] is None


@pytest.mark.sampled(every=3)
@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_script_goes_as_recorded_with_served_plugins(name: str, plugin_server: str) -> None:
    assert outcome(RECORDS[name], endpoint=plugin_server)[0] is None


# --- what is compared --------------------------------------------------------------------------


def altered(change: Callable[[Json], None], name: str = "gang-too-big-00") -> Json | None:
    record = copy.deepcopy(RECORDS[name])
    change(record["expected"])
    return outcome(record)[0]


def entry_with(expected: Json, field: str) -> Json:
    found = next(entry for entry in expected["ops"] if field in entry)
    assert isinstance(found, dict)
    return found


def drop_failure(expected: Json) -> None:
    entry_with(expected, "failures")["failures"].pop()


def change_message(expected: Json) -> None:
    calls = entry_with(expected, "apiCalls")["apiCalls"]
    next(iter(calls.values()))[0]["after"]["conditions"][0]["message"] += "!"


def change_counter(expected: Json) -> None:
    entry_with(expected, "popped")["popped"]["pods"][0]["attempts"] += 1


def change_metric(expected: Json) -> None:
    series = expected["final"]["metrics"]["scheduler_podgroup_schedule_attempts_total"]
    series[next(iter(series))] += 1


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (drop_failure, {"field": "failures"}),
        (change_message, {"field": "apiCalls"}),
        (change_counter, {"field": "popped"}),
        (change_metric, {"final": "metrics"}),
    ],
    ids=["failure", "message", "counter", "metric"],
)
def test_altered_expectation_is_a_difference(change: Callable[[Json], None], where: Json) -> None:
    difference = altered(change)
    assert difference is not None
    assert where.items() <= difference.items()


@pytest.mark.parametrize("named", ["default/b-0", "b-0"])
def test_a_binding_that_fails_is_sent_again(named: str) -> None:
    record = copy.deepcopy(RECORDS["basic-policy-00"])
    places = [
        i
        for i, entry in enumerate(record["expected"]["ops"])
        if "Pod default/b-0" in entry.get("apiCalls", {})
    ]
    record["ops"][places[0]]["failBind"] = [named]
    difference = outcome(record)[0]
    assert difference is not None
    calls = record["expected"]["ops"][places[0]]["apiCalls"]["Pod default/b-0"]
    calls.insert(0, {"verb": "bind", "node": "n0", "error": "InternalError"})
    assert outcome(record)[0] is None


def test_a_binding_of_another_namespace_does_not_fail() -> None:
    record = copy.deepcopy(RECORDS["basic-policy-00"])
    for op in record["ops"]:
        if op["op"] == "cycle":
            op["failBind"] = ["other/b-0"]
    assert outcome(record)[0] is None


def test_raw_patch_is_not_compared() -> None:
    def change(expected: Json) -> None:
        calls = entry_with(expected, "apiCalls")["apiCalls"]
        next(iter(calls.values()))[0]["patch"] = {}

    assert altered(change) is None


@pytest.mark.parametrize(
    ("target", "name", "fault"),
    [
        (PodGroups, "assume", lambda self, pod: None),
        (PodGroups, "put_unscheduled", lambda self, pod: None),
        (group_status, "condition_patch", lambda group, wanted, now: None),
    ],
    ids=["assumed members do not count", "pending members do not count", "no condition"],
)
def test_fault_in_the_host_is_a_difference(
    target: Any, name: str, fault: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, name, fault)
    found = [outcome(RECORDS[name])[0] for name in ("gang-too-big-00", "in-flight-01")]
    assert any(difference is not None for difference in found)


# --- the command line ----------------------------------------------------------------------------


def test_command_prints_a_line_for_each_script_and_the_total(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = RECORDS["gate-off-00"]
    wrong = copy.deepcopy(record) | {"name": "wrong"}
    wrong["expected"]["ops"].pop()
    (tmp_path / "some.jsonl").write_text("".join(json.dumps(one) + "\n" for one in (record, wrong)))
    written = tmp_path / "actual.txt"
    assert main(["--actual", str(written), str(tmp_path)]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["name"], line["identical"]) for line in lines[:2]] == [
        ("gate-off-00", True),
        ("wrong", False),
    ]
    assert (lines[2]["records"], lines[2]["identical"]) == (2, 1)
    assert lines[2]["first_difference"]["name"] == "wrong"
    actual = json.loads(written.read_text().splitlines()[0])["expected"]
    assert actual["final"]["pods"] == record["expected"]["final"]["pods"]


def test_script_that_cannot_be_run_is_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = RECORDS["gate-off-00"] | {"ops": [{"op": "fly", "at": 1}]}
    (tmp_path / "some.jsonl").write_text(json.dumps(broken))
    assert main([str(tmp_path)]) == 1
    total = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert "problem" in total["first_difference"]
