"""Measure the cost of a pod outside the scheduling cycle: `python tests/docs/measure_around.py [--nodes N]`.

The steps, with all default plugins in-process: the embedded cluster's create, the watch event of the pending
pod, the pop, the assumption, the embedded cluster's bind, the watch event of the bound pod. Plugins are
called at PreEnqueue and QueueSort only. The figure is CPU time of the thread per pod, the best of several
rounds; waiting for a core does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import time
from collections.abc import Callable
from typing import Any, Final

from berth_host import log
from berth_host.app import Host, HostOptions
from berth_host.cluster.port import WatchEvent
from berth_host.config.loading import default_configuration
from berth_host.model.clock import RealClock
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_sdk.testing import node_object, pod_object
from berth_sim.cluster.cluster import MemoryCluster
from berth_sim.cluster.server import ApiServer

_PODS: Final = 400
_ROUNDS: Final = 12


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=500, help="default: 500")
    options = parser.parse_args()
    log.configure("ERROR")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {options.nodes} nodes")
    best_us = asyncio.run(_measure(options.nodes))
    for step, spent_us in best_us.items():
        print(f"{step:14} {spent_us:6.1f} us of CPU time per pod")
    print(f"{'all':14} {sum(best_us.values()):6.1f}")
    return 0


async def _measure(node_count: int) -> dict[str, float]:
    clock = RealClock()
    server = ApiServer(clock)
    host = Host(default_configuration(), MemoryCluster(clock, server), HostOptions(clock=clock))
    await host.clients.reconcile()
    # The changes are delivered explicitly.
    seen: list[WatchEvent] = []
    server.store.subscribe(seen.append)
    names = [f"n{i}" for i in range(node_count)]
    for name in names:
        server.create(node_object(name, cpu=64, memory="256Gi", pods=4000))
    best_us: dict[str, float] = {}
    for _ in range(_ROUNDS):
        _hand_over(host, seen)
        gc.collect()
        for step, spent_us in _round(host, server, seen, names).items():
            best_us[step] = min(best_us.get(step, spent_us), spent_us)
        for pod in list(host.objects.pods()):
            server.delete("pods", pod.ref)
    asyncio.run(host.clients.close())
    return best_us


def _round(host: Host, server: ApiServer, seen: list[WatchEvent], names: list[str]) -> dict[str, float]:
    spent_us: dict[str, float] = {}

    def timed(step: str, act: Callable[[], Any]) -> None:
        started_s = time.thread_time()
        act()
        spent_us[step] = 1e6 * (time.thread_time() - started_s) / _PODS

    def create() -> None:
        for _ in range(_PODS):
            server.create(template | {"metadata": {"generateName": "p-", "namespace": "default"}})

    def pop() -> None:
        queued = (host.queue.pop() for _ in range(_PODS))
        popped.extend(info for info in queued if isinstance(info, QueuedPodInfo))

    def assume() -> None:
        for i, info in enumerate(popped):
            host.cache.assume(info.pod.on_node(names[i % len(names)]))

    def bind() -> None:
        for i, info in enumerate(popped):
            host.queue.done(info.uid)
            server.bind(info.pod.ref, names[i % len(names)])

    template = pod_object("p", cpu="10m", memory="5Mi", images=["pause"])
    popped: list[QueuedPodInfo] = []
    timed("create", create)
    timed("seen waiting", lambda: _hand_over(host, seen))
    timed("pop", pop)
    timed("assume", assume)
    timed("bind", bind)
    timed("seen on node", lambda: _hand_over(host, seen))
    assert len(popped) == _PODS
    assert not host.cache.assumed_count
    return spent_us


def _hand_over(host: Host, seen: list[WatchEvent]) -> None:
    for event in seen:
        host.handlers.handle(event)
    seen.clear()


if __name__ == "__main__":
    raise SystemExit(main())
