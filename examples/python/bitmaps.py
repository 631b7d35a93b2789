"""FreeCpu, with the SDK: keeps pods off nodes without enough free cpu, and prefers those with most of it."""

from __future__ import annotations

import numpy as np
from berth_sdk import NodeTable, Plugin, Pod, PodSensitivity, ScoreNormalization, Status, Verdicts
from berth_sdk.cycle_state import CycleState
from numpy.typing import NDArray


class FreeCpu(Plugin):
    """Reads the columns of cpu. Free: allocatable minus requested, in thousandths of a core."""

    pod_sensitivity = PodSensitivity.NODE
    normalization = ScoreNormalization.HOST_MAX

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """Reject the nodes on which the pod's request does not fit."""
        full = nodes.allocatable("cpu") - nodes.requested("cpu") < pod.requests.get("cpu", 0)
        return Verdicts.reject_where(full, Status.unschedulable("not enough free cpu"))

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Return what is free on each node with the pod on it, and 0 where the pod does not fit."""
        free = nodes.allocatable("cpu") - nodes.requested("cpu") - pod.requests.get("cpu", 0)
        scores: NDArray[np.int64] = np.maximum(free, 0)
        return scores
