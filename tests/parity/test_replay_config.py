"""The recorded configurations replay identically, and the comparison can fail."""

from __future__ import annotations

import copy
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from berth_host.config.decoding.types_v1 import API_VERSION, KIND
from berth_host.config.emulation import EMULATIONS
from parity import replay_config

GOLDEN = Path(__file__).parent / "golden_config"
RECORDS = {record["name"]: record for record in replay_config.read_records(GOLDEN)}


GOLDEN_1_38 = Path(__file__).parent / "golden_config_1.38"
RECORDS_1_38 = {record["name"]: record for record in replay_config.read_records(GOLDEN_1_38)}


@pytest.mark.parametrize("name", sorted(RECORDS_1_38))
def test_record_of_1_38_replays_identical(name: str) -> None:
    record = RECORDS_1_38[name]
    given = {key: value for key, value in record.items() if key != "expected"}
    actual = replay_config.actual_of(given, "1.38")
    assert replay_config.first_difference(name, record["expected"], actual) is None


@pytest.mark.parametrize("version", ["1.36", "1.37", ""])
@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("percentageOfPlacementsToScore: 0\n", "percentageOfPlacementsToScore"),
        ("profiles: [{percentageOfPlacementsToScore: 1}]\n", "profiles[0].percentageOfPlacementsToScore"),
        ("profiles: [{plugins: {placementFeasible: {}}}]\n", "profiles[0].plugins.placementFeasible"),
    ],
)
def test_fields_of_1_38_are_unknown_before(version: str, text: str, field: str) -> None:
    given = {"name": "f", "input": f"apiVersion: {API_VERSION}\nkind: {KIND}\n{text}"}
    actual = replay_config.actual_of(given, version)
    assert actual["kind"] == "decode"
    assert f'unknown field "{field}"' in actual["error"]


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("name", sorted(RECORDS))
def test_record_replays_identical(name: str) -> None:
    record = RECORDS[name]
    given = {key: value for key, value in record.items() if key != "expected"}
    assert replay_config.first_difference(name, record["expected"], replay_config.actual_of(given)) is None


def test_command_prints_one_line_and_writes_what_the_host_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [RECORDS["empty-config"], RECORDS["parallelism-zero"]]
    (tmp_path / "a.jsonl").write_text(json.dumps(records[0]) + "\n\n")
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(json.dumps(records[1]).encode()))
    (tmp_path / "notes.txt").write_text("not a record")
    actual = tmp_path / "actual"
    assert replay_config.main(["--actual", str(actual), str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out) == {"records": 2, "identical": 2, "first_difference": None}
    written = [json.loads(line) for line in actual.read_text().splitlines()]
    assert [line["name"] for line in written] == ["empty-config", "parallelism-zero"]
    assert written[0]["expected"]["profiles"] == records[0]["expected"]["profiles"]
    assert written[1]["expected"]["kind"] == "validation"


def test_expected_records_are_not_read_before_the_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = RECORDS["empty-config"] | {"expected": {"kind": "decode", "error": "x"}}
    (tmp_path / "a.jsonl").write_text(json.dumps(record))
    actual = tmp_path / "actual"
    assert replay_config.main(["--actual", str(actual), str(tmp_path)]) == 1
    assert json.loads(actual.read_text())["expected"]["profiles"]
    printed = json.loads(capsys.readouterr().out)
    assert (printed["identical"], printed["first_difference"]["name"]) == (0, "empty-config")


def test_a_record_that_cannot_be_run_or_compared_is_a_difference_and_no_crash(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blind = {key: value for key, value in RECORDS["empty-config"].items() if key != "expected"}
    records = [{"name": "without input", "expected": {}}, blind, RECORDS["parallelism-zero"]]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    assert replay_config.main([str(tmp_path)]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert (printed["records"], printed["identical"]) == (3, 1)


def test_an_empty_folder_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay_config.main([str(tmp_path)]) == 1
    assert json.loads(capsys.readouterr().out)["records"] == 0


def test_a_broken_host_goes_red(monkeypatch: pytest.MonkeyPatch) -> None:
    emulated = EMULATIONS["1.36"]
    without_one = emulated.plugins[:3] + emulated.plugins[4:]
    broken = {**EMULATIONS, "1.36": replace(emulated, plugins=without_one)}
    monkeypatch.setattr("berth_host.config.emulation.EMULATIONS", broken)
    result = replay_config.replay(GOLDEN, None)
    assert isinstance(result["identical"], int)
    assert 0 < result["identical"] < len(RECORDS)
    assert result["first_difference"] is not None


def set_in(path: str, value: object) -> Any:
    def change(expected: dict[str, Any]) -> None:
        *parents, last = [int(step) if step.isdigit() else step for step in path.split("/")]
        target: Any = expected
        for step in parents:
            target = target[step]
        if value is None:
            del target[last]
        else:
            target[last] = value

    return change


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        pytest.param("empty-config", "config/parallelism", 17, id="a number"),
        pytest.param("empty-config", "config/enableProfiling", 1, id="1 is not true"),
        pytest.param("empty-config", "config/kind", None, id="a field too many"),
        pytest.param("empty-config", "config/extra", 1, id="a field too few"),
        pytest.param("empty-config", "profiles/0/plugins/score/0/weight", 4, id="a weight"),
        pytest.param("empty-config", "profiles/0/plugins/filter/0/name", "NodePorts", id="an order"),
        pytest.param("empty-config", "profiles/0/plugins/filter/13", None, id="a list too long"),
        pytest.param("empty-config", "profiles/0/schedulerName", "x", id="a text that is no error"),
        pytest.param("parallelism-zero", "kind", "decode", id="the kind"),
        pytest.param("parallelism-zero", "errors/0/type", "FieldValueRequired", id="a type"),
        pytest.param("parallelism-zero", "errors/0/field", "parallelisms", id="a field path"),
        pytest.param("parallelism-zero", "errors/0/text", "", id="no text"),
        pytest.param("parallelism-zero", "error", "", id="no text of the whole"),
        pytest.param(
            "multipoint-disable-all", "config/parallelism", 1, id="the configuration of a profile error"
        ),
        pytest.param("oot-args-kept", "profiles/0/pluginConfig/0/args/nested/k", "w", id="opaque arguments"),
    ],
)
def test_a_changed_recording_goes_red(name: str, path: str, value: object) -> None:
    expected = copy.deepcopy(RECORDS[name]["expected"])
    actual = replay_config.actual_of(RECORDS[name])
    set_in(path, value)(expected)
    found = replay_config.first_difference(name, expected, actual)
    assert found is not None
    assert found.name == name


def test_texts_of_errors_count_only_by_being_there() -> None:
    expected = copy.deepcopy(RECORDS["parallelism-zero"]["expected"])
    expected["error"] = expected["errors"][0]["text"] = "something else"
    actual = replay_config.actual_of(RECORDS["parallelism-zero"])
    assert replay_config.first_difference("x", expected, actual) is None


def test_order_of_errors_counts_unless_it_is_known_to_vary() -> None:
    expected = copy.deepcopy(RECORDS["two-profiles-both-unnamed"]["expected"])
    expected["errors"].reverse()
    actual = replay_config.actual_of(RECORDS["two-profiles-both-unnamed"])
    assert replay_config.first_difference("x", expected, actual) is not None
    expected["errorVariants"] = ["a", "b"]
    assert replay_config.first_difference("x", expected, actual) is None
