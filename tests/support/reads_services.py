"""A plugin that reads objects that no other part reads: a pod fits where the Service of its name exists."""

from __future__ import annotations

from collections.abc import Sequence

from berth_sdk.extension_points import Plugin
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable


class ReadsServices(Plugin):
    """Served by tests as `support.reads_services:ReadsServices`."""

    needs: Sequence[Need] = (Need.nodes(), Need.objects("services"))

    def filter_nodes(self, state: object, pod: Pod, nodes: NodeTable) -> Status:
        """Reject every node for a pod without a Service."""
        found = self.handle.objects("services").get(pod.name, pod.namespace)
        return Status.unschedulable("no service") if found is None else Status.success()
