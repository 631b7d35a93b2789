"""In-process plugins that read all Node objects: the change of a Node counts, also for equal pods."""

from __future__ import annotations

from typing import Any

from berth_host.framework.framework import Framework, all_rows
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.nominated_pods import NOBODY
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, Plugin
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.status import SUCCESS, Status, Verdicts
from berth_sdk.tables import NodeColumns, NodeTable
from support.asking import NO_HANDLE
from support.frameworks import cycle_of, framework_of


class OnlySmallClusters(Plugin):
    """A plugin that rejects all nodes while one has the label `full`."""

    depends_on: DependsOn | None = DependsOn.NODES

    def filter_nodes(self, state: Any, pod: Pod, nodes: NodeTable) -> Verdicts:
        """Return one verdict for all nodes."""
        full = bool((nodes.whole.label("full")[0] != 0).any())
        return Verdicts.all(len(nodes), Status.unschedulable("full") if full else Status.success())


class AtMostTwoNodes(Plugin):
    """A plugin that counts the nodes at PreFilter, and rejects all at Filter if there are more than two."""

    depends_on: DependsOn | None = DependsOn.NODES

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Write the count for Filter."""
        state.write("count", len(nodes))
        return SUCCESS

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """Judge by the count of all nodes, for any rows."""
        return Verdicts.all(len(nodes), Status.unschedulable("many") if state.read("count") > 2 else SUCCESS)


async def passed_in(framework: Framework, columns: NodeColumns, cycle_id: str) -> list[int]:
    cycle = cycle_of(Pod(name=cycle_id, uid=cycle_id), NodeTable(columns), cycle_id)
    await framework.run_pre_filter(cycle)
    statuses = NodeStatuses(cycle.nodes)
    rows = await framework.run_filter(cycle, statuses, all_rows(cycle.nodes), NOBODY)
    framework.end_cycle(cycle, None)  # type: ignore[arg-type]
    return [int(row) for row in rows]


async def test_state_that_pre_filter_wrote_is_not_kept_after_a_new_node() -> None:
    framework = framework_of([AtMostTwoNodes({}, NO_HANDLE)])
    columns = NodeColumns()
    for name in ("n0", "n1"):
        columns.add(Node(name=name))
    assert await passed_in(framework, columns, "a") == [0, 1]
    columns.add(Node(name="n2"))
    assert await passed_in(framework, columns, "b") == []
    columns.set_node(0, Node(name="n0", labels={"a": "b"}))
    assert await passed_in(framework, columns, "c") == []


async def test_a_node_that_changes_makes_verdicts_on_all_nodes_stale() -> None:
    framework = framework_of([OnlySmallClusters({}, NO_HANDLE)])
    columns = NodeColumns()
    for name in ("n0", "n1", "n2"):
        columns.add(Node(name=name))

    assert await passed_in(framework, columns, "a") == [0, 1, 2]
    columns.set_node(2, Node(name="n2", labels={"full": "yes"}))
    assert await passed_in(framework, columns, "b") == []
    columns.set_node(2, Node(name="n2"))
    assert await passed_in(framework, columns, "c") == [0, 1, 2]
