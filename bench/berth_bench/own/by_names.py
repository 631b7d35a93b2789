"""One rule in both node modes, to compare what the modes cost: `berth bench own --remote`.

The rule rejects the node that is named last, and prefers nodes by the length of their names. It declares no
`depends_on`, so the host calls it for every pod.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import NodeMode, Plugin, PodSensitivity, ScoreNormalization
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray


class ByNames(Plugin):
    """The rule over names: requests and answers name the nodes."""

    needs: Sequence[Need] = ()
    node_mode = NodeMode.NAMES
    pod_sensitivity = PodSensitivity.NONE
    normalization = ScoreNormalization.NONE

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """Reject the last node."""
        last = np.zeros(len(nodes), dtype=np.bool_)
        last[len(nodes) - 1 :] = len(nodes) > 1
        return Verdicts.reject_where(last, Status.unschedulable("the last one"))

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Return a score by the length of the name."""
        return np.fromiter((min(len(name), 100) for name in nodes.names), dtype=np.int64, count=len(nodes))


class BySnapshot(ByNames):
    """The rule of ByNames over the snapshot: requests and answers have bitmaps."""

    node_mode = NodeMode.SNAPSHOT
