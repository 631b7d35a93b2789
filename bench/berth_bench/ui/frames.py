"""The times between the frames of the page, with many nodes and pending pods, some of which keep changing.

The host runs in this process on the embedded cluster, in real time. Each part of the measurement does what a
user does with the page: scroll, type, choose, change the view.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from berth_host.app import Host, HostOptions
from berth_host.cli import configuration
from berth_host.endpoints.loopback import LoopbackServer
from berth_host.endpoints.pages import QUEUE_MOST, Answers
from berth_host.model.clock import RealClock, sleep
from berth_sdk.kube_object import ObjectRef
from berth_sim.cluster.server import ApiServer
from berth_sim.commands import simulation

from berth_bench.ui.chromium import Page, chromium, opened

CHANGED_PODS: Final = 50
"""Pods that are deleted and created again, per second."""
_READY_S: Final = 300.0
_FRAME_MS: Final = 50.0
_RECORD: Final = """
window.recorded = [];
let last = performance.now();
(function frame() {
  const now = performance.now();
  recorded.push(now - last);
  last = now;
  requestAnimationFrame(frame);
})();
"""
_PAGED: Final = "queue, paged"
_PARTS: Final = {
    "queue, scrolled": (
        "#/queue",
        "const box = document.querySelector('.scroll'); let step = 90; every(16, () => {"
        " if (box.scrollTop + box.clientHeight >= box.scrollHeight - 1) step = -90;"
        " if (box.scrollTop <= 0) step = 90; box.scrollTop += step; })",
    ),
    "queue, searched": (
        "#/queue",
        "const box = document.getElementById('queue-text'); const words = ['p', 'po', 'pod-1', 'cpu', ''];"
        " let at = 0; every(250, () => { box.value = words[at++ % words.length];"
        " box.dispatchEvent(new Event('input')); })",
    ),
    "nodes, chosen": (
        "#/nodes",
        "const map = document.querySelector('canvas'); every(50, () => map.dispatchEvent("
        "new KeyboardEvent('keydown', { key: 'ArrowRight' })))",
    ),
    "nodes, recoloured": (
        "#/nodes",
        "const by = document.getElementById('nodes-by'); let at = 0; every(250, () => {"
        " by.selectedIndex = at++ % by.options.length; by.dispatchEvent(new Event('change')); })",
    ),
    "nodes, asked": (
        "#/nodes?pod=default%2Fpod-0",
        "const buttons = [...document.querySelectorAll('button')];"
        " const again = buttons.find((one) => one.textContent === 'Ask again');"
        " every(1000, () => again.click())",
    ),
    _PAGED: (
        "#/queue",
        "const turns = document.querySelectorAll('.turns button'); let at = 0;"
        " every(2000, () => turns[at++ % 2 ? 0 : 1].click())",
    ),
    "views, changed": (
        "#/queue",
        "const views = ['#/nodes', '#/plugins', '#/groups', '#/queue']; let at = 0;"
        " every(1500, () => { location.hash = views[at++ % views.length]; })",
    ),
}
"""The parts: the first view, and what is done with it. _PAGED needs more pods than one answer has."""


@dataclass(frozen=True, slots=True)
class Frames:
    """The times between the frames of one part, in ms. `below_50_ms`: the share of those below 50 ms."""

    part: str
    frames: int
    median_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    below_50_ms: float

    @classmethod
    def of(cls, part: str, times_ms: Sequence[float]) -> Frames:
        """Return the figures of the recorded times; at least one."""
        times = np.array(times_ms)
        median, p95, p99 = np.percentile(times, [50, 95, 99]).tolist()
        below = float((times < _FRAME_MS).mean())
        return cls(part, len(times), median, p95, p99, float(times.max()), below)


def measured(nodes: int, pods: int, seconds: float, say: Callable[[str], None]) -> list[Frames]:
    """Return the frames of each part, which takes `seconds`. `say`: tells the progress.

    Raises ChromiumError.
    """
    with chromium() as address:
        return asyncio.run(_measured(address, nodes, pods, seconds, say))


@dataclass(frozen=True, slots=True)
class _Process:
    """The host as a process of the pages."""

    host: Host
    is_connected: bool = True
    is_leading: bool = True


async def _measured(
    address: str, nodes: int, pods: int, seconds: float, say: Callable[[str], None]
) -> list[Frames]:
    clock = RealClock()
    server = ApiServer(clock)
    for item in (*map(_node, range(nodes)), *map(_pod, range(pods))):
        server.create(item)
    host = simulation.embedded_host(configuration.for_simulation(None), server, HostOptions(clock=clock))
    page_server = LoopbackServer(Answers(_Process(host)).answer)
    await host.start()
    try:
        say(f"{nodes} nodes, {pods} pods: every pod is tried once")
        async with asyncio.timeout(_READY_S):
            while host.queue.has_ready or host.scheduler.is_busy:
                await sleep(clock, 0.1)
        await page_server.start(0)
        changing = asyncio.create_task(_change(server, pods))
        try:
            async with opened(address, width=1600, height=1000) as page:
                return [
                    await _part(page, page_server.url, part, view, action, seconds)
                    for part, (view, action) in _PARTS.items()
                    if part != _PAGED or pods > QUEUE_MOST
                ]
        finally:
            changing.cancel()
            with suppress(asyncio.CancelledError):
                await changing
    finally:
        await page_server.stop()
        await host.stop()


async def _part(page: Page, url: str, part: str, view: str, action: str, seconds: float) -> Frames:
    await page.open("about:blank")
    await page.open(f"{url}{view}")
    await page.until("document.querySelectorAll('.scroll tbody a').length > 10", _READY_S)
    await page.until("document.querySelector('.scroll table').getAttribute('aria-rowcount') > 100", _READY_S)
    # The first answer comes in parts; the measurement begins when all have come.
    await page.value("new Promise((done) => setTimeout(done, 1000))")
    await page.value(f"{{ const every = (ms, act) => setInterval(act, ms); {action}; {_RECORD} }}")
    await asyncio.sleep(seconds)
    times: list[float] = await page.value("recorded.slice(1)")
    return Frames.of(part, times)


async def _change(server: ApiServer, pods: int) -> None:
    """Delete pods and create them again, until cancelled."""
    for number in itertools.cycle(range(pods)):
        with suppress(Exception):
            server.delete("pods", ObjectRef(namespace="default", name=f"pod-{number}"))
        server.create(_pod(number))
        await asyncio.sleep(1 / CHANGED_PODS)


def _node(number: int) -> dict[str, Any]:
    labels = {"topology.kubernetes.io/zone": f"zone-{number % 3}", "kubernetes.io/hostname": f"node-{number}"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{number}", "labels": labels},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
    }


def _pod(number: int) -> dict[str, Any]:
    """Return a pod that stays pending: it wants too much, a label that no node has, or it is gated."""
    spec, cpu = next(itertools.islice(_reasons(), number % 4, None))
    container = {"name": "c", "image": "app", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number}", "namespace": "default"},
        "spec": {"containers": [container], **spec},
    }


def _reasons() -> Iterator[tuple[dict[str, Any], str]]:
    yield {}, "64"
    yield {"nodeSelector": {"accelerator": "gpu"}}, "1"
    yield {"schedulingGates": [{"name": "example.com/quota"}]}, "1"
    yield {"nodeSelector": {"topology.kubernetes.io/zone": "zone-1"}}, "32"
