"""`berth simulate`: schedule the pods of some manifests on the nodes of some manifests."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from berth_host.cli.commands import INTERRUPTED
from berth_host.cli.input_errors import reported
from berth_host.cli.options import finished, prepared, simulation_options
from berth_host.cli.rendering.report import costs_text, report_text
from berth_host.cli.rendering.serialized import STRUCTURED, serialized
from berth_host.cli.rendering.terminal import Terminal
from berth_host.cli.strictness import conclude, is_strict

STAYED_PENDING: Final = 3


@click.command()
@simulation_options
@click.option("--fail-on-pending", is_flag=True, help="Exit with 3 when pods stay pending.")
@click.option("--costs", is_flag=True, help="Say on standard error what each plugin took per call.")
def simulate(output: str, **options: Any) -> None:
    """Place the pods of manifests on their nodes, as the real host would, without a cluster.

    Prints where each pod goes, and for each pod that stays pending why. Deployments, ReplicaSets,
    StatefulSets and Jobs stand for their pods. Ctrl-C ends it with the pods that are decided by then.
    """
    with reported():
        done = finished(prepared(options))
    if output in STRUCTURED:
        click.echo(serialized(done.report.as_json(), output), nl=False)
    else:
        terminal = Terminal.of(sys.stdout)
        click.echo(report_text(done.report, terminal), nl=False, color=terminal.has_colour)
    if options["costs"]:
        terminal = Terminal.of(sys.stderr)
        text = costs_text(list(done.costs), terminal)
        click.echo(text, nl=False, err=True, color=terminal.has_colour)
    if done.report.summary.is_interrupted:
        click.echo("interrupted: the report is of the pods decided by then", err=True)
        sys.exit(INTERRUPTED)
    conclude(done.lapses, strict=is_strict(options["strict"]))
    if options["fail_on_pending"] and done.report.pending:
        sys.exit(STAYED_PENDING)
