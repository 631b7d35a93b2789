"""The pages about the ways over to berth name what is there: members of the SDK, plugins, points."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import berth_sdk
import pytest
from berth_host.config.default_plugins import EXTENSION_POINTS
from berth_host.older_config.other_plugins import OTHER_PLUGINS
from berth_sdk.extension_points import METHODS, Plugin
from support.examples import EXAMPLES

from docs.pages import DOCS, Page

PAGE = Page(DOCS / "how-to" / "from-a-scheduler-plugin.md")
BEYOND_POINTS = {
    *("add_pod", "remove_pod", "filter_scenarios", "reconcile", "pre_bind_pre_flight"),
    *("queueing_hint", "sign", "sign_spec", "close"),
}
"""Methods of a plugin that belong to no extension point of their own."""
CONFIGURED = {"args", "inProcess", "command", "endpoint", "berth_host.run", "pluginConfig[].args"}
"""Words of the configuration, and of the host."""
CODE = re.compile(r"`([^`]+)`")


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its header."""
    lines = PAGE.text.partition(f"\n## {heading}\n")[2].splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| "))
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("| "):
            break
        found.append([cell.strip() for cell in line.strip("| ").split(" | ")])
    return found


def exists(word: str) -> bool:
    """Return True if the SDK has the name: of a method of a plugin, a class, or a member of a class."""
    methods = {method for several in METHODS.values() for method in several} | BEYOND_POINTS
    if word in methods or word in CONFIGURED or hasattr(Plugin, word):
        return True
    owner, _, member = word.partition(".")
    found = getattr(berth_sdk, owner, None)
    if found is None:
        return hasattr(berth_sdk.ScoreNormalization, word)
    return not member or hasattr(found, member) or member in getattr(found, "__annotations__", {})


def words(heading: str, column: int) -> Iterator[str]:
    for row in rows(heading):
        if column < len(row):
            yield from CODE.findall(row[column])


@pytest.mark.parametrize(
    ("heading", "column"),
    [
        ("Extension points", 1),
        ("State, data and the handle", 1),
        ("The plugins of scheduler-plugins", 3),
    ],
)
def test_every_name_of_berth_in_a_table_exists(heading: str, column: int) -> None:
    named = list(words(heading, column))
    outside = {
        "permitWaitingTimeSeconds",
        "waitSeconds",
        "cacheResyncPeriodSeconds",
        "discardReservedNodes",
        "cache",
    }
    assert len(named) > 20
    assert [word for word in named if word not in outside and not exists(word)] == []


@pytest.mark.parametrize("word", ["filter_node", "Handle.snapshots", "Need.node", "HOST_MEAN", "Nothing"])
def test_name_that_berth_lacks_is_found(word: str) -> None:
    assert not exists(word)


def test_every_extension_point_is_mapped() -> None:
    mapped = set(words("Extension points", 1))
    for methods in METHODS.values():
        assert mapped & set(methods), methods


def test_table_of_other_plugins_agrees_with_that_of_migrate() -> None:
    here = {
        CODE.findall(row[0])[0]: tuple(CODE.findall(row[1]))
        for row in rows("The plugins of scheduler-plugins")
    }
    assert here == {plugin.name: plugin.points for plugin in OTHER_PLUGINS}
    assert {point for points in here.values() for point in points} <= set(EXTENSION_POINTS)


# --- from an extender --------------------------------------------------------------------------------------

EXTENDER_PAGE = Page(DOCS / "how-to" / "from-an-extender.md")
EXTENDER = EXAMPLES / "gpu_memory_extender"
STEPS = ["step-0", "step-1", "step-2", "step-3"]
ALIKE = "every pod has the same node and the same GPU in each step"
ROW = re.compile(
    r"(?P<step>step-\d) +(?P<calls>[\d.]+) +(?P<bytes>\d+) +[\d.]+ +(?P<placed>\d+) of (?P<pods>\d+)"
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One row of the table that `measure.py` prints, without its time."""

    step: str
    calls_per_pod: float
    bytes_per_pod: int
    placed: int
    pods: int


def measured(text: str) -> list[Measured]:
    """Read the table. Raises AssertionError for another header."""
    lines = text.strip().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("STEP "))
    assert lines[start].split() == ["STEP", "CALLS/POD", "BYTES/POD", "MS/POD", "PLACED"]
    found = (ROW.fullmatch(line.strip()) for line in lines[start + 1 :])
    return [
        Measured(row["step"], float(row["calls"]), int(row["bytes"]), int(row["placed"]), int(row["pods"]))
        for row in found
        if row is not None
    ]


def check_fall(rows: list[Measured]) -> None:
    """Check that all pods are placed, that no step makes more calls, and that each sends fewer bytes."""
    assert [row.step for row in rows] == STEPS
    assert all(row.placed == row.pods > 0 for row in rows)
    calls = [row.calls_per_pod for row in rows]
    sent = [row.bytes_per_pod for row in rows]
    assert calls == sorted(calls, reverse=True)
    assert calls[0] > calls[2] > calls[3] == 0
    assert sent == sorted(set(sent), reverse=True)
    assert sent[-1] == 0


@pytest.mark.slow
@pytest.mark.long
def test_steps_from_extender_to_plugin_place_alike_with_fewer_calls_and_bytes() -> None:
    configs = [str(EXTENDER / f"{step}.yaml") for step in STEPS]
    command = [sys.executable, str(EXTENDER / "measure.py"), "--nodes", "40", "--pods", "14", *configs]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    check_fall(measured(done.stdout))
    assert done.stdout.strip().splitlines()[-1] == ALIKE


def test_figures_of_the_page_are_those_of_a_run() -> None:
    (figures,) = [block.text for block in EXTENDER_PAGE.blocks if block.language == "text"]
    rows = measured(figures)
    check_fall(rows)
    assert [row.pods for row in rows] == [50] * len(STEPS)
    assert figures.strip().splitlines()[-1] == ALIKE


@pytest.mark.parametrize(
    "wrong",
    [
        "step-0 3.0 900 1.0 2 of 2\nstep-1 3.0 900 1.0 2 of 2",
        "step-0 3.0 900 1.0 2 of 2\nstep-1 3.1 800 1.0 2 of 2",
        "step-0 3.0 900 1.0 1 of 2\nstep-1 3.0 800 1.0 2 of 2",
    ],
)
def test_steps_that_do_not_fall_are_found(wrong: str) -> None:
    header = "STEP CALLS/POD BYTES/POD MS/POD PLACED"
    rest = "step-2 2.0 100 1.0 2 of 2\nstep-3 0.0 0 1.0 2 of 2"
    with pytest.raises(AssertionError):
        check_fall(measured(f"{header}\n{wrong}\n{rest}"))
