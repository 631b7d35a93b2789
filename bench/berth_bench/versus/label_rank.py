"""The plugins of `berth bench versus`: Filter and Score by two labels, with and without a declaration.

The extender (`tests/cluster/envtest/extender`) does the same work with the same results. Served by `berth-sdk
serve berth_bench.versus.label_rank:LabelRank`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, NodeColumn, NodeLabel, Plugin, ScoreNormalization
from berth_sdk.pod import Pod
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

CLOSED: Final = "versus.berth.io/closed"
"""`true`: no pod may run on the node."""
RANK: Final = "versus.berth.io/rank"
"""0 to 10: higher is better."""
_POINTS: Final = 10
"""Points per rank: an extender scores 0 to 10, a plugin 0 to 100."""
_REASON: Final = Status.unresolvable("node is closed")


class LabelRank(Plugin):
    """A plugin over the table. It declares no `depends_on`, so it is called about every pod."""

    # A node's score does not depend on other nodes.
    normalization: ScoreNormalization = ScoreNormalization.NONE

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """Accept nodes that are not closed."""
        return Verdicts.reject_where(nodes.has_label(CLOSED, "true"), _REASON)

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Return ten points per rank."""
        codes, ranks = nodes.label(RANK)
        points = np.array([_POINTS * int(value or 0) for value in ranks.values], dtype=np.int64)
        return points[codes]


class NodeRank(LabelRank):
    """The same scores with declarations: `sign_fields` is empty, and `depends_on` is NODE."""

    depends_on = DependsOn.NODE
    sign_fields = ()


class RowRank(LabelRank):
    """The rank less the number of pods on the node. No field of the pod counts."""

    depends_on = DependsOn.ROW
    sign_fields = ()
    reads = (NodeLabel(CLOSED), NodeLabel(RANK), NodeColumn.POD_COUNT)

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Return ten points per rank, less one for each pod."""
        points: NDArray[np.int64] = super().score_nodes(state, pod, nodes) - nodes.pod_count
        return points.clip(min=0)
