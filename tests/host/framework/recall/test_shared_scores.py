"""Scores of plugins whose answers equal pods share are checked like those of all others."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from berth_host.framework.framework import Framework
from berth_host.framework.score_table import ScoreTable
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, Plugin, ScoreNormalization
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.tables import NodeColumns, NodeTable
from numpy.typing import NDArray
from support.asking import NO_HANDLE
from support.frameworks import cycle_of, framework_of


async def scores_of(framework: Framework, columns: NodeColumns, cycle_id: str) -> list[int]:
    cycle = cycle_of(Pod(name=cycle_id, uid=cycle_id), NodeTable(columns), cycle_id)
    await framework.run_pre_filter(cycle)
    table = await framework.run_score(cycle, cycle.nodes)
    assert isinstance(table, ScoreTable)
    return [int(total) for total in table.total]


@pytest.mark.parametrize("how", [ScoreNormalization.NONE, ScoreNormalization.HOST_MAX])
@pytest.mark.parametrize("wrong", [500, -1])
@pytest.mark.parametrize("by", [DependsOn.NODE, DependsOn.ROW, DependsOn.NODES])
async def test_a_score_out_of_range_counts_as_little_as_without_sharing(
    by: DependsOn, wrong: int, how: ScoreNormalization
) -> None:
    class Scores(Plugin):
        """One score for every node but the first."""

        depends_on: ClassVar[DependsOn | None] = by
        normalization: ClassVar[ScoreNormalization | None] = how

        def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
            """The first is worth 7."""
            return np.asarray([7 if name == "n0" else wrong for name in nodes.names], dtype=np.int64)

    class Alone(Scores):
        """The same, asked about every pod."""

        depends_on: ClassVar[DependsOn | None] = DependsOn.OTHER

    columns = NodeColumns()
    for name in ("n0", "n1"):
        columns.add(Node(name=name))
    shared, alone = (framework_of([cls({}, NO_HANDLE)]) for cls in (Scores, Alone))
    for cycle_id in ("a", "b"):
        assert await scores_of(shared, columns, cycle_id) == await scores_of(alone, columns, cycle_id)


async def test_first_row_that_is_worth_something_counts_as_much_as_without_sharing() -> None:
    class ByLabel(Plugin):
        """As a preferred node affinity: nothing but for the nodes with the label."""

        normalization: ClassVar[ScoreNormalization | None] = ScoreNormalization.HOST_MAX
        depends_on: ClassVar[DependsOn | None] = DependsOn.NODE

        def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
            """1 where it is."""
            return nodes.has_label("fast", "yes").astype(np.int64)

    columns = NodeColumns()
    for name in ("n0", "n1"):
        columns.add(Node(name=name))
    framework = framework_of([ByLabel({}, NO_HANDLE)])
    assert await scores_of(framework, columns, "a") == [0, 0]
    columns.set_node(1, Node(name="n1", labels={"fast": "yes"}))
    assert await scores_of(framework, columns, "b") == [0, 100]
