"""`ScenarioReader`: the scenarios of plugins, looked up in the host's own snapshot.

In-process plugins bring records, which may lack what their plugin did not declare, and served plugins bring
messages. Both become scenarios with the host's own pods.
"""

from __future__ import annotations

from collections.abc import Iterable

from berth_sdk.extension_points import NodeMode
from berth_sdk.kube_object import ObjectRef
from berth_sdk.plugin.v1 import scheduling_pb2
from berth_sdk.pod import Pod
from berth_sdk.scenarios import Scenario
from berth_sdk.tables import NodeTable
from berth_sdk.wire import records as wire
from berth_sdk.wire.scenarios import decode_added, decode_new_node

from berth_host.handle.backend import ScenarioError


class ScenarioReader:
    """The reader over one version of the snapshot. Its methods raise ScenarioError."""

    def __init__(self, nodes: NodeTable) -> None:
        """`nodes`: the whole snapshot."""
        self._nodes = nodes
        self._slots = {slot: i for i, slot in enumerate(nodes.slots.tolist())}

    def read(self, message: scheduling_pb2.Scenario, mode: NodeMode) -> Scenario:
        """Return the scenario of a message. `mode`: the plugin's; only in SNAPSHOT mode an index is read."""
        if not message.HasField("node"):
            raise ScenarioError("a scenario is about one node, and this one about none")
        changed = message.node
        if changed.HasField("state"):
            return self._read_new(changed)
        name = changed.node_name
        if not name:
            if mode is NodeMode.NAMES:
                raise ScenarioError(
                    "a scenario has no node_name, and the plugin's node mode is NAMES: set"
                    " ScenarioNode.node_name, or `state` for a new node (node_index is read in SNAPSHOT mode"
                    " only)"
                )
            if not changed.HasField("node_index"):
                raise ScenarioError("a scenario names no node: set ScenarioNode.node_index or node_name")
            position = self._slots.get(changed.node_index)
            if position is None:
                raise ScenarioError(f"no node has the index {changed.node_index}")
            name = self._nodes.node(position).name
        removed = self._on_node(name, map(wire.decode_ref, changed.removed))
        return Scenario(name, removed, _each_once(decode_added(changed, name), name))

    def checked(self, scenario: Scenario) -> Scenario:
        """Return a scenario of an in-process plugin with the host's own pods."""
        name, node = scenario.node_name, scenario.node
        added = tuple(pod.on_node(name) for pod in scenario.added)
        if node is not None:
            return self._as_new(Scenario(added=added, node=node))
        removed = self._on_node(name, (pod.ref for pod in scenario.removed))
        return Scenario(name, removed, _each_once(added, name))

    def _read_new(self, message: scheduling_pb2.ScenarioNode) -> Scenario:
        try:
            node = decode_new_node(message.state)
            if message.removed:
                raise ValueError(f"node {node.name!r} is new, so no pods can leave it: leave out `removed`")
            scenario = Scenario(added=decode_added(message, node.name), node=node)
        except ValueError as err:
            raise ScenarioError(str(err)) from err
        return self._as_new(scenario)

    def _as_new(self, scenario: Scenario) -> Scenario:
        name = scenario.node_name
        if self._nodes.position(name) is not None:
            raise ScenarioError(f"node {name!r} is in the snapshot: name it, or rename the new node")
        seen: set[str] = set()
        for pod in scenario.added:
            here = self._nodes.pods.position(pod.uid) is not None
            if not pod.uid or here or pod.uid in seen:
                why = "is on a node already" if here else "comes twice" if pod.uid else "has no uid"
                raise ScenarioError(
                    f"pod {pod.key}, which comes to the new node {name!r}, {why}: give it a uid of its own"
                )
            seen.add(pod.uid)
        return scenario

    def _on_node(self, name: str, refs: Iterable[ObjectRef]) -> tuple[Pod, ...]:
        """Return the pods of a node of the snapshot that the references name."""
        node = self._nodes.node_named(name)
        if node is None:
            raise ScenarioError(f"node {name!r} is not in the snapshot")
        found: list[Pod] = []
        here: dict[str, Pod] | None = None
        for ref in refs:
            here = {pod.uid: pod for pod in node.pods} if here is None else here
            pod = here.get(ref.uid)
            if pod is None:
                raise ScenarioError(f"pod {ref.namespace}/{ref.name} ({ref.uid}) is not on node {name!r}")
            found.append(pod)
        return _each_once(tuple(found), name)


def _each_once(pods: tuple[Pod, ...], node_name: str) -> tuple[Pod, ...]:
    """Return the pods. Raises ScenarioError if one is there twice: its requests would count twice."""
    seen: set[str] = set()
    for pod in pods:
        if pod.uid and pod.uid in seen:
            raise ScenarioError(f"a scenario of node {node_name!r} lists pod {pod.key} twice: list it once")
        seen.add(pod.uid)
    return pods
