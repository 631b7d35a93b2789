"""Recorded configurations migrate to files of the same meaning, and the comparison can fail."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from parity import replay_migration
from parity.replay_config import read_records

GOLDEN = Path(__file__).parent / "golden_config"
RECORDS = {record["name"]: record for record in read_records(GOLDEN)}
RECORDINGS = replay_migration.Recordings(RECORDS)


@pytest.mark.sampled(every=8)
@pytest.mark.parametrize("name", sorted(RECORDS))
def test_migrated_record_means_the_same(name: str) -> None:
    assert RECORDINGS.problem(RECORDS[name]) is None


def test_command_prints_one_line_and_takes_files_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [replay_migration.EMPTY, "parallelism-zero"]
    names += [name for name in RECORDS if name.startswith("wild-qos")]
    records, files = tmp_path / "records", tmp_path / "files"
    for folder in (records, files):
        folder.mkdir()
    (records / "a.jsonl").write_text("".join(f"{json.dumps(RECORDS[name])}\n" for name in names))
    (files / "qos.yaml").write_text(RECORDS["wild-qos-registered"]["input"])
    assert replay_migration.main([str(records), "--files", str(files)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"records": len(names) + 1, "identical": len(names) + 1, "first_difference": None}
    (files / "mine.yaml").write_text("kind: Policy")
    assert replay_migration.main([str(records), "--files", str(files)]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed["first_difference"] == {"name": "mine.yaml", "difference": "no record has this input"}


def test_an_empty_folder_is_no_success(tmp_path: Path) -> None:
    assert replay_migration.main([str(tmp_path)]) == 1


def changed(name: str, *path: Any, value: object) -> object | None:
    """Return the problem with a record whose expected result has another value at the path."""
    record = copy.deepcopy(RECORDS[name])
    target: Any = record["expected"]
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    return replay_migration.Recordings(RECORDS | {name: record}).problem(record)


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("empty-config", ("config", "parallelism"), 3),
        ("empty-config", ("profiles", 0, "plugins", "filter", 0, "name"), "NodePorts"),
        ("wild-trimaran-as-v1", ("profiles", 0, "plugins", "score", 0, "weight"), 9),
        ("wild-trimaran-as-v1", ("profiles", 0, "plugins", "bind"), []),
        ("wild-capacityscheduling-registered", ("config", "leaderElection", "leaderElect"), True),
    ],
)
def test_a_changed_recording_goes_red(name: str, path: tuple[Any, ...], value: object) -> None:
    assert changed(name, *path, value=value) is not None


def test_refused_input_that_the_recording_accepts_goes_red_and_the_other_way_round() -> None:
    swapped = RECORDS["parallelism-zero"] | {"expected": RECORDS["empty-config"]["expected"]}
    assert "refuses" in str(RECORDINGS.problem(swapped))
    swapped = RECORDS["empty-config"] | {"expected": RECORDS["parallelism-zero"]["expected"]}
    assert "accepted" in str(RECORDINGS.problem(swapped))


def test_a_broken_migration_goes_red(monkeypatch: pytest.MonkeyPatch) -> None:
    record = RECORDS["wild-networktopology-registered"]  # of plugins that are not installed
    with monkeypatch.context() as patch:
        patch.setattr("berth_host.cli.migration.leave_out", lambda root, _: (root, ()))
        assert RECORDINGS.problem(record) is not None
    with monkeypatch.context() as patch:
        patch.setattr("berth_host.older_config.leaving_out._NEEDED", {})
        assert RECORDINGS.problem(RECORDS["wild-qos-as-v1"]) is not None
    with monkeypatch.context() as patch:
        patch.setattr("berth_host.older_config.leaving_out._LISTS", ("disabled",))
        assert RECORDINGS.problem(record) is not None
