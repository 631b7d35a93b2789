"""A plugin of the name Echo that spoils its copy of the cluster's state at each call, as a fault would."""

from __future__ import annotations

from berth_sdk.cycle_state import CycleState
from berth_sdk.pod import Pod
from berth_sdk.results import FilterResult
from berth_sdk.tables import NodeTable
from support.echo_plugin import Echo as HonestEcho


class Echo(HonestEcho):
    """Its answers are right: it is the next change that does not fit the copy."""

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> FilterResult:
        nodes.columns.generation_sum += 1
        return super().filter_nodes(state, pod, nodes)
