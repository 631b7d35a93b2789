"""`berth bench life`: read the options, run lives one after the other, print what became of them."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from berth_host import log
from berth_host.cli.input_errors import fail
from berth_host.cli.output import output_option
from berth_host.cli.rendering.serialized import STRUCTURED, streamed

if TYPE_CHECKING:
    from berth_bench.life.life import Result
    from berth_bench.life.recording import Recording

FAILED: Final = 1
DAYS: Final = 0.02
_OF_NEW_LIVES: Final = (
    "seed",
    "days",
    "hosts",
    "lives",
    "until_failure",
    "shrink",
    "without",
    "trace",
    "watch",
)
"""The options that --replay does not go with."""
_PATH: Final = click.Path(dir_okay=False, path_type=Path)


@click.command("life")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the first life.")
@click.option(
    "--days",
    type=click.FloatRange(min=0, min_open=True),
    default=DAYS,
    show_default=True,
    metavar="D",
    help="Virtual days until the world is calm.",
)
@click.option(
    "--hosts",
    type=click.IntRange(1, 2),
    metavar="N",
    help="Let one host live, or two with a Lease. [default: the seed decides]",
)
@click.option(
    "--lives",
    type=click.IntRange(min=1),
    metavar="N",
    help="Run lives of so many seeds that follow each other. [default: 1; with --until-failure: no limit]",
)
@click.option("--until-failure", is_flag=True, help="End after the first life that breaks a law.")
@click.option("--shrink", is_flag=True, help="Make a life that breaks a law short, and print its command.")
@click.option(
    "--without",
    metavar="KIND[,KIND]",
    default="",
    help="Leave out kinds of acts: pods, gang, leave, node, taint, resize, devices, budget, quota, cut,"
    " restart, reload, kill, pause, step, reset, compact, lag, plugin.",
)
@click.option("--trace", metavar="FILE", type=_PATH, help="Write the trace of one life into this file.")
@click.option(
    "--replay",
    metavar="FILE",
    type=_PATH,
    help="Run the life of a --trace file again, and compare the traces.",
)
@click.option(
    "--watch", is_flag=True, help="Then serve the page of one life, with a slider of time, until Ctrl-C."
)
@output_option("json prints a line per life, yaml a document; they are the same for the same seed.")
def life(
    seed: int,
    days: float,
    hosts: int | None,
    lives: int | None,
    until_failure: bool,
    shrink: bool,
    without: str,
    trace: Path | None,
    replay: Path | None,
    watch: bool,
    output: str,
) -> None:
    """Run whole hosts on a virtual clock, in a world that is drawn from a seed, and check their laws.

    Nodes, pods and gangs come and go. The API server is late, fails, and is away; the host stops and loses
    the lead. Some lives have two hosts, of which one holds the Lease. At the end nothing fails any more, and
    every pod must get a node. The same seed gives the same trace on every machine. Exits with 1 if a law was
    broken, or if a replayed trace differs.
    """
    if trace is not None and (lives or 1) + until_failure > 1:
        raise click.UsageError("--trace is for one life: leave out --lives and --until-failure")
    if watch and (lives or 1) + until_failure > 1:
        raise click.UsageError("--watch is for one life: leave out --lives and --until-failure")
    if replay is not None:
        others = [name for name in _OF_NEW_LIVES if _is_typed(name)]
        if others:
            option = f"--{others[0].replace('_', '-')}"
            raise click.UsageError(f"--replay takes seed and days from its file: leave out {option}")
    # What the drawn faults make the host log is no news here; a broken law is in the result.
    log.configure("CRITICAL", for_people=True)
    if replay is not None:
        _replay(replay, output)
        return
    # Not at the top: the scheduler's own process imports this module too.
    from berth_bench.life import trace_file
    from berth_bench.life.life import live
    from berth_bench.life.recording import Recording
    from berth_bench.life.world import KINDS

    left_out = tuple(kind for kind in without.split(",") if kind)
    if unknown := [kind for kind in left_out if kind not in KINDS]:
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(KINDS)}", param_hint="--without")
    results: list[Result] = []
    began_s = time.monotonic()
    seeds = itertools.count(seed) if until_failure and lives is None else range(seed, seed + (lives or 1))
    for number in seeds:
        recording = Recording(days) if watch else None
        result = live(
            number,
            days,
            hosts=hosts,
            without=left_out,
            keeps_trace=trace is not None,
            recording=recording,
        )
        if trace is not None:
            try:
                trace_file.write(trace, result)
            except OSError as err:
                fail(f"{trace} cannot be written: {err.strerror}")
        results.append(result)
        _print_life(result, output)
        if result.broken and shrink:
            _print_shrunk(result)
        if result.broken and until_failure:
            break
    _print_figures(results, time.monotonic() - began_s)
    if recording is not None:
        _serve(results[-1], recording)
    if any(result.broken for result in results):
        sys.exit(FAILED)


def _serve(result: Result, recording: Recording) -> None:
    """Serve the page of a life until Ctrl-C."""
    from berth_bench.life.watched import serve

    def tell(url: str) -> None:
        click.echo(f"the life is at {url}; end with Ctrl-C", err=True)

    with suppress(KeyboardInterrupt):
        asyncio.run(serve(result, recording, tell))


def _is_typed(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source is not None and source is not click.core.ParameterSource.DEFAULT


def _replay(path: Path, output: str) -> None:
    from berth_bench.life import trace_file
    from berth_bench.life.life import live

    try:
        recorded = trace_file.read(path)
    except OSError as err:
        fail(f"{path} cannot be read: {err.strerror}")
    except trace_file.TraceFileError as err:
        fail(str(err))
    began_s = time.monotonic()
    result = live(recorded.seed, recorded.days, hosts=recorded.hosts, without=recorded.without)
    _print_life(result, output)
    _print_figures([result], time.monotonic() - began_s)
    if differs := trace_file.difference(recorded, result):
        click.echo(
            f"berth bench life: {differs}: the file is of another commit, or the machine decided something",
            err=True,
        )
    else:
        click.echo(f"the trace is the same: {result.trace_lines} lines", err=True)
    if differs or result.broken:
        sys.exit(FAILED)


def _print_life(result: Result, output: str) -> None:
    if output in STRUCTURED:
        click.echo(streamed(result.as_json(), output), nl=False)
    else:
        click.echo(
            f"seed {result.seed}: {_of_hosts(result.hosts)}, {result.mood}, {result.hours:.2f} h,"
            f" {result.pods} pods, {result.bound} bound, {result.acts} acts, {result.faults} faults,"
            f" trace {result.trace_sha256[:16]}"
        )
    sys.stdout.flush()
    if result.broken:
        click.echo(
            f"berth bench life: seed {result.seed}: {result.broken}\nplay it again: {_command_of(result)}",
            err=True,
        )


def _command_of(result: Result) -> str:
    without = f" --without {','.join(result.without)}" if result.without else ""
    return f"berth bench life --seed {result.seed} --days {result.days!r} --hosts {result.hosts}{without}"


def _of_hosts(count: int) -> str:
    return "one host" if count == 1 else "two hosts"


def _print_shrunk(failing: Result) -> None:
    from berth_bench.life.life import live
    from berth_bench.life.shrink import shrunk
    from berth_bench.life.world import KINDS

    def run(days: float, without: frozenset[str]) -> Result:
        return live(failing.seed, days, hosts=failing.hosts, without=without, keeps_trace=False)

    shorter = shrunk(failing, KINDS, run)
    lines = f"{shorter.trace_lines} lines of trace instead of {failing.trace_lines}"
    click.echo(f"{lines}: {_command_of(shorter)}", err=True)


def _print_figures(results: list[Result], took_s: float) -> None:
    """Print on standard error what differs from run to run: for each number of hosts, and for all lives."""
    counts = sorted({one.hosts for one in results})
    for count in counts if len(counts) > 1 else ():
        some = [one for one in results if one.hosts == count]
        click.echo(f"{_of_hosts(count)}: {_figures(some)}", err=True)
    click.echo(
        f"{_figures(results)}; {60 * len(results) / max(took_s, 1e-9):.0f} lives per minute",
        err=True,
    )


def _figures(results: Sequence[Result]) -> str:
    hours, cpu_s = sum(one.hours for one in results), sum(one.cpu_s for one in results)
    broken = sum(bool(one.broken) for one in results)
    return (
        f"{len(results)} lives, {broken} broke a law; {hours:.1f} virtual hours,"
        f" {hours / max(cpu_s, 1e-9):.2f} per second of CPU"
    )
