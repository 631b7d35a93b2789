"""TaintToleration: node taints against pod tolerations -> verdict and score. Called at PreFilter,
Filter, PreScore and Score.

Each cycle tests each distinct list of taints once, for any number of nodes.

Source: `pkg/scheduler/framework/plugins/tainttoleration/taint_toleration.go`, v1.37.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.events import TARGET_POD, ClusterEvent, EventInterest, Hint
from berth_sdk.extension_points import DependsOn, NodeColumn, Plugin, ScoreNormalization
from berth_sdk.handle import Handle
from berth_sdk.node import Taint
from berth_sdk.pod import Pod, Toleration
from berth_sdk.pod_fields import PodField
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_plugins.args.gates import is_on
from berth_plugins.objects.of_events import as_node, as_pod
from berth_plugins.objects.tolerations import (
    COMPARISON_GATE,
    PREFER_NO_SCHEDULE,
    any_tolerates,
    first_untolerated,
)

REASON: Final = Status.unresolvable("node(s) had untolerated taint(s)")
_SOFT: Final = "tolerations of PreferNoSchedule"


class TaintToleration(Plugin):
    """Rejects nodes with a NoSchedule or NoExecute taint that the pod does not tolerate. Prefers nodes with
    few untolerated PreferNoSchedule taints.
    """

    normalization: ScoreNormalization | None = ScoreNormalization.HOST_MAX_REVERSED
    depends_on: DependsOn | None = DependsOn.NODE
    reads: Sequence[NodeColumn] | None = (NodeColumn.TAINTS,)
    sign_fields: Sequence[PodField] | None = (PodField.TOLERATIONS,)
    events: Sequence[EventInterest] | None = (
        EventInterest("Node", ("add", "update.taints"), Hint.ASK_PLUGIN),
        EventInterest(TARGET_POD, ("update.tolerations",), Hint.ASK_PLUGIN),
    )

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._compare = is_on(args, COMPARISON_GATE, default=False)

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Return success: Filter checks every pod."""
        return Status.success()

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """Return unresolvable where a taint excludes the pod."""
        sets = nodes.taint_sets
        if len(sets) == 1:  # no node ever had a taint
            return Verdicts.feasible(len(nodes))
        bad = sets.where(lambda taints: self._keeps_away(taints, pod))
        return Verdicts.reject_where(bad.take(nodes.taint_set), REASON)

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Store the tolerations that matter to the score. Never skips."""
        state.write(_SOFT, _soft(pod))
        return Status.success()

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Return int64[n]: the number of PreferNoSchedule taints that the pod does not tolerate; fewer is
        better.
        """
        sets = nodes.taint_sets
        tolerations = state.get_or_make(_SOFT, lambda: _soft(pod))
        counts = np.zeros(len(sets), dtype=np.int64)
        for code, taints in enumerate(sets.values):
            if taints is not None:
                counts[code] = self._count_unwanted(taints, tolerations)
        return counts.take(nodes.taint_set)

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> bool:
        """Return True if a node was added or changed so that its taints no longer exclude the pod, or the
        pod's own tolerations changed.
        """
        if event.resource == "Pod":
            return as_pod(event.new).uid == pod.uid
        kept_away = event.old is None or self._keeps_away(as_node(event.old).taints, pod)
        return kept_away and not self._keeps_away(as_node(event.new).taints, pod)

    def _keeps_away(self, taints: Sequence[Taint], pod: Pod) -> bool:
        return first_untolerated(taints, pod.tolerations, compare=self._compare) is not None

    def _count_unwanted(self, taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> int:
        return sum(
            taint.effect == PREFER_NO_SCHEDULE
            and not any_tolerates(tolerations, taint, compare=self._compare)
            for taint in taints
        )


def _soft(pod: Pod) -> tuple[Toleration, ...]:
    return tuple(one for one in pod.tolerations if one.effect in ("", PREFER_NO_SCHEDULE))
