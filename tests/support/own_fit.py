"""`OwnFit`: a plugin that counts CPU in the place of NodeResourcesFit, and declares that it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from berth_sdk.extension_points import Account, DependsOn, Plugin
from berth_sdk.pod import Pod
from berth_sdk.results import PermitResult
from berth_sdk.status import Status
from berth_sdk.tables import NodeView


class OwnFit(Plugin):
    """Also holds pods whose name begins with `held` at Permit."""

    accounts: ClassVar[Sequence[Account]] = (Account.RESOURCES,)
    depends_on: DependsOn | None = DependsOn.ROW

    def filter(self, state: object, pod: Pod, node: NodeView) -> Status:
        """Reject a node without room for the pod's CPU."""
        if node.requested.get("cpu", 0) + pod.requests.get("cpu", 0) > node.allocatable.get("cpu", 0):
            return Status.unschedulable("no CPU by my count")
        return Status.success()

    def permit(self, state: object, pod: Pod, node_name: str) -> PermitResult | Status:
        """Let every pod through, but for those that a test holds."""
        if pod.name.startswith("held") and pod.annotations.get("go") != "yes":
            return PermitResult.wait(600.0)
        return Status.success()
