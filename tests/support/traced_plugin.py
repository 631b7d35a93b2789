"""Plugins for tests of traces. Racks has spans of its own at PreFilter (async) and at Filter."""

from __future__ import annotations

from typing import Any

from berth_sdk.cycle_state import CycleState
from berth_sdk.events import ClusterEvent, EventInterest, Hint
from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.pod_group import GroupView, Placement
from berth_sdk.results import PermitResult, PreFilterResult, QueuedPod
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable
from opentelemetry import trace


class Racks(Plugin):
    """Lets a pod onto the nodes of its rack; raises for a pod of the rack `broken`."""

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self.tracer = trace.get_tracer("racks")

    async def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> PreFilterResult:
        with self.tracer.start_as_current_span("read racks"):
            return PreFilterResult(Status.success())

    def filter(self, state: CycleState, pod: Pod, node: Node) -> Status:
        rack = pod.labels.get("rack", "")
        if rack == "broken":
            raise ValueError("the rack is broken")
        with self.tracer.start_as_current_span("compare racks"):
            fits = node.labels.get("rack", "") == rack
            return Status.success() if fits else Status.unschedulable("another rack")


class Doors(Plugin):
    """Keeps a pod with `door: closed` out of the queue until a node is added, and one with `seat: taken` from
    its node. A pod with `seat: later` waits at Permit.
    """

    events = (EventInterest("Node", ("add",), Hint.ASK_PLUGIN),)

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self.is_open = False

    def pre_enqueue(self, pod: QueuedPod) -> Status:
        if pod.pod.labels.get("door") == "closed" and not self.is_open:
            return Status.unschedulable("the door is closed")
        return Status.success()

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> bool:
        self.is_open = True
        return True

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return Status.success()

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        pass

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
        seat = pod.labels.get("seat")
        if seat == "taken":
            return Status.unschedulable("the seat is taken")
        return PermitResult.wait(60.0) if seat == "later" else Status.success()

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        pass


class ByName(Plugin):
    """Tries pods in the order of their names."""

    def sort_key(self, pod: QueuedPod) -> bytes:
        return pod.pod.name.encode()


class Islands(Plugin):
    """Makes a placement of each node."""

    def placement_generate(self, state: CycleState, group: GroupView, parent: Placement) -> list[Placement]:
        return [Placement(name, parent.nodes.take([row])) for row, name in enumerate(parent.nodes.names)]
