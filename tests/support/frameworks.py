"""A Framework of in-process plugins over a snapshot built by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from berth_host.attempt.cycle import Cycle
from berth_host.framework.answers import Answers
from berth_host.framework.framework import Framework
from berth_host.framework.kept.keep_answers import KeepAnswers
from berth_host.framework.score_table import WeightedPlugin
from berth_host.framework.waiting_pods import WaitingPods
from berth_host.model.clock import Clock, ManualClock
from berth_host.rpc.client import PluginClient
from berth_host.rpc.in_process import InProcessTransport
from berth_host.rpc.route import ClientSettings, LocalRoute
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.runtime.plugin_runtime import PluginRuntime
from berth_sdk.tables import NodeColumns, NodeTable


class NoFacts:
    """Every node exists, no pod is on any."""

    def has_node(self, node_name: str) -> bool:
        """Yes."""
        return True

    def pod_on_node(self, node_name: str, uid: str) -> Pod | None:
        """Nobody."""
        return None

    def pod_on_some_node(self, uid: str) -> Pod | None:
        """Nobody."""
        return None

    def evicted_with(self, pod: Pod) -> str:
        """Nothing: every pod leaves alone."""
        return ""

    def preemption_priority(self, pod: Pod) -> int:
        """Its own."""
        return pod.priority


def local_client(plugin: object, *, settings: ClientSettings | None = None, name: str = "") -> PluginClient:
    """Return a client of a plugin instance in this process."""
    runtime = PluginRuntime(plugin, name=name, keeps_rows=False)
    return PluginClient(
        runtime.descriptor.name,
        "default-scheduler",
        LocalRoute(InProcessTransport(runtime)),
        NoFacts(),
        settings=settings,
    )


def framework_of(
    plugins: Iterable[object],
    *,
    weights: Mapping[str, int] | None = None,
    clock: Clock | None = None,
    settings: ClientSettings | None = None,
    answers: Answers | None = None,
    **more: Any,
) -> Framework:
    """All plugins at all their points, in the order given. `answers` None: what they say is kept."""
    clients = [
        plugin if isinstance(plugin, PluginClient) else local_client(plugin, settings=settings)
        for plugin in plugins
    ]
    by_point = {
        point: [
            WeightedPlugin(client, (weights or {}).get(client.name, 1))
            for client in clients
            if point in client.points
        ]
        for point in ExtensionPoint
    }
    return Framework(
        "default-scheduler",
        by_point,
        WaitingPods(clock or ManualClock()),
        answers=answers or KeepAnswers(by_point),
        **more,
    )


def table_of(*nodes: Node | str) -> NodeTable:
    """Return a snapshot of these nodes."""
    columns = NodeColumns()
    for node in nodes:
        columns.add(Node(name=node) if isinstance(node, str) else node)
    return NodeTable(columns)


def cycle_of(pod: Pod, nodes: NodeTable | Sequence[str], cycle_id: str = "cycle-1") -> Cycle:
    """Return an attempt for `pod` over `nodes`."""
    table = nodes if isinstance(nodes, NodeTable) else table_of(*nodes)
    return Cycle(cycle_id, pod, "default-scheduler", nodes=table)
