"""`berth why POD`, `berth why podgroup NAME`: run the simulation, then explain the result for the pod or for
the group of pods.
"""

from __future__ import annotations

import asyncio
import difflib
import sys
from collections.abc import Sequence
from typing import Any

import click
from berth_host.cli.commands import INTERRUPTED
from berth_host.cli.input_errors import fail, reported
from berth_host.cli.rendering.serialized import STRUCTURED, serialized
from berth_host.cli.rendering.why import explanation_text
from berth_host.cli.rendering.why_group import group_answer_text
from berth_host.explain.diagnosis import Diagnosis
from berth_host.explain.explanation import Explanation, explanation_of, too_small_nodes
from berth_host.explain.make_group_answer import WORDS, group_answer, unknown_group_text
from berth_host.explain.nearest_fit import Shortage, counted_in, shortages
from berth_sdk.kube_object import ObjectRef
from berth_sdk.node import Node
from berth_sdk.pod import Pod

from berth_sim.commands.simulate import finished, prepared, simulation_options
from berth_sim.commands.simulation import Finished
from berth_sim.commands.strictness import conclude


@click.command()
@click.argument("pod", metavar="POD")
@simulation_options
def why(pod: str, output: str, **options: Any) -> None:
    """Explain why POD (NAMESPACE/NAME, or NAME in namespace default) has its node, or has none.

    Prints per plugin and reason the rejected nodes, what the nearest nodes lack, and the scores of the
    best nodes.

    `berth why podgroup NAME` explains a group of pods: its members against its minimum, and what the next
    member lacks. compositepodgroup or podgroup.scheduling.x-k8s.io in place of podgroup names the kind.
    """
    if pod.lower() in WORDS and options["more_paths"]:
        name, *options["more_paths"] = options["more_paths"]
        _why_group(pod.lower(), name, output, options)
        return
    key = pod if "/" in pod else f"default/{pod}"
    with reported():
        ready = prepared(options)
    if key not in ready.loaded.pod_keys:
        fail(_unknown(key, ready.loaded.pod_keys))
    if key in ready.loaded.refused:
        fail(f"pod {key} is not created: {ready.loaded.refused[key]}")
    with reported():
        done = finished(ready)
    if key in done.report.undecided:
        click.echo(f"interrupted before {key} was decided", err=True)
        sys.exit(INTERRUPTED)
    explanation = explain(done, key)
    if output in STRUCTURED:
        click.echo(serialized(explanation.as_json(), output), nl=False)
    else:
        click.echo(explanation_text(explanation), nl=False)
    if done.report.summary.is_interrupted:
        click.echo("interrupted: this is the state so far", err=True)
        sys.exit(INTERRUPTED)
    conclude(done.lapses, done.failed_plugins, strict=options["strict"])


def _why_group(word: str, name: str, output: str, options: dict[str, Any]) -> None:
    """Print the explanation of a group. `word`: its kind, as the user wrote it."""
    namespace, _, name = name.rpartition("/")
    namespace = namespace or "default"
    with reported():
        done = finished(prepared(options))
    found = asyncio.run(group_answer(done.host, word, namespace, name))
    if found is None:
        fail(unknown_group_text(done.host, word, f"{namespace}/{name}"))
    if output in STRUCTURED:
        click.echo(serialized(found.as_json(), output), nl=False)
    else:
        click.echo(group_answer_text(found, has_times=False), nl=False)
    if done.report.summary.is_interrupted:
        click.echo("interrupted: this is the state so far", err=True)
        sys.exit(INTERRUPTED)
    conclude(done.lapses, done.failed_plugins, strict=options["strict"])


def _unknown(key: str, known: tuple[str, ...]) -> str:
    namespace, _, name = key.partition("/")
    same_name = [other for other in known if other.partition("/")[2] == name]
    names = [other.partition("/")[2] for other in known if other.startswith(f"{namespace}/")]
    near = [f"{namespace}/{other}" for other in difflib.get_close_matches(name, names, n=3)]
    candidates = same_name or near
    cure = f"did you mean {', '.join(candidates)}?" if candidates else "it is not in the input"
    return f"no pod {key}: {cure}"


def explain(done: Finished, key: str) -> Explanation:
    """Return the explanation of the pod `namespace/name`, which must be in the input."""
    node = next((item.node for item in done.report.placements if item.pod == key), "")
    pending = next((item for item in done.report.pending if item.pod == key), None)
    diagnosis = done.host.diagnoses.find(key)
    message = pending.message if pending else _placed_text(node, diagnosis)
    return explanation_of(key, node, message, diagnosis, _nearest(done, key, diagnosis) if pending else ())


def _placed_text(node: str, diagnosis: Diagnosis | None) -> str:
    if diagnosis is None:
        return f"was on {node} in the input already"
    return f"placed on {node}"


def _nearest(done: Finished, key: str, diagnosis: Diagnosis | None) -> Sequence[Shortage]:
    namespace, _, name = key.partition("/")
    stored = done.server.get("pods", ObjectRef(namespace=namespace, name=name))
    too_small = too_small_nodes(diagnosis)
    if stored is None or not too_small:
        return []
    nodes = [Node.from_object(obj) for obj in done.server.list("nodes") if obj.ref.name in too_small]
    pods = [Pod.from_object(obj) for obj in done.server.list("pods") if obj.get("spec.nodeName")]
    pod = Pod.from_object(stored)
    return shortages(pod, nodes, pods, counted_in(done.host.configuration.profile(pod.scheduler_name)))
