"""PodGroupPodsCount: prefers the placement in which most members of the group run. Called at PlacementScore.

Source: `pkg/scheduler/framework/plugins/podgrouppodscount/podgroup_pods_count.go`, v1.37.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, Plugin
from berth_sdk.needs import Need
from berth_sdk.pod_fields import PodField
from berth_sdk.pod_group import Assignment, GroupView, Placement
from berth_sdk.status import MAX_NODE_SCORE, Status
from numpy.typing import NDArray

NOBODY = "no pods from pod group are assigned to any of the candidate placements"


class PodGroupPodsCount(Plugin):
    """Scores a placement by the members that have a node, before this cycle or in it."""

    needs: Sequence[Need] = ()
    depends_on: DependsOn | None = DependsOn.NODE
    sign_fields: Sequence[PodField] | None = ()

    def placement_score(
        self, state: CycleState, group: GroupView, placement: Placement, assignments: Sequence[Assignment]
    ) -> int:
        """Return the number of members with a node."""
        return _count_scheduled(group) + len(assignments)

    def normalize_placements(
        self, state: CycleState, group: GroupView, scores: NDArray[np.int64], placements: Sequence[Placement]
    ) -> NDArray[np.int64] | Status:
        """Return the scores in relation to the highest one; an error if no placement has a member."""
        most = int(scores.max(initial=0))
        if not most:
            return Status.error(NOBODY)
        normalized: NDArray[np.int64] = scores * MAX_NODE_SCORE // most
        return normalized


def _count_scheduled(group: GroupView) -> int:
    return len(group.scheduled) + sum(map(_count_scheduled, group.children))
