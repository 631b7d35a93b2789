"""Clients over real transports, for tests of the relay: a plugin class -> a `PluginClient`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from berth_host.attempt.cycle import Cycle
from berth_host.rpc.call_rules import PointPolicy
from berth_host.rpc.client import PluginClient
from berth_host.rpc.in_process import InProcessTransport
from berth_host.rpc.route import ClientSettings, LocalRoute
from berth_sdk.pod import Pod
from berth_sdk.runtime.plugin_runtime import PluginRuntime
from berth_sdk.tables import NodeTable
from berth_sdk.testing.builders import make_node, make_pod, make_table

PROFILE = "default-scheduler"


class Facts:
    """A snapshot by hand: node name -> the pods on it."""

    def __init__(self, nodes: Mapping[str, list[Pod]] | None = None) -> None:
        self.nodes = dict(nodes or {})

    def has_node(self, node_name: str) -> bool:
        return node_name in self.nodes

    def pod_on_node(self, node_name: str, uid: str) -> Pod | None:
        return next((pod for pod in self.nodes.get(node_name, []) if pod.uid == uid), None)

    def pod_on_some_node(self, uid: str) -> Pod | None:
        return next((pod for pods in self.nodes.values() for pod in pods if pod.uid == uid), None)

    def evicted_with(self, pod: Pod) -> str:
        """Nothing: every pod leaves alone."""
        return ""

    def preemption_priority(self, pod: Pod) -> int:
        return pod.priority


def local_client(
    plugin: object,
    *,
    points: Mapping[str, PointPolicy] | None = None,
    required: bool = False,
    scope: Callable[[Pod], bool] | None = None,
    facts: Facts | None = None,
) -> PluginClient:
    """Return the plugin in process."""
    runtime = PluginRuntime(plugin)
    settings = ClientSettings(points=points or {}, required=required, scope=scope)
    route = LocalRoute(InProcessTransport(runtime))
    return PluginClient(runtime.descriptor.name, PROFILE, route, facts or Facts(), settings=settings)


def make_cycle(pod: Pod | None = None, **options: float | bool) -> Cycle:
    """Return a cycle about `pod`."""
    return Cycle("cycle-1", pod or make_pod("web", uid="uid-web"), PROFILE, **options)  # type: ignore[arg-type]  # keywords of the tests


def some_nodes(count: int = 3) -> NodeTable:
    """Nodes n0, n1, ..."""
    return make_table([make_node(f"n{i}") for i in range(count)])
