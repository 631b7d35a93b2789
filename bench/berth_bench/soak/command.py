"""`berth bench soak`: read the options, run one soak, print the account."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from berth_host.cli.output import output_option
from berth_host.cli.rendering.serialized import STRUCTURED, streamed

if TYPE_CHECKING:
    from berth_bench.soak.result import Result
    from berth_bench.soak.world import Plan

NODES: Final = 1000
FAILED: Final = 1
UNUSABLE: Final = 2
TERMINATED: Final = 128 + signal.SIGTERM
T = TypeVar("T")


@click.command("soak")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="How long to create and delete pods and let plugins fail.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the faults and of the load.")
@click.option("--nodes", type=click.IntRange(min=10), default=NODES, show_default=True, metavar="N")
@click.option(
    "--kubeconfig",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Use the API server of this kubeconfig instead of an embedded cluster.",
)
@click.option(
    "--api-server-pid",
    metavar="PID",
    type=click.IntRange(min=2),
    help="With --kubeconfig: process id of that kube-apiserver, which is stopped now and then.",
)
@click.option(
    "--keep", metavar="FOLDER", type=click.Path(file_okay=False), help="Keep the logs in this folder."
)
@output_option("json prints one line, yaml one document, and nothing else.")
def soak(
    minutes: float,
    seed: int,
    nodes: int,
    kubeconfig: Path | None,
    api_server_pid: int | None,
    keep: str | None,
    output: str,
) -> None:
    """Run a host under load while its plugins are killed, hung, slowed, upgraded and made to give wrong
    answers.

    The host is killed, too, and its connections to the cluster are cut. Exits with 1 if a pod was lost or
    bound twice, a node was over-committed, or something leaked.

    With --kubeconfig the nodes and pods are created through that API server, whose cluster must have no
    nodes. The pods are in a namespace of their own, and everything is deleted at the end. The host reaches
    the server through a proxy of the soak, which cuts its connections. --api-server-pid names a process that
    is stopped as well (SIGSTOP, for up to ten seconds).
    """
    if api_server_pid and kubeconfig is None:
        raise click.UsageError("--api-server-pid needs --kubeconfig: give both")
    # Not at the top: the scheduler's own process imports this module too.
    from berth_bench.soak.world import Plan

    with TemporaryDirectory(prefix="berth-soak-") as made:
        folder = Path(keep) if keep else Path(made)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as err:
            raise click.BadParameter(f"{folder}: {err.strerror}", param_hint="--keep") from err
        plan = Plan(
            minutes=minutes,
            seed=seed,
            nodes=nodes,
            folder=folder,
            say=lambda text: click.echo(f"berth bench soak: {text}", err=True),
            kubeconfig=kubeconfig,
            server_pid=api_server_pid or 0,
        )
        result = _result(plan)
    if output in STRUCTURED:
        click.echo(streamed(result.as_json(), output), nl=False)
    else:
        width = max(map(len, result.as_json()))
        for name, value in result.as_json().items():
            shown = json.dumps(value) if isinstance(value, dict) else value
            click.echo(f"{name:<{width}}  {shown}")
    problems = result.problems()
    for problem in problems:
        click.echo(f"berth bench soak: {problem}", err=True)
    if problems:
        sys.exit(FAILED)


def _result(plan: Plan) -> Result:
    """Run the soak. An error ends the command with one line."""
    from berth_host.errors.cluster import ClientConfigError, ClusterError

    from berth_bench.soak.clusters import SoakError
    from berth_bench.soak.world import soak as run
    from berth_bench.versus.scheduler_process import SchedulerError

    try:
        return asyncio.run(_in_order(run(plan)))
    except asyncio.CancelledError:
        code, problem = TERMINATED, "ended by SIGTERM"
    except SchedulerError as err:
        code, problem = FAILED, f"the host: {err}"
    except (SoakError, ClientConfigError) as err:
        code, problem = UNUSABLE, str(err)
    except ClusterError as err:
        code, problem = FAILED, f"the cluster: {err}"
    except OSError as err:  # the disk is full, or a process cannot be started
        code, problem = FAILED, str(err)
    click.echo(f"berth bench soak: {problem}", err=True)
    sys.exit(code)


async def _in_order(work: Coroutine[Any, Any, T]) -> T:
    """Make SIGTERM end the work as Ctrl-C does: processes end, created objects are deleted, stopped processes
    continue.
    """
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task
