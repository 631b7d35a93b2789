"""`Account`: the pods of a soak or of a life and their nodes, by the cluster's own changes and not by the
host's reports.

In a soak `clusters` and `real_cluster` report to it, and `world` reads it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from berth_sdk.quantity import milli_value

NODE_MILLI_CPU: Final = 4000
_UNTRIED: Final = "no attempt has failed so far"


@dataclass(slots=True)
class _Pod:
    node: str
    milli_cpu: int
    why: str


class Rooms(Protocol):
    """The nodes that a scheduler may bind pods to."""

    def names(self) -> Iterable[str]:
        """Return the names of the nodes that may take pods now."""
        ...

    def may_take(self, node: str) -> bool:
        """Return True if a pod may be bound to the node now."""
        ...

    def milli_cpu(self, node: str) -> int:
        """Return the CPU of a node that a binding made now may count on."""
        ...


class EqualNodes:
    """Nodes that stay, each with NODE_MILLI_CPU. `names`: of those that may take pods."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)

    def names(self) -> Iterable[str]:
        """Return the names."""
        return self._names

    def may_take(self, node: str) -> bool:
        """Return True for one of the names."""
        return node in self._names

    def milli_cpu(self, node: str) -> int:
        """Return NODE_MILLI_CPU."""
        return NODE_MILLI_CPU


class Account:
    """The account. Attributes: seen (pods so far), bound, double_binds (pods whose node changed),
    over_committed (names of nodes that at some time had more than they can hold), misplaced (names of pods
    that were bound to a node that may take none), vanished (names of pods that disappeared by themselves),
    changed (set by every change).

    A pod's name is used once. `rooms`: the nodes, or the names of equal ones that may take pods.
    """

    def __init__(self, rooms: Rooms | Iterable[str]) -> None:
        self.seen = 0
        self.bound = 0
        self.double_binds = 0
        self.over_committed: set[str] = set()
        self.misplaced: set[str] = set()
        self.vanished: set[str] = set()
        self.changed = asyncio.Event()
        self._rooms: Rooms = EqualNodes(rooms) if isinstance(rooms, Iterable) else rooms
        self._pods: dict[str, _Pod] = {}
        self._leaving: set[str] = set()
        self._milli_cpu: Counter[str] = Counter()

    def is_there(self, pod: Mapping[str, Any]) -> None:
        """Record a new or changed pod."""
        name = pod["metadata"]["name"]
        known = self._pods.get(name)
        if known is None:
            self.seen += 1
            known = self._pods[name] = _Pod("", _milli_cpu(pod), _UNTRIED)
        known.why = _why(pod) or known.why
        now = str(pod["spec"].get("nodeName") or "")
        if now != known.node:
            self._moved(name, known, now)
        self.changed.set()

    def is_gone(self, name: str) -> None:
        """Record that a pod no longer exists."""
        known = self._pods.pop(name, None)
        if known is None:
            return
        self._milli_cpu[known.node] -= known.milli_cpu
        if name not in self._leaving:
            self.vanished.add(name)
        self._leaving.discard(name)
        self.changed.set()

    def leaves(self, name: str) -> None:
        """Record that this pod is deleted on purpose."""
        self._leaving.add(name)

    def are_there(self, pods: Iterable[Mapping[str, Any]]) -> None:
        """Record that these pods exist, and no others."""
        left = set(self._pods)
        for pod in pods:
            self.is_there(pod)
            left.discard(pod["metadata"]["name"])
        for name in left:
            self.is_gone(name)

    def taken_milli_cpu(self, node: str) -> int:
        """Return the CPU that the bound pods of a node request, in thousandths."""
        return self._milli_cpu[node]

    def has_node(self, name: str) -> bool:
        """Return True if the pod exists and is bound."""
        known = self._pods.get(name)
        return known is not None and bool(known.node)

    @property
    def unbound(self) -> list[str]:
        """Names of the pods without a node."""
        return [name for name, pod in self._pods.items() if not pod.node]

    @property
    def lost(self) -> set[str]:
        """Pods without a node although an open node has room, and pods that disappeared by themselves."""
        rooms = self._rooms
        room = max((rooms.milli_cpu(name) - self._milli_cpu[name] for name in rooms.names()), default=0)
        fits = {name for name, pod in self._pods.items() if not pod.node and pod.milli_cpu <= room}
        return fits | self.vanished

    def reasons(self) -> list[tuple[str, int]]:
        """Return the cluster's reasons for pods without a node, each with the number of pods; the most
        frequent first.
        """
        return Counter(pod.why for pod in self._pods.values() if not pod.node).most_common()

    async def until(self, condition: Callable[[], bool], within_s: float) -> bool:
        """Wait until the condition holds; return False if it did not within this time."""
        try:
            async with asyncio.timeout(within_s):
                while not condition():
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            return False
        return True

    def _moved(self, name: str, pod: _Pod, now: str) -> None:
        if pod.node and now:
            self.double_binds += 1
        if pod.node:
            self._milli_cpu[pod.node] -= pod.milli_cpu
        pod.node = now
        if now:
            self.bound += 1
            self._milli_cpu[now] += pod.milli_cpu
            if self._milli_cpu[now] > self._rooms.milli_cpu(now):
                self.over_committed.add(now)
            if not self._rooms.may_take(now):
                self.misplaced.add(name)


def _milli_cpu(pod: Mapping[str, Any]) -> int:
    containers = pod["spec"]["containers"]
    return sum(milli_value(container["resources"]["requests"]["cpu"]) for container in containers)


def _why(pod: Mapping[str, Any]) -> str:
    """Return the message of the condition PodScheduled if it is False, else ""."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next(
        (str(one.get("message") or one.get("reason") or "") for one in conditions if _is_held(one)), ""
    )


def _is_held(condition: Mapping[str, Any]) -> bool:
    return condition.get("type") == "PodScheduled" and condition.get("status") == "False"
