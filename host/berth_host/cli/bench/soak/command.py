"""`berth bench soak`: reads its options, runs one soak, prints the account."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click

from berth_host.cli.output import output_option
from berth_host.cli.rendering.serialized import STRUCTURED, streamed

NODES: Final = 1000
FAILED: Final = 1


@click.command("soak")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="How long pods come and go, and plugins fail.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Decides what happens, and when.")
@click.option("--nodes", type=click.IntRange(min=10), default=NODES, show_default=True, metavar="N")
@click.option("--keep", metavar="FOLDER", type=click.Path(file_okay=False), help="Leave the logs there.")
@output_option("json prints one line, yaml one document, and nothing else.")
def soak(minutes: float, seed: int, nodes: int, keep: str | None, output: str) -> None:
    """Run a host under load while its plugins are killed, hung, slowed, replaced and made to lie.

    The host is killed, too, and its connections to the cluster are cut. Exits with 1 where a pod was lost or
    bound twice, a node was given too much, or something leaked.
    """
    # Not at the top: the scheduler's own process reads this module too, and pays for what it imports.
    from berth_host.cli.bench.soak.world import Plan
    from berth_host.cli.bench.soak.world import soak as run
    from berth_host.cli.bench.versus.scheduler_process import SchedulerError

    with TemporaryDirectory(prefix="berth-soak-") as made:
        folder = Path(keep) if keep else Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        plan = Plan(
            minutes=minutes,
            seed=seed,
            nodes=nodes,
            folder=folder,
            say=lambda text: click.echo(f"berth bench soak: {text}", err=True),
        )
        try:
            result = asyncio.run(run(plan))
        except SchedulerError as err:
            click.echo(f"berth bench soak: the host: {err}", err=True)
            sys.exit(FAILED)
    if output in STRUCTURED:
        click.echo(streamed(result.as_json(), output), nl=False)
    else:
        width = max(map(len, result.as_json()))
        for name, value in result.as_json().items():
            shown = json.dumps(value) if isinstance(value, dict) else value
            click.echo(f"{name:<{width}}  {shown}")
    problems = result.problems()
    for problem in problems:
        click.echo(f"berth bench soak: {problem}", err=True)
    if problems:
        sys.exit(FAILED)
