"""The served plugin of the workloads `PodGroups/Served...`: PlacementFeasible alone, as GangScheduling.

Served by `berth-sdk serve berth_bench.own.enough_members:EnoughMembers`.
"""

from __future__ import annotations

from collections.abc import Sequence

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.needs import Need
from berth_sdk.pod_group import GroupView, PlacementProgress
from berth_sdk.status import SUCCESS, Code, Status


class EnoughMembers(Plugin):
    """Accepts a placement in which the minimum of the group has nodes."""

    needs: Sequence[Need] = ()

    def placement_feasible(self, state: CycleState, group: GroupView, progress: PlacementProgress) -> Status:
        """Return SUCCESS with enough members on nodes, UNSCHEDULABLE where the rest cannot suffice."""
        least = group.group.min_count
        if progress.scheduled >= least:
            return SUCCESS
        if progress.scheduled + progress.remaining < least:
            return Status.unschedulable(f"{{scheduled}} of {least} members have a node")
        return Status(Code.WAIT, (f"{{scheduled}} of {least} members have a node",))
