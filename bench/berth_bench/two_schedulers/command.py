"""`berth bench two-schedulers`: read the options, run the cases, print the results."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import click
from berth_host.cli.input_errors import fail
from berth_host.cli.output import output_option
from berth_host.cli.rendering.serialized import STRUCTURED, streamed

if TYPE_CHECKING:
    from berth_bench.two_schedulers.cases import Case
    from berth_bench.two_schedulers.figures import Outcome
    from berth_bench.two_schedulers.turn import Size

FAILED: Final = 1
NODES: Final = 50
PLACES: Final = 2500
PODS: Final = 3000
_PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-scheduler")


@click.command("two-schedulers")
@click.argument("names", nargs=-1, metavar="[CASE]...")
@click.option("--list", "lists", is_flag=True, help="Print the names of the cases, and run nothing.")
@click.option("--nodes", type=click.IntRange(min=2), default=NODES, show_default=True, metavar="N")
@click.option(
    "--places",
    type=click.IntRange(min=2),
    default=PLACES,
    show_default=True,
    metavar="N",
    help="Pods that the nodes have room for.",
)
@click.option("--pods", type=click.IntRange(min=2), default=PODS, show_default=True, metavar="N")
@click.option(
    "--rate",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="N",
    help="Pods created per second. [default: a burst, as fast as the API server takes them]",
)
@output_option("json prints a line, yaml a document per case, and nothing else.")
def two_schedulers(
    names: tuple[str, ...], lists: bool, nodes: int, places: int, pods: int, rate: float, output: str
) -> None:
    """Let two schedulers place more pods than the nodes have room for, and count the pods beyond the room.

    Needs etcd, kube-apiserver and kube-scheduler (`make envtest`).
    """
    # Not at the top: the scheduler's own process imports this module too.
    from berth_bench.rendering.two_schedulers import outcomes_text
    from berth_bench.two_schedulers import cases
    from berth_bench.two_schedulers.turn import Size
    from berth_bench.versus.real_servers import missing_programs

    try:
        chosen = cases.chosen(names)
    except KeyError as err:
        known = ", ".join(one.name for one in cases.CASES)
        fail(f"there is no case {err.args[0]}: there are {known}")
    if lists:
        click.echo("\n".join(one.name for one in chosen))
        return
    if problem := missing_programs(_PROGRAMS):
        fail(problem)
    options = [("--nodes", nodes), ("--places", places), ("--pods", pods), ("--rate", f"{rate:g}")]
    more = [str(part) for option in options for part in option]
    done: list[Outcome] = []

    def report(outcome: Outcome) -> None:
        done.append(outcome)
        if output in STRUCTURED:
            command = shlex.join(["berth", "bench", "two-schedulers", outcome.case, *more])
            click.echo(streamed(outcome.as_json(command), output), nl=False)
            sys.stdout.flush()

    size = Size(nodes=nodes, places=places, pods=pods, rate=rate)
    with TemporaryDirectory(prefix="berth-two-schedulers-") as folder:
        asyncio.run(_all(chosen, size, Path(folder), report))
    if output == "table" and done:
        click.echo(outcomes_text(done), nl=False)
    if len(done) < len(chosen):
        sys.exit(FAILED)


async def _all(chosen: Sequence[Case], size: Size, folder: Path, report: Callable[[Outcome], None]) -> None:
    """Run one case after the other. An error is reported on standard error, and the next case runs."""
    from berth_bench.two_schedulers.turn import Ground
    from berth_bench.versus.api import ApiError
    from berth_bench.versus.real_servers import RealServers
    from berth_bench.versus.scheduler_process import SchedulerError
    from berth_bench.versus.yard import MORE_FLAGS

    with RealServers(folder / "servers", more=MORE_FLAGS) as servers:
        ground = Ground(servers, folder, size)
        try:
            await ground.make()
            for case in chosen:
                if sys.stderr.isatty():
                    click.echo(f"{case.title} ...", err=True)
                try:
                    report(await ground.run(case))
                except (ApiError, SchedulerError) as err:
                    click.echo(f"berth bench two-schedulers: {case.name}: {err}", err=True)
        finally:
            await ground.close()
