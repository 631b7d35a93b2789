"""`Load`: create and delete pods in the cluster of a soak. Run by `world`."""

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
"""Share of the open nodes' CPU that pods request when the planned number of pods exists."""
PODS_PER_S: Final = 25.0
_TICK_S: Final = 0.1
_MOST_AT_ONCE: Final = 50
"""Maximum number of pods created at once, to catch up after the cluster did not answer."""
WAITING_MOST: Final = 500
"""No pod is created while this many pods wait for a node. Required plugins are often absent, and on a busy
machine the queue of a host that binds what it can would grow as long as the soak lasts.
"""
_GO: Final = 1 / 8
"""Deleted pods per created pod, also while there are few."""
STAYS_S: Final = 10.0
"""A pod that has waited longer for its node, in seconds, is not deleted before it has one, so that a lost pod
is found.
"""


def nodes_of(count: int) -> list[Json]:
    """Return `count` nodes, some of them closed."""
    return [
        node(f"soak-{number}", f"{NODE_MILLI_CPU}m", **({CLOSED: "true"} if _is_closed(number) else {}))
        for number in range(count)
    ]


def open_nodes(count: int) -> list[str]:
    """Return the names of the nodes that are not closed."""
    return [f"soak-{number}" for number in range(count) if not _is_closed(number)]


class Load:
    """The load. `created`: pods so far."""

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
        """Create pods unless many wait, and delete as many once there are enough, until `end` is called."""
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
        """Let `run` end after its current step, because a half-created pod would belong to no account."""
        self._ended.set()

    async def step(self, count: int) -> None:
        """Create `count` pods, and delete some."""
        for _ in range(count):
            await self._create()
            # If a pod was not deleted because it waits, there is one too many: then try two.
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
        """Delete any pod, bound or not, that has not waited for long."""
        place = self._rng.randrange(len(self._there))
        name, created_s = self._there[place]
        if asyncio.get_running_loop().time() - created_s > STAYS_S and not self._account.has_node(name):
            return
        self._there[place] = self._there[-1]
        self._there.pop()
        # The host preempts no pods here, so the account reports any other pod that disappears.
        self._account.leaves(name)
        await self._cluster.delete_pod(name)


def _is_closed(number: int) -> bool:
    return number % _CLOSED_EVERY == 0
