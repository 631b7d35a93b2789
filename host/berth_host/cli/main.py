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

from berth_host.app.registry import ClassRegistry
from berth_host.cli.bench.command import bench
from berth_host.cli.check_config import check_config
from berth_host.cli.commands import SETTINGS, Commands
from berth_host.cli.completion import completion
from berth_host.cli.plugins import plugins
from berth_host.cli.scheduler.command import scheduler
from berth_host.cli.simulate import simulate
from berth_host.cli.why import why


@click.group(cls=Commands, context_settings=SETTINGS)
@click.version_option(version("berth-host"), prog_name="berth", message="%(prog)s %(version)s")
def berth() -> None:
    """A Kubernetes scheduler whose plugins live in other processes."""


berth.add_command(bench)
berth.add_command(check_config)
berth.add_command(completion)
berth.add_command(plugins)
berth.add_command(scheduler)
berth.add_command(simulate)
berth.add_command(why)


def run_command(plugins: Mapping[str, type], arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command with plugins that belong to the program.

    Raises DuplicatePluginError, and PluginLoadError for a value that is no class.
    """
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
