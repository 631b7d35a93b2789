"""The facts that plugins' answers are checked against: the snapshot of the open cycle."""

from __future__ import annotations

from berth_sdk.pod import Pod

from berth_host.cache.snapshot import Snapshot


class SnapshotFacts:
    """`rpc.validate.ClusterFacts` over the snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def has_node(self, node_name: str) -> bool:
        """Whether the snapshot has this node."""
        return node_name in self._snapshot.columns.index_of

    def pod_on_node(self, node_name: str, uid: str) -> Pod | None:
        """The pod of this uid on that node, None if it is not there."""
        slot = self._snapshot.columns.index_of.get(node_name)
        if slot is None:
            return None
        return next((pod for pod in self._snapshot.pods.on_node(slot) if pod.uid == uid), None)
