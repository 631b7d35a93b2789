"""The options that `simulate` and `why` share, and the values made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, cast

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from berth_host import log
from berth_host.cli import plugin_output, standard_input
from berth_host.cli.input_errors import fail
from berth_host.cli.output import output_option
from berth_host.cli.scheduler.flag_kinds import EMULATED, EMULATED_HELP, GATES, emulated_version, gate_values
from berth_host.cli.simulation import Finished, Prepared, Request, prepare, run
from berth_host.cli.strictness import is_strict, strict_option
from berth_host.config.profiles.registry import UNTIL_ATTACHED
from berth_host.process import event_loop

Command = TypeVar("Command", bound=Callable[..., Any])


class _Path(click.Path):
    """An empty one, as of a variable that is not set, is not the working folder but a mistake."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path. Raises BadParameter."""
        if not value:
            self.fail("it is empty: name a file or a folder, or - for standard input", param, ctx)
        return super().convert(value, param, ctx)


PATH: Final = _Path(allow_dash=True)
"""The type of paths that are read: shells complete them, and who reads one says what is wrong with it."""


def _only_one(_: click.Context, param: click.Parameter, values: tuple[str, ...]) -> str | None:
    """The value of an option that would else be what was said last. Raises BadParameter."""
    if len(values) > 1:
        raise click.BadParameter(f"it is given {len(values)} times, and one is read: leave one", param=param)
    return values[0] if values else None


no_convert_option: Final = click.option(
    "--no-convert", is_flag=True, help="Refuse older configurations, as kube-scheduler 1.36 does."
)
"""Shared by all commands that read a configuration; without it older ones are converted to v1."""


def _gates(_: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, bool]:
    """The gates as `berth scheduler` reads them: the last one of a name counts. Raises BadParameter."""
    try:
        read = [gate for text in given for gate in cast(tuple[str, ...], GATES.read(text))]
        if GATES.check is not None:
            GATES.check(tuple(read))
    except ValueError as err:
        raise click.BadParameter(f"{','.join(given)!r}: {err}", param=param) from err
    return gate_values(tuple(read))


feature_gates_option: Final = click.option(
    "--feature-gates",
    multiple=True,
    callback=_gates,
    metavar=GATES.metavar,
    help="Feature gates that differ from the defaults of kube-scheduler 1.36.",
)
"""Shared by all commands that read a configuration."""


def _emulated(_: click.Context, param: click.Parameter, given: tuple[str, ...]) -> str:
    """The version as `berth scheduler` reads it; empty without one. Raises BadParameter."""
    try:
        read = tuple(version for text in given for version in cast(tuple[str, ...], EMULATED.read(text)))
        if EMULATED.check is not None:
            EMULATED.check(read)
    except ValueError as err:
        raise click.BadParameter(f"{','.join(given)!r}: {err}", param=param) from err
    return emulated_version(read)


emulated_version_option: Final = click.option(
    "--emulated-version", multiple=True, callback=_emulated, metavar=EMULATED.metavar, help=EMULATED_HELP
)
"""Shared by all commands that read a configuration."""

verbose_option = click.option("-v", "--verbose", is_flag=True, help="Log every attempt on standard error.")

_OPTIONS: Final = (
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
    click.option(
        "--config",
        type=PATH,
        multiple=True,
        callback=_only_one,
        metavar="FILE",
        help="KubeSchedulerConfiguration, with or without berth's own; - for standard input.",
    ),
    no_convert_option,
    feature_gates_option,
    emulated_version_option,
    click.option("--seed", type=int, default=0, show_default=True, help="Decides between equal nodes."),
    output_option("json and yaml print one object and nothing else."),
    strict_option,
    verbose_option,
)


def simulation_options(command: Command) -> Command:
    """PATH and -f PATH, --config, --no-convert, --feature-gates, --emulated-version, --seed, -o, --strict and
    -v."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def own_plugins() -> Mapping[str, type]:
    """The plugins of the program that runs the command; see `berth_host.run`."""
    plugins: Mapping[str, type] | None = click.get_current_context().obj
    return plugins or {}


def prepared(options: Mapping[str, Any]) -> Prepared:
    """Read the input; warn on standard error of parts that it does not cover. Passes on the errors of
    `prepare`."""
    log.configure(log.EVERY_ATTEMPT if options["verbose"] else "ERROR", for_people=True)
    paths = [*options["paths"], *options["more_paths"]]
    if not paths:
        message = "say where the manifests are: PATH or -f PATH, a file, a folder, or - for standard input"
        raise click.UsageError(message)
    request = Request(
        paths=paths,
        config=options["config"],
        convert_older=not options["no_convert"],
        feature_gates=options["feature_gates"],
        emulated_version=options["emulated_version"],
        seed=options["seed"],
        read_stdin=standard_input.read_text,
        plugins=own_plugins(),
    )
    with plugin_output.on_standard_error():  # plugins' own prints are no part of the result
        ready = prepare(request)
    # Plugins elsewhere are attached by the run, which warns itself where they differ from the file.
    known = [text for text in ready.configuration.warnings if not text.endswith(UNTIL_ATTACHED)]
    for warning in (*known, *ready.loaded.warnings):
        click.echo(f"warning: {warning}", err=True)
    if ready.loaded.gaps and is_strict(options["strict"]):
        fail("\n".join((*ready.loaded.gaps, "with --strict this is bad input: mend it, or say --no-strict")))
    return ready


def finished(ready: Prepared) -> Finished:
    """Run it, with a progress bar where standard error is a terminal."""
    with plugin_output.on_standard_error():
        done = _run(ready)
    for warning in (*done.lapses, *done.remarks):
        click.echo(f"warning: {warning}", err=True)
    missing = done.host.clients.missing
    if missing:
        names = ", ".join(missing)
        click.echo(f"warning: this build does not have these default plugins yet: {names}", err=True)
    return done


def _run(ready: Prepared) -> Finished:
    console = Console(stderr=True)
    if not console.is_terminal:
        return event_loop.run(run(ready, say=_say))
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
        return event_loop.run(run(ready, lambda count: bar.update(task, completed=count), _say))


def _say(text: str) -> None:
    click.echo(text, err=True)
