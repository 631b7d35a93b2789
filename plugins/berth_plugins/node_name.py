"""NodeName: a pod that names its node can run on no other node. Called at PreFilter and Filter.

Source: `pkg/scheduler/framework/plugins/nodename/node_name.go`, v1.37.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.events import EventInterest
from berth_sdk.extension_points import DependsOn, NodeColumn, Plugin
from berth_sdk.pod import Pod
from berth_sdk.pod_fields import PodField
from berth_sdk.results import PreFilterResult
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable

REASON: Final = Status.unresolvable("node(s) didn't match the requested node name")


class NodeName(Plugin):
    """Rejects every node but `spec.nodeName`, where that is set."""

    depends_on: DependsOn | None = DependsOn.NODE
    reads: Sequence[NodeColumn] | None = (NodeColumn.NAME,)
    sign_fields: Sequence[PodField] | None = (PodField.NODE_NAME,)
    events: Sequence[EventInterest] | None = (EventInterest("Node", ("add",)),)

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> PreFilterResult | Status:
        """Narrow the search to `spec.nodeName`. Preemption on another node cannot help the pod."""
        if not pod.node_name:
            return Status.success()
        return PreFilterResult(eligible=frozenset((pod.node_name,)))

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """Return unresolvable for all other nodes."""
        if not pod.node_name:
            return Verdicts.feasible(len(nodes))
        other = np.ones(len(nodes), dtype=np.bool_)
        position = nodes.position(pod.node_name)
        if position is not None:
            other[position] = False
        return Verdicts.reject_where(other, REASON)
