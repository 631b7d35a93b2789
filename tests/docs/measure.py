"""Measure figures for docs/performance.md: `python tests/docs/measure.py [--profile] [--nodes N]... [--pods
N]`.

For each number of nodes the host of `berth simulate` schedules the same pods three times: with the default
plugins in-process, with one more plugin served, and with that plugin's class in-process. Prints a Markdown
table; with `--profile` the time of each step instead. Run it on an idle machine, and not during tests.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from berth_host import log
from berth_sim.commands.simulation import Finished, Prepared, Request, prepare, run

_PLUGIN: Final = """\
import numpy as np
from berth_sdk import Plugin, PodSensitivity, ScoreNormalization, Status, Verdicts


class Reserved(Plugin):
    pod_sensitivity = PodSensitivity.NONE
    normalization = ScoreNormalization.NONE

    def filter_nodes(self, state, pod, nodes):
        return Verdicts.reject_where(nodes.has_label("pool", "reserved"), Status.unschedulable("reserved"))

    def score_nodes(self, state, pod, nodes):
        return np.where(nodes.has_label("zone", "zone-0"), 100, 0)
"""
_PROFILE: Final = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {enabled: [{name: Reserved}]}}
---
apiVersion: config.berth.io/v1alpha1
kind: BerthConfiguration
plugins:
- name: Reserved
"""
_PLACES: Final = {
    "default plugins": None,
    "and one plugin, own process": "  command: [berth-sdk, serve, 'reserved:Reserved']\n"
    "  points: {filter: {}, score: {}}\n",
    "and one plugin, in process": "  inProcess: reserved:Reserved\n",
}


_STEPS: Final = (
    ("one attempt, to the start of its binding", "cycle/schedule_one.py", "schedule_one"),
    ("take the snapshot over", "cache/snapshot.py", "update"),
    ("PreFilter and Filter, all nodes", "cycle/schedule_one.py", "find_feasible"),
    ("PreScore, Score, choice of a node", "cycle/schedule_one.py", "prioritize"),
    ("all calls of plugins, in process and served", "rpc/relay.py", "ask"),
    ("send one call to a served plugin", "grpc/aio/_call.py", "_invoke"),
    ("write its context: pod, delta", "rpc/served/contexts.py", "write"),
    ("read its reply", "rpc/served/replies.py", "filter"),
    ("assume, Reserve, Permit", "cycle/schedule_one.py", "take"),
    ("binding cycle", "cycle/schedule_one.py", "_run"),
    ("watch events to cache and queue", "cluster/handlers.py", "handle"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one run. Times in milliseconds; `calls_ms`: time in the one plugin's calls, per pod."""

    pods_per_s: float
    attempt_ms: float
    attempt_p99_ms: float
    calls_ms: float


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, action="append", help="default: 100, 1000 and 5000")
    parser.add_argument("--pods", type=int, default=1000, help="default: 1000")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--profile", action="store_true", help="where the time goes, step by step")
    options = parser.parse_args()
    log.configure("ERROR")
    header: tuple[str, ...] = ("nodes", "plugins", "pods/s", "attempt ms", "p99", "plugin's ms per pod")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start, {options.pods} pods\n")
    if options.profile:
        header = ("nodes", "plugins", "step", "us per pod, profiled")
    print(_row(header), _row(["---"] * len(header)), sep="\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="berth-measure-") as name:
        folder = Path(name)
        (folder / "reserved.py").write_text(_PLUGIN, encoding="utf-8")
        sys.path.insert(0, name)
        # The child finds the plugin's module and the command next to this Python.
        os.environ["PYTHONPATH"] = name
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        for node_count in options.nodes or (100, 1000, 5000):
            manifests = folder / f"cluster-{node_count}.json"
            manifests.write_text(json.dumps(_cluster(node_count, options.pods)), encoding="utf-8")
            for title, place in _PLACES.items():
                if options.profile:
                    for step, spent_us in _profiled(manifests, place, options):
                        print(_row((str(node_count), title, step, f"{spent_us:.0f}")), flush=True)
                    continue
                got = _measured(manifests, place, options.seed)
                cells = (
                    str(node_count),
                    title,
                    f"{got.pods_per_s:.0f}",
                    f"{got.attempt_ms:.2f}",
                    f"{got.attempt_p99_ms:.2f}",
                    f"{got.calls_ms:.2f}",
                )
                print(_row(cells), flush=True)
    return 0


def _prepared(manifests: Path, place: str | None, seed: int) -> Prepared:
    config = None
    if place is not None:
        path = manifests.parent / "scheduler.yaml"
        path.write_text(_PROFILE + place, encoding="utf-8")
        config = str(path)
    return prepare(Request(paths=[str(manifests)], config=config, seed=seed, read_stdin=lambda: ""))


def _profiled(manifests: Path, place: str | None, options: argparse.Namespace) -> Iterator[tuple[str, float]]:
    """Yield microseconds per pod of each step that took any; a step includes those that it calls."""
    prepared = _prepared(manifests, place, options.seed)
    profile = cProfile.Profile()
    profile.enable()
    asyncio.run(run(prepared))
    profile.disable()
    found: dict[tuple[str, int, str], tuple[Any, ...]] = pstats.Stats(profile).stats  # type: ignore[attr-defined]  # typeshed lacks it
    for title, module, function in _STEPS:
        spent_s = sum(row[3] for key, row in found.items() if module in key[0] and key[2] == function)
        if spent_s:
            yield title, 1e6 * spent_s / options.pods


def _measured(manifests: Path, place: str | None, seed: int) -> Figures:
    done: Finished = asyncio.run(run(_prepared(manifests, place, seed)))
    attempts_ms = np.array([diagnosis.duration_ms for diagnosis in done.host.diagnoses])
    own = [cost for cost in done.costs if cost.plugin == "Reserved"]
    pods = len(attempts_ms)
    return Figures(
        pods_per_s=done.report.summary.pods_per_s,
        attempt_ms=float(attempts_ms.mean()),
        attempt_p99_ms=float(np.percentile(attempts_ms, 99)),
        calls_ms=sum(cost.total_ms for cost in own) / pods,
    )


def _cluster(node_count: int, pod_count: int) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": [*_nodes(node_count), *_pods(pod_count)]}


def _nodes(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        labels = {
            "kubernetes.io/hostname": f"node-{number}",
            "zone": f"zone-{number % 3}",
            "pool": "reserved" if number % 10 == 0 else "general",
        }
        allocatable = {"cpu": str(4 << number % 3), "memory": f"{16 << number % 3}Gi", "pods": "110"}
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"node-{number}", "labels": labels},
            "status": {"allocatable": allocatable},
        }


def _pods(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        requests = {"cpu": f"{100 + 50 * (number % 4)}m", "memory": f"{128 + 64 * (number % 3)}Mi"}
        container = {"name": "app", "image": f"app-{number % 5}", "resources": {"requests": requests}}
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{number}", "labels": {"app": f"app-{number % 5}"}},
            "spec": {"containers": [container]},
        }


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
