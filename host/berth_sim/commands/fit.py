"""`berth fit` and `berth drain`: questions to a simulated cluster, after its own pods have found their nodes.

Exit codes: 0 the pod fits, or all pods could leave; 3 it does not, or some could not or would be lost; 2 bad
input; 4 a rule did not run, with `--strict`; 130 Ctrl-C.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import click
from berth_host.app import Drain, Fit, Host
from berth_host.cli import standard_input
from berth_host.cli.commands import INTERRUPTED
from berth_host.cli.drain_force import force_option, is_refused
from berth_host.cli.input_errors import fail, reported
from berth_host.cli.rendering.fit import drain_text, fit_text
from berth_host.cli.rendering.serialized import STRUCTURED, serialized
from berth_host.errors.endpoints import QuestionError
from berth_host.explain.pod_fit import DrainAnswer, PodFit
from berth_host.questions.questions import Question

from berth_sim.commands.simulate import finished, prepared, simulation_options
from berth_sim.commands.strictness import conclude
from berth_sim.manifests.pod_file import pod_in

DOES_NOT_FIT: Final = 3


@click.command()
@simulation_options
def fit(output: str, **options: Any) -> None:
    """Say where a pod would go: the nodes that fit with their scores, or whom it would evict.

    The first PATH has the pod, or one workload; the others have the cluster. The pods of the cluster find
    their nodes first. The pod itself is not placed.

    Exit codes: 0 it fits, 3 it does not or is kept out of the queue, 2 bad input.
    """
    paths = [*options["paths"], *options["more_paths"]]
    if len(paths) < 2:
        raise click.UsageError("give -f POD -f MANIFESTS: first the file of the pod, then the cluster")
    if paths.count(standard_input.SIGN) > 1:
        fail("standard input can be read once, and - is given twice: name a file for one of them")
    read_stdin = functools.cache(standard_input.read_text)
    with reported():
        manifest = pod_in(paths[0], read_stdin)
    answer = _answer(Fit(manifest), options | {"paths": paths[1:], "more_paths": (), "needs_pods": False})
    _show(answer, output, fit_text)
    sys.exit(0 if answer["node"] and not answer["gates"] else DOES_NOT_FIT)


@click.command()
@click.argument("node", metavar="NODE")
@simulation_options
@force_option
def drain(node: str, output: str, force: bool, **options: Any) -> None:
    """Say which pods of NODE could not move elsewhere, wait for a budget or would be lost.

    The pods of the manifests find their nodes first. Then all pods of NODE look for another node, one after
    the other, in the order in which the budgets let them go. Nothing is evicted.

    Exit codes: 0 all pods could leave, 3 some could not or have no controller, 2 bad input.
    """
    answer = _answer(Drain(node), options)
    _show(answer, output, drain_text)
    sys.exit(DOES_NOT_FIT if answer["stuck"] or answer["blocked"] or is_refused(answer, force) else 0)


def _answer(question: Question[PodFit | DrainAnswer], options: Mapping[str, Any]) -> dict[str, Any]:
    """Run the simulation, and ask its host before it stops. Exits with 2 for a question without answer."""
    found: list[dict[str, Any]] = []
    problems: list[str] = []

    async def ask(host: Host) -> None:
        try:
            found.append((await host.ask(question)).as_json())
        except QuestionError as err:
            problems.append(str(err))

    with reported():
        done = finished(prepared(options), before_stop=ask)
    if done.report.summary.is_interrupted:
        click.echo("interrupted: nothing is asked, as pods are undecided", err=True)
        sys.exit(INTERRUPTED)
    if problems:
        fail(problems[0])
    conclude(done.lapses, done.failed_plugins, strict=options["strict"])
    return found[0]


def _show(answer: dict[str, Any], output: str, text: Callable[[Mapping[str, Any]], str]) -> None:
    click.echo(serialized(answer, output) if output in STRUCTURED else text(answer), nl=False)
