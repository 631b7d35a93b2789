"""Decides whether a pod may preempt now. Called by the evaluator.

Source: kube-scheduler `framework/plugins/defaultpreemption/default_preemption.go`
(PodEligibleToPreemptOthers, podTerminatingByPreemption), v1.36.
"""

from __future__ import annotations

from typing import Final

from berth_sdk.pod import Pod
from berth_sdk.status import Code
from berth_sdk.tables import NodeTable

from berth_host.model.node_statuses import NodeStatuses
from berth_host.preemption.units import GroupObjects

NEVER: Final = "not eligible due to preemptionPolicy=Never."
TERMINATING: Final = "not eligible due to a terminating pod on the nominated node."
UNDER_WAY: Final = "waiting for the preemption for this pod to be finished"
DISRUPTION_TARGET: Final = "DisruptionTarget"
PREEMPTED: Final = "PreemptionByScheduler"


def ineligible_reason(
    pod: Pod, nodes: NodeTable, statuses: NodeStatuses, groups: GroupObjects | None = None
) -> str:
    """Return why the pod must not preempt, "" if it may. `pod`: as the watch last showed it. `groups`: the
    groups whose priorities count for their pods; None: groups do not count.
    """
    if pod.never_preempts:
        return NEVER
    name = pod.nominated_node
    if not name or statuses.status_of(name).code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
        return ""
    node = nodes.node_named(name)
    if node is None:
        return ""
    return TERMINATING if any(makes_room(other, pod.priority, groups) for other in node.pods) else ""


def makes_room(other: Pod, priority: int, groups: GroupObjects | None) -> bool:
    """Return True if a scheduler has preempted `other`, which is leaving, and `priority` is above its own."""
    if not other.terminating or preemption_mark(other) is None:
        return False
    return (other.priority if groups is None else groups.eviction_priority(other)) < priority


def preemption_mark(pod: Pod) -> str | None:
    """Return the message with which a scheduler has marked the pod as the victim of a preemption, or None."""
    return disruption_mark(pod, PREEMPTED)


def disruption_mark(pod: Pod, reason: str) -> str | None:
    """Return the message of the pod's DisruptionTarget condition if it is True for `reason`, else None."""
    conditions = pod.object.get("status.conditions", []) if pod.object is not None else []
    for item in conditions:
        if item.get("type") == DISRUPTION_TARGET and item.get("reason") == reason:
            return str(item.get("message") or "") if item.get("status") == "True" else None
    return None
