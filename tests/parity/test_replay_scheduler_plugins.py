"""Recorded cases of scheduler-plugins go as recorded, in process and served, or are mended faults."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from parity.replay_scheduler_plugins import compare, main, mended_faults, read_cases, replay
from support.served import SCHEDULER_PLUGINS, plugin_server

GOLDEN = Path(__file__).parent / "golden_scheduler_plugins"
CASES = [case for case in read_cases(GOLDEN) if case["plugin"] in SCHEDULER_PLUGINS]
FAULTS = {(case["plugin"], case["fault"]) for case in CASES if "fault" in case}
Json = dict[str, Any]


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with plugin_server(tmp_path_factory.mktemp("plugins"), SCHEDULER_PLUGINS) as address:
        yield address


def test_table_of_the_page_has_the_faults_that_are_recorded() -> None:
    assert {row for row in mended_faults() if row[0] in SCHEDULER_PLUGINS} >= FAULTS


@pytest.mark.parametrize("plugin", SCHEDULER_PLUGINS)
def test_cases_go_as_recorded(plugin: str) -> None:
    (tally,) = replay([case for case in CASES if case["plugin"] == plugin])
    assert tally.is_good, tally.line()
    assert tally.cases >= 14


def test_a_case_of_each_plugin_goes_as_recorded_where_the_plugin_is_served(endpoint: str) -> None:
    first = {case["plugin"]: case for case in reversed(CASES)}
    tallies = replay(list(first.values()), endpoint)
    assert {tally.plugin for tally in tallies if tally.is_good} == set(SCHEDULER_PLUGINS)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("plugin", SCHEDULER_PLUGINS)
def test_cases_go_as_recorded_where_the_plugin_is_served(plugin: str, endpoint: str) -> None:
    (tally,) = replay([case for case in CASES if case["plugin"] == plugin], endpoint)
    assert tally.is_good, tally.line()


def test_another_answer_is_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = copy.deepcopy(CASES[0])
    case["expected"]["scores"]["raw"][0] += 1
    monkeypatch.setattr("parity.replay_scheduler_plugins.read_cases", lambda folder: [case])
    assert main([str(tmp_path)]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["first_difference"]["name"] == case["name"]


def test_fault_that_the_page_does_not_have_is_a_difference() -> None:
    case: Json = {"name": "x", "plugin": "P", "fault": "It crashes.", "expected": {"panic": "index"}}
    actual: Json = {"configError": False, "filter": {}, "scores": None}
    assert compare(case, actual, frozenset())[0] == "different"
    assert compare(case, actual, frozenset({("P", "It crashes.")}))[0] == "mended"


def test_plugin_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--plugins", "Nobody", str(GOLDEN)]) == 1
    assert json.loads(capsys.readouterr().out)["plugin"] == "Nobody"
