"""`berth bench figures`: the tables of the page, and their commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from berth_bench.command import bench
from berth_bench.figures import command, tables
from berth_bench.figures.sections import SECTIONS, Section, shown
from click.testing import CliRunner
from support.places import ROOT

PAGE = ROOT / "docs" / "performance.md"
BY_NAME = {section.name: section for section in SECTIONS}
OWN = {
    "workload": "Large/Plain5000Nodes",
    "pods_per_s": {"avg": 1200.4},
    "ratio": None,
    "cpu_ms_per_pod": 0.512,
    "children_cpu_ms_per_pod": 0.0,
    "peak_rss_mb": 210.7,
}


def test_page_shows_every_section_with_its_columns() -> None:
    page = PAGE.read_text()
    assert sorted(tables.names_in(page)) == sorted(BY_NAME)
    for section in SECTIONS:
        assert f"| {' | '.join(section.columns)} |" in page
        known = {shown(one) for one in section.commands}
        assert tables.rows_in(page, section).keys() <= known, f"rows of {section.name} without a command"


@pytest.mark.parametrize("section", SECTIONS, ids=lambda one: one.name)
def test_every_command_can_be_read(section: Section) -> None:
    for words in section.commands:
        context = bench.make_context("bench", [*words, "-o", "json"], resilient_parsing=True)
        name, found, rest = bench.resolve_command(context, [*words, "-o", "json"])
        assert name is not None
        assert isinstance(found, click.Command)
        found.make_context(name, rest, parent=context)


def test_new_rows_replace_those_of_their_command_alone() -> None:
    section = BY_NAME["large"]
    first, second = shown(section.commands[0]), shown(section.commands[1])
    old = ("w", "1", "-", "1.00", "-", "10", second, "2026-01-01")
    table = tables.table(section, {second: [old]})
    page = f"before\n\n<!-- figures: large -->\n\n{table}\n<!-- end: figures -->\nafter\n"
    assert tables.rows_in(page, section) == {second: [old]}
    new = ("v", "2", "-", "0.50", "-", "20", first, "2026-11-29")
    made = tables.written(page, [section], {first: [new]})
    assert tables.rows_in(made, section) == {first: [new], second: [old]}
    assert made.index("2026-11-29") < made.index("2026-01-01")
    assert (made.startswith("before\n"), made.endswith("after\n")) == (True, True)
    assert tables.written(made, [section], {}) == made
    assert tables.written(made, [BY_NAME["versus"]], {}) == made


def test_command_runs_what_the_page_shows_and_writes_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    answers = f"""\
words = sys.argv[3:]
with open({str(ran)!r}, "a") as file:
    print(*words, file=file)
if "Large/Plain15000Nodes" in words:
    sys.exit(1)
print({json.dumps(OWN)!r})
"""
    monkeypatch.setattr(sys, "executable", program(tmp_path, answers))
    page = tmp_path / "page.md"
    page.write_text("<!-- figures: large -->\n<!-- end: figures -->\n")
    options = ["large", "--only", "Plain5000N", "--only", "Plain15000N", "--write", str(page)]
    done = CliRunner().invoke(command.figures, options)
    assert done.exit_code == 1, done.output
    assert ran.read_text().splitlines() == [
        "bench own Large/Plain5000Nodes -o json",
        "bench own Large/Plain15000Nodes -o json",
    ]
    row = "| Large/Plain5000Nodes | 1200 | - | 0.51 | - | 211 | `berth bench own Large/Plain5000Nodes` |"
    assert row in page.read_text()
    assert row in done.stdout
    assert "Plain15000Nodes` ended with 1" in done.stderr


@pytest.mark.slow
def test_interrupt_waits_until_the_command_has_stopped_its_servers(tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    measures = f"""\
import pathlib, time
try:
    print("measuring", file=sys.stderr, flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    # So long takes the stop of servers, and longer.
    time.sleep(1)
    pathlib.Path({str(stopped)!r}).touch()
"""
    begins = f"""\
sys.executable = {program(tmp_path, measures)!r}
from berth_bench.figures.command import figures
figures(["versus", "--only", "Plain/1000Nodes"])
"""
    with subprocess.Popen(
        [program(tmp_path, begins, "figures")], stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        assert running.stderr is not None
        assert running.stderr.readline() == "measuring\n"
        os.killpg(running.pid, signal.SIGINT)
        assert "Aborted" in running.stderr.read()
        assert running.wait() == 1
    assert stopped.exists()


def program(folder: Path, text: str, name: str = "program") -> str:
    """Write a program of Python; return its path."""
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport sys\n{text}")
    path.chmod(0o755)
    return str(path)
