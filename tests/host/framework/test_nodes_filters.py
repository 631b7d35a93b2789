"""Filter plugins in the host that judge by all Node objects (`DependsOn.NODES`), for pods that are equal."""

from __future__ import annotations

from typing import Any, ClassVar

from berth_host.framework.framework import all_rows
from berth_host.framework.nominated import NOBODY
from berth_host.model.node_statuses import NodeStatuses
from berth_sdk.extension_points import DependsOn, Plugin
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeColumns, NodeTable
from support.frameworks import cycle_of, framework_of


class OnlySmallClusters(Plugin):
    """Rejects every node while one is labelled `full`."""

    depends_on: ClassVar[DependsOn | None] = DependsOn.NODES

    def filter_nodes(self, state: Any, pod: Pod, nodes: NodeTable) -> Verdicts:
        """One verdict for all."""
        full = bool((nodes.whole.label("full")[0] != 0).any())
        return Verdicts.all(len(nodes), Status.unschedulable("full") if full else Status.success())


async def test_a_node_that_changes_makes_verdicts_on_all_nodes_stale() -> None:
    framework = framework_of([OnlySmallClusters({}, None)])  # type: ignore[arg-type]
    columns = NodeColumns()
    for name in ("n0", "n1", "n2"):
        columns.add(Node(name=name))

    async def passed(cycle_id: str) -> list[int]:
        cycle = cycle_of(Pod(name=cycle_id, uid=cycle_id), NodeTable(columns), cycle_id)
        await framework.run_pre_filter(cycle)
        statuses = NodeStatuses(cycle.nodes)
        rows = await framework.run_filter(cycle, statuses, all_rows(cycle.nodes), NOBODY)
        framework.end_cycle(cycle, None)  # type: ignore[arg-type]
        return [int(row) for row in rows]

    assert await passed("a") == [0, 1, 2]
    columns.set_node(2, Node(name="n2", labels={"full": "yes"}))
    assert await passed("b") == []
    columns.set_node(2, Node(name="n2"))
    assert await passed("c") == [0, 1, 2]
