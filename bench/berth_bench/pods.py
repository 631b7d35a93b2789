"""Follow the pods: for the ops that wait for them, and for the meter.

Subscribes to the embedded cluster's store, so a binding is seen as soon as it is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from berth_host.app.host import Host
from berth_host.cluster.port import WatchEvent
from berth_sdk.kube_object import KubeObject
from berth_sim.cluster.server import ApiServer
from berth_sim.run.settle import is_busy

from berth_bench.measuring import Meter
from berth_bench.workload import ATTEMPTED, Labels

LOOK_S: Final = 0.25
PATIENCE_S: Final = 60.0
"""The longest wait of an op whose pods get no node or nomination, although the cluster changes."""


@dataclass(slots=True, eq=False)
class _Wait:
    """An op that waits. `remaining`: uids of the pods that it still waits for."""

    remaining: set[str]
    stage: str
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def passed(self, uid: str) -> None:
        self.remaining.discard(uid)
        if not self.remaining:
            self.done.set()


class PodWatch:
    """Follows all pods of one cluster. `on_bound` is called with every pod that gets its node."""

    def __init__(self, host: Host, server: ApiServer, meter: Meter) -> None:
        self._host = host
        self._server = server
        self._meter = meter
        self._waits: list[_Wait] = []
        self._listeners: list[Callable[[KubeObject], None]] = []
        self._unsubscribe = server.store.subscribe(self._see)

    def close(self) -> None:
        """Stop following."""
        self._unsubscribe()

    @contextmanager
    def listening(self, on_bound: Callable[[KubeObject], None]) -> Iterator[None]:
        """Call `on_bound` with every pod that gets its node until the block ends."""
        self._listeners.append(on_bound)
        try:
            yield
        finally:
            self._listeners.remove(on_bound)

    async def until(self, stage: str, uids: Collection[str], moves: Callable[[], bool]) -> set[str]:
        """Wait until these pods are scheduled, or attempted, or gone. Return the uids of those that are not,
        and will not be.

        `moves`: returns True if something besides the scheduler still changes the cluster.
        """
        remaining = {
            pod.ref.uid
            for pod in self._server.list("pods")
            if pod.ref.uid in uids and not has_come(pod, stage)
        }
        if not remaining:
            return remaining
        wait = _Wait(remaining, stage)
        self._waits.append(wait)
        try:
            await self._wait(wait, moves)
        finally:
            self._waits.remove(wait)
        return remaining

    async def rests(self) -> bool:
        """Return True if the scheduler has nothing to do, now and a moment later."""
        if self._host_moves():
            return False
        await asyncio.sleep(LOOK_S)
        self._host.check()
        return not self._host_moves()

    async def _wait(self, wait: _Wait, moves: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        progress, since_s, was_still = self._progress(wait), loop.time(), False
        while True:
            try:
                async with asyncio.timeout(LOOK_S):
                    await wait.done.wait()
                return
            except TimeoutError:
                self._host.check()
            if self._progress(wait) != progress:
                progress, since_s = self._progress(wait), loop.time()
            is_still = not moves() and not self._host_moves()
            if (is_still and was_still) or loop.time() - since_s > PATIENCE_S:
                return
            was_still = is_still

    def _progress(self, wait: _Wait) -> tuple[int, int]:
        """Return a value that changes when a pod gets its node or a nomination."""
        return len(wait.remaining), self._meter.nominated_count

    def _host_moves(self) -> bool:
        """Return True if the scheduler is working, or will work when a timer fires."""
        host = self._host
        return is_busy(host) or bool(len(host.queue.places.backoff) or len(host.waiting_pods))

    def _see(self, event: WatchEvent) -> None:
        if event.kind != "Pod":
            return
        old, new = event.old, event.new
        if new is None:
            if old is not None:
                self._pass(old.ref.uid)
            return
        node = node_of(new)
        if not node:
            if old is None:
                self._meter.pod_seen(new)
            if new.get("status.nominatedNodeName"):
                self._meter.pod_nominated(new.ref.uid)
            for wait in self._waits:
                if wait.stage == ATTEMPTED and has_come(new, ATTEMPTED):
                    wait.passed(new.ref.uid)
        elif old is None or not node_of(old):
            uid = new.ref.uid
            self._meter.pod_bound(uid)
            self._pass(uid)
            for listener in self._listeners:
                listener(new)

    def _pass(self, uid: str) -> None:
        for wait in self._waits:
            wait.passed(uid)


def node_of(pod: KubeObject) -> str:
    """Return the node of a pod, "" while it has none."""
    return str((pod.parsed.get("spec") or {}).get("nodeName") or "")


def has_come(pod: KubeObject, stage: str) -> bool:
    """Return True if the pod is scheduled or, for ATTEMPTED, if a cycle or PreEnqueue has rejected it."""
    if node_of(pod):
        return True
    conditions: list[dict[str, Any]] = pod.get("status.conditions", [])
    return stage == ATTEMPTED and any(item.get("type") == "PodScheduled" for item in conditions)


def matches(pod: KubeObject, namespaces: Collection[str], labels: Labels) -> bool:
    """Return True if the pod is in one of the namespaces (empty: any) and has these labels."""
    metadata = pod.parsed.get("metadata") or {}
    own = metadata.get("labels") or {}
    return (not namespaces or metadata.get("namespace") in namespaces) and all(
        own.get(key) == value for key, value in labels.items()
    )
