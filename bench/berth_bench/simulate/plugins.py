"""The served plugin of `berth bench simulate`: a Filter that reads a label of pod and node."""

from __future__ import annotations

from typing import Final

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from berth_sdk.tables import NodeView

LABEL: Final = "team"


class OwnTeam(Plugin):
    """Keeps pods of a team off nodes of another team."""

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        """Reject a node of another team."""
        if node.labels.get(LABEL, "") in ("", pod.labels.get(LABEL, "")):
            return Status.success()
        return Status.unschedulable("node(s) belonged to another team")
