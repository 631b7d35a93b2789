"""How a recording of an extender is read: answers, side effects, masks, and whether it listens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from berth_bench.versus.api import ApiClient
from support.observed.extender_calls import Call, call_of
from support.observed.extender_trial import (
    ExtenderTrial,
    configured,
    extender_of,
    listens,
    pace_of,
    recorded_calls,
)
from support.observed.masking import Masks, as_recorded
from support.observed.replaying import read_scenarios
from support.observed.scripted_extender import Script, SideEffect, filled_in, side_effect
from support.observed.trial import LoopSlices, Stage
from support.places import TESTS

Json = dict[str, Any]
RECORDS = {record["name"]: record for record in read_scenarios(TESTS / "cluster" / "golden_extender")}
UUID = "0b3c8f0e-54a1-4d0a-9a53-0c5d1e7f2a11"
POSTS = "the extender posts the binding to the API server before it answers"


def asked(
    answer: Any = None, *, path: str = "/filter", nodes: tuple[str, ...] = ("n1",), **status: Any
) -> Call:
    body = {"Pod": {"metadata": {"name": "p1"}, "status": status}, "NodeNames": list(nodes)}
    return call_of({"request": {"path": path, "body": body}, "response": {"body": answer}})


def answer(script: Script, call: Call) -> Any:
    recorded = script.answer_for(call)
    return None if recorded is None else recorded.response["body"]


# --- answers -------------------------------------------------------------------------------------


def test_equal_requests_get_the_recorded_answers_in_order_then_the_last_one_again() -> None:
    script = Script([[asked(1), asked(2)]])
    assert [answer(script, asked()) for _ in range(4)] == [1, 2, 2, 2]


def test_request_gets_the_answer_of_the_one_that_is_equal_to_it() -> None:
    script = Script([[asked("both", nodes=("n1", "n2")), asked("one")]])
    assert answer(script, asked()) == "one"
    assert answer(script, asked(nodes=("n2", "n1"))) == "both"


def test_status_of_the_pod_decides_only_if_another_request_is_equal() -> None:
    script = Script([[asked("new", phase="a"), asked("again", phase="b")]])
    assert answer(script, asked(phase="b")) == "again"
    assert answer(script, asked(phase="c")) == "new"


def test_wrong_request_is_answered_by_its_path() -> None:
    script = Script([[asked("filter"), asked("bind", path="/bind")]])
    assert answer(script, asked(path="/bind", nodes=("n7",))) == "bind"
    assert answer(script, asked(path="/nowhere")) is None


def test_late_attempt_of_an_earlier_step_does_not_take_the_answer_of_this_one() -> None:
    script = Script([[asked("first")], [asked("second", nodes=("n1", "n2"))]])
    assert answer(script, asked()) == "first"
    script.begin_step(2)
    assert answer(script, asked(phase="late")) == "first"
    assert answer(script, asked(nodes=("n1", "n2"))) == "second"


# --- side effects --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        (None, SideEffect(())),
        (POSTS, SideEffect(({"bind": "p", "node": "n", "namespace": "x"},))),
        (
            "the extender posts the binding after it answers",
            SideEffect(({"bind": "p", "node": "n", "namespace": "x"},), "after"),
        ),
        (
            "the extender posts the binding to node n7 before it answers",
            SideEffect(({"bind": "p", "node": "n7", "namespace": "x"},)),
        ),
        (
            "the extender answers before it posts the binding",
            SideEffect(({"bind": "p", "node": "n", "namespace": "x"},), "after"),
        ),
        ("the extender does not post the binding", SideEffect(())),
        (
            "the extender deletes the pod before it answers",
            SideEffect(({"delete": "p", "kind": "Pod", "namespace": "x", "gracePeriodSeconds": 0},)),
        ),
        (
            "the extender deletes node n1",
            SideEffect(({"delete": "n1", "kind": "Node", "namespace": "x", "gracePeriodSeconds": 0},)),
        ),
        ([{"delete": "q", "kind": "Pod"}], SideEffect(({"delete": "q", "kind": "Pod"},))),
    ],
)
def test_side_effect_is_read_as_operations(recorded: Any, expected: SideEffect) -> None:
    assert side_effect(recorded, {"PodName": "p", "PodNamespace": "x", "Node": "n"}) == expected


def test_unknown_side_effect_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown side effect 'the extender sings'"):
        side_effect("the extender sings", {})


def test_every_recorded_side_effect_is_known() -> None:
    effects = [call.side_effect for one in RECORDS.values() for step in recorded_calls(one) for call in step]
    assert POSTS in effects
    for effect in effects:
        side_effect(effect, {})


# --- masks ---------------------------------------------------------------------------------------


def test_uid_of_a_known_pod_and_the_address_are_masked_wherever_they_are() -> None:
    masks = Masks(
        dropped=frozenset(), present=frozenset({"managedFields"}), pods={UUID: "v1"}, addresses=("h:1",)
    )
    value = {
        "metadata": {"uid": UUID, "resourceVersion": "7", "managedFields": [{"manager": "m"}]},
        "UID": UUID,
        "other": {"uid": UUID.replace("0", "1")},
        "message": f"pod {UUID} at http://h:1/filter",
        "creationTimestamp": "2026-01-02T03:04:05Z",
    }
    assert masks(value) == {
        "metadata": {
            "uid": "<uid of pod v1>",
            "resourceVersion": "<resourceVersion>",
            "managedFields": "<present>",
        },
        "UID": "<uid of pod v1>",
        "other": {"uid": "<uid>"},
        "message": "pod <uid of pod v1> at http://<address>/filter",
        "creationTimestamp": "<time>",
    }


def test_recording_may_mask_more_and_never_less() -> None:
    assert as_recorded(["by pod <uid of pod p1>"], ["by pod <uid>"]) == ["by pod <uid>"]
    assert as_recorded(["by pod <uid of pod p1>"], ["by pod <uid of pod p2>"]) == ["by pod <uid of pod p1>"]
    assert as_recorded({"a": "127.0.0.1:4711->x"}, {"a": "127.0.0.1:<n>->x"}) == {"a": "127.0.0.1:<n>->x"}
    assert as_recorded(["port x"], ["port <n>"]) == ["port x"]


def test_masks_of_an_answer_are_filled_in_from_real_objects() -> None:
    node = {
        "metadata": {"name": "n1", "uid": "u", "managedFields": [{"manager": "m"}]},
        "status": {"at": "t"},
    }
    recorded = {
        "Nodes": {
            "metadata": {},
            "items": [
                {
                    "metadata": {"name": name, "uid": "<uid>", "managedFields": "<present>"},
                    "status": {"at": "<time>"},
                }
                for name in ("n1", "ghost")
            ],
        },
        "UID": "<uid of pod v1>",
        "Error": None,
    }
    real = {("Node", "n1"): node}
    assert filled_in(recorded, real, lambda text: text.replace("<uid of pod v1>", UUID)) == {
        "Nodes": {"metadata": {}, "items": [node, {"metadata": {"name": "ghost"}, "status": {}}]},
        "UID": UUID,
        "Error": None,
    }


# --- the extender's surroundings -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, LoopSlices()),
        ("0.8s after the step: the pod is retried", LoopSlices(shortest_s=0.8, quiet_s=0.0)),
        ("800ms", LoopSlices(shortest_s=0.8, quiet_s=0.0)),
        ("2 s after the step", LoopSlices(shortest_s=2.0, quiet_s=0.0)),
    ],
)
def test_observation_ends_when_the_recorded_one_ended(text: str | None, expected: LoopSlices) -> None:
    assert pace_of(text) == expected


def test_observation_without_a_duration_is_refused() -> None:
    with pytest.raises(ValueError, match="does not begin with a duration"):
        pace_of("soon")


def test_extender_listens_unless_the_recording_shows_that_it_did_not() -> None:
    deaf = {name for name, record in RECORDS.items() if not listens(record, 1)}
    assert deaf == {"connection-refused"}


def test_extender_does_not_listen_if_it_was_not_asked_about_a_pod_that_was_scheduled() -> None:
    record = json.loads(json.dumps(RECORDS["filter-http-500-ignorable"]))
    record["expected"][0]["calls"] = []
    assert not listens(record, 1)
    managed = RECORDS["managed-resource-not-interested"]
    assert listens(managed, 1)
    text = json.dumps(managed).replace('"cpu":', '"example.com/foo": "1", "cpu":')
    assert not listens(json.loads(text), 1)


def test_extender_does_not_listen_if_the_notes_say_so() -> None:
    record = {**RECORDS["prioritize-single-node"], "notes": "nothing listens at the address"}
    assert not listens(record, 1)


def test_every_recorded_configuration_has_its_extenders() -> None:
    assert all(configured(record) for record in RECORDS.values())


# --- comparison ----------------------------------------------------------------------------------

FAILED: Json = {"reason": "FailedScheduling", "regarding": "Pod/p1", "note": "no room"}
CREATED: Json = {"verb": "create", "resource": "events", "name": "p1.<hex>", "reason": "FailedScheduling"}
SERIES: Json = {"verb": "patch", "resource": "events", "name": "p1.<hex>", "status": 200}
BOUND: Json = {"verb": "create", "resource": "pods", "subresource": "binding", "name": "p1", "status": 201}
NOTHING: Json = {"calls": [], "pods": {}, "events": [], "writes": []}
FIRST: Json = {**NOTHING, "events": [FAILED], "writes": [CREATED, BOUND]}


async def differences(tmp_path: Path, step: Json, seen: Json) -> tuple[bool, bool]:
    """Return whether an observation differs from the second step, with repetitions counted and without."""
    record = {**RECORDS["bind"], "steps": [{"ops": []}] * 2, "expected": [FIRST, step]}
    async with (
        ApiClient("http://127.0.0.1:1") as api,
        extender_of(
            record, Stage(api=api, audit_log=tmp_path, kubeconfig=tmp_path, folder=tmp_path)
        ) as extender,
    ):
        trial = ExtenderTrial(record, extender)
        strict, loose = (
            trial.difference(2, {"problems": [], **seen}, retries_count=counts, unstable=frozenset())
            for counts in (True, False)
        )
    return strict is not None, loose is not None


@pytest.mark.parametrize(
    ("recorded", "seen", "expected"),
    [
        (NOTHING, NOTHING, (False, False)),
        ({**NOTHING, "events": [FAILED]}, {**NOTHING, "events": [FAILED]}, (False, False)),
        ({**NOTHING, "events": [FAILED]}, NOTHING, (True, True)),
        (NOTHING, {**NOTHING, "events": [{**FAILED, "note": "other"}]}, (True, True)),
        (NOTHING, {**NOTHING, "events": [FAILED]}, (True, False)),
        (NOTHING, {**NOTHING, "writes": [SERIES, CREATED]}, (True, False)),
        (NOTHING, {**NOTHING, "writes": [BOUND]}, (True, True)),
        ({**NOTHING, "writes": [CREATED]}, {**NOTHING, "writes": [CREATED] * 2}, (True, False)),
        ({**NOTHING, "pods": {"p1": {}}}, NOTHING, (True, True)),
        (NOTHING, {**NOTHING, "problems": ["side effect"]}, (True, True)),
    ],
    ids=[
        "nothing",
        "the same Event",
        "a missing Event",
        "another Event",
        "an Event of the step before",
        "a series of an Event",
        "one more Binding",
        "one more write of an Event",
        "a missing pod",
        "a failed side effect",
    ],
)
async def test_only_repeated_attempts_are_no_difference(
    tmp_path: Path, recorded: Json, seen: Json, expected: tuple[bool, bool]
) -> None:
    assert await differences(tmp_path, recorded, seen) == expected


# --- files ---------------------------------------------------------------------------------------


def test_scenarios_are_read_from_plain_compressed_and_empty_files(tmp_path: Path) -> None:
    golden = TESTS / "cluster" / "golden_extender"
    (tmp_path / "bind.jsonl.gz").write_bytes((golden / "bind.jsonl.gz").read_bytes())
    (tmp_path / "filter.jsonl").write_text(json.dumps(RECORDS["filter-nodes"]) + "\n\n")
    (tmp_path / "other.jsonl").write_text("")
    (tmp_path / "README.md").write_text("no recording")
    names = [record["name"] for record in read_scenarios(tmp_path)]
    assert names == [
        "filter-nodes",
        "bind",
        "bind-error-field",
        "bind-http-500",
        "bind-and-filter-managed-only",
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [("{", "line 1: no JSON object"), ("[]", "line 1: no JSON object"), ('{"name": "a"}', "needs expected")],
)
def test_line_that_is_no_scenario_is_named(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "filter.jsonl").write_text(line)
    with pytest.raises(ValueError, match=message):
        read_scenarios(tmp_path)
