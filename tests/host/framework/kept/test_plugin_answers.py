"""A plugin's answers about pods with one signature: how long they are kept, and which are not used again."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from berth_host.framework.framework import Framework
from berth_host.framework.kept.plugin_answers import MAX_COLUMNS, MAX_SIGNATURES, PluginAnswers
from berth_host.framework.kept.signing import Signer
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
from support.by_pods import ByPods, Empty
from support.frameworks import cycle_of, framework_of, local_client


class CountsAtScore(Plugin):
    """A plugin that skips Filter for all pods, and at Score keeps the number of all pods in its cycle
    state.
    """

    depends_on: DependsOn | None = DependsOn.OTHER
    normalization: ScoreNormalization | None = ScoreNormalization.NONE

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Skip."""
        return Status.skip()

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """Sign that Filter is not called for any pod."""
        return NoConcern.FILTER

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Return an error; this method is not called."""
        return Status.error("asked although it skipped")

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Return the number of all pods for every node."""
        return np.full(len(nodes), state.get_or_make("pods", lambda: int(nodes.pod_count.sum())))


async def scores_of(framework: Framework, columns: NodeColumns, cycle_id: str) -> list[int]:
    cycle = cycle_of(Pod(name=cycle_id, uid=cycle_id), NodeTable(columns), cycle_id)
    await framework.run_pre_filter(cycle)
    table = await framework.run_score(cycle, cycle.nodes)
    assert isinstance(table, ScoreTable)
    return [int(total) for total in table.total]


async def test_state_that_score_wrote_after_a_skip_is_not_kept() -> None:
    framework = framework_of([CountsAtScore({}, NO_HANDLE)])
    columns = NodeColumns()
    slot = columns.add(Node(name="n0"))
    assert await scores_of(framework, columns, "a") == [0]
    columns.set_usage(slot, NodeUsage(pod_count=3))
    assert await scores_of(framework, columns, "b") == [3]


class OnePlugin:
    """The kept answers of `plugin`, by signature, about the nodes of one table."""

    def __init__(self, plugin: ByPods | Empty, count: int = 2) -> None:
        ByPods.asked.clear()
        self.columns = NodeColumns()
        for i in range(count):
            self.columns.add(Node(name=f"n{i}"))
        client = local_client(plugin)
        assert client.follows is not None
        self.memory = PluginAnswers(Signer(client, client.follows))

    @property
    def nodes(self) -> NodeTable:
        return NodeTable(self.columns)

    async def scores(self, signature: str) -> list[int]:
        """Return the final scores of a pod with that signature."""
        said = self.memory.of(signature, self.nodes)
        cycle = cycle_of(Pod(name="p", uid="p"), self.nodes)
        outcome = await self.memory.score(said, cycle, self.nodes)
        assert outcome.status.is_success
        return [int(score) for score in outcome.normalized]


async def test_first_pod_makes_no_column_and_third_equal_pod_needs_no_call() -> None:
    kept = OnePlugin(ByPods({}, NO_HANDLE))
    for columns_made, asked in ((False, 1), (True, 2), (True, 2)):
        assert await kept.scores("a") == [0, 0]
        assert (kept.memory.of("a", kept.nodes).scores is not None) is columns_made
        assert len(ByPods.asked) == asked


async def test_pods_of_another_signature_are_asked_about() -> None:
    kept = OnePlugin(ByPods({}, NO_HANDLE))
    for signature in ("a", "a", "b"):
        await kept.scores(signature)
    assert len(ByPods.asked) == 3


async def test_plugin_is_called_only_about_a_changed_row() -> None:
    kept = OnePlugin(ByPods({}, NO_HANDLE))
    await kept.scores("a")
    await kept.scores("a")
    kept.columns.set_usage(1, NodeUsage(pod_count=3))
    kept.columns.touch(1, 1)
    assert await kept.scores("a") == [0, 3]
    assert ByPods.asked[2:] == [["n1"]]


async def test_answer_that_was_used_least_recently_is_dropped() -> None:
    kept = OnePlugin(ByPods({}, NO_HANDLE))
    first = kept.memory.of("first", kept.nodes)
    second = kept.memory.of("second", kept.nodes)
    for number in range(MAX_SIGNATURES - 1):
        kept.memory.of(f"other {number}", kept.nodes)
        assert kept.memory.of("first", kept.nodes) is first
    assert kept.memory.of("second", kept.nodes) is not second


async def test_number_of_columns_is_limited() -> None:
    kept = OnePlugin(ByPods({}, NO_HANDLE))
    for number in range(MAX_COLUMNS + 1):
        await kept.scores(f"{number}")
        await kept.scores(f"{number}")
    left = [
        number
        for number in range(MAX_COLUMNS + 1)
        if kept.memory.of(f"{number}", kept.nodes).scores is not None
    ]
    assert left == list(range(1, MAX_COLUMNS + 1))


async def test_a_changed_node_object_ends_a_kept_pre_filter() -> None:
    kept = OnePlugin(ByPods({}, NO_HANDLE))
    said = kept.memory.of("a", kept.nodes)
    said.pre_score = Status.skip()
    assert kept.memory.of("a", kept.nodes).pre_score is not None
    kept.columns.set_node(0, Node(name="n0", labels={"disk": "ssd"}))
    assert kept.memory.of("a", kept.nodes).pre_score is None


async def test_clear_ends_all_answers() -> None:
    kept = OnePlugin(ByPods({}, NO_HANDLE))
    for _ in range(2):
        await kept.scores("a")
    kept.memory.clear()
    await kept.scores("a")
    assert len(ByPods.asked) == 3
