"""A plugin that concerns pods with a label, and rejects those."""

from __future__ import annotations

from collections.abc import Sequence

from berth_sdk import EventInterest, NodeView, Plugin, Pod, QueuedPod, Scope, Status
from berth_sdk.cycle_state import CycleState
from berth_sdk.status import SUCCESS


class GpuOnly(Plugin):
    """Rejects every pod that it is asked about, and waits for no event."""

    events: Sequence[EventInterest] | None = ()
    scope = Scope(label_selector="kind=gpu")

    def pre_enqueue(self, pod: QueuedPod) -> Status:
        """Keep a pod with the label `gated` out of the queue."""
        return Status.unschedulable("gated") if "gated" in pod.pod.labels else SUCCESS

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        """Reject the node."""
        return Status.unschedulable("no GPU")

    def score(self, state: CycleState, pod: Pod, node: NodeView) -> int:
        """Prefer the node n1."""
        return 100 if node.name == "n1" else 0


class FastVolumesOnly(Plugin):
    """Keeps every pod that it is asked about out of the queue, and waits for no event."""

    events: Sequence[EventInterest] | None = ()
    scope = Scope(storage_classes=("fast",))

    def pre_enqueue(self, pod: QueuedPod) -> Status:
        """Keep the pod out."""
        return Status.unschedulable("waits for a fast volume")

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        """Pass the node."""
        return SUCCESS
