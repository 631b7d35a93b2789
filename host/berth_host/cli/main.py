"""The `berth` command. `berth_host.__main__`, which is also the console script, calls it.

Exit codes:
0 success; 1 the result could not be written, or a workload of `bench` could not run;
2 bad input, and nothing was done; 3 pods stay pending, with `--fail-on-pending`;
4 a configured rule did not run, with `--strict`; 130 Ctrl-C.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

import click
from berth_sdk.runtime.standard_streams import result_written

from berth_host.cli.commands import SETTINGS, Commands, Elsewhere, Listed


@click.group(
    cls=Commands,
    context_settings=SETTINGS,
    listed={
        "check-config": Listed(
            "berth_host.cli.check_config",
            "Check FILE (- for standard input) and print the effective configuration.",
        ),
        "completion": Listed(
            "berth_host.cli.completion",
            "Print a script that completes this command in SHELL: bash, zsh or fish.",
        ),
        "migrate": Listed(
            "berth_host.cli.migrate",
            "Write FILE (- for standard input), a configuration of any version of kube-scheduler, for berth.",
        ),
        "plugins": Listed(
            "berth_host.cli.plugins",
            "List default plugins and those installed under the entry point group berth.plugins.",
        ),
        "scheduler": Listed(
            "berth_host.cli.scheduler.command",
            "Schedule a cluster, with the command line of kube-scheduler.",
        ),
    },
    elsewhere={
        "bench": Elsewhere(
            "berth-bench",
            "berth_bench",
            "Run workloads on the embedded cluster, in real time, and print how fast pods were scheduled.",
        ),
        "compare": Elsewhere(
            "berth-host",
            "berth_sim",
            "Compare two configurations: which pods move, which become pending and why, which get placed.",
        ),
        "drain": Elsewhere(
            "berth-host",
            "berth_sim",
            "Say which pods of NODE could not move elsewhere, wait for a budget or would be lost.",
        ),
        "fit": Elsewhere(
            "berth-host",
            "berth_sim",
            "Say where a pod would go: the nodes that fit with their scores, or whom it would evict.",
        ),
        "query": Elsewhere(
            "berth-host",
            "berth_sim",
            "Place the pods of manifests, as berth simulate does, and answer questions of programs (gRPC).",
        ),
        "simulate": Elsewhere(
            "berth-host",
            "berth_sim",
            "Place the pods of manifests on their nodes, as the real host would, without a cluster.",
        ),
        "ui": Elsewhere(
            "berth-host",
            "berth_sim",
            "Place the pods of manifests on their nodes, as berth simulate does, and show it as a page.",
        ),
        "why": Elsewhere(
            "berth-host",
            "berth_sim",
            "Explain why POD (NAMESPACE/NAME, or NAME in namespace default) has its node, or has none.",
        ),
    },
)
@click.version_option(package_name="berth-host", prog_name="berth", message="%(prog)s %(version)s")
def berth() -> None:
    """Schedule Kubernetes pods, with plugins that run in other processes."""


def run_command(plugins: Mapping[str, type], arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command with `plugins`, the classes of the program, by plugin name.

    Exits with 2 for a name that another plugin has, and for a value that is no class.
    """
    if plugins:
        # Not at the top: most commands do not need these modules, and start faster without them.
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
    """Run a group of commands. Exits with their code, or with 1 if the result cannot be written."""
    with result_written(name):
        group.main(args=arguments, prog_name=name, obj=plugins)
    sys.exit()
