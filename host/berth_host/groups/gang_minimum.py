"""Read the past of a group from objects: the minimum that it had, and the pods that were never its own.

Read by `group_repair`, which keeps the rest in memory.
"""

from __future__ import annotations

from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import timestamp
from berth_sdk.pod_group import INITIALLY_SCHEDULED, PodGroup


def minimum_before(group: PodGroup, bound: int) -> int:
    """Return the minimum that a gang had before this host looked at it; 0: it never had one.

    The condition of a PodGroup tells. A PodGroup of coscheduling has nothing that lasts; but its members are
    bound together, so a bound member says that the minimum was there, if it was not changed since.
    """
    if group.is_coscheduling:
        # The API server counts the versions of the spec from 1. Maybe the minimum was raised.
        is_first = group.generation <= 1
        return group.min_count if bound and is_first else min(group.min_count, bound)
    if has_condition_of_now(group):
        return group.min_count
    condition = group.condition(INITIALLY_SCHEDULED)
    # The spec changed since: maybe the minimum.
    return min(group.min_count, bound) if condition is not None and condition.status == "True" else 0


def has_condition_of_now(group: PodGroup) -> bool:
    """Return True if a cycle found places for the group as its spec is now."""
    condition = group.condition(INITIALLY_SCHEDULED)
    return (
        condition is not None
        and condition.status == "True"
        and condition.observed_generation == group.generation
    )


def is_of_earlier_group(pod: KubeObject, group: PodGroup) -> bool:
    """Return True for a pod that had ended before the group was made: a deleted group had the same name.

    Judged by the pod's creation and the end of its containers. A pod may be older than its group. A pod of
    which an end is not known counts as one of this group.
    """
    made_s = timestamp(pod.get("metadata.creationTimestamp"))
    if group.created_s is None or made_s is None or made_s >= group.created_s:
        return False
    states = [one.get("state") or {} for one in pod.get("status.containerStatuses") or ()]
    ends = [timestamp((state.get("terminated") or {}).get("finishedAt")) for state in states]
    return bool(ends) and all(end is not None and end < group.created_s for end in ends)
