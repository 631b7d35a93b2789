"""Plugins that berth asks, and kube-scheduler through an extender, about the same pods."""

from __future__ import annotations

from typing import Any

from berth_sdk import BindResult, CycleState, Need, Plugin, Pod, PodSensitivity, Status
from berth_sdk.results import PreFilterResult

PLACES = 10
"""Nodes have the label `place`: 1 to 10. Eleven is a prime number, so no two places have the same score."""


class Racks(Plugin):
    """Keeps pods out of the rack that they avoid, and ranks places by the pod's factor: 10, 20 to 100."""

    pod_sensitivity = PodSensitivity.NONE

    def pre_filter(self, state: CycleState, pod: Pod, nodes: Any) -> Any:
        state.write("factor", int(pod.labels.get("factor", "1")))
        only = pod.labels.get("only")
        return PreFilterResult(eligible=frozenset({only})) if only else Status.success()

    def filter(self, state: CycleState, pod: Pod, node: Any) -> Status:
        if node.labels["rack"] == pod.labels.get("avoid"):
            return Status.unschedulable("node is in the rack that the pod avoids")
        return Status.success()

    def score(self, state: CycleState, pod: Pod, node: Any) -> int:
        return 10 * (int(node.labels["place"]) * int(state.read("factor")) % (PLACES + 1))


class Crowded(Racks):
    """Racks with room for two pods on each node, which it counts itself."""

    name = "Racks"
    needs = (Need.nodes(), Need.pods())
    pod_sensitivity = PodSensitivity.NODE

    def filter(self, state: CycleState, pod: Pod, node: Any) -> Status:
        most = int(pod.labels.get("most", "2"))
        if len(node.pods) >= most:
            return Status.unschedulable(f"node has {len(node.pods)} pods")
        return super().filter(state, pod, node)


class Lonely(Plugin):
    """Passes nodes without a pod that has the label `loud`."""

    needs = (Need.nodes(), Need.pods())
    pod_sensitivity = PodSensitivity.NODE

    def filter(self, state: CycleState, pod: Pod, node: Any) -> Status:
        if any("loud" in other.labels for other in node.pods):
            return Status.unschedulable("node is too loud")
        return Status.success()


class Binder(Plugin):
    """Lets the host bind, but refuses pods with the label `refuse`."""

    needs = ()

    def bind(self, state: CycleState, pod: Pod, node_name: str) -> BindResult:
        if "refuse" in pod.labels:
            return BindResult(Status.unschedulable(f"{node_name} has no free port for {pod.name}"))
        return BindResult(Status.success(), host_binds=True)
