"""`Load`: pods that come and go in the cluster of a soak. Run by `world`."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from berth_bench.soak.account import NODE_MILLI_CPU, Account
from berth_bench.soak.clusters import SCHEDULER_NAME, Cluster
from berth_bench.soak.plugins import CLOSED
from berth_bench.versus.objects import Json, node, pod

_CPUS_MILLI: Final = (500, 1000, 1500)
_CLOSED_EVERY: Final = 10
_FULL: Final = 0.6
"""Pods ask for this share of the open nodes' CPU, once as many are there as are wanted."""
PODS_PER_S: Final = 25.0
_TICK_S: Final = 0.1
_MOST_AT_ONCE: Final = 50
"""Where the cluster was away, what was owed meanwhile comes in parts of this size."""
WAITING_MOST: Final = 500
"""While so many pods wait for a node none comes: required plugins are away most of the time, and a host that
binds what it can, on a busy machine, would have its queue measured, which grows as long as the soak lasts.
"""
_GO: Final = 1 / 8
"""A pod goes for so many that come, also while there are few."""
STAYS_S: Final = 10.0
"""A pod that has waited longer for its node does not go before it has one: a lost one is to be missed."""


def nodes_of(count: int) -> list[Json]:
    """So many nodes, some of them closed."""
    return [
        node(f"soak-{number}", f"{NODE_MILLI_CPU}m", **({CLOSED: "true"} if _is_closed(number) else {}))
        for number in range(count)
    ]


def open_nodes(count: int) -> list[str]:
    """The names of those that are not closed."""
    return [f"soak-{number}" for number in range(count) if not _is_closed(number)]


class Load:
    """`created`: pods so far."""

    def __init__(self, cluster: Cluster, account: Account, nodes: int, rng: random.Random) -> None:
        self.created = 0
        self._cluster = cluster
        self._account = account
        self._rng = rng
        self._there: list[tuple[str, float]] = []
        self._ended = asyncio.Event()
        mean_milli_cpu = sum(_CPUS_MILLI) / len(_CPUS_MILLI)
        self._most = max(round(_FULL * len(open_nodes(nodes)) * NODE_MILLI_CPU / mean_milli_cpu), 1)

    async def run(self) -> None:
        """Until `end`: create pods unless many wait, and delete as many once there are enough."""
        owed = 0.0
        loop = asyncio.get_running_loop()
        before_s = loop.time()
        while not self._ended.is_set():
            await asyncio.sleep(_TICK_S)
            now_s = loop.time()
            owed += PODS_PER_S * (now_s - before_s) * self._rng.uniform(0.0, 2.0)
            before_s = now_s
            if len(self._account.unbound) >= WAITING_MOST:
                owed = 0.0
            count = min(int(owed), _MOST_AT_ONCE)
            await self.step(count)
            owed -= count
        self._ended.clear()

    def end(self) -> None:
        """Let `run` end once what it is at is done: a pod that is half made would be nobody's."""
        self._ended.set()

    async def step(self, count: int) -> None:
        """So many pods come, and some go."""
        for _ in range(count):
            await self._create()
            # One that was to go and has stayed leaves one too many: then there are two tries.
            too_many = len(self._there) - self._most
            tries = min(too_many, 2) if too_many > 0 else int(self._rng.random() < _GO)
            for _ in range(tries):
                await self._delete()

    async def _create(self) -> None:
        self.created += 1
        cpu = self._rng.choice(_CPUS_MILLI)
        name = f"pod-{self.created}"
        await self._cluster.create(pod(name, f"{cpu}m", schedulerName=SCHEDULER_NAME))
        self._there.append((name, asyncio.get_running_loop().time()))

    async def _delete(self) -> None:
        """Any pod, bound or not, that has not waited for long."""
        place = self._rng.randrange(len(self._there))
        name, created_s = self._there[place]
        if asyncio.get_running_loop().time() - created_s > STAYS_S and not self._account.has_node(name):
            return
        self._there[place] = self._there[-1]
        self._there.pop()
        # The host preempts nobody here: any other pod that goes is missed by the account.
        self._account.leaves(name)
        await self._cluster.delete_pod(name)


def _is_closed(number: int) -> bool:
    return number % _CLOSED_EVERY == 0
