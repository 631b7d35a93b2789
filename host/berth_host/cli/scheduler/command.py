"""`berth scheduler`: schedule a real cluster, with the flags and exit codes of kube-scheduler.

Exit codes: 0 after a signal to stop, and after --help, --version or --write-config-to; 1 otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final, NoReturn

import click

from berth_host import log
from berth_host.cli import standard_input
from berth_host.cli.commands import own_plugins
from berth_host.cli.rendering.configuration import completed_text
from berth_host.cli.rendering.shadow import shadow_text
from berth_host.cli.scheduler.flags import FLAGS, Flag, Standing, shown
from berth_host.cli.scheduler.parsing import FlagError, ParsedFlags, parse
from berth_host.cli.scheduler.settings import loaded, logging_of, runs_on_uvloop, settings
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.errors import ConfigurationError
from berth_host.cycle.collector import collect_from_now_on
from berth_host.errors import HostError
from berth_host.errors.plugins import DuplicatePluginError, PluginLoadError
from berth_host.log.hidden import without_hidden
from berth_host.process import event_loop
from berth_host.process.process import ProcessSettings, SchedulerProcess

FAILED: Final = 1
_MARKS: Final = {Standing.IN_EFFECT: "", Standing.DEPRECATED: "Deprecated: ", Standing.WITHOUT_EFFECT: ""}


class _GoCommand(click.Command):
    """A command that shows its flags as click does, and reads them as kube-scheduler does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # a shell completes a line that is not finished
            return []
        try:
            flags = parse(args)
        except FlagError as err:
            _fail(f"{err}; see berth scheduler --help")
        if flags.wants_help:
            click.echo(ctx.get_help())
            ctx.exit()
        ctx.params = {"flags": flags}
        return []


def _option(flag: Flag) -> click.Option:
    names = [f"--{flag.name}"] if len(flag.name) > 1 else []
    if flag.shorthand:
        names = [f"-{flag.shorthand}", *(names or [f"--{flag.name}"])]
    default = shown(flag, flag.default)
    return click.Option(
        names,
        metavar=flag.kind.metavar,
        help=f"{_MARKS[flag.standing]}{flag.help}",
        default=default,
        # An empty default is not worth a line.
        show_default=default not in ("", "false", "[]"),
    )


@click.command("scheduler", cls=_GoCommand, params=[_option(flag) for flag in FLAGS.values()])
def scheduler(flags: ParsedFlags) -> None:
    """Schedule a cluster, with the command line of kube-scheduler.

    SIGTERM finishes running bindings and releases the Lease; a second SIGTERM ends at once. SIGHUP applies a
    changed configuration. With --shadow it prints its report at the end.
    """
    if flags.is_on("version"):
        click.echo(f"berth {version('berth-host')}")
        return
    with _reported():
        level, form = logging_of(flags)
        log.configure(level, form)
        for warning in flags.warnings():
            click.echo(f"warning: {warning}", err=True)
        plugins = own_plugins()
        # Cached, as standard input can be read once: a HUP gets the same text again.
        read_stdin = cache(standard_input.read_text)
        configuration = loaded(flags, plugins, read_stdin)
        for warning in configuration.warnings:
            click.echo(without_hidden(f"warning: {warning}"), err=True)
        if flags.text("write-config-to"):
            _write(flags.text("write-config-to"), configuration)
            return
        started = settings(flags, configuration, plugins, read_stdin)
        on_uvloop = runs_on_uvloop(flags)
        collect_from_now_on()
        event_loop.run(_run(started), on_uvloop=on_uvloop)


async def _run(settings: ProcessSettings) -> None:
    await SchedulerProcess(settings).run()
    if settings.shadow is not None:
        click.echo(shadow_text(settings.shadow.as_json()), nl=False)


def _write(path: str, configuration: LoadedConfiguration) -> None:
    try:
        Path(path).write_text(completed_text(configuration), encoding="utf-8")
    except OSError as err:
        _fail(f"--write-config-to {path}: {err.strerror}: name a file that can be written")


@contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except (HostError, ConfigurationError, PluginLoadError, DuplicatePluginError, FlagError) as err:
        _fail(str(err))


def _fail(text: str) -> NoReturn:
    """Print the error, and exit with 1 as kube-scheduler does."""
    click.echo(without_hidden(f"berth: {text}"), err=True)
    sys.exit(FAILED)
