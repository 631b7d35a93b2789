"""`berth bench hostile`: read the options, measure the cases, print the rows."""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import click
from berth_host.cli.input_errors import fail
from berth_host.cli.output import output_option
from berth_host.cli.rendering.serialized import STRUCTURED, streamed

if TYPE_CHECKING:
    from berth_bench.hostile.cases import Case
    from berth_bench.hostile.figures import Row, Size

NODES: Final = 300
MOST_BYTES: Final = 1_500_000
"""etcd refuses requests of more than 1.5 MiB."""
FAILED: Final = 1
BEYOND_LIMITS: Final = 3
_PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-scheduler")


@click.command("hostile")
@click.argument("names", nargs=-1, metavar="[CASE]...")
@click.option("--list", "lists", is_flag=True, help="Print the names, and measure nothing.")
@click.option(
    "--nodes",
    type=click.IntRange(min=1),
    default=NODES,
    show_default=True,
    metavar="N",
    help="Number of nodes.",
)
@click.option(
    "--bytes",
    "most_bytes",
    type=click.IntRange(min=10_000),
    default=MOST_BYTES,
    show_default=True,
    metavar="N",
    help="Size of the largest objects, as JSON.",
)
@click.option(
    "--embedded",
    is_flag=True,
    help="Measure berth alone, on the embedded cluster, as without the programs of `make envtest`.",
)
@output_option("json prints a line, yaml a document per case, and nothing else.")
def hostile(
    names: tuple[str, ...], lists: bool, nodes: int, most_bytes: int, embedded: bool, output: str
) -> None:
    """Measure what the largest objects that an API server admits cost berth, beside kube-scheduler.

    CASE is a name, or a kind of object for all of its cases (pod, node, ...); without CASE all are measured.
    Exits with 3 if berth does not keep a limit.
    """
    # Not at the top: the scheduler's own process imports this module too.
    from berth_bench.hostile.cases import CASES, chosen
    from berth_bench.hostile.figures import Size
    from berth_bench.rendering.hostile import NO_SERVERS, hostile_text
    from berth_bench.versus import real_servers

    try:
        cases = chosen(names)
    except KeyError as err:
        kinds = ", ".join(dict.fromkeys(one.about for one in CASES))
        fail(f"there is no case {err.args[0]}: --list prints the names, and there are cases about {kinds}")
    if lists:
        click.echo("\n".join(one.name for one in cases))
        return
    size = Size(nodes=nodes, most_bytes=most_bytes)
    more = ["--nodes", str(nodes), "--bytes", str(most_bytes), *(["--embedded"] if embedded else [])]
    done: list[Row] = []

    def report(row: Row) -> None:
        done.append(row)
        if output in STRUCTURED:
            command = shlex.join(["berth", "bench", "hostile", row.case, *more])
            click.echo(streamed(row.as_json(command), output), nl=False)
            sys.stdout.flush()

    if not embedded and (problem := real_servers.missing_programs(_PROGRAMS)):
        click.echo(f"{NO_SERVERS} For both, {problem}", err=True)
        embedded = True
    failed = _embedded(cases, size, report) if embedded else _real(cases, size, report)
    if output == "table" and done:
        click.echo(hostile_text(done), nl=False)
    if failed:
        sys.exit(FAILED)
    if any(row.problems for row in done):
        sys.exit(BEYOND_LIMITS)


def _embedded(cases: Sequence[Case], size: Size, report: Callable[[Row], None]) -> bool:
    """Measure on the embedded cluster. Return True if a case could not be measured."""
    from berth_bench.hostile.embedded import row
    from berth_bench.running import WorkloadError

    failed = False
    for case in cases:
        _say(case)
        try:
            report(row(case, size))
        except WorkloadError as err:
            click.echo(f"berth bench hostile: {err}", err=True)
            failed = True
    return failed


def _real(cases: Sequence[Case], size: Size, report: Callable[[Row], None]) -> bool:
    """Measure on a real API server. Return True if a case could not be measured."""
    with TemporaryDirectory(prefix="berth-hostile-") as folder:
        try:
            return asyncio.run(_all(cases, size, Path(folder), report))
        except asyncio.CancelledError:
            return True


async def _all(cases: Sequence[Case], size: Size, folder: Path, report: Callable[[Row], None]) -> bool:
    import aiohttp

    from berth_bench.hostile.real import yard
    from berth_bench.versus.api import ApiError
    from berth_bench.versus.scheduler_process import SchedulerError

    task = asyncio.current_task()
    if task is not None:
        # SIGTERM, which a job gets that takes too long, ends the servers and the schedulers too.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    failed = False
    by_servers = groupby(sorted(cases, key=lambda one: one.pod_groups), lambda one: one.pod_groups)
    for pod_groups, group in by_servers:
        where = folder / f"groups-{pod_groups}"
        where.mkdir()
        async with yard(where, size, pod_groups=pod_groups) as made:
            for case in group:
                _say(case)
                try:
                    report(await made.row(case))
                except (ApiError, SchedulerError, aiohttp.ClientError, TimeoutError) as err:
                    click.echo(f"berth bench hostile: {case.name}: {err!r}", err=True)
                    failed = True
    return failed


def _say(case: Case) -> None:
    if sys.stderr.isatty():
        click.echo(f"{case.name} ...", err=True)
