"""`berth bench faults`: read the options, run the cases in turns, print the results."""

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
NODES: Final = 1000
PODS: Final = 1000
TURNS: Final = 3
WARM_UP_S: Final = 20.0
"""Long enough for a hanging plugin to miss three probes."""


@click.command("faults")
@click.option("--nodes", type=click.IntRange(min=1), default=NODES, show_default=True, metavar="N")
@click.option(
    "--pods",
    type=click.IntRange(min=2),
    default=PODS,
    show_default=True,
    metavar="N",
    help="Pods right after the fault, and again after the warm-up.",
)
@click.option(
    "--turns", type=click.IntRange(min=1), default=TURNS, show_default=True, help="Turns of each case."
)
@click.option(
    "--warm-up",
    "warm_up_s",
    type=click.FloatRange(min=0),
    default=WARM_UP_S,
    show_default=True,
    metavar="SECONDS",
    help="Time from the fault to the second batch of pods.",
)
@output_option("json and yaml print one object per case and nothing else.")
def faults(nodes: int, pods: int, turns: int, warm_up_s: float, output: str) -> None:
    """Measure how fast pods are placed beside a plugin that is dead, that hangs, or that is slow.

    The plugin is a served plugin at Filter, with the policy Ignore. Every turn has a fresh host. The other
    cases are compared with turns without the plugin.
    """
    # Not at the top: the scheduler's own process imports this module too.
    from berth_bench.children import in_child
    from berth_bench.faults.figures import standings
    from berth_bench.faults.turn import PODS_PER_NODE, Case, Size, Turn, turn
    from berth_bench.rendering.faults import faults_text
    from berth_bench.running import WorkloadError

    size = Size(nodes=nodes, pods=pods, warm_up_s=warm_up_s)
    if not size.has_room:
        fail(
            f"{nodes} nodes hold {PODS_PER_NODE * nodes} pods, and a turn makes {size.pods_in_all}:"
            " take more --nodes, fewer --pods, or a shorter --warm-up"
        )
    done: dict[Case, list[Turn]] = {case: [] for case in Case}
    for number in range(turns):
        # In turns, so that other work on the machine affects all cases.
        for case in Case:
            if sys.stderr.isatty():
                click.echo(f"{case} ({number + 1} of {turns}) ...", err=True)
            try:
                done[case].append(in_child(case.value, partial(turn, case, size)))
            except WorkloadError as err:
                click.echo(f"berth bench faults: {err}", err=True)
                sys.exit(FAILED)
    found = standings(size, done)
    if output == "table":
        click.echo(faults_text(found), nl=False)
        return
    options = [("--nodes", nodes), ("--pods", pods), ("--turns", turns), ("--warm-up", f"{warm_up_s:g}")]
    command = ["berth", "bench", "faults", *(str(part) for option in options for part in option)]
    for one in found:
        click.echo(streamed(one.as_json(shlex.join(command)), output), nl=False)
