"""Kept scores get the same checks as new scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from berth_host.framework.framework import Framework
from berth_host.framework.kept.merged_scores import MergedScores
from berth_host.framework.score_table import WeightedPlugin
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, Plugin, ScoreNormalization
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.pod_fields import PodField
from berth_sdk.status import Status
from berth_sdk.tables import NodeColumns, NodeTable, NodeUsage, NodeView
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.asking import NO_HANDLE
from support.by_pods import ByPods
from support.frameworks import cycle_of, framework_of, local_client


async def scores_of(framework: Framework, columns: NodeColumns, cycle_id: str) -> list[int] | str:
    """Run PreFilter and Score; return the totals, or the message of the error that ends the cycle."""
    cycle = cycle_of(Pod(name=cycle_id, uid=cycle_id), NodeTable(columns), cycle_id)
    await framework.run_pre_filter(cycle)
    table = await framework.run_score(cycle, cycle.nodes)
    if isinstance(table, Status):
        return table.message.replace("Alone", "Scores")
    return [int(total) for total in table.total]


@pytest.mark.parametrize(
    "how", [ScoreNormalization.NONE, ScoreNormalization.PLUGIN, ScoreNormalization.HOST_MAX]
)
@pytest.mark.parametrize("wrong", [500, -1])
@pytest.mark.parametrize("by", [DependsOn.NODE, DependsOn.ROW, DependsOn.NODES])
@pytest.mark.parametrize("fields", [(), None], ids=["summed", "apart"])
async def test_a_score_out_of_range_ends_the_cycle_as_it_does_without_sharing(
    by: DependsOn, wrong: int, how: ScoreNormalization, fields: tuple[PodField, ...] | None
) -> None:
    class Scores(Plugin):
        """A plugin with one score for every node but the first."""

        depends_on: DependsOn | None = by
        normalization: ScoreNormalization | None = how
        sign_fields: Sequence[PodField] | None = fields

        def score(self, state: CycleState, pod: Pod, node: NodeView) -> int:
            """Return 7 for the first node, `wrong` for the others."""
            return 7 if node.name == "n0" else wrong

    class Alone(Scores):
        """The same plugin, called about every pod."""

        depends_on: DependsOn | None = DependsOn.OTHER

    columns = NodeColumns()
    for name in ("n0", "n1"):
        columns.add(Node(name=name))
    shared, alone = (framework_of([cls({}, NO_HANDLE)]) for cls in (Scores, Alone))
    for cycle_id in ("a", "b", "c"):
        assert await scores_of(shared, columns, cycle_id) == await scores_of(alone, columns, cycle_id)


async def test_first_row_with_a_score_counts_the_same_with_and_without_sharing() -> None:
    class ByLabel(Plugin):
        """A plugin that scores only nodes with a label, like a preferred node affinity."""

        normalization: ScoreNormalization | None = ScoreNormalization.HOST_MAX
        depends_on: DependsOn | None = DependsOn.NODE

        def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
            """Return 1 for nodes with the label, else 0."""
            return nodes.has_label("fast", "yes").astype(np.int64)

    columns = NodeColumns()
    for name in ("n0", "n1"):
        columns.add(Node(name=name))
    framework = framework_of([ByLabel({}, NO_HANDLE)])
    assert await scores_of(framework, columns, "a") == [0, 0]
    columns.set_node(1, Node(name="n1", labels={"fast": "yes"}))
    assert await scores_of(framework, columns, "b") == [0, 100]


NODES = 12


class Fullest(ByPods):
    """A plugin that normalises: the fullest node gets 100."""

    normalization: ScoreNormalization | None = ScoreNormalization.HOST_MAX


class ByName(ByPods):
    """A plugin that scores by the Node alone."""

    depends_on: DependsOn | None = DependsOn.NODE

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Return the number in the node's name."""
        return np.asarray([int(name[1:]) for name in nodes.names], dtype=np.int64)


SOME_NODES = st.sets(st.integers(0, NODES - 1), min_size=1).map(sorted)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("move"), st.integers(0, NODES - 1), st.integers(0, 100)),
        st.tuples(st.just("ahead"), SOME_NODES, st.just(0)),
        st.tuples(st.just("ask"), SOME_NODES, st.just(0)),
        st.tuples(st.just("ask"), st.just(list(range(NODES))), st.just(0)),
    ),
    max_size=20,
)


@given(steps=STEPS)
@pytest.mark.slow
async def test_scoring_rows_early_changes_no_score(steps: list[tuple[str, object, int]]) -> None:
    columns = NodeColumns()
    slots = [columns.add(Node(name=f"n{i}")) for i in range(NODES)]
    table = NodeTable(columns)
    plugins = tuple(
        WeightedPlugin(local_client(cls({}, NO_HANDLE)), weight)
        for cls, weight in ((ByPods, 3), (Fullest, 2), (ByName, 1))
    )
    shared = MergedScores()
    for number, (what, where, count) in enumerate(steps):
        if what == "move":
            assert isinstance(where, int)
            columns.set_usage(slots[where], NodeUsage(pod_count=count))
            shared.forget({slots[where]}, set())
            continue
        assert isinstance(where, list)
        nodes = table.take(np.asarray(where, dtype=np.intp))
        cycle = cycle_of(Pod(name="p", uid="p"), table, f"cycle-{number}")
        if what == "ahead":
            await shared.ask_early(plugins, cycle, nodes)
            continue
        anew = MergedScores()
        assert await shared.ask(plugins, cycle, nodes) is None
        assert await anew.ask(plugins, cycle, nodes) is None
        (by_plugin, total, leaders), (other, other_total, other_leaders) = shared.read(), anew.read()
        assert total.tolist() == other_total.tolist()
        assert sorted(leaders.tolist()) == sorted(other_leaders.tolist())
        for one, two in zip(by_plugin, other, strict=True):
            assert one.raw.tolist() == two.raw.tolist()
            assert one.normalized.tolist() == two.normalized.tolist()


async def test_early_scores_that_are_never_summed_up_are_not_kept() -> None:
    columns = NodeColumns()
    slot = columns.add(Node(name="n0"))
    table = NodeTable(columns)
    plugins = (WeightedPlugin(local_client(ByPods({}, NO_HANDLE))),)
    shared = MergedScores()
    for count in range(100):
        columns.set_usage(slot, NodeUsage(pod_count=count))
        shared.forget({slot}, set())
        await shared.ask_early(plugins, cycle_of(Pod(name="p", uid="p"), table), table)
        assert len(shared.not_summed) < 10
    assert await shared.ask(plugins, cycle_of(Pod(name="p", uid="p"), table), table) is None
    assert shared.read()[1].tolist() == [99]
