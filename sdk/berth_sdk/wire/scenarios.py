"""Scenarios <-> messages: SimulateFilter from the host to a plugin, RunFilters from a plugin to the host.

Source: the contract's scheduling.proto (Scenario, ScenarioNode).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from berth_sdk.extension_points import NodeMode
from berth_sdk.node import Node
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2
from berth_sdk.pod import Pod
from berth_sdk.scenarios import Scenario
from berth_sdk.tables import NodeTable, NodeUsage
from berth_sdk.wire import records as wire
from berth_sdk.wire.requests import decode_bare_pod


def encode_scenario(item: Scenario, slot: int | None, whole: bool) -> scheduling_pb2.Scenario:
    """Return one scenario as a message. `slot` None: the node travels by name, or as a whole if it is new."""
    changed = scheduling_pb2.ScenarioNode(
        removed=[pb.ObjectRef(namespace=pod.namespace, name=pod.name, uid=pod.uid) for pod in item.removed],
        added=[
            pb.PodState(
                pod=wire.encode_pod(pod, in_state=True),
                object=wire.encode_object(pod.object) if whole and pod.object is not None else None,
            )
            for pod in item.added
        ],
    )
    if item.node is not None:
        changed.state.CopyFrom(_new_node(item.node))
    elif slot is None:
        changed.node_name = item.node_name
    else:
        changed.node_index = slot
    return scheduling_pb2.Scenario(node=changed)


def _new_node(node: Node) -> pb.NodeState:
    return pb.NodeState(
        name=node.name,
        summary=wire.encode_node(node, images=True),
        object=None if node.object is None else wire.encode_object(node.object),
    )


def decode_scenario(message: scheduling_pb2.Scenario, nodes: NodeTable, mode: NodeMode) -> Scenario:
    """Return a what-if about one node of `nodes`, the snapshot. Pods to remove are found there by uid.

    Raises KeyError for a node that the snapshot lacks, and ValueError for a scenario without a node, without
    the node's name (mode NAMES) or index (mode SNAPSHOT), or with a new node, which the host brings by a
    delta.
    """
    if not message.HasField("node"):
        raise ValueError("a scenario about no node")
    changed = message.node
    if changed.HasField("state"):
        raise ValueError(f"a scenario with a new node, {changed.state.name!r}: it has to come by a delta")
    if mode is NodeMode.NAMES and not changed.node_name:
        raise ValueError("a scenario without node_name, which the node mode NAMES requires")
    if not changed.node_name and not changed.HasField("node_index"):
        raise ValueError("a scenario without node_index, which the node mode SNAPSHOT requires")
    name = changed.node_name or _name_of(changed.node_index, nodes)
    known = _pods_on(name, nodes) if changed.removed else {}
    return Scenario(
        node_name=name,
        removed=tuple(known.get(ref.uid) or decode_bare_pod(ref) for ref in changed.removed),
        added=decode_added(changed, name),
    )


def decode_added(message: scheduling_pb2.ScenarioNode, node_name: str) -> tuple[Pod, ...]:
    """Return the pods that come to the node."""
    return tuple(
        wire.decode_pod(
            added.pod,
            node_name=node_name,
            item=wire.decode_object(added.object) if added.HasField("object") else None,
        )
        for added in message.added
    )


def decode_new_node(message: pb.NodeState) -> Node:
    """Return a node that does not exist yet. Raises ValueError for one that is not complete."""
    name = message.name
    if not name:
        raise ValueError("the new node of a scenario has no name: set NodeState.name")
    item = wire.decode_object(message.object) if message.HasField("object") else None
    if item is not None and item.ref.name != name:
        raise ValueError(
            f"the new node {name!r} has the object of node {item.ref.name!r}: give both one name"
        )
    if message.HasField("summary"):
        return wire.decode_node(name, message.summary, item=item)
    if item is None:
        raise ValueError(f"the new node {name!r} has neither summary nor object: set one of them, or both")
    return Node.from_object(item)


def decode_scenario_usages(messages: Iterable[scheduling_pb2.Scenario]) -> list[NodeUsage] | None:
    """Return the usage of each scenario's node after the change; None if the plugin declared no usage."""
    nodes = [message.node for message in messages]
    if not all(node.HasField("usage") for node in nodes):
        return None
    return [wire.decode_usage(node.usage) for node in nodes]


def _pods_on(name: str, nodes: NodeTable) -> Mapping[str, Pod]:
    node = nodes.node_named(name)
    try:
        return {} if node is None else {pod.uid: pod for pod in node.pods}
    except ValueError:
        return {}  # the plugin declared no pods


def _name_of(index: int, nodes: NodeTable) -> str:
    position = int(np.searchsorted(nodes.slots, index))
    if position >= len(nodes) or nodes.slots[position] != index:
        raise KeyError(index)
    return nodes.node(position).name
