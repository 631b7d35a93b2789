"""A plugin whose Score raises. For tests, in process and served."""

from __future__ import annotations

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.node import Node
from berth_sdk.pod import Pod


class RaisingScore(Plugin):
    """Fails at Score."""

    def score(self, state: CycleState, pod: Pod, node: Node) -> int:
        """Raise."""
        raise ValueError("no price for this node")
