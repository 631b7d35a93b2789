"""A plugin for a process of its own: a Filter that goes by the name of the node."""

from __future__ import annotations

from berth_sdk.pod import Pod
from berth_sdk.status import Status
from berth_sdk.tables import NodeView


class OnlyEven:
    """Likes nodes whose name ends in an even digit."""

    def filter(self, state: object, pod: Pod, node: NodeView) -> Status:
        return Status.success() if int(node.name[-1]) % 2 == 0 else Status.unresolvable("odd")
