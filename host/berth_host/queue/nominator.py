"""The pods that are promised a node: by preemption, or by an outside component.

Nominated pods count on their node when others of equal or lower priority are judged. Written by the
queue, the failure handler and the cycle (assume); read by Filter and preemption.
Source: kube-scheduler `backend/queue/nominator.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping

from berth_sdk.pod import Pod

from berth_host.queue.nominated_columns import NominatedColumns
from berth_host.queue.seams import PodLister


class Nominator:
    """Pods per node in the order of nomination; a pod is nominated to one node at most."""

    def __init__(self, pods: PodLister) -> None:
        self._pods = pods
        self._node_of: dict[str, str] = {}
        self._on_node: dict[str, dict[str, Pod]] = {}
        self.columns = NominatedColumns()

    def nominate(self, pod: Pod, node_name: str | None = None) -> None:
        """Replace the pod's nomination. None: as its status says; "": none.

        A pod that exists no more, or is bound, is nominated nowhere.
        """
        self.remove(pod)
        if node_name is None:
            node_name = pod.nominated_node
        if not node_name:
            return
        current = self._pods.pod(pod.key)
        if current is None or current.node_name:
            return
        self._node_of[pod.uid] = node_name
        self._on_node.setdefault(node_name, {})[pod.uid] = current if current.uid == pod.uid else pod
        self._tell(node_name)

    def refresh(self, pod: Pod) -> None:
        """There is a newer version of the pod; its nomination stands."""
        node_name = self._node_of.get(pod.uid)
        if node_name is not None:
            self._on_node[node_name][pod.uid] = pod
            self._tell(node_name)

    def update(self, old: Pod, new: Pod) -> None:
        """The pod was updated. An update that says nothing about a nomination may have left the API
        server before the nomination was written there: the nomination in memory stays.
        """
        kept: str | None = None
        if not old.nominated_node and not new.nominated_node:
            kept = self._node_of.get(old.uid)
        self.remove(old)
        self.nominate(new, kept)

    def remove(self, pod: Pod) -> None:
        """The pod is promised nothing any more."""
        node_name = self._node_of.pop(pod.uid, None)
        if node_name is None:
            return
        pods = self._on_node[node_name]
        del pods[pod.uid]
        if not pods:
            del self._on_node[node_name]
        self._tell(node_name)

    def node_of(self, uid: str) -> str:
        """The node promised to a pod, "" for none."""
        return self._node_of.get(uid, "")

    def on_node(self, node_name: str) -> list[Pod]:
        """The pods nominated to a node, in the order of nomination."""
        return list(self._on_node.get(node_name, {}).values())

    def by_node(self) -> Mapping[str, list[Pod]]:
        """Every node with nominated pods, as they are now."""
        return {node_name: list(pods.values()) for node_name, pods in self._on_node.items()}

    def _tell(self, node_name: str) -> None:
        self.columns.set(node_name, self.on_node(node_name))
