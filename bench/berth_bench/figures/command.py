"""`berth bench figures`: run the commands of the performance page, and print its tables."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from berth_host.cli.input_errors import fail

if TYPE_CHECKING:
    from berth_bench.figures.sections import Cells, Section

FAILED: Final = 1


@click.command("figures")
@click.argument("names", nargs=-1, metavar="[SECTION]...")
@click.option("--list", "lists", is_flag=True, help="Print sections and commands, and run nothing.")
@click.option("--only", multiple=True, metavar="TEXT", help="Run commands that contain the text. Repeatable.")
@click.option(
    "--write",
    "page",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Put the rows into the tables of this page as well, after each command.",
)
def figures(names: tuple[str, ...], lists: bool, only: tuple[str, ...], page: Path | None) -> None:
    """Run the commands behind docs/performance.md, one after the other, and print its tables: each row has
    its command and date.

    Without SECTION all of them run, which takes hours. A command that fails is reported, and the next runs.
    """
    # Not at the top: the tables are not needed for the other commands.
    from berth_bench.figures import tables
    from berth_bench.figures.sections import SECTIONS, shown

    known = [section.name for section in SECTIONS]
    for name in names:
        if name not in known:
            fail(f"there is no section {name}: there are {', '.join(known)}")
    chosen = [section for section in SECTIONS if not names or section.name in names]
    failed = 0
    for section in chosen:
        commands = [
            command
            for command in section.commands
            if not only or any(text in shown(command) for text in only)
        ]
        if lists:
            click.echo("\n".join([section.name, *(f"  {shown(command)}" for command in commands)]))
            continue
        rows: dict[str, list[Cells]] = {}
        for command in commands:
            found = _run(section, command)
            failed += not found
            if found:
                rows[shown(command)] = found
                if page is not None:
                    page.write_text(tables.written(page.read_text(), [section], {shown(command): found}))
        if rows:
            click.echo(f"{section.name}\n\n{tables.table(section, rows)}")
    if failed:
        sys.exit(FAILED)


def _run(section: Section, command: Sequence[str]) -> list[Cells]:
    """Run a command; return its rows, with command and date. Empty after a failure, which is reported."""
    from berth_bench.figures.sections import shown

    if sys.stderr.isatty():
        click.echo(f"{shown(command)} ...", err=True)
    code, output = _ended([sys.executable, "-m", "berth_host", "bench", *command, "-o", "json"])
    date = time.strftime("%Y-%m-%d", time.gmtime())
    if code:
        click.echo(f"berth bench figures: {shown(command)} ended with {code}", err=True)
    lines = [json.loads(line) for line in output.splitlines()]
    return [(*cells, shown(command), date) for line in lines for cells in section.cells(line)]


def _ended(words: Sequence[str]) -> tuple[int, str]:
    """Run a program; return its exit code and what it printed.

    Ctrl-C goes to the program as well. The program stops what it has started, servers for one, so this
    function waits until the program has ended. `subprocess.run` would kill the program after 0.25 s. Raises
    KeyboardInterrupt then.
    """
    interrupt: KeyboardInterrupt | None = None
    program = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    while True:
        try:
            output, _ = program.communicate()
        except KeyboardInterrupt as err:
            interrupt = err
            continue
        if interrupt is not None:
            raise interrupt
        return program.returncode, output
