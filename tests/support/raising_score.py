"""Plugins whose scoring fails: by an exception, or by a Status. For tests, in process and served."""

from __future__ import annotations

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, Plugin
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable, NodeView
from numpy.typing import NDArray


class RaisingScore(Plugin):
    """Fails at Score."""

    def score(self, state: CycleState, pod: Pod, node: Node) -> int:
        """Raise."""
        raise ValueError("no price for this node")


class RefusingScore(Plugin):
    """Answers a Status in place of a score."""

    depends_on: DependsOn | None = DependsOn.OTHER

    def score(self, state: CycleState, pod: Pod, node: NodeView) -> int | Status:
        """Fail, in words of its own."""
        return Status.error("no price for this node")


class RefusingScores(Plugin):
    """Answers a Status in place of the scores of all nodes."""

    depends_on: DependsOn | None = DependsOn.OTHER

    async def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Fail, in words of its own, with a code that Score does not have."""
        return Status.unschedulable("no price for this node")


class RefusingNormalize(Plugin):
    """Answers a Status in place of normalised scores."""

    depends_on: DependsOn | None = DependsOn.OTHER

    def score(self, state: CycleState, pod: Pod, node: NodeView) -> int:
        """Score all nodes alike."""
        return 1

    def normalize(self, state: CycleState, pod: Pod, scores: NDArray[np.int64], nodes: NodeTable) -> Status:
        """Fail, in words of its own."""
        return Status.error("no price for this node")
