"""A small plugin for tests of transports: filters by name and scores with its verdicts, in one call."""

from __future__ import annotations

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin, ScoreNormalization
from berth_sdk.pod import Pod
from berth_sdk.results import FilterResult
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray


class Echo(Plugin):
    """Rejects every seventh node; a node's score is its free pods, as far as 100."""

    normalization = ScoreNormalization.NONE

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> FilterResult:
        seventh = nodes.slots % 7 == 3
        verdicts = Verdicts.reject_where(seventh, Status.unschedulable("every seventh node"))
        return FilterResult(verdicts, self.score_nodes(state, pod, nodes))

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        free: NDArray[np.int64] = np.minimum(nodes.allocatable("pods") - nodes.pod_count, 100)
        return free
