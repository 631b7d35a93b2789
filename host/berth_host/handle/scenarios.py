"""The contract's scenarios -> the SDK's, looked up in the host's own snapshot. Called by `HandleService`."""

from __future__ import annotations

from berth_sdk.plugin.v1 import scheduling_pb2
from berth_sdk.pod import Pod
from berth_sdk.scenarios import Scenario
from berth_sdk.tables import NodeTable
from berth_sdk.wire import records as wire

from berth_host.errors import HostError


class ScenarioError(HostError):
    """A scenario about a node or a pod that the snapshot does not have."""


class ScenarioReader:
    """`nodes`: the whole snapshot."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._slots = {slot: i for i, slot in enumerate(nodes.slots.tolist())}

    def read(self, message: scheduling_pb2.Scenario) -> Scenario:
        """One scenario. Raises ScenarioError."""
        if len(message.nodes) != 1:
            raise ScenarioError(f"a scenario is about one node, and this one about {len(message.nodes)}")
        (changed,) = message.nodes
        name = changed.node_name
        if not name:
            position = self._slots.get(changed.node_index)
            if position is None:
                raise ScenarioError(f"no node has the index {changed.node_index}")
            name = self._nodes.node(position).name
        node = self._nodes.node_named(name)
        if node is None:
            raise ScenarioError(f"node {name!r} is not in the snapshot")
        here = {pod.uid: pod for pod in node.pods} if changed.removed else {}
        removed: list[Pod] = []
        for ref in changed.removed:
            pod = here.get(ref.uid)
            if pod is None:
                raise ScenarioError(f"pod {ref.namespace}/{ref.name} ({ref.uid}) is not on node {name!r}")
            removed.append(pod)
        added = (wire.decode_pod(state.pod, node_name=name) for state in changed.added)
        return Scenario(name, tuple(removed), tuple(added))
