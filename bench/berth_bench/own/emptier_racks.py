"""The served plugin of the workloads `TopologyGangs/Served...`: PlacementScore alone.

Served by `berth-sdk serve berth_bench.own.emptier_racks:EmptierRacks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, NodeColumn, NodeLabel, Plugin
from berth_sdk.needs import Need
from berth_sdk.pod_fields import PodField
from berth_sdk.pod_group import Assignment, GroupView, Placement

_MOST: Final = 100


class EmptierRacks(Plugin):
    """Prefers the placement with the fewest pods per node."""

    needs: Sequence[Need] = (Need.nodes(),)
    depends_on: DependsOn | None = DependsOn.ROW
    sign_fields: Sequence[PodField] | None = ()
    reads: Sequence[NodeColumn | NodeLabel] | None = (NodeColumn.POD_COUNT,)
    # One that a busy machine keeps: a late answer counts as none, and the workload measures another thing.
    deadlines: ClassVar[Mapping[str, float]] = {"placementScore": 10.0}

    def placement_score(
        self, state: CycleState, group: GroupView, placement: Placement, assignments: Sequence[Assignment]
    ) -> int:
        """Return 100 for a placement without pods, 0 for one with 100 pods per node or more."""
        nodes = placement.nodes
        count = int(nodes.pod_count.sum()) + len(assignments)
        return _MOST - min(_MOST, count // max(1, len(nodes)))
