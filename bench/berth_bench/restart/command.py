"""`berth bench restart`: read the options, start the schedulers in turns, print the results."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import click
from berth_host.cli.input_errors import fail
from berth_host.cli.output import output_option
from berth_host.cli.rendering.serialized import STRUCTURED, streamed

if TYPE_CHECKING:
    from berth_bench.restart.figures import Restarts, Start, TakeOver
    from berth_bench.versus.contenders import Contender

RUNS: Final = 3
NODES: Final = 5000
RUNNING: Final = 25_000
FAILED: Final = 1
_PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-scheduler")


@click.command("restart")
@click.option(
    "--runs", type=click.IntRange(min=1), default=RUNS, show_default=True, help="Starts of each scheduler."
)
@click.option("--nodes", type=click.IntRange(min=1), default=NODES, show_default=True, metavar="N")
@click.option(
    "--running",
    type=click.IntRange(min=1),
    default=RUNNING,
    show_default=True,
    metavar="N",
    help="Number of pods that run on the nodes.",
)
@click.option(
    "--kills",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Number of leaders of each scheduler to kill, to measure how soon the standby binds.",
)
@click.option(
    "--other-berth",
    type=click.Path(exists=True, dir_okay=False),
    metavar="PYTHON",
    help="Let another berth, as of an earlier version, take turns too: the Python of its environment.",
)
@output_option("json prints a line, yaml a document, and nothing else.")
def restart(runs: int, nodes: int, running: int, kills: int, other_berth: str | None, output: str) -> None:
    """Start berth and kube-scheduler in turns on a real API server with many running pods, and measure each
    start until its first binding.

    Needs etcd, kube-apiserver and kube-scheduler (`make envtest`).
    """
    # Not at the top: the scheduler's own process imports this module too.
    from berth_bench.rendering.restart import restarts_text
    from berth_bench.versus.api import ApiError
    from berth_bench.versus.contenders import BERTH, KUBE_SCHEDULER
    from berth_bench.versus.real_servers import missing_programs
    from berth_bench.versus.scheduler_process import SchedulerError

    if problem := missing_programs(_PROGRAMS):
        fail(problem)
    contenders = [BERTH, KUBE_SCHEDULER]
    if other_berth is not None:
        python = str(Path(other_berth).absolute())
        contenders.insert(1, replace(BERTH, name=f"berth, {python}", python=python))
    options: list[tuple[str, int | str | None]] = [
        ("--runs", runs),
        ("--nodes", nodes),
        ("--running", running),
    ]
    options += [("--kills", kills or None), ("--other-berth", other_berth)]
    more = [str(part) for option in options if option[1] is not None for part in option]
    try:
        with TemporaryDirectory(prefix="berth-restart-") as folder:
            found = asyncio.run(_measured(contenders, runs, nodes, running, kills, Path(folder)))
    except (ApiError, SchedulerError) as err:
        click.echo(f"berth bench restart: {err}", err=True)
        sys.exit(FAILED)
    if output in STRUCTURED:
        click.echo(
            streamed(found.as_json(shlex.join(["berth", "bench", "restart", *more])), output), nl=False
        )
    else:
        click.echo(restarts_text(found), nl=False)


async def _measured(
    contenders: Sequence[Contender], runs: int, nodes: int, running: int, kills: int, folder: Path
) -> Restarts:
    """Start the contenders in turns, so that other work on the machine affects all of them."""
    from berth_bench.restart.figures import Restarts, Starts
    from berth_bench.restart.ground import Ground
    from berth_bench.versus.real_servers import RealServers
    from berth_bench.versus.yard import MORE_FLAGS

    starts: list[list[Start]] = [[] for _ in contenders]
    take_overs: list[list[TakeOver]] = [[] for _ in contenders]
    with RealServers(folder / "servers", more=MORE_FLAGS) as servers:
        ground = Ground(servers, folder)
        try:
            _say(f"{running} pods on {nodes} nodes ...")
            for contender in contenders:
                await ground.compile(contender)
            await ground.fill(nodes, running)
            for run in range(runs):
                for contender, own in zip(contenders, starts, strict=True):
                    _say(f"{contender.name} ({run + 1} of {runs}) ...")
                    own.append(await ground.start(contender))
            for kill in range(kills):
                for contender, each in zip(contenders, take_overs, strict=True):
                    _say(f"{contender.name}, leader killed ({kill + 1} of {kills}) ...")
                    each.append(await ground.take_over(contender))
        finally:
            await ground.close()
    return Restarts(
        nodes=nodes,
        running=running,
        pod_bytes=ground.pod_bytes,
        contenders=tuple(
            Starts(contender=one.name, starts=tuple(own), take_overs=tuple(each))
            for one, own, each in zip(contenders, starts, take_overs, strict=True)
        ),
    )


def _say(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(text, err=True)
