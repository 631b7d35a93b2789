"""`berth simulate`: schedule the pods of manifests on the nodes of manifests.

`berth why` uses the same options, input and progress bar.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click
from berth_host import log
from berth_host.cli import plugin_output, standard_input
from berth_host.cli.commands import INTERRUPTED, own_plugins
from berth_host.cli.input_errors import fail, reported
from berth_host.cli.options import (
    PATH,
    emulated_version_option,
    feature_gates_option,
    no_convert_option,
    only_one,
    verbose_option,
)
from berth_host.cli.output import output_option
from berth_host.cli.rendering.serialized import STRUCTURED, serialized
from berth_host.cli.rendering.terminal import Terminal
from berth_host.config.profiles.registry import UNTIL_ATTACHED
from berth_host.process import event_loop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from berth_sim.commands.rendering.report import costs_text, report_text
from berth_sim.commands.simulation import Asks, Finished, Prepared, Request, prepare, run
from berth_sim.commands.strictness import conclude, is_strict, strict_option

Command = TypeVar("Command", bound=Callable[..., Any])
STAYED_PENDING: Final = 3


INPUT_OPTIONS: Final = (
    click.option(
        "-f",
        "--filename",
        "paths",
        multiple=True,
        type=PATH,
        metavar="PATH",
        help="Manifests: files, folders (with their folders), or - for standard input. Repeatable;"
        " -f may be left out.",
    ),
    click.argument("more_paths", nargs=-1, type=PATH, metavar="[PATH]..."),
)
"""The options that name the manifests."""
_CONFIG: Final = (
    click.option(
        "--config",
        type=PATH,
        multiple=True,
        callback=only_one,
        metavar="FILE",
        help="KubeSchedulerConfiguration, with or without berth's own; - for standard input.",
    ),
)
_OUTPUT: Final = output_option("json and yaml print one object and nothing else.")
RUN_OPTIONS: Final = (
    no_convert_option,
    feature_gates_option,
    emulated_version_option,
    click.option(
        "--seed",
        type=int,
        default=0,
        show_default=True,
        help="Seed for the choice between nodes with equal scores.",
    ),
    _OUTPUT,
    strict_option,
    verbose_option,
)
"""The options of a run, and of what is printed about it."""


def simulation_options(command: Command) -> Command:
    """Add the options of a simulation: its input, its configuration and its output."""
    for option in reversed((*INPUT_OPTIONS, *_CONFIG, *RUN_OPTIONS)):
        command = option(command)
    return command


def input_options(command: Command) -> Command:
    """Add the options of a simulation whose result is not printed."""
    for option in reversed((*INPUT_OPTIONS, *_CONFIG, *RUN_OPTIONS)):
        command = command if option is _OUTPUT else option(command)
    return command


@click.command()
@simulation_options
@click.option("--fail-on-pending", is_flag=True, help="Exit with 3 if pods stay pending.")
@click.option("--costs", is_flag=True, help="Print on standard error what each plugin took per call.")
def simulate(output: str, **options: Any) -> None:
    """Place the pods of manifests on their nodes, as the real host would, without a cluster.

    Prints the node of each pod, and the reason for each pod that stays pending. Deployments, ReplicaSets,
    StatefulSets and Jobs stand for their pods. Ctrl-C ends the run with a report of the pods decided so far.
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
        click.echo("interrupted: the report covers the pods decided so far", err=True)
        sys.exit(INTERRUPTED)
    conclude(done.lapses, done.failed_plugins, strict=options["strict"])
    if options["fail_on_pending"] and done.report.pending:
        sys.exit(STAYED_PENDING)


def say(text: str) -> None:
    """Print a line on standard error."""
    click.echo(text, err=True)


def prepared(
    options: Mapping[str, Any],
    *,
    read_stdin: Callable[[], str] = standard_input.read_text,
    say: Callable[[str], None] = say,
) -> Prepared:
    """Read the input, and print its warnings on standard error. Raises the errors of `prepare`.

    `say`: prints a warning.
    """
    log.configure(log.EVERY_ATTEMPT if options["verbose"] else "ERROR", for_people=True)
    paths = [*options["paths"], *options["more_paths"]]
    if not paths and "live" not in options:
        message = "no manifests: give PATH or -f PATH, a file, a folder, or - for standard input"
        raise click.UsageError(message)
    request = Request(
        paths=paths,
        config=options["config"],
        convert_older=not options["no_convert"],
        feature_gates=options["feature_gates"],
        emulated_version=options["emulated_version"],
        seed=options["seed"],
        started_s=options.get("started_s"),
        live=options.get("live", tuple),
        move_pods=options.get("move_pods", False),
        needs_pods=options.get("needs_pods", True),
        read_stdin=read_stdin,
        plugins=own_plugins(),
    )
    with plugin_output.on_standard_error():
        ready = prepare(request)
    # The run attaches served plugins, and warns itself if they differ from the file.
    known = [text for text in ready.configuration.warnings if not text.endswith(UNTIL_ATTACHED)]
    for warning in (*known, *ready.loaded.warnings):
        say(f"warning: {warning}")
    if ready.loaded.gaps and is_strict(options["strict"]):
        fail(
            "\n".join(
                (*ready.loaded.gaps, "with --strict this is bad input: correct it, or give --no-strict")
            )
        )
    return ready


def finished(ready: Prepared, say: Callable[[str], None] = say, before_stop: Asks | None = None) -> Finished:
    """Run the simulation, with a progress bar if standard error is a terminal.

    `say`: prints a warning. `before_stop`: see `simulation.run`.
    """
    with plugin_output.on_standard_error():
        done = _run(ready, before_stop)
    for warning in (*done.lapses, *done.remarks):
        say(f"warning: {warning}")
    missing = done.host.clients.missing
    if missing:
        say(f"warning: this build does not have these default plugins yet: {', '.join(missing)}")
    return done


def _run(ready: Prepared, before_stop: Asks | None) -> Finished:
    console = Console(stderr=True)
    if not console.is_terminal:
        return event_loop.run(run(ready, say=say, before_stop=before_stop))
    with Progress(
        TextColumn("scheduling"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("pods"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task("scheduling", total=ready.pods_to_place)
        return event_loop.run(run(ready, lambda count: bar.update(task, completed=count), say, before_stop))
