"""`make demo`: schedules workloads with plugins that run in other processes, and reports the result.

It does the same as `berth simulate -f examples/demo/cluster -f examples/demo/gangs.yaml --config
examples/demo/scheduler.yaml --feature-gates GenericWorkload=true --costs`, and explains each step. Then it
ends a training job and schedules again. Start it in the root of the repository, with .venv/bin on PATH.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Final

from berth_host import log
from berth_host.cli.commands import INTERRUPTED
from berth_host.cli.rendering.columns import columns, count_of
from berth_host.cli.rendering.terminal import Terminal
from berth_sim.commands.rendering.report import costs_text, pending_lines
from berth_sim.commands.report import PendingPod, Placement
from berth_sim.commands.simulation import Finished, Prepared, Request, prepare, run
from berth_sim.commands.strictness import NEGLECTED
from berth_sim.commands.why import explain

CLUSTER: Final = "examples/demo/cluster"
GANGS: Final = "examples/demo/gangs.yaml"
GATE: Final = "GenericWorkload"
CONFIG: Final = "examples/demo/scheduler.yaml"
PHASES: Final = ("running", "pending", "ended")
GPU_MILLI: Final = "gpu-share.berth.io/gpu-milli"
GPU_INDEX: Final = "gpu-share.berth.io/gpu-index"
WIDTH: Final = 110
OUT: Final = Terminal.of(sys.stdout)
TEXT: Final = OUT.at_most(WIDTH)
ABOUT: Final = {
    "BlinkingLightScorer": "scores: nodes with more blinking lights are better (the example of KEP-624)",
    "GpuShare": "filters, scores, reserves: several pods share a GPU, or one pod gets several",
    "Maintenance": "filters: no pods on nodes under maintenance (60 lines, without berth's SDK)",
}


def main() -> int:
    """Run the simulation and explain the result."""
    log.configure("ERROR")
    ready = prepare(
        Request(
            paths=[CLUSTER, GANGS],
            config=CONFIG,
            seed=0,
            read_stdin=sys.stdin.read,
            feature_gates={GATE: True},
        )
    )
    say_what_is_coming(ready)
    done = asyncio.run(run(ready))
    interrupted = done.report.summary.is_interrupted
    summary = done.report.summary
    print(
        f"\n{'Interrupted' if interrupted else 'Done'}:"
        f" {summary.placed} of {summary.pods} pods placed in {summary.seconds:.2f} s"
        f" ({summary.pods_per_s:.0f} pods/s), {summary.pending} stay pending.\n"
    )
    for warning in (*done.lapses, *done.remarks):
        print(f"warning: {warning}", file=sys.stderr)
    say_where(done.report.placements)
    if interrupted:
        say_why_not(done)
        return INTERRUPTED
    say_what_plugins_did(done)
    say_why_not(done)
    if not say_how_gangs_end(ready):
        return INTERRUPTED
    say_costs(done)
    say_what_next()
    if done.failed_plugins:
        print("; ".join(done.failed_plugins), file=sys.stderr)
        return NEGLECTED
    return 0


def say_what_is_coming(ready: Prepared) -> None:
    """Print what berth is, and the plugins of the demo."""
    heading("berth: a Kubernetes scheduler whose plugins run in other processes")
    nodes, pods = len(ready.server.list("nodes")), len(ready.loaded.pod_keys)
    workloads = len(set(ready.loaded.owners.values()))
    paragraph(
        f"This is one scheduler on an embedded cluster: {nodes} nodes in three zones, {pods} pods from"
        f" {workloads} workloads, all from plain manifests in examples/demo. For each pod berth asks its"
        " plugins, in the order of the Kubernetes Scheduling Framework: which nodes can take it, which is"
        " best, may it go now. kube-scheduler's own plugins run inside the host (process"
        f" {os.getpid()}). Three more run in processes of their own; the host starts them and calls them by"
        " gRPC over Unix sockets:"
    )
    rows = [
        (plugin.name, _short(" ".join(plugin.command or ())), ABOUT[plugin.name])
        for plugin in ready.configuration.berth.plugins
    ]
    header = ("PLUGIN", "STARTED AS", "WHAT IT DOES")
    print(columns(header, rows, indent=2, width=OUT.width, heading=OUT.heading))
    print("\nScheduling ...", flush=True)


def say_where(placements: Sequence[Placement]) -> None:
    """Print one row per workload: how many pods each node got."""
    heading("Where the pods went")
    by_workload: dict[str, Counter[str]] = {}
    for item in placements:
        by_workload.setdefault(item.owner or f"Pod/{item.pod}", Counter())[item.node] += 1
    for workload, nodes in by_workload.items():
        counts = ", ".join(f"{node} {count}" for node, count in sorted(nodes.items()))
        title = f"{workload}: {count_of(sum(nodes.values()), 'pod')} on {count_of(len(nodes), 'node')}"
        print(TEXT.wrapped(f"{title}: {counts}", 2, 6))
    print()


def say_what_plugins_did(done: Finished) -> None:
    """Print the effect of the three plugins on the placements."""
    heading("What the three plugins did to it")
    placements = done.report.placements
    per_node = Counter(item.node for item in placements)
    shut = [name for name in _maintained(done) if not per_node[name]]
    paragraph(f"Maintenance kept every pod off {', '.join(shut)}.", indent=2)
    shared = Counter(_gpu(item) for item in placements if item.annotations.get(GPU_MILLI))
    told = ", ".join(f"{gpu} has {count}" for gpu, count in sorted(shared.items()))
    paragraph(
        f"GpuShare put {shared.total()} notebooks, each with a fifth of a GPU, on"
        f" {count_of(len(shared), 'GPU')}: {told}.",
        indent=2,
    )
    lights = _lights(done)
    # Nodes of one shape, so that only the lights differ.
    general = [(lights[name], per_node[name], name) for name in lights if name.startswith("general-")]
    most, fewest = max(general), min(item for item in general if item[1])
    paragraph(
        f"BlinkingLightScorer pulled pods to the lights: {most[2]} has {most[0]} lights and got"
        f" {most[1]} pods, {fewest[2]} has {fewest[0]} and got {fewest[1]}.",
        indent=2,
    )
    print()


def say_how_gangs_end(ready: Prepared) -> bool:
    """Print which pod groups have started. End one of them, schedule again, and print the groups once more.
    Return False if this was interrupted.
    """
    heading("Two jobs that do not fit at once")
    paragraph(
        "Each of these jobs is a pod group: all of its pods start, or none. A group that waits holds no GPU.",
        indent=2,
    )
    ends = say_groups(ready)
    paragraph(f"Then {ends} ends, and berth schedules again:", indent=2)
    for pod in ready.server.list("pods", "ml"):
        if pod.get("spec.schedulingGroup.podGroupName") == ends:
            succeeded = {"status": {"phase": "Succeeded"}}
            ready.server.patch("pods", pod.ref, succeeded, subresource="status")
    later = asyncio.run(run(ready))
    say_groups(ready)
    print()
    return not later.report.summary.is_interrupted


def say_groups(ready: Prepared) -> str:
    """Print a row for each pod group: how many pods run, wait and have ended.

    Return the first group that runs; "" for none.
    """
    groups: dict[str, Counter[str]] = {
        group.ref.name: Counter() for group in ready.server.list("scheduling.k8s.io/podgroups")
    }
    for pod in ready.server.list("pods", "ml"):
        if name := pod.get("spec.schedulingGroup.podGroupName"):
            is_over = pod.get("status.phase") == "Succeeded"
            groups[name]["ended" if is_over else "running" if pod.get("spec.nodeName") else "pending"] += 1
    rows = [(name, *(str(counts[phase] or "-") for phase in PHASES)) for name, counts in groups.items()]
    header = ("POD GROUP", *(phase.upper() for phase in PHASES))
    print(columns(header, rows, right=(1, 2, 3), indent=4, heading=OUT.heading))
    return next((name for name, counts in groups.items() if counts["running"]), "")


def say_why_not(done: Finished) -> None:
    """Print pending pods by reason, with the resources that the nodes lack."""
    heading("Why some pods are pending")

    def nearest(item: PendingPod) -> list[str]:
        return [f"nearest fit: {lack.text}" for lack in explain(done, item.pod).nearest[:1]]

    for line in pending_lines(done.report.pending, TEXT, nearest):
        print(line)
    print()


def say_costs(done: Finished) -> None:
    """Print the time per plugin and call."""
    heading("What each plugin cost")
    paragraph("One call judges all nodes for one pod, in process and over the socket alike.", indent=2)
    print(costs_text(list(done.costs), OUT, indent=2))


def say_what_next() -> None:
    """Print commands to try next."""
    heading("What now (with .venv/bin on PATH)")
    print(f"  berth simulate -f {CLUSTER} --config {CONFIG}     every placement, without the groups")
    groups = f"-f {GANGS} --feature-gates {GATE}=true"
    print(f"  berth why podgroup ml/train-language -f {CLUSTER} {groups} --config {CONFIG}")
    print("  berth simulate -f YOUR-MANIFESTS     your own nodes and pods: kubectl get nodes,pods -A -o yaml")
    print("  examples/blinking_lights     the plugin to copy for one of your own\n")


def _maintained(done: Finished) -> list[str]:
    args = done.host.configuration.profiles[0].plugin_args.get("Maintenance")
    nodes = args.get("nodes", []) if isinstance(args, dict) else []
    return [str(name) for name in nodes] if isinstance(nodes, list) else []


def _gpu(item: Placement) -> str:
    """Return a GPU that a pod shares, such as `gpu-a-0/1`."""
    return f"{item.node}/{item.annotations[GPU_INDEX]}"


def _lights(done: Finished) -> dict[str, int]:
    """Return the number of blinking lights of the nodes that take pods."""
    shut = {*_maintained(done)}
    return {
        node.ref.name: int(node.parsed["metadata"]["labels"]["example.com/blinking-lights"])
        for node in done.server.list("nodes")
        if node.ref.name not in shut and not node.get("spec.unschedulable")
    }


def _short(command: str) -> str:
    return command.replace("examples.blinking_lights.", "").replace("env PYTHONPATH=examples/gpu_share ", "")


def heading(text: str) -> None:
    """Print a title with a line below."""
    print(OUT.heading(f"{text}\n{'-' * len(text)}"))


def paragraph(text: str, indent: int = 0) -> None:
    """Print wrapped text."""
    print(TEXT.wrapped(text, indent))


if __name__ == "__main__":
    sys.exit(main())
