"""A plugin with a span of its own at PreFilter (async) and at Filter, for tests of traces."""

from __future__ import annotations

from typing import Any

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.results import PreFilterResult
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
