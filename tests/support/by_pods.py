"""Plugins that judge and score a node by the number of its pods, and note which rows they are asked about."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, Plugin, ScoreNormalization
from berth_sdk.pod import Pod
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray


class ByPods(Plugin):
    """A point per pod on the node; notes which rows it was asked about."""

    depends_on: DependsOn | None = DependsOn.ROW
    normalization: ScoreNormalization | None = ScoreNormalization.NONE
    asked: ClassVar[list[list[str]]] = []

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """All pods are the same to it."""
        return ()

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """One for each pod."""
        self.asked.append(list(nodes.names))
        return nodes.pod_count.astype(np.int64)


class Empty(Plugin):
    """Only nodes without a pod; notes which rows it was asked about."""

    depends_on: DependsOn | None = DependsOn.ROW

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """All pods are the same to it."""
        return ()

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """Full with one pod."""
        ByPods.asked.append(list(nodes.names))
        return Verdicts.reject_where(nodes.pod_count > 0, Status.unschedulable("full"))
