"""`Scenarios`: "what if these pods left and those came?", many nodes at once.

The one mechanism behind the second pass for nominated pods, preemption and what-if questions. Each
scenario is one node with pods removed and added, absolute against the cycle's snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from berth_sdk.pod import Pod
from berth_sdk.tables import NodeTable, NodeUsage, NodeView


@dataclass(frozen=True, slots=True)
class Scenario:
    """`node_name` without the pods `removed` and with the pods `added` (uids must be set)."""

    node_name: str
    removed: tuple[Pod, ...] = ()
    added: tuple[Pod, ...] = ()


class Scenarios:
    """m scenarios. `nodes` has one row per scenario, its usage columns with the changes applied."""

    __slots__ = ("items", "nodes")

    def __init__(self, table: NodeTable, items: Sequence[Scenario]) -> None:
        """`table`: the snapshot. Raises KeyError for a node that it lacks."""
        positions: list[int] = []
        for item in items:
            position = table.position(item.node_name)
            if position is None:
                raise KeyError(item.node_name)
            positions.append(position)
        rows = table.take(positions)
        self.items = tuple(items)
        self.nodes = rows.with_usages(
            [changed_usage(rows.node(i), item) for i, item in enumerate(self.items)]
        )

    def __len__(self) -> int:
        return len(self.items)

    def view(self, i: int) -> NodeView:
        """The node of scenario `i` as it would be, pods included (needs pod summaries)."""
        item = self.items[i]
        node = self.nodes.node(i)
        gone = {pod.uid for pod in item.removed}
        pods = (*(pod for pod in node.pods if pod.uid not in gone), *item.added)
        return node.with_pods(pods, node.usage)


def changed_usage(node: NodeView, scenario: Scenario) -> NodeUsage:
    """The usage of `node` after the scenario's removals and additions.

    Host ports are a set: of two pods with the same port either one's leaving frees it, as in
    kube-scheduler's NodeInfo.
    """
    requested = dict(node.requested)
    non_zero = dict(node.non_zero_requested)
    ports = set(node.host_ports)
    for sign, pods in ((-1, scenario.removed), (1, scenario.added)):
        for pod in pods:
            for name, value in pod.requests.items():
                requested[name] = requested.get(name, 0) + sign * value
            for name, value in pod.non_zero_requests.items():
                non_zero[name] = non_zero.get(name, 0) + sign * value
            normalized = {port.normalized for port in pod.host_ports}
            ports = ports - normalized if sign < 0 else ports | normalized
    return NodeUsage(
        requested=requested,
        non_zero_requested=non_zero,
        pod_count=node.pod_count - len(scenario.removed) + len(scenario.added),
        host_ports=frozenset(ports),
    )
