"""Plugins that ask what the scores are, from PostFilter, Reserve and Permit, and write down the answers."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import HandleError
from berth_sdk.extension_points import Plugin, ScoreNormalization
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.results import FilterResult, NodeRejections, NodeScores, PostFilterResult
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

CLOSED = "closed"
"""Label of a node where no pod may go, unless this plugin's PostFilter finds it the best."""


class AsksForScores(Plugin):
    """Nominates the best of the closed nodes where no other is left. Its own score is the last digit of the
    node's name; what it answers early says nothing of closed nodes. `args`: `folder`, `nodes` to ask about.
    """

    normalization: ScoreNormalization | None = ScoreNormalization.NONE

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._path = Path(args["folder"]) / "log"
        self._names: list[str] = list(args["nodes"])
        self._last: CycleState | None = None

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> FilterResult:
        """Open nodes, each with its score."""
        closed = [CLOSED in node.labels for node in nodes]
        status = Status.unschedulable("node is closed")
        verdicts = Verdicts.of([status if shut else Status.success() for shut in closed])
        return FilterResult(verdicts, np.where(closed, 0, self.score_nodes(state, pod, nodes)))

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """The digit."""
        return np.array([int(name[-1]) for name in nodes.names], dtype=np.int64)

    async def post_filter(self, state: CycleState, pod: Pod, rejections: NodeRejections) -> PostFilterResult:
        """Return the best of the nodes asked about."""
        found = await self._ask("post_filter", state, self._names)
        if found is None or not found.status.is_success:
            return PostFilterResult(Status.unschedulable("nobody knows which is best"))
        best = found.node_names[int(np.argmax(found.totals))]
        return PostFilterResult(Status.success(), best)

    async def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """One node, twice, and nothing."""
        await self._ask("reserve", state, [node_name, node_name])
        await self._ask("reserve", state, [])
        return Status.success()

    async def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """All of them; then what must be refused."""
        await self._ask("permit", state, self._names)
        await self._ask("permit", state, ["nowhere"])
        if self._last is not None:
            await self._ask("permit", self._last, self._names)
        self._last = state
        return Status.success()

    async def _ask(self, point: str, state: CycleState, names: Sequence[str]) -> NodeScores | None:
        try:
            found = await scores_of(self.handle, state, names)
        except HandleError as err:
            self._write([point, str(err).partition(": ")[2] or str(err)])
            return None
        plugins = {item.plugin: [item.weight, item.scores.tolist()] for item in found.plugins}
        self._write([point, found.status.message, found.node_names, found.totals.tolist(), plugins])
        return found

    def _write(self, what: list[Any]) -> None:
        with self._path.open("a") as log:
            log.write(json.dumps(what) + "\n")


class AsksWhileAsked(Plugin):
    """Its Score asks for scores itself, which would never end. `args`: `folder`."""

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._path = Path(args["folder"]) / "log"

    async def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Its own question is open in Permit alone."""
        try:
            await scores_of(self.handle, state, nodes.names)
        except HandleError as err:
            self._write(str(err))
        return np.zeros(len(nodes), dtype=np.int64)

    async def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Asks, and is asked."""
        found = await scores_of(self.handle, state, [node_name])
        self._write(f"permit {found.status.code.name} {len(found.node_names)}")
        return Status.success()

    def _write(self, line: str) -> None:
        with self._path.open("a") as log:
            log.write(line + "\n")


async def scores_of(handle: Handle, state: CycleState, names: Sequence[str]) -> NodeScores:
    """In the host it is awaited; elsewhere a call that waits, which is made in a thread."""
    if inspect.iscoroutinefunction(handle.run_scores):
        later = handle.run_scores(state, names)
        assert inspect.isawaitable(later)
        answer = await later
        assert isinstance(answer, NodeScores)
        return answer
    found = await asyncio.to_thread(handle.run_scores, state, names)
    assert isinstance(found, NodeScores)
    return found
