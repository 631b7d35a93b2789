"""`berth bench latency`: read the options, run the slices in turns, print the results."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import click
from berth_host.cli.input_errors import fail
from berth_host.cli.output import output_option
from berth_host.cli.rendering.serialized import STRUCTURED, streamed

if TYPE_CHECKING:
    from berth_bench.latency.figures import Latencies, Slice
    from berth_bench.versus.workloads import Versus

FAILED: Final = 1
WORKLOAD: Final = "Plain/5000Nodes"
MINUTES: Final = 5.0
TURNS: Final = 2
ALIVE: Final = 5000
TRIED: Final = 2000
"""Pods with which the limit is measured."""
_PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-scheduler")


@click.command("latency")
@click.argument("name", default=WORKLOAD, metavar="[WORKLOAD]")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=MINUTES,
    show_default=True,
    help="Time of each scheduler under the load.",
)
@click.option(
    "--turns", type=click.IntRange(min=1), default=TURNS, show_default=True, help="Slices of that time."
)
@click.option("--nodes", type=click.IntRange(min=1), metavar="N", help="Number of nodes, not the workload's.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help=f"Pods created per second. [default: half of what kube-scheduler binds of {TRIED} pending pods]",
)
@click.option(
    "--alive",
    type=click.IntRange(min=1),
    default=ALIVE,
    show_default=True,
    metavar="N",
    help="Pods that exist at a time: the oldest are deleted.",
)
@output_option("json prints a line, yaml a document per scheduler, and nothing else.")
def latency(
    name: str, minutes: float, turns: int, nodes: int | None, rate: float | None, alive: int, output: str
) -> None:
    """Compare how soon berth and kube-scheduler bind pods that come and go at a steady rate: a workload of
    `berth bench versus`, on one real API server, in turns.

    The times are those of the API server's audit log, from the request that creates a pod to the answer to
    the request that binds it. Pauses of berth's event loop and garbage collections are named.

    Needs etcd, kube-apiserver and kube-scheduler (`make envtest`).
    """
    # Not at the top: the scheduler's own process imports this module too.
    from berth_bench.rendering.latency import latencies_text
    from berth_bench.versus import workloads
    from berth_bench.versus.real_servers import missing_programs

    try:
        (chosen,) = workloads.chosen([name])
    except KeyError as err:
        known = ", ".join(one.name for one in workloads.WORKLOADS)
        fail(f"there is no workload {err.args[0]}: there are {known}")
    if problem := missing_programs(_PROGRAMS):
        fail(problem)
    chosen = chosen.resized(nodes, TRIED)
    with TemporaryDirectory(prefix="berth-latency-") as folder:
        found = asyncio.run(_all(chosen, minutes, turns, rate or 0.0, alive, Path(folder)))
    if not found:
        sys.exit(FAILED)
    size = [("--minutes", f"{minutes:g}"), ("--turns", turns), ("--nodes", nodes), ("--rate", rate)]
    given = [(option, value) for option, value in [*size, ("--alive", alive)] if value is not None]
    command = shlex.join(
        ["berth", "bench", "latency", name, *(str(part) for option in given for part in option)]
    )
    if output in STRUCTURED:
        for one in found:
            click.echo(streamed(one.as_json(command), output), nl=False)
    else:
        click.echo(latencies_text(found), nl=False)


async def _all(
    workload: Versus, minutes: float, turns: int, rate: float, alive: int, folder: Path
) -> list[Latencies]:
    """Run the slices of both schedulers in turns, so that other work on the machine affects both. An error is
    reported on standard error; without it there is a result for each.
    """
    from berth_bench.latency import audit
    from berth_bench.latency.figures import Latencies
    from berth_bench.latency.turn import Load, Track
    from berth_bench.versus.api import ApiError
    from berth_bench.versus.contenders import BERTH, KUBE_SCHEDULER
    from berth_bench.versus.real_servers import RealServers
    from berth_bench.versus.scheduler_process import SchedulerError
    from berth_bench.versus.yard import MORE_FLAGS, Yard

    slices: dict[str, list[Slice]] = {BERTH.name: [], KUBE_SCHEDULER.name: []}
    with RealServers(
        folder / "servers",
        more=(*MORE_FLAGS, *audit.FLAGS),
        audit_policy=audit.POLICY,
        service_accounts=True,
    ) as servers:
        yard, track = Yard(servers, folder), Track(servers, folder)
        try:
            await yard.have_service_accounts()
            await yard.have_nodes(workload.nodes)
            if not rate:
                rate = (await yard.turn(KUBE_SCHEDULER, workload)).pods_per_s / 2
            click.echo(f"{rate:.0f} pods per second", err=True)
            load = Load(seconds=60 * minutes / turns, rate=rate, alive=alive)
            for turn in range(turns):
                for contender in (BERTH, KUBE_SCHEDULER):
                    if sys.stderr.isatty():
                        click.echo(f"{contender.name} ({turn + 1} of {turns}) ...", err=True)
                    slices[contender.name].append(await track.slice(contender, workload, load))
        except (ApiError, SchedulerError) as err:
            click.echo(f"berth bench latency: {err}", err=True)
            return []
        finally:
            await yard.close()
            await track.close()
    return [Latencies(slices=tuple(own)) for own in slices.values()]
