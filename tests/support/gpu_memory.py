"""A plugin that accounts for the memory of GPUs: a pod needs all of its memory on one GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from berth_sdk.cycle_state import CycleState
from berth_sdk.events import EventInterest
from berth_sdk.extension_points import Plugin
from berth_sdk.needs import Need
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.scenarios import Scenarios
from berth_sdk.status import SUCCESS, Status, Verdicts
from berth_sdk.tables import NodeTable

MEMORY = "example.com/gpu-memory"
GPUS, EACH = "gpus", "gpu-memory"
"""Labels of a node: the number of its GPUs, and the memory of each."""
NO_ROOM = "no GPU has enough memory left"


class GpuMemory(Plugin):
    """Puts the pods of a node on its GPUs one by one, the largest first, each on the first that has room.

    Rejects a node where the new pod has no room then. Raises KeyError for a pod that wants no GPU memory: a
    host never asks about such a pod.
    """

    needs: Sequence[Need] = (Need.nodes(), Need.pods())
    events: Sequence[EventInterest] | None = (
        EventInterest("Pod", ("delete",)),
        EventInterest("Node", ("add", "update.labels")),
    )

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        return Verdicts.of([_verdict(pod, view.node, view.pods) for view in nodes])

    def filter_scenarios(self, state: CycleState, pod: Pod, scenarios: Scenarios) -> Verdicts:
        views = (scenarios.view(i) for i in range(len(scenarios)))
        return Verdicts.of([_verdict(pod, view.node, view.pods) for view in views])


class NoFilter(Plugin):
    """A plugin that could not account for anything: it only scores."""

    def score(self, state: CycleState, pod: Pod, node: object) -> int:
        return 0


def _verdict(pod: Pod, node: Node, others: Iterable[Pod]) -> Status:
    wanted = pod.requests[MEMORY]
    each = int(node.labels.get(EACH, 0))
    left = [each] * int(node.labels.get(GPUS, 0))
    amounts = sorted((other.requests.get(MEMORY, 0) for other in others), reverse=True)
    for amount in amounts:
        first = next((i for i, free in enumerate(left) if free >= amount), None)
        if first is not None:
            left[first] -= amount
    if any(free >= wanted for free in left):
        return SUCCESS
    return Status.unschedulable(NO_ROOM) if wanted <= each else Status.unresolvable(NO_ROOM)
