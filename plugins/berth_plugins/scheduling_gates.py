"""SchedulingGates: a pod with scheduling gates does not enter the queue. Called at PreEnqueue.

Source: `pkg/scheduler/framework/plugins/schedulinggates/scheduling_gates.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence

from berth_sdk.events import TARGET_POD, ClusterEvent, EventInterest, Hint
from berth_sdk.extension_points import DependsOn, Plugin
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.pod_fields import PodField
from berth_sdk.results import QueuedPod
from berth_sdk.status import Status

from berth_plugins.objects.of_events import as_pod


class SchedulingGates(Plugin):
    """Keeps pods out of the queue until `spec.schedulingGates` is empty."""

    needs: Sequence[Need] = ()
    depends_on: DependsOn | None = DependsOn.NODE
    sign_fields: Sequence[PodField] | None = (PodField.SCHEDULING_GATES,)
    events: Sequence[EventInterest] | None = (
        EventInterest(TARGET_POD, ("update.schedulingGates",), Hint.ASK_PLUGIN),
    )

    def pre_enqueue(self, pod: QueuedPod) -> Status:
        """Return unresolvable while the pod has a gate. The reason names all gates."""
        gates = pod.pod.scheduling_gates
        if not gates:
            return Status.success()
        return Status.unresolvable(f"waiting for scheduling gates: [{' '.join(gates)}]")

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> bool:
        """Return True if the event is about the pod itself: it reports only the removal of a pod's last
        gate.
        """
        return as_pod(event.new).uid == pod.uid
