"""Groups of commands: their help, and their exit code at Ctrl-C."""

from __future__ import annotations

from typing import NoReturn

import click
import pytest
from berth_host.cli.bench.command import bench
from berth_host.cli.commands import INTERRUPTED, Commands
from berth_host.cli.kubectl.command import kubectl_berth
from berth_host.cli.main import berth
from click.testing import CliRunner


@pytest.mark.parametrize("group", [berth, bench, kubectl_berth], ids=lambda group: group.name)
def test_no_summary_is_cut_at_80_columns(group: click.Group) -> None:
    text = CliRunner().invoke(group, ["--help"], terminal_width=80).output
    listed = " ".join(text.partition("Commands:")[2].split())
    for name, command in group.commands.items():
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
def test_option_before_its_command_is_told_its_place(words: list[str], cure: str) -> None:
    done = CliRunner().invoke(berth, words, prog_name="berth")
    assert done.exit_code == 2
    assert f"here: write it behind the command, as in {cure}\n" in done.stderr


def test_option_that_no_command_has_is_just_unknown() -> None:
    done = CliRunner().invoke(berth, ["--colour", "simulate"], prog_name="berth")
    assert (done.exit_code, "behind" in done.stderr, "No such option" in done.stderr) == (2, False, True)


def test_ctrl_c_ends_any_command_as_shells_have_it() -> None:
    @click.group(cls=Commands)
    def outer() -> None:
        """Holds a group that holds a command."""

    @outer.group()
    def inner() -> None:
        """The command is in here."""

    @inner.command()
    def waits() -> NoReturn:
        """Ended by Ctrl-C."""
        raise KeyboardInterrupt

    done = CliRunner().invoke(outer, ["inner", "waits"], prog_name="outer")
    assert (done.exit_code, done.stderr) == (INTERRUPTED, "outer: interrupted\n")
