"""Plugins for tests of what happens in the middle of a group's cycle: one that waits, one that counts."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.pod import Pod
from berth_sdk.status import SUCCESS, Status, Verdicts


class Slow(Plugin):
    """A Filter that waits for the test in the cycle of the pod `waits_for`."""

    waits_for: ClassVar[str] = ""
    reached: ClassVar[asyncio.Event]
    go_on: ClassVar[asyncio.Event]

    @classmethod
    def reset(cls, name: str) -> None:
        """Wait in the next cycle of this pod."""
        cls.waits_for, cls.reached, cls.go_on = name, asyncio.Event(), asyncio.Event()

    async def filter_nodes(self, state: CycleState, pod: Pod, nodes: Any) -> Any:
        """Accept all nodes, for the pod `waits_for` when the test says so."""
        if pod.name == self.waits_for:
            self.reached.set()
            await self.go_on.wait()
        return Verdicts.feasible(len(nodes))


class Counting(Plugin):
    """Reserves, and counts what is reserved. Rejects the pods in `rejected`, fails for those in `raises`."""

    held: ClassVar[dict[str, str]] = {}
    trials: ClassVar[list[tuple[str, bool]]] = []
    rejected: ClassVar[set[str]] = set()
    raises: ClassVar[set[str]] = set()

    @classmethod
    def reset(cls) -> None:
        """Forget the test before."""
        for one in (cls.held, cls.trials, cls.rejected, cls.raises):
            one.clear()

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Note the node of the pod."""
        if pod.name in self.raises:
            raise RuntimeError("no more room in the book")
        if pod.name in self.rejected:
            return Status.unschedulable("not this one")
        self.held[pod.name] = node_name
        self.trials.append((pod.name, state.trial is not None and state.trial.tentative))
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Forget the pod."""
        self.held.pop(pod.name, None)
