"""`NodesOverTime`: what each node could take, now and a while ago.

A host hears of a change later than the API server makes it, and a binding takes its time. So a binding may
count on anything that a node was since `slack_s` seconds ago.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from berth_sdk.quantity import milli_value

from berth_bench.life.guard import forbids


class NodesOverTime:
    """The nodes of a life, as `soak.account.Rooms` reads them. `now_s`: the virtual time."""

    def __init__(self, now_s: Callable[[], float], slack_s: float) -> None:
        self._now_s = now_s
        self._slack_s = slack_s
        self._forgiven: dict[str, list[tuple[float, int]]] = {}
        """By node: when it got a pod that nobody could count on, and the pod's CPU. The oldest comes first.
        """
        self._states: dict[str, list[tuple[float, int, bool]]] = {}
        """By node: since when it has had which CPU, and whether it takes pods. The oldest comes first."""

    def is_there(self, node: Mapping[str, Any]) -> None:
        """Record a new or changed node."""
        spec = node.get("spec") or {}
        amounts = (node.get("status") or {}).get("allocatable") or {}
        name = node["metadata"]["name"]
        is_open = not (spec.get("taints") or spec.get("unschedulable") or forbids(name))
        self._note(name, milli_value(amounts.get("cpu", "0")), is_open)

    def is_gone(self, name: str) -> None:
        """Record that a node no longer exists."""
        self._note(name, 0, False)

    def forgive(self, name: str, milli_cpu: int) -> None:
        """Let a node hold so much more than fits, as a binding comes now that the next host could not know
        of.
        """
        self._forgiven.setdefault(name, []).append((self._now_s(), milli_cpu))

    def names(self) -> Iterable[str]:
        """Return the nodes that take pods now."""
        return [name for name, states in self._states.items() if states[-1][2]]

    def may_take(self, node: str) -> bool:
        """Return True if the node took pods at some time that a binding made now may count on."""
        return any(is_open for _, _, is_open in self._recent(node))

    def milli_cpu_now(self, node: str) -> int:
        """Return the CPU of the node; 0 if there is no such node."""
        states = self._states.get(node)
        return states[-1][1] if states else 0

    def milli_cpu(self, node: str) -> int:
        """Return the most CPU of the node that a binding made now may count on."""
        most = max((milli_cpu for _, milli_cpu, _ in self._recent(node)), default=0)
        forgiven = self._forgiven.get(node, [])
        while forgiven and self._now_s() - forgiven[0][0] > self._slack_s:
            forgiven.pop(0)
        return most + sum(milli_cpu for _, milli_cpu in forgiven)

    def _note(self, name: str, milli_cpu: int, is_open: bool) -> None:
        states = self._states.setdefault(name, [])
        if not states or states[-1][1:] != (milli_cpu, is_open):
            states.append((self._now_s(), milli_cpu, is_open))

    def _recent(self, name: str) -> list[tuple[float, int, bool]]:
        """Return the states since `slack_s` ago, and forget those before."""
        states = self._states.get(name, [])
        since_s = self._now_s() - self._slack_s
        # A state lasts until the next one begins.
        while len(states) > 1 and states[1][0] <= since_s:
            states.pop(0)
        return states
