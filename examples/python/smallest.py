"""Maintenance, with the SDK: keeps pods off the nodes that its argument `nodes` names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from berth_sdk import DependsOn, Handle, NodeColumn, NodeView, Plugin, PluginArgsError, Pod, Status
from berth_sdk.cycle_state import CycleState


class Maintenance(Plugin):
    """Rejects the nodes of its argument. No field of the pod counts."""

    depends_on = DependsOn.NODE
    reads = (NodeColumn.NAME,)
    sign_fields = ()

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        names = args.get("nodes", [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise PluginArgsError("nodes: must be a list of names of nodes")
        self._closed = frozenset(names)

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        """Reject a node under maintenance."""
        if node.name in self._closed:
            return Status.unschedulable("under maintenance")
        return Status.success()
