"""Measure figures for docs/performance.md: `python tests/docs/measure_sync.py [--nodes N] [--pods N]`.

A plugin process that reads nodes and pods attaches to a cluster of N nodes with N pods on them, and gets the
state by SyncState. Prints bytes, chunks and seconds of that, the longest time that the host's loop was
blocked, and the bytes of a later call. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

sys.path.insert(0, str(next(folder for folder in Path(__file__).parents if folder.name == "tests")))

from berth_host import log
from berth_host.rpc.call_rules import PointPolicy
from berth_host.rpc.served.link import InstanceLink
from berth_sdk.testing.builders import make_pod
from support.attached import AttachedHost, at_socket
from support.plugin_processes import PluginProcess

_PLUGIN: Final = """\
import numpy as np
from berth_sdk import Plugin, ScoreNormalization, Need, Verdicts


class Readers(Plugin):
    needs = (Need.nodes(), Need.pods())
    normalization = ScoreNormalization.NONE

    def filter_nodes(self, state, pod, nodes):
        return Verdicts.feasible(len(nodes))

    def score_nodes(self, state, pod, nodes):
        return nodes.pod_count % 100
"""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5000, help="default: 5000")
    parser.add_argument("--pods", type=int, default=50_000, help="default: 50 000")
    options = parser.parse_args()
    log.configure("ERROR")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start")
    with tempfile.TemporaryDirectory(prefix="berth-measure-") as name:
        (Path(name) / "readers.py").write_text(_PLUGIN, encoding="utf-8")
        asyncio.run(_measure(Path(name), options.nodes, options.pods))
    return 0


async def _measure(folder: Path, node_count: int, pod_count: int) -> None:
    process = PluginProcess(folder / "p.sock", "readers:Readers", environment={"PYTHONPATH": str(folder)})
    await process.start()
    points = {point: PointPolicy(30.0) for point in ("filter", "score")}
    host = AttachedHost([at_socket(folder / "p.sock", "Readers")], node_count=node_count, points=points)
    try:
        for i in range(pod_count):
            host.state.cache.add_pod(make_pod(f"pod-{i}", cpu="100m").on_node(f"n{i % node_count}"))
        host.state.snapshot.update(host.state.cache)
        await host.attachments.start(60.0)
        link = host.attachments.places[0].link
        assert link is not None
        await _full(link)
        await _calls(host)
    finally:
        await host.attachments.stop()
        await process.kill()


async def _full(link: InstanceLink) -> None:
    watch = asyncio.get_running_loop().create_task(_longest_step())
    await asyncio.sleep(0)
    sent, began_s = link.synced_bytes, time.perf_counter()
    await link.sync(("Readers", "SyncState"), time.monotonic() + 60.0, full=True)
    took_s = time.perf_counter() - began_s
    watch.cancel()
    steps_us = sorted(1e6 * step for step in await watch)
    print(f"everything: {link.synced_bytes - sent} bytes in {took_s:.2f} s")
    print(
        f"steps of the loop meanwhile: {len(steps_us)}, CPU time of the longest {steps_us[-1]:.0f} us,"
        f" 99 % below {steps_us[int(0.99 * len(steps_us))]:.0f} us"
    )


async def _longest_step() -> list[float]:
    """Measure CPU seconds of this thread between two turns of a task that is always ready."""
    steps: list[float] = []
    last_s = time.thread_time()
    try:
        while True:
            await asyncio.sleep(0)
            now_s = time.thread_time()
            steps.append(now_s - last_s)
            last_s = now_s
    except asyncio.CancelledError:
        return steps


async def _calls(host: AttachedHost) -> None:
    for title, changed in (("first", 0), ("nothing changed", 0), ("one pod came", 1), ("100 pods came", 100)):
        for i in range(changed):
            host.state.put(make_pod(f"new-{changed}-{i}", cpu="100m"), f"n{i}")
        host.sent.clear()
        cycle = host.cycle()
        await host.client.filter(cycle, host.nodes)
        await host.client.score(cycle, host.nodes)
        print(f"call, {title}: " + ", ".join(f"{call} {sent} bytes" for _, call, sent, _ in host.sent))


if __name__ == "__main__":
    sys.exit(main())
