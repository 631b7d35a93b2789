"""Kept verdicts: the rows of the calls to a plugin, and the rows that are expected to pass."""

from __future__ import annotations

import numpy as np
import pytest
from berth_host.framework.framework import Framework, all_rows
from berth_host.framework.kept import merged_verdicts
from berth_host.framework.kept.merged_verdicts import MergedVerdicts
from berth_host.framework.score_table import ScoreTable
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.nominated_pods import NOBODY
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, Plugin, ScoreNormalization
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeColumns, NodeTable, NodeUsage
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.asking import NO_HANDLE
from support.by_pods import ByPods, Empty
from support.frameworks import cycle_of, framework_of, local_client


@pytest.fixture(autouse=True)
def in_no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow slow calls: the machine may be busy."""
    monkeypatch.setattr(merged_verdicts, "QUICK_S", 3600.0)


class EvenOnly(Plugin):
    """A plugin that rejects nodes with an odd number, and scores each node by its number."""

    depends_on: DependsOn | None = DependsOn.ROW
    normalization: ScoreNormalization | None = ScoreNormalization.NONE

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """Reject nodes with an odd number."""
        odd = np.asarray([int(name) % 2 for name in nodes.names], dtype=np.bool_)
        return Verdicts.reject_where(odd, Status.unschedulable("odd"))

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Return the numbers of the nodes."""
        return np.asarray([int(name) for name in nodes.names], dtype=np.int64)


async def scores_by_node(framework: Framework, columns: NodeColumns, cycle_id: str) -> dict[str, int]:
    cycle = cycle_of(Pod(name=cycle_id, uid=cycle_id), NodeTable(columns), cycle_id)
    await framework.run_pre_filter(cycle)
    rows = await framework.run_filter(cycle, NodeStatuses(cycle.nodes), all_rows(cycle.nodes), NOBODY)
    nodes = cycle.nodes.take(rows)
    table = await framework.run_score(cycle, nodes)
    assert isinstance(table, ScoreTable)
    return dict(zip(nodes.names, map(int, table.total), strict=True))


async def test_nodes_that_make_the_table_longer_are_judged_and_scored() -> None:
    framework = framework_of([EvenOnly({}, NO_HANDLE)])
    columns = NodeColumns()
    capacities = set()
    for number in range(40):
        columns.add(Node(name=str(number)))
        capacities.add(columns.capacity)
        for attempt in range(2):
            found = await scores_by_node(framework, columns, f"{number}-{attempt}")
            assert found == {str(even): even for even in range(0, number + 1, 2)}
    assert len(capacities) > 1


NODES = 12
ROWS = st.lists(st.tuples(st.integers(0, NODES - 1), st.booleans()), max_size=6)


@given(rounds=st.lists(st.tuples(ROWS, st.booleans()), max_size=8))
async def test_rows_that_passed_or_changed_are_expected_to_pass(
    rounds: list[tuple[list[tuple[int, bool]], bool]],
) -> None:
    columns = NodeColumns()
    slots = [columns.add(Node(name=f"n{i}")) for i in range(NODES)]
    table = NodeTable(columns)
    clients = (local_client(Empty({}, NO_HANDLE)),)
    shared = MergedVerdicts()
    passing: set[int] = set()
    moved = set(range(NODES))
    for number, (changes, asks) in enumerate(rounds):
        for row, full in changes:
            columns.set_usage(slots[row], NodeUsage(pod_count=int(full)))
            shared.forget({slots[row]}, set())
            moved.add(row)
        before = len(ByPods.asked)
        expected = shared.expected(clients, table)
        assert len(ByPods.asked) == before
        if passing - moved:
            assert expected is not None
            assert expected.tolist() == sorted(passing | moved)
        else:
            assert expected is None
        if asks:
            cycle = cycle_of(Pod(name="p", uid="p"), table, f"cycle-{number}")
            passed = await shared.ask(clients, cycle, NodeStatuses(table), all_rows(table))
            passing, moved = set(passed.tolist()), set()
