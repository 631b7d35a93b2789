"""`berth bench simulate`: read the options, measure, print the results."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click
from berth_host.cli.output import output_option
from berth_host.cli.rendering.columns import columns
from berth_host.cli.rendering.serialized import streamed

if TYPE_CHECKING:
    from berth_bench.simulate.measure import Cost, Figures

FAILED: Final = 1
PODS: Final = 1000
TEMPLATES: Final = 50
_HEAD: Final = ("WAY", "VERDICTS", "S", "MS/VERDICT", "HOST CPU S", "PLUGIN CALLS")


@click.command("simulate")
@click.option("--pods", type=click.IntRange(1, 10_000), default=PODS, show_default=True, metavar="N")
@click.option(
    "--templates",
    type=click.IntRange(1, 250),
    default=TEMPLATES,
    show_default=True,
    metavar="N",
    help="Kinds of nodes that do not exist.",
)
@click.option(
    "--calls",
    type=click.IntRange(min=1),
    metavar="N",
    help="The most what-ifs to ask one by one. [default: one for each pod and template]",
)
@output_option("json and yaml print one object, and nothing else.")
def simulate(pods: int, templates: int, calls: int | None, output: str) -> None:
    """Ask about pods on template nodes with a served plugin: in one Simulate, and one by one.

    Every answer of the two is compared. The third line places the pods, each of which takes its room, on 20
    nodes of each template.
    """
    # Not at the top: see `faults`.
    from berth_bench.children import in_child
    from berth_bench.running import WorkloadError
    from berth_bench.simulate.measure import measure

    try:
        found = in_child("simulate", partial(measure, pods, templates, calls or pods * templates))
    except WorkloadError as err:
        click.echo(f"berth bench simulate: {err}", err=True)
        sys.exit(FAILED)
    click.echo(simulate_text(found) if output == "table" else streamed(_json(found), output), nl=False)


def simulate_text(found: Figures) -> str:
    """Return the figures as a table."""
    rows = [
        _row("one Simulate, each pod alone", found.together),
        _row("what-ifs one by one", found.one_by_one),
        _row("one Simulate, pods take room", found.placed),
    ]
    return (
        f"{columns(_HEAD, rows, right=range(1, len(_HEAD)))}\n\n"
        f"A verdict in one Simulate took {found.ratio:.3f} of the time of a what-if.\n"
        f"It held scheduling up for {found.held_s:.2f} s, in {found.slices} slices.\n"
        f"Taking room, {found.placed_count} of {found.pods} pods were placed on {found.used_count} nodes.\n"
    )


def _row(way: str, cost: Cost) -> tuple[str, ...]:
    return (
        way,
        str(cost.verdicts),
        f"{cost.wall_s:.2f}",
        f"{cost.verdict_ms:.3f}",
        f"{cost.cpu_s:.2f}",
        str(cost.plugin_calls),
    )


def _json(found: Figures) -> Mapping[str, Any]:
    return {"measured": "simulate", **asdict(found), "ratio": found.ratio}
