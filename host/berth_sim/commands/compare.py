"""`berth compare`: the same manifests, or a copy of a cluster, run with two configurations; what differs.

Exit codes: 0 each pod has the same node with both, or none; 1 some pod differs; 2 bad input; 4 a rule did not
run, with `--strict`; 130 Ctrl-C.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import click
from berth_host.cli import standard_input
from berth_host.cli.commands import INTERRUPTED
from berth_host.cli.input_errors import fail, reported
from berth_host.cli.options import PATH
from berth_host.cli.rendering.serialized import STRUCTURED, serialized
from berth_host.cli.rendering.terminal import Terminal
from berth_host.errors.cluster import ClientConfigError, ClusterError, UnreadableClusterError
from berth_host.process import event_loop
from berth_host.process.api_server import UserCluster

from berth_sim.commands.comparison import comparison_of
from berth_sim.commands.rendering.comparison import comparison_text
from berth_sim.commands.simulate import INPUT_OPTIONS, RUN_OPTIONS, finished, prepared, say
from berth_sim.commands.simulation import Finished, Prepared
from berth_sim.commands.strictness import conclude

DIFFERENT: Final = 1
DEFAULT: Final = "the default configuration"


def _options(command: Any) -> Any:
    for option in reversed((*INPUT_OPTIONS, *_CLUSTER, _CONFIGS, *RUN_OPTIONS)):
        command = option(command)
    return command


_CONFIGS: Final = click.option(
    "--config",
    "configs",
    type=PATH,
    multiple=True,
    metavar="FILE",
    help="KubeSchedulerConfiguration, with or without berth's own. Give it twice: before and after; once"
    " compares the default configuration with it.",
)


_CLUSTER: Final = (
    click.option(
        "--cluster",
        is_flag=True,
        help="Read the objects of a cluster once, and compare with these. Nothing is written to the cluster."
        " Manifests may be given in addition.",
    ),
    click.option(
        "--kubeconfig",
        metavar="FILE",
        default="",
        help="Kubeconfig for --cluster. Default: KUBECONFIG, or ~/.kube/config.",
    ),
    click.option("--context", metavar="NAME", default="", help="A context of the kubeconfig."),
    click.option(
        "--move-pods",
        is_flag=True,
        help="Let both configurations also place the pods that have a node and a controller, except those of"
        " DaemonSets. Default: pods that have a node keep it.",
    ),
)


@click.command()
@_options
def compare(
    configs: tuple[str, ...], output: str, cluster: bool, kubeconfig: str, context: str, **options: Any
) -> None:
    """Compare two configurations: which pods move, which become pending and why, which get placed.

    Runs the manifests with each configuration, from the same seed and at the same time of the clock. With
    --cluster the objects of a cluster are the manifests.

    Exit codes: 0 no pod differs, 1 some pod differs, 2 bad input.
    """
    if not 1 <= len(configs) <= 2:
        raise click.UsageError(
            f"--config is given {len(configs)} times: give it twice, --config A --config B"
        )
    before, after = configs if len(configs) == 2 else (None, configs[0])
    paths = [*options["paths"], *options["more_paths"]]
    read_stdin = functools.cache(standard_input.read_text)
    if list(configs).count(standard_input.SIGN) + paths.count(standard_input.SIGN) > 1:
        fail("standard input can be read once, and - is given twice: name a file for one of them")
    said: set[str] = set()

    def once(text: str) -> None:
        """Print a line, unless the other run printed it."""
        if text not in said:
            said.add(text)
            say(text)

    shared = options | {"started_s": time.time()}
    server = ""
    if cluster:
        server, shared["live"] = _copied(kubeconfig, context)
    elif kubeconfig or context:
        raise click.UsageError("--kubeconfig and --context go with --cluster, which reads the cluster")
    with reported():
        # Both are read before the first is run: an error in the second need not wait for the first.
        ready = [
            prepared(shared | {"config": config}, read_stdin=read_stdin, say=once)
            for config in (before, after)
        ]
        first = _finished(ready[0], once)
        second = _finished(ready[1], once)
    names = (before or DEFAULT, after or DEFAULT)
    found = comparison_of(first, second, names, server)
    if output in STRUCTURED:
        click.echo(serialized(found.as_json(), output), nl=False)
    else:
        terminal = Terminal.of(sys.stdout)
        click.echo(comparison_text(found, terminal), nl=False, color=terminal.has_colour)
    conclude(
        tuple(dict.fromkeys((*first.lapses, *second.lapses))),
        tuple(dict.fromkeys((*first.failed_plugins, *second.failed_plugins))),
        strict=options["strict"],
    )
    sys.exit(DIFFERENT if found.differs else 0)


def _copied(kubeconfig: str, context: str) -> tuple[str, Callable[[], list[dict[str, Any]]]]:
    """Return the API server's URL, and what returns its objects. Exits with 2 if they cannot be read."""
    try:
        found = UserCluster.find(kubeconfig, context, user_agent="berth-compare", instead="")
        copy = event_loop.run(found.copied())
    except (ClientConfigError, ClusterError, UnreadableClusterError) as err:
        fail(str(err))
    return copy.server, copy.objects


def _finished(ready: Prepared, once: Callable[[str], None]) -> Finished:
    done = finished(ready, once)
    if done.report.summary.is_interrupted:
        click.echo("interrupted: nothing is compared, as pods are undecided", err=True)
        sys.exit(INTERRUPTED)
    return done
