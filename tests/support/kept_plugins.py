"""Plugins beside the default ones for `kept_world`: they look at what no default plugin looks at.

`Census` goes by all Node objects at every point. `Fickle` fails when it is told to. `Moody` goes by what
nobody sees, and declares no `depends_on`; `Sulky` does, and skips Filter at most times.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, NoConcern, NodeColumn, Plugin, ScoreNormalization
from berth_sdk.pod import Pod
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy import int64
from numpy.typing import NDArray

_TAINTED = "tainted"


class Census(Plugin):
    """Minds databases alone: where two nodes are tainted, large ones are not for them; where one is cordoned,
    larger ones are better.
    """

    depends_on: DependsOn | None = DependsOn.NODES
    normalization: ScoreNormalization | None = ScoreNormalization.HOST_MAX

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """All databases are the same."""
        return () if _is_database(pod) else NoConcern.CYCLE

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """SKIP without taints."""
        tainted = int((nodes.taint_set > 0).sum()) if _is_database(pod) else 0
        state.write(_TAINTED, tainted)
        return Status.success() if tainted else Status.skip()

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """By the number that PreFilter wrote; never called without one."""
        large = nodes.allocatable("cpu") > 2000
        many = state.get(_TAINTED, 0) != 1
        return Verdicts.reject_where(large & many, Status.unschedulable("too large"))

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """SKIP where no node is cordoned."""
        minds = _is_database(pod) and nodes.whole.unschedulable.any()
        return Status.success() if minds else Status.skip()

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[int64]:
        """By the node and the number of nodes."""
        scores: NDArray[int64] = nodes.allocatable("cpu") // 1000 + len(nodes.whole)
        return scores


def _is_database(pod: Pod) -> bool:
    return pod.labels.get("app") == "db"


class Fickle(Plugin):
    """Counts pods, or fails at the point that `fails` names."""

    depends_on: DependsOn | None = DependsOn.ROW
    normalization: ScoreNormalization | None = ScoreNormalization.NONE
    reads: Sequence[NodeColumn] | None = (NodeColumn.POD_COUNT,)
    fails: ClassVar[str] = ""

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """All pods are the same."""
        return ()

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts | Status:
        """Three pods on a node are enough; or an error about every node."""
        if Fickle.fails == "filter":
            return Status.error("fickle")
        return Verdicts.reject_where(nodes.pod_count > 2, Status.unschedulable("enough"))

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[int64]:
        """By the pods there. Raises RuntimeError."""
        if Fickle.fails == "score":
            raise RuntimeError("fickle")
        return nodes.pod_count


class Moody(Plugin):
    """Goes by its mood alone, of which no declaration tells: all nodes are closed to a pod, or a database is
    turned away at PreFilter.
    """

    is_closed: ClassVar[bool] = False

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """Filter does not concern databases; all others are the same."""
        return (NoConcern.FILTER, ()) if _is_database(pod) else ()

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """SKIP for databases, unless they are turned away."""
        if not _is_database(pod):
            return Status.success()
        return Status.unresolvable("turned away") if Moody.is_closed else Status.skip()

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts | Status:
        """All nodes or none."""
        return Status.unschedulable("closed") if Moody.is_closed else Status.success()


class Sulky(Moody):
    """Closes node n0 while it is in its mood; otherwise it skips Filter."""

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """All pods are the same."""
        return ()

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """SKIP outside of its mood."""
        return Status.success() if Moody.is_closed else Status.skip()

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """All nodes but one."""
        first = np.asarray([name == "n0" for name in nodes.names], dtype=np.bool_)
        return Verdicts.reject_where(first & Moody.is_closed, Status.unschedulable("closed"))
