"""NodeUnschedulable: cordoned nodes take no new pods. Called at PreFilter and Filter.

Source: `pkg/scheduler/framework/plugins/nodeunschedulable/node_unschedulable.go`, v1.37.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from berth_sdk.cycle_state import CycleState
from berth_sdk.events import TARGET_POD, ClusterEvent, EventInterest, Hint
from berth_sdk.extension_points import DependsOn, NodeColumn, Plugin
from berth_sdk.node import Taint
from berth_sdk.pod import Pod
from berth_sdk.pod_fields import PodField
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable

from berth_plugins.objects.of_events import as_node, as_pod
from berth_plugins.objects.tolerations import NO_SCHEDULE, any_tolerates

REASON: Final = Status.unresolvable("node(s) were unschedulable")
# The node lifecycle controller puts this taint on such a node: a pod that tolerates it may run there. The
# taint's value is empty, so a toleration with a comparison never covers it, with or without the gate.
_TAINT: Final = Taint("node.kubernetes.io/unschedulable", "", NO_SCHEDULE)


class NodeUnschedulable(Plugin):
    """Rejects nodes with `spec.unschedulable`, unless the pod tolerates the taint that goes with it."""

    depends_on: DependsOn | None = DependsOn.NODE
    reads: Sequence[NodeColumn] | None = (NodeColumn.UNSCHEDULABLE,)
    sign_fields: Sequence[PodField] | None = (PodField.TOLERATIONS,)
    events: Sequence[EventInterest] | None = (
        EventInterest("Node", ("add", "update.taints"), Hint.ASK_PLUGIN),
        EventInterest(TARGET_POD, ("update.tolerations",), Hint.ASK_PLUGIN),
    )

    def sign_spec(self, pod: Pod) -> Hashable:
        """Return True if the pod may run on unschedulable nodes."""
        return bool(pod.tolerations) and any_tolerates(pod.tolerations, _TAINT)

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Return success: Filter checks every pod."""
        return Status.success()

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """Return unresolvable where the node is cordoned."""
        if any_tolerates(pod.tolerations, _TAINT):
            return Verdicts.feasible(len(nodes))
        return Verdicts.reject_where(nodes.unschedulable, REASON)

    def sign_queue(self, pod: Pod) -> Hashable:
        """Return a constant: nothing of the pod matters, unless the event is about the pod itself."""
        return ()

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> bool:
        """Return True if a node was added as schedulable or became schedulable, or the pod itself now
        tolerates the taint.
        """
        if event.resource == "Pod":
            changed = as_pod(event.new)
            return changed.uid == pod.uid and any_tolerates(changed.tolerations, _TAINT)
        was_schedulable = event.old is not None and not as_node(event.old).unschedulable
        return not was_schedulable and not as_node(event.new).unschedulable
