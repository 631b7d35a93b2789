"""Kept answers about equal pods hold until a row, a Node object or the order of the nodes changes."""

from __future__ import annotations

import numpy as np
import pytest
from berth_host.framework.filtering import all_rows
from berth_host.framework.kept.merged_answers import MergedAnswers
from berth_host.framework.kept.one_step import Skips
from berth_host.model.node_statuses import NodeStatuses
from berth_sdk.cycle_state import CycleState
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.tables import NodeColumns, NodeTable, NodeUsage
from support.asking import NO_HANDLE
from support.by_pods import ByPods, Empty
from support.frameworks import cycle_of, local_client

NODES = 3


class Situation:
    """Three nodes, and the kept verdicts of one plugin about them for equal pods."""

    def __init__(self) -> None:
        self.columns = NodeColumns()
        for i in range(NODES):
            self.columns.add(Node(name=f"n{i}"))
        self.known = MergedAnswers(NodeTable(self.columns))
        self.clients = (local_client(Empty({}, NO_HANDLE)),)
        self.known.pre_filtered = Skips((), (), frozenset())
        self.known.pre_scored = Skips((), (), frozenset())
        self.known.states["Empty"] = CycleState("cycle")

    async def asked_about(self) -> list[list[str]]:
        """Catch up and judge all nodes; return the rows of the calls to the plugin."""
        self.known.catch_up(self.columns)
        ByPods.asked.clear()
        nodes = NodeTable(self.columns)
        cycle = cycle_of(Pod(name="p", uid="p"), nodes)
        await self.known.verdicts.ask(self.clients, cycle, NodeStatuses(nodes), all_rows(nodes))
        return ByPods.asked


@pytest.fixture
async def judged() -> Situation:
    situation = Situation()
    assert await situation.asked_about() == [["n0", "n1", "n2"]]
    return situation


async def test_answers_are_kept_while_no_row_changes(judged: Situation) -> None:
    assert await judged.asked_about() == []
    assert judged.known.pre_filtered is not None


async def test_only_the_answers_about_a_changed_row_end(judged: Situation) -> None:
    judged.columns.set_usage(1, NodeUsage(pod_count=1))
    judged.columns.touch(1, 1)
    assert await judged.asked_about() == [["n1"]]
    assert judged.known.pre_filtered is not None
    assert judged.known.states


async def test_a_changed_node_object_ends_answers_about_all_nodes(judged: Situation) -> None:
    judged.columns.set_node(1, Node(name="n1", labels={"disk": "ssd"}))
    judged.columns.touch(1, 1)
    assert await judged.asked_about() == [["n1"]]
    assert (judged.known.pre_filtered, judged.known.pre_scored, judged.known.states) == (None, None, {})


async def test_answers_end_when_the_table_is_another_one(judged: Situation) -> None:
    columns = NodeColumns()
    for i in range(NODES):
        columns.add(Node(name=f"n{i}"))
    judged.columns = columns
    assert await judged.asked_about() == [["n0", "n1", "n2"]]


async def test_verdicts_with_nominated_pods_end_like_other_verdicts(judged: Situation) -> None:
    crowded = judged.known.crowded
    assert judged.known.crowded is crowded
    nodes = NodeTable(judged.columns)
    cycle = cycle_of(Pod(name="p", uid="p"), nodes)
    await crowded.ask(judged.clients, cycle, NodeStatuses(nodes), all_rows(nodes))
    judged.columns.touch(2, 1)
    judged.known.catch_up(judged.columns)
    ByPods.asked.clear()
    await crowded.ask(judged.clients, cycle, NodeStatuses(nodes), np.arange(NODES))
    assert ByPods.asked == [["n2"]]
