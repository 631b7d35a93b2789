"""A plugin of the name Echo that breaks the contract: each node gets a score over 100."""

from __future__ import annotations

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin, ScoreNormalization
from berth_sdk.pod import Pod
from berth_sdk.status import Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray


class Echo(Plugin):
    """Filter is honest: nothing else of an answer would be looked at."""

    normalization = ScoreNormalization.NONE

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        return Verdicts.feasible(len(nodes))

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        return np.full(len(nodes), 1000, dtype=np.int64)
