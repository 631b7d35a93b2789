"""`berth bench versus`: read the options, run the contenders in turns, print the results."""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import click
from berth_host.cli.input_errors import fail
from berth_host.cli.output import output_option
from berth_host.cli.rendering.serialized import STRUCTURED, streamed

from berth_bench.small_pods import small_option

if TYPE_CHECKING:
    from berth_bench.versus.figures import Comparison
    from berth_bench.versus.workloads import Versus
    from berth_bench.versus.yard import Yard

RUNS: Final = 3
FAILED: Final = 1
_PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-scheduler")


@click.command("versus")
@click.argument("names", nargs=-1, metavar="[WORKLOAD]...")
@click.option("--list", "lists", is_flag=True, help="Print the names, and run nothing.")
@click.option(
    "--runs", type=click.IntRange(min=1), default=RUNS, show_default=True, help="Turns of each scheduler."
)
@click.option(
    "--nodes", type=click.IntRange(min=20), metavar="N", help="Number of nodes, instead of the workload's."
)
@click.option(
    "--pods", type=click.IntRange(min=2), metavar="N", help="Number of pods, instead of the workload's."
)
@click.option(
    "--other-berth",
    type=click.Path(exists=True, dir_okay=False),
    metavar="PYTHON",
    help="Let another berth, as of an earlier version, take turns too: the Python of its environment.",
)
@click.option(
    "--running",
    type=click.IntRange(min=0),
    metavar="N",
    help="Number of pods that run on the nodes beforehand, instead of the workload's.",
)
@click.option(
    "--latency-pods",
    type=click.IntRange(min=2),
    metavar="N",
    help="Create this number of pods one by one instead, and report how soon each has its node.",
)
@small_option
@output_option("json prints a line, yaml a document per workload, and nothing else.")
def versus(
    names: tuple[str, ...],
    lists: bool,
    runs: int,
    nodes: int | None,
    pods: int | None,
    other_berth: str | None,
    running: int | None,
    latency_pods: int | None,
    small: bool,
    output: str,
) -> None:
    """Compare berth with kube-scheduler on one real API server, in turns: all workloads, or the named ones.

    Needs etcd, kube-apiserver and kube-scheduler (`make envtest`), and Go for workloads with an HTTP
    extender or a plugin in Go.
    """
    # Not at the top: the scheduler's own process imports this module too.
    from berth_bench.rendering.versus import comparisons_text
    from berth_bench.versus import extender, go_plugin, real_servers, workloads

    try:
        chosen = [one.resized(nodes, pods, running) for one in workloads.chosen(names)]
        chosen = [replace(one, small=small) for one in chosen]
        if other_berth is not None:
            chosen = [one.with_other_berth(str(Path(other_berth).absolute())) for one in chosen]
    except KeyError as err:
        known = ", ".join(one.name for one in workloads.WORKLOADS)
        fail(f"there is no workload {err.args[0]}: there are {known}")
    if lists:
        click.echo("\n".join(one.name for one in chosen))
        return
    if problem := real_servers.missing_programs(_PROGRAMS):
        fail(problem)
    if any(contender.extends for one in chosen for contender in one.contenders):
        try:
            extender.build()
        except extender.ExtenderError as err:
            fail(str(err))
    in_go = [contender.go_plugin for one in chosen for contender in one.contenders if contender.go_plugin]
    if in_go:
        try:
            go_plugin.build(in_go)
        except go_plugin.GoPluginError as err:
            fail(str(err))
    size: list[tuple[str, int | str | None]] = [("--nodes", nodes), ("--pods", pods), ("--running", running)]
    size += [("--other-berth", other_berth), ("--latency-pods", latency_pods)]
    given = [(option, value) for option, value in [("--runs", runs), *size] if value is not None]
    more = [part for option, value in given for part in (option, str(value))]
    more += ["--small"] if small else []
    done: list[Comparison] = []

    def report(comparison: Comparison) -> None:
        done.append(comparison)
        if output in STRUCTURED:
            command = shlex.join(["berth", "bench", "versus", comparison.workload, *more])
            click.echo(streamed(comparison.as_json(command), output), nl=False)
            sys.stdout.flush()

    with _ended_as_by_ctrl_c(), TemporaryDirectory(prefix="berth-versus-") as folder:
        asyncio.run(_all(chosen, runs, latency_pods or 0, Path(folder), report))
    if output == "table" and done:
        click.echo(comparisons_text(done), nl=False)
    if len(done) < len(chosen):
        sys.exit(FAILED)


@contextmanager
def _ended_as_by_ctrl_c() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C, so that a job killed for its time limit stops its servers."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


async def _all(
    chosen: Sequence[Versus],
    runs: int,
    latency_pods: int,
    folder: Path,
    report: Callable[[Comparison], None],
) -> None:
    """Run one workload after the other. An error is reported on standard error, and the next workload
    runs.
    """
    from berth_bench.versus.api import ApiError
    from berth_bench.versus.extender import ExtenderError
    from berth_bench.versus.real_servers import RealServers
    from berth_bench.versus.scheduler_process import SchedulerError
    from berth_bench.versus.yard import MORE_FLAGS, Yard

    for number, ((pod_groups, small, *_), workloads) in enumerate(groupby(chosen, _needs)):
        where = folder / f"servers-{number}"
        with RealServers(
            where, more=MORE_FLAGS, pod_groups=pod_groups, service_accounts=not small
        ) as servers:
            yard = Yard(servers, folder)
            try:
                if not small:
                    await yard.have_service_accounts()
                for workload in workloads:
                    try:
                        await yard.have_nodes(workload.nodes)
                        await yard.have_running(workload.running, small=small)
                        report(await _one(yard, workload, runs, latency_pods))
                    except (ApiError, ExtenderError, SchedulerError) as err:
                        click.echo(f"berth bench versus: {workload.name}: {err}", err=True)
            finally:
                await yard.close()


def _needs(workload: Versus) -> tuple[bool, bool, int, int]:
    """Return what the servers of a workload have: pod groups, running pods, and the nodes of these.

    Only workloads that need the same share servers, so that nothing changes for the others.
    """
    nodes = workload.nodes if workload.running else 0
    return bool(workload.gang), workload.small, workload.running, nodes


async def _one(yard: Yard, workload: Versus, runs: int, latency_pods: int) -> Comparison:
    """Run the contenders in turns, so that other work on the machine affects all of them."""
    from berth_bench.versus.figures import Comparison, Latency, Standing, Turn

    turns: dict[str, list[Turn]] = {one.name: [] for one in workload.contenders}
    latencies: dict[str, list[Latency]] = {one.name: [] for one in workload.contenders}
    for run in range(runs):
        for contender in workload.contenders:
            if sys.stderr.isatty():
                click.echo(f"{workload.name}, {contender.name} ({run + 1} of {runs}) ...", err=True)
            if latency_pods:
                latencies[contender.name].append(await yard.latency(contender, workload, latency_pods))
            else:
                turns[contender.name].append(await yard.turn(contender, workload))
    standings = (
        Standing(contender=name, turns=tuple(turns[name]), latencies=tuple(latencies[name])) for name in turns
    )
    return Comparison(
        workload=workload.name, nodes=workload.nodes, pods=workload.pods, standings=tuple(standings)
    )
