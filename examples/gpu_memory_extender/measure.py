"""Measures the steps from an HTTP extender to a plugin, on an embedded cluster.

    python measure.py [--nodes 500] [--pods 50] step-0.yaml step-1.yaml step-2.yaml step-3.yaml

Each configuration schedules the same pods on the same nodes, one pod after the other. A row of the printed
table has, per pod: the calls that leave the scheduler's process, their bytes in both directions, and the
milliseconds from the queue to the binding. A configuration with an extender gets `extender.py`, at a free
port in place of the one in the file. Exit code 1: the steps place the pods differently, or leave some
pending.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml
from berth_host import log
from berth_host.app import Host, HostOptions
from berth_host.cli import configuration
from berth_host.cluster.port import WatchEvent
from berth_host.cycle.chooser import SmallestName
from berth_host.model.clock import ManualClock
from berth_sdk.yaml.reader import read_values
from berth_sim.cluster.cluster import MemoryCluster
from berth_sim.cluster.http.serving import served
from berth_sim.cluster.server import ApiServer
from berth_sim.run.settle import Settling
from gpu_memory import GPU, GPUS, MEMORY

HERE: Final = Path(__file__).resolve().parent
Placement = tuple[str, str]
"""A pod's node, and the number of its GPU there; both empty for a pending pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The figures of one configuration, for all pods together. `placements`: by the pod's name."""

    name: str
    calls: int
    sent_bytes: int
    received_bytes: int
    seconds: float
    placements: Mapping[str, Placement]


async def measure(config: Path, node_count: int, pod_count: int) -> Step:
    """Schedule the pods with one configuration. Raises RuntimeError for an extender that does not start."""
    clock = ManualClock(float(int(time.time())))
    server = ApiServer(clock)
    for number in range(node_count):
        server.create(_node(number))
    async with served(server) as api, _with_extender(config, api.url) as path:
        options = HostOptions(clock=clock, chooser=SmallestName())
        host = Host(configuration.load(str(path)), MemoryCluster(clock, server), options)
        await host.start()
        try:
            await _settle(host, clock)
            before = _traffic(host)
            seconds = 0.0
            for number in range(pod_count):
                seconds += await _place(_pod(number), server, host, clock)
            calls, sent, received = (now - then for now, then in zip(_traffic(host), before, strict=True))
        finally:
            await host.stop()
    placements = {}
    for pod in server.list("pods"):
        annotations = pod.get("metadata.annotations") or {}
        placements[pod.ref.name] = (str(pod.get("spec.nodeName") or ""), str(annotations.get(GPU, "")))
    return Step(
        name=config.stem,
        calls=calls,
        sent_bytes=sent,
        received_bytes=received,
        seconds=seconds,
        placements=placements,
    )


def report(steps: Sequence[Step]) -> str:
    """Return the table, and a line that says whether all steps place the pods alike."""
    rows = [("STEP", "CALLS/POD", "BYTES/POD", "MS/POD", "PLACED")]
    for step in steps:
        pods = len(step.placements)
        placed = sum(bool(node_name) for node_name, _ in step.placements.values())
        rows.append(
            (
                step.name,
                f"{step.calls / pods:.1f}",
                f"{(step.sent_bytes + step.received_bytes) / pods:.0f}",
                f"{1000 * step.seconds / pods:.1f}",
                f"{placed} of {pods}",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]
        lines.append("   ".join(cells))
    return "\n".join([*lines, "", _comparison(steps)])


def _comparison(steps: Sequence[Step]) -> str:
    first, *others = steps
    for step in others:
        for name, placement in first.placements.items():
            if step.placements[name] != placement:
                there = " GPU ".join(step.placements[name]) or "pending"
                here = " GPU ".join(placement) or "pending"
                return f"pod {name}: {here} in {first.name}, {there} in {step.name}"
    return "every pod has the same node and the same GPU in each step" if others else ""


# --- the parts of a run --------------------------------------------------------------------------------


@asynccontextmanager
async def extender_process(api_url: str) -> AsyncIterator[str]:
    """Run the extender beside an API server; yield its address. Raises RuntimeError if it does not start."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(HERE / "extender.py"), "--api-server", api_url),
        *("--listen", "127.0.0.1:0", "--with-parent"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
        if not line.startswith("serving at "):
            raise RuntimeError("the extender does not serve: standard error has the reason")
        yield line.removeprefix("serving at ").strip()
    finally:
        process.stdin.close()
        await process.wait()


@asynccontextmanager
async def _with_extender(config: Path, api_url: str) -> AsyncIterator[Path]:
    """Start the extender that the configuration names; yield the configuration with its address."""
    documents = _read(config)
    extenders = [extender for document in documents for extender in document.get("extenders", ())]
    if not extenders:
        yield config
        return
    async with extender_process(api_url) as url:
        for extender in extenders:
            extender["urlPrefix"] = url
        with TemporaryDirectory(prefix="berth-gpu-memory-") as folder:
            path = Path(folder) / config.name
            path.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
            yield path


def _read(config: Path) -> list[dict[str, Any]]:
    return [document for document, _ in read_values(config.read_text(encoding="utf-8"))]


async def _place(pod: dict[str, Any], server: ApiServer, host: Host, clock: ManualClock) -> float:
    """Create a pod, and run until nothing changes any more. Return the seconds until it was bound, or until
    the end for a pod that stays pending.
    """
    bound_s: list[float] = []

    def see(event: WatchEvent) -> None:
        if event.kind == "Pod" and event.new is not None and event.new.get("spec.nodeName"):
            bound_s.append(time.monotonic())

    unsubscribe = server.store.subscribe(see)
    started_s = time.monotonic()
    try:
        server.create(pod)
        await _settle(host, clock)
    finally:
        unsubscribe()
    return (bound_s[0] if bound_s else time.monotonic()) - started_s


async def _settle(host: Host, clock: ManualClock) -> None:
    """Run until nothing changes any more."""
    await Settling(host, clock, others_move=lambda: False).run()


def _traffic(host: Host) -> tuple[int, int, int]:
    """Return (calls that left the process, bytes sent, bytes received) so far."""
    calls = sent = received = 0
    for stats in host.plugin_stats().values():
        for _, figures in stats.items():
            calls += figures.messages
            sent += figures.bytes_sent
            received += figures.bytes_received
    return calls, sent, received


def _node(number: int) -> dict[str, Any]:
    """Return a node as a kubelet describes it; every fifth one has GPUs."""
    name = f"node-{number:04}"
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "general.16",
        "topology.kubernetes.io/region": "harbour",
        "topology.kubernetes.io/zone": f"harbour-{'abc'[number % 3]}",
    }
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "200Gi"}
    if number % 5 == 0:
        gpus = 2 + 2 * (number // 5 % 2)
        labels[GPUS] = str(gpus)
        amounts[MEMORY] = str(gpus * (16, 24, 40)[number // 5 % 3])
    seen = "2026-01-01T00:00:00Z"
    conditions = [
        {
            "type": kind,
            "status": "True" if kind == "Ready" else "False",
            "reason": f"Kubelet{kind}",
            "message": f"kubelet reports {kind}",
            "lastHeartbeatTime": seen,
            "lastTransitionTime": seen,
        }
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    images = [
        {"names": [f"registry.example.com/{image}@sha256:{image:0>64}"], "sizeBytes": 50_000_000}
        for image in ("proxy", "pause", "network", "storage", "metrics", "logs", "dns", "device-plugin")
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"podCIDR": f"10.{number // 256}.{number % 256}.0/24"},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "addresses": [{"type": "Hostname", "address": name}],
            "conditions": conditions,
            "images": images,
        },
    }


def _pod(number: int) -> dict[str, Any]:
    """Return a pod that requests memory of one GPU."""
    amounts = {MEMORY: str((4, 10, 6, 16, 3, 24, 8)[number % 7])}
    resources = {"requests": {"cpu": "500m", "memory": "1Gi", **amounts}, "limits": amounts}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number:04}", "labels": {"app": "inference"}},
        "spec": {"containers": [{"name": "main", "image": "inference", "resources": resources}]},
    }


def main(arguments: list[str]) -> int:
    """Measure each configuration, and print the table."""
    parser = argparse.ArgumentParser(description="Measures the steps from an HTTP extender to a plugin.")
    parser.add_argument("configs", nargs="+", type=Path, metavar="CONFIG")
    parser.add_argument("--nodes", type=int, default=500, help="default: 500")
    parser.add_argument("--pods", type=int, default=50, help="default: 50")
    options = parser.parse_args(arguments)
    log.configure("ERROR", for_people=True)
    # Children of the host find the plugin's module and the commands of this Python.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    steps = [asyncio.run(measure(config, options.nodes, options.pods)) for config in options.configs]
    print(report(steps))
    first = steps[0].placements
    alike = all(step.placements == first for step in steps)
    return 0 if alike and all(node_name for node_name, _ in first.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
