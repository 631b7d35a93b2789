"""The `berth` command. Called by `berth_host.__main__`, which is also the console script.

Exit codes: 0 done, 2 bad input (nothing was done), 3 pods stay pending with `--fail-on-pending`,
4 a configured rule did not run, with `--strict`,
1 the result could not be written, or a workload of `bench` could not be run, 130 Ctrl-C.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import NoReturn

import click
from berth_sdk.runtime.standard_streams import result_written

from berth_host.cli.commands import SETTINGS, Commands


@click.group(
    cls=Commands,
    context_settings=SETTINGS,
    modules={
        "check-config": "berth_host.cli.check_config",
        "completion": "berth_host.cli.completion",
        "plugins": "berth_host.cli.plugins",
        "scheduler": "berth_host.cli.scheduler.command",
        "simulate": "berth_host.cli.simulate",
        "why": "berth_host.cli.why",
    },
    elsewhere={"bench": "berth-bench"},
)
@click.version_option(version("berth-host"), prog_name="berth", message="%(prog)s %(version)s")
def berth() -> None:
    """A Kubernetes scheduler whose plugins live in other processes."""


def run_command(plugins: Mapping[str, type], arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command with plugins that belong to the program.

    Exits with 2 for a name that is taken, and for a value that is no class.
    """
    if plugins:
        # Not at the top: a command that needs none of the scheduler starts without it.
        from berth_host.cli.input_errors import reported
        from berth_host.plugins.registry import ClassRegistry

        with reported():
            ClassRegistry(plugins)
    run_group(berth, "berth", arguments, plugins)


def run_group(
    group: click.Group,
    name: str,
    arguments: Sequence[str] | None = None,
    plugins: Mapping[str, type] | None = None,
) -> NoReturn:
    """Run a group of commands; exits with their code, and with 1 where the result cannot be written."""
    with result_written(name):
        group.main(args=arguments, prog_name=name, obj=plugins)
    sys.exit()
