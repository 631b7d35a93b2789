"""Carry out `RunPods`: pods of short life, created at a rate; each of them ends some time after it was bound.

Called by `actions`. What the process holds is sampled regularly, so that a leak shows.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from berth_host.app.host import Host
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sim.cluster.server import ApiServer

from berth_bench.measuring import Meter, rss_mb
from berth_bench.pods import PodWatch
from berth_bench.result import Level
from berth_bench.workload import SCHEDULED, RunPods

AT_ONCE: Final = 20
"""The number of pods that are created, or ended, in one turn of the loop."""
WAITING_S: Final = 2.0
"""No pod is created while pods of so many seconds wait for their node, so that a slow machine needs no more
memory than a fast one.
"""
SETTLED: Final = 3
"""The sample from which on memory stays the same, if nothing leaks: bounded stores are full by then."""
_PAUSE_S: Final = 0.002


class ShortLivedPods:
    """Creates and ends the pods of one op. `levels`: what the process held, one per sample. `made_count`: the
    number of pods created so far.
    """

    def __init__(self, op: RunPods, host: Host, server: ApiServer, meter: Meter, pods: PodWatch) -> None:
        self._op = op
        self._host = host
        self._server = server
        self._meter = meter
        self._pods = pods
        self._waiting: set[str] = set()
        self._running: deque[tuple[float, ObjectRef]] = deque()
        self.made_count = self._bound_count = self._ended_count = 0
        self._all_bound = False
        self.levels: list[Level] = []
        self.made_per_s = 0.0
        """The rate that was reached. Below that of the op where the machine is too slow."""

    async def run(self, objects: Iterable[Mapping[str, Any]]) -> set[str]:
        """Create the pods and end them; return the uids of those that stay pending. Raises ClusterError."""
        ending = asyncio.ensure_future(self._end())
        sampling = asyncio.ensure_future(self._sample())
        try:
            with self._pods.listening(self._see):
                await self._create(objects)
                left = await self._pods.until(SCHEDULED, self._waiting, lambda: bool(self._running))
                self._all_bound = True
                await ending
        finally:
            for task in (ending, sampling):
                task.cancel()
            await asyncio.gather(ending, sampling, return_exceptions=True)
        return left

    async def _create(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Create the pods at the rate, or fewer of them if those that wait will never have a node."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        most_waiting = max(int(WAITING_S * self._op.per_second), 1)
        pods = iter(objects)
        while self.made_count < self._op.count:
            due = min(self._op.count, int((loop.time() - began_s) * self._op.per_second) + 1)
            room = most_waiting - len(self._waiting)
            if not room and not self._running and await self._pods.rests():
                break
            count = min(due - self.made_count, room, AT_ONCE)
            for _ in range(count):
                self._waiting.add(self._server.create(next(pods)).ref.uid)
                self.made_count += 1
            await asyncio.sleep(0 if count == AT_ONCE else _PAUSE_S)
        self.made_per_s = self.made_count / max(loop.time() - began_s, _PAUSE_S)

    def _see(self, pod: KubeObject) -> None:
        if pod.ref.uid in self._waiting:
            self._waiting.remove(pod.ref.uid)
            self._bound_count += 1
            ends_s = asyncio.get_running_loop().time() + self._op.lives_s
            self._running.append((ends_s, pod.ref))

    async def _end(self) -> None:
        """Delete pods whose time is over, until all of them were bound and have ended."""
        loop = asyncio.get_running_loop()
        while self._running or not self._all_bound:
            count = 0
            while self._running and self._running[0][0] <= loop.time() and count < AT_ONCE:
                _, ref = self._running.popleft()
                count += 1
                self._ended_count += 1
                self._meter.pod_gone(ref.uid)
                if self._server.get("pods", ref) is not None:  # the pod may have been evicted
                    self._server.delete("pods", ref, grace_period_s=0)
            await asyncio.sleep(0 if count == AT_ONCE else _PAUSE_S)

    async def _sample(self) -> None:
        loop = asyncio.get_running_loop()
        began_s = then_s = loop.time()
        bound_count = 0
        while True:
            await asyncio.sleep(self._op.sample_s)
            now_s = loop.time()
            self.levels.append(
                Level(
                    after_s=now_s - began_s,
                    bound_per_s=(self._bound_count - bound_count) / (now_s - then_s),
                    created=self.made_count,
                    ended=self._ended_count,
                    queued=sum(self._host.queue.counts.pods().values()),
                    tasks=len(asyncio.all_tasks()),
                    objects=sys.getallocatedblocks(),
                    rss_mb=rss_mb(),
                )
            )
            then_s, bound_count = now_s, self._bound_count


def growth(levels: Sequence[Level]) -> float | None:
    """Return how far resident memory rose above that of sample SETTLED, as a share of it (0.1: by a tenth);
    None without a later sample.
    """
    later = [level.rss_mb for level in levels[SETTLED - 1 :]]
    return max(later) / later[0] - 1 if len(later) > 1 else None
