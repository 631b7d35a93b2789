"""Groups of commands: their help, and their exit code at Ctrl-C."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from typing import NoReturn

import click
import pytest
from berth_bench.command import bench
from berth_host.cli.commands import INTERRUPTED, SETTINGS, Commands, Elsewhere, summary
from berth_host.cli.kubectl.command import kubectl_berth
from berth_host.cli.main import berth
from click.testing import CliRunner


@pytest.mark.parametrize("group", [berth, bench, kubectl_berth], ids=lambda group: group.name)
def test_no_summary_is_cut_at_80_columns(group: Commands) -> None:
    # Below `berth`, whose settings hold there; click keeps the help option that it made first.
    names = SETTINGS["help_option_names"]
    text = CliRunner().invoke(group, ["--help"], terminal_width=80, help_option_names=names).output
    listed = " ".join(text.partition("Commands:")[2].split())
    for name, command in group.each(click.Context(group)).items():
        summary = " ".join((command.help or "").strip().split("\n\n")[0].split())
        assert f"{name} {summary}" in listed
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        (["--strict", "simulate", "x"], "berth simulate --strict"),
        (["-o", "json", "plugins"], "berth plugins -o"),
        (["--costs"], "berth simulate --costs"),
    ],
)
def test_error_of_an_option_before_its_command_names_its_place(words: list[str], cure: str) -> None:
    done = CliRunner().invoke(berth, words, prog_name="berth")
    assert done.exit_code == 2
    assert f"here: write it behind the command, as in {cure}\n" in done.stderr


def test_option_that_no_command_has_is_reported_as_unknown() -> None:
    done = CliRunner().invoke(berth, ["--colour", "simulate"], prog_name="berth")
    assert (done.exit_code, "behind" in done.stderr, "No such option" in done.stderr) == (2, False, True)


def test_ctrl_c_ends_any_command_with_exit_code_130() -> None:
    @click.group(cls=Commands)
    def outer() -> None:
        """Group a group with a command."""

    @outer.group()
    def inner() -> None:
        """Group the command."""

    @inner.command()
    def waits() -> NoReturn:
        """Wait for Ctrl-C."""
        raise KeyboardInterrupt

    done = CliRunner().invoke(outer, ["inner", "waits"], prog_name="outer")
    assert (done.exit_code, done.stderr) == (INTERRUPTED, "outer: interrupted\n")


def test_command_is_imported_when_it_is_asked_for_and_no_other_one() -> None:
    code = (
        "import sys; from berth_host.cli.main import berth; from click.testing import CliRunner;"
        "assert CliRunner().invoke(berth, ['simulate', '--help']).exit_code == 0;"
        "print(*(name for name in ('berth_sim.commands.simulate', 'berth_bench', 'kubernetes')"
        " if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["berth_sim.commands.simulate"]


def test_bench_that_is_not_installed_is_named_with_its_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = {"bench": Elsewhere("berth-bench", "no_such_package", "Run workloads.")}
    group = Commands("berth", elsewhere=elsewhere)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())
    done = CliRunner().invoke(group, ["bench", "own", "--nodes", "5"], prog_name="berth")
    assert done.exit_code == 2
    assert "berth bench is not installed: pip install berth-bench\n" in done.stderr
    assert "Not installed: pip install berth-bench" in CliRunner().invoke(group, ["--help"]).output


def test_entry_point_into_another_package_replaces_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    points = (
        EntryPoint("bench", "another_package.commands:bench", "berth.commands"),
        EntryPoint("bench", "berth_bench.command:bench", "berth.commands"),
    )
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: points)
    group = Commands("berth", elsewhere={"bench": Elsewhere("berth-bench", "berth_bench", "Run workloads.")})
    assert CliRunner().invoke(group, ["bench", "--help"]).exit_code == 0


def test_every_command_is_where_its_group_says() -> None:
    found = berth.each(click.Context(berth))
    assert list(found) == [
        "bench",
        "check-config",
        "compare",
        "completion",
        "drain",
        "fit",
        "migrate",
        "plugins",
        "query",
        "scheduler",
        "simulate",
        "ui",
        "why",
    ]
    assert all(command.name == name for name, command in found.items())


def test_listed_summaries_are_those_of_the_commands() -> None:
    context = click.Context(berth)
    found = {name: summary(command) for name, command in berth.each(context).items()}
    assert {name: berth.summary_of(context, name) for name in found} == found
