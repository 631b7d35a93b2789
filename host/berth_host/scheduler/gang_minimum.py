"""What the status of a group says about the minimum that it had, to a host that begins to lead.

Read by `group_repair`, which keeps the rest in memory.
"""

from __future__ import annotations

from berth_sdk.pod_group import INITIALLY_SCHEDULED, PodGroup


def minimum_before(group: PodGroup, bound: int) -> int:
    """Return the minimum that a gang had before this host looked at it; 0: it never had one.

    The condition of a PodGroup tells. A PodGroup of coscheduling has nothing that lasts; but its members are
    bound together, so a bound member says that the minimum was there.
    """
    if group.is_coscheduling:
        return group.min_count if bound else 0
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
