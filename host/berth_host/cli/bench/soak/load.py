"""`Load`: pods that come and go in a cluster of the soak, and an account of where they are.

Run by `world`. The account is made from the cluster's own changes, not from the host's word.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any, Final

from berth_sdk.kube_object import ObjectRef
from berth_sdk.quantity import milli_value

from berth_host.cli.bench.soak.plugins import CLOSED
from berth_host.cli.bench.versus.objects import node, pod
from berth_host.cluster.memory.server import ApiServer
from berth_host.cluster.port import WatchEvent
from berth_host.errors.cluster import ClusterError

NODE_CPU: Final = "4"
_NODE_MILLI_CPU: Final = 4000
_CPUS_MILLI: Final = (500, 1000, 1500)
_CLOSED_EVERY: Final = 10
_FULL: Final = 0.6
"""Pods ask for this share of the open nodes' CPU, once as many are there as are wanted."""
PODS_PER_S: Final = 25.0
_TICK_S: Final = 0.1
_GO: Final = 1 / 8
"""A pod goes for so many that come, also while there are few."""


class Account:
    """Attributes: bound, double_binds (pods whose node changed), over_committed (names of nodes that had
    more than they can hold at any time), unbound (keys of pods without a node), all_bound.
    """

    def __init__(self, server: ApiServer) -> None:
        self.bound = 0
        self.double_binds = 0
        self.over_committed: set[str] = set()
        self.unbound: set[str] = set()
        self.all_bound = asyncio.Event()
        self._milli_cpu: Counter[str] = Counter()
        self.close = server.store.subscribe(self._note)

    def _note(self, event: WatchEvent) -> None:
        if event.kind != "Pod":
            return
        old, new = event.old, event.new
        was = "" if old is None else str(old.get("spec.nodeName") or "")
        now = "" if new is None else str(new.get("spec.nodeName") or "")
        if new is not None and not now:
            self.unbound.add(new.ref.key)
        elif old is not None:
            self.unbound.discard(old.ref.key)
        if self.unbound:
            self.all_bound.clear()
        else:
            self.all_bound.set()
        if was == now:
            return
        if was and now:
            self.double_binds += 1
        if was and old is not None:
            self._milli_cpu[was] -= _milli_cpu(old.parsed)
        if now and new is not None:
            self.bound += 1
            self._milli_cpu[now] += _milli_cpu(new.parsed)
            if self._milli_cpu[now] > _NODE_MILLI_CPU:
                self.over_committed.add(now)


class Load:
    """`created`: pods so far."""

    def __init__(self, server: ApiServer, nodes: int, rng: random.Random) -> None:
        self.created = 0
        self._server = server
        self._rng = rng
        self._there: list[ObjectRef] = []
        open_nodes = nodes - len(range(0, nodes, _CLOSED_EVERY))
        mean_milli_cpu = sum(_CPUS_MILLI) / len(_CPUS_MILLI)
        self._most = max(round(_FULL * open_nodes * _NODE_MILLI_CPU / mean_milli_cpu), 1)
        for number in range(nodes):
            more = {CLOSED: "true"} if number % _CLOSED_EVERY == 0 else {}
            server.create(node(f"node-{number}", NODE_CPU, **more))

    async def run(self) -> None:
        """Until it is cancelled: create pods, and delete as many once there are enough."""
        owed = 0.0
        while True:
            owed += PODS_PER_S * _TICK_S * self._rng.uniform(0.0, 2.0)
            self.step(int(owed))
            owed %= 1
            await asyncio.sleep(_TICK_S)

    def step(self, count: int) -> None:
        """So many pods come, and some go."""
        for _ in range(count):
            self._create()
            if len(self._there) > self._most or self._rng.random() < _GO:
                self._delete()

    def _create(self) -> None:
        self.created += 1
        cpu = self._rng.choice(_CPUS_MILLI)
        made = self._server.create(pod(f"pod-{self.created}", f"{cpu}m"))
        self._there.append(made.ref)

    def _delete(self) -> None:
        """Any pod, bound or not."""
        place = self._rng.randrange(len(self._there))
        ref = self._there[place]
        self._there[place] = self._there[-1]
        self._there.pop()
        try:
            self._server.delete("pods", ObjectRef(name=ref.name, namespace=ref.namespace))
        except ClusterError:
            # The host preempts nobody here: a pod can only be missing if the account is wrong.
            raise RuntimeError(f"pod {ref.key} went by itself") from None


def _milli_cpu(obj: Any) -> int:
    containers = obj["spec"]["containers"]
    return sum(milli_value(container["resources"]["requests"]["cpu"]) for container in containers)
