"""Plugins for what-ifs that overlap: one asks from PostFilter, and one whose Filter takes its time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, ClassVar, cast

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.results import NodeRejections, PostFilterResult
from berth_sdk.scenarios import Scenario
from berth_sdk.status import SUCCESS, Status
from berth_sdk.tables import NodeView
from support.asks_for_filters import new


class TakesItsTime(Plugin):
    """Passes every node. A new one only once `gate` is open."""

    needs: Sequence[Need] = (Need.nodes(),)
    gate: ClassVar[asyncio.Event] = asyncio.Event()
    asked: ClassVar[list[str]] = []

    async def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        """Pass."""
        if node.name.startswith("new"):
            self.asked.append(node.name)
            await self.gate.wait()
        return SUCCESS


class AsksAtOnce(Plugin):
    """Rejects pods named `asks-*`. `asks-twice`: a second question about a new node while the first one is
    under way.
    `asks-and-goes`: a question whose answer PostFilter does not wait for.
    """

    needs: Sequence[Need] = (Need.nodes(),)
    answers: ClassVar[dict[str, Any]] = {}

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        """Reject the pods that ask."""
        return Status.unschedulable("asks") if pod.name.startswith("asks") else SUCCESS

    async def post_filter(self, state: CycleState, pod: Pod, rejections: NodeRejections) -> PostFilterResult:
        """Ask."""
        if pod.name == "asks-twice":
            asked = [asyncio.ensure_future(self._ask(state))]
            while not TakesItsTime.asked:
                await asyncio.sleep(0)
            asked.append(asyncio.ensure_future(self._ask(state)))
            TakesItsTime.gate.set()
            self.answers[pod.name] = await asyncio.gather(*asked, return_exceptions=True)
        else:
            self.answers.setdefault(pod.name, []).append(asyncio.ensure_future(self._ask(state)))
            while len(TakesItsTime.asked) < len(self.answers[pod.name]):
                await asyncio.sleep(0)
        return PostFilterResult(Status.unschedulable("asked"))

    def _ask(self, state: CycleState) -> Awaitable[list[Status]]:
        found = self.handle.run_filters(state, [Scenario(node=new("new"))])
        return cast("Awaitable[list[Status]]", found)
