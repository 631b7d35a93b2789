"""`berth bench ui`: read the options, run the page in Chromium, print the frame times."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click
from berth_host import log
from berth_host.cli.input_errors import fail
from berth_host.cli.output import output_option
from berth_host.cli.rendering.columns import columns
from berth_host.cli.rendering.serialized import STRUCTURED, serialized

if TYPE_CHECKING:
    from berth_bench.ui.frames import Frames

FAILED: Final = 1
NODES: Final = 5000
PODS: Final = 10_000
SECONDS: Final = 10.0


@click.command("ui")
@click.option("--nodes", type=click.IntRange(min=1), default=NODES, show_default=True, metavar="N")
@click.option(
    "--pods",
    type=click.IntRange(min=1),
    default=PODS,
    show_default=True,
    metavar="N",
    help="Pending pods, for four reasons.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.5),
    default=SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Time of each part.",
)
@output_option("json and yaml print one object and nothing else.")
def ui(nodes: int, pods: int, seconds: float, output: str) -> None:
    """Measure how fluent the page is in a headless Chromium, while pods and nodes change.

    Prints for each part the times between two frames. Chromium must be installed: apt-get install chromium.
    """
    # Not at the top: every `berth bench` imports this module.
    from berth_bench.ui.chromium import ChromiumError
    from berth_bench.ui.frames import measured

    log.configure("ERROR")
    try:
        found = measured(nodes, pods, seconds, lambda text: click.echo(text, err=True))
    except ChromiumError as err:
        fail(f"error: {err}")
    if output in STRUCTURED:
        value = {"nodes": nodes, "pods": pods, "parts": [asdict(one) for one in found]}
        click.echo(serialized(value, output), nl=False)
    else:
        click.echo(_text(found))
    if not all(one.frames for one in found):
        sys.exit(FAILED)


def _text(found: Sequence[Frames]) -> str:
    header = ("PART", "FRAMES", "MEDIAN MS", "95% MS", "99% MS", "MAX MS", "BELOW 50 MS")
    rows = [
        (
            one.part,
            str(one.frames),
            *(f"{value:.1f}" for value in (one.median_ms, one.p95_ms, one.p99_ms, one.max_ms)),
            f"{100 * one.below_50_ms:.1f} %",
        )
        for one in found
    ]
    return columns(header, rows, right=(1, 2, 3, 4, 5, 6))
