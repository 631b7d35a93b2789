"""`berth bench attach`: read the options, measure in turns, print the results."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from typing import Final

import click
from berth_host.cli.input_errors import fail
from berth_host.cli.output import output_option
from berth_host.cli.rendering.serialized import streamed

FAILED: Final = 1
PROCESSES: Final = 10
PLUGINS: Final = 10
TURNS: Final = 5
STARTS: Final = 15
MAX_PLUGINS: Final = 256
"""The maximum number of plugins in a configuration."""


@click.command("attach")
@click.option("--processes", type=click.IntRange(min=2), default=PROCESSES, show_default=True, metavar="N")
@click.option(
    "--plugins",
    "each",
    type=click.IntRange(min=1),
    default=PLUGINS,
    show_default=True,
    metavar="N",
    help="Plugins in each process.",
)
@click.option(
    "--turns", type=click.IntRange(min=1), default=TURNS, show_default=True, help="Hosts of each kind."
)
@click.option(
    "--starts", type=click.IntRange(min=1), default=STARTS, show_default=True, help="Starts of a child."
)
@output_option("json and yaml print two objects, of the start and of attaching, and nothing else.")
def attach(processes: int, each: int, turns: int, starts: int, output: str) -> None:
    """Measure how soon a child answers, and what it costs to attach many plugins.

    The start of a child, up to its first answer, is compared with Python that only imports gRPC and numpy.
    The plugins are attached through a folder of sockets, all at once and one process after the other.
    """
    # Not at the top: see `faults`.
    from berth_bench.attach import start
    from berth_bench.attach.figures import attach_figures, start_figures
    from berth_bench.attach.turn import Size, Turn, Way, turn
    from berth_bench.children import in_child
    from berth_bench.rendering.attach import attach_text
    from berth_bench.running import WorkloadError

    size = Size(processes=processes, each=each)
    if size.plugins > MAX_PLUGINS:
        fail(f"{size.plugins} plugins are more than the {MAX_PLUGINS} that a configuration may have")
    done: dict[Way, list[Turn]] = {way: [] for way in Way}
    try:
        _say("starts of a child ...")
        started = start_figures(in_child("start", partial(start.starts, starts)))
        for number in range(turns):
            # In turns, so that other work on the machine affects both.
            for way in Way:
                _say(f"{way} ({number + 1} of {turns}) ...")
                done[way].append(in_child(way.value, partial(turn, way, size)))
    except WorkloadError as err:
        click.echo(f"berth bench attach: {err}", err=True)
        sys.exit(FAILED)
    attached = attach_figures(size, done)
    if output == "table":
        click.echo(attach_text(started, attached), nl=False)
        return
    options = (("--processes", processes), ("--plugins", each), ("--turns", turns), ("--starts", starts))
    command = shlex.join(["berth", "bench", "attach", *(str(part) for one in options for part in one)])
    for line in (started.as_json(command), attached.as_json(command)):
        click.echo(streamed(line, output), nl=False)


def _say(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(text, err=True)
