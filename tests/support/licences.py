"""Counts licences, which bound pods hold until they are gone: in NAMES mode, by the pods of the copy."""

from __future__ import annotations

from collections.abc import Sequence

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import NodeMode, Plugin
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable

LICENCES = 2


class Licences(Plugin):
    """So many pods with the label `licensed` may be on nodes at once."""

    node_mode: NodeMode = NodeMode.NAMES
    needs: Sequence[Need] = (Need.pods(),)

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        holders = [
            other for node in self.handle.snapshot() for other in node.pods if "licensed" in other.labels
        ]
        if len(holders) < LICENCES:
            return Status.success()
        return Status.unschedulable(f"{len(holders)} licences are taken")
