"""A plugin that reads annotations of nodes and did not declare them."""

from __future__ import annotations

from typing import Any

from berth_sdk.extension_points import Plugin
from berth_sdk.status import Status


class ReadsAnnotations(Plugin):
    """Keeps pods off nodes that a team has reserved."""

    def filter(self, state: Any, pod: Any, node: Any) -> Status:
        if node.annotations.get("example.com/team"):
            return Status.unschedulable("the node is reserved")
        return Status.success()
