"""A SKIP that is taken over from an equal pod: what the plugin wrote after it belongs to that pod alone."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

import numpy as np
from berth_host.framework.framework import Framework
from berth_host.framework.score_table import ScoreTable
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, NoConcern, Plugin, ScoreNormalization
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from berth_sdk.tables import NodeColumns, NodeTable
from berth_sdk.tables.node_columns import NodeUsage
from numpy.typing import NDArray
from support.asking import NO_HANDLE
from support.frameworks import cycle_of, framework_of


class CountsAtScore(Plugin):
    """Skips Filter for all pods; at Score makes, and keeps for the cycle, the number of all nodes."""

    depends_on: ClassVar[DependsOn | None] = DependsOn.OTHER
    normalization: ClassVar[ScoreNormalization | None] = ScoreNormalization.NONE

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Never."""
        return Status.skip()

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """It stays so."""
        return NoConcern.FILTER

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Not called."""
        return Status.error("asked although it skipped")

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """The same for every node: how many pods there are."""
        return np.full(len(nodes), state.get_or_make("pods", lambda: int(nodes.pod_count.sum())))


async def scores_of(framework: Framework, columns: NodeColumns, cycle_id: str) -> list[int]:
    cycle = cycle_of(Pod(name=cycle_id, uid=cycle_id), NodeTable(columns), cycle_id)
    await framework.run_pre_filter(cycle)
    table = await framework.run_score(cycle, cycle.nodes)
    assert isinstance(table, ScoreTable)
    return [int(total) for total in table.total]


async def test_what_score_wrote_after_a_skip_is_not_taken_over() -> None:
    framework = framework_of([CountsAtScore({}, NO_HANDLE)])
    columns = NodeColumns()
    slot = columns.add(Node(name="n0"))
    assert await scores_of(framework, columns, "a") == [0]
    columns.set_usage(slot, NodeUsage(pod_count=3))
    assert await scores_of(framework, columns, "b") == [3]
