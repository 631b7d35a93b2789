"""Plugins that tests of the command line name in a configuration (`inProcess: support.cli_plugins:Class`)."""

from __future__ import annotations

from typing import Any

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.pod import Pod
from berth_sdk.results import NodeRejections, PostFilterResult, QueuedPod
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeView


class Broken(Plugin):
    """Filter raises for pods with the label `break`."""

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        """Success for the others."""
        if "break" in pod.labels:
            raise RuntimeError("out of order")
        return Status.success()


class Talkative(Plugin):
    """Prints, and answers a score that is none."""

    def score(self, state: CycleState, pod: Pod, node: NodeView) -> int:
        """Above the highest score."""
        print("debugging")
        return 101


class Unmakeable(Plugin):
    """Its own `__init__` raises."""

    def __init__(self, args: Any, handle: Any) -> None:
        raise RuntimeError("no licence")

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        """Never asked."""
        return Status.success()


class Gate(Plugin):
    """PreEnqueue keeps pods with the label `hold` out of the queue."""

    def pre_enqueue(self, pod: QueuedPod) -> Status:
        """Success for the others."""
        return Status.unresolvable("held") if "hold" in pod.pod.labels else Status.success()


class Evictor(Plugin):
    """PostFilter: the pods of lower priority on the first rejected node have to go."""

    def post_filter(self, state: CycleState, pod: Pod, rejections: NodeRejections) -> PostFilterResult:
        """Return a nomination with its victims, or no help."""
        names = sorted(rejections.with_code(Code.UNSCHEDULABLE, [*rejections.by_node]))
        nodes: Any = self.handle.snapshot()
        for name in names:
            view = nodes.node(nodes.position(name))
            victims = tuple(other.ref for other in view.pods if other.priority < pod.priority)
            if victims:
                return PostFilterResult(Status.success(), nominated_node=name, victims=victims)
        return PostFilterResult(Status.unschedulable("nobody to evict"))
