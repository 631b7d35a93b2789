"""`Nominator`: the pods nominated to a node, by preemption or by another component.

Nominated pods count on their node when pods of equal or lower priority are filtered. Written by the queue,
the failure handler and the cycle (assume). Read by Filter and preemption.
Source: kube-scheduler `backend/queue/nominator.go` and `scheduling_queue.go` (nominatedPodToInfo), v1.37.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from berth_sdk.pod import Pod

from berth_host.queue.interfaces import PodLister
from berth_host.queue.nominated_columns import NominatedColumns


class Nominator:
    """The nominated pods by node, in the order of nomination; a pod is nominated to one node at most."""

    def __init__(self, pods: PodLister) -> None:
        self._pods = pods
        self._node_of: dict[str, str] = {}
        self._on_node: dict[str, dict[str, Pod]] = {}
        self._popped: set[str] = set()
        """The uids of popped members of groups; see `popped`."""
        self.columns = NominatedColumns()

    def nominate(self, pod: Pod, node_name: str | None = None) -> None:
        """Replace the pod's nomination. `node_name` None: the node in the pod's status; "": no node.

        A pod that was deleted or bound loses its nomination.
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
        """Store a newer version of the pod; its nomination stays."""
        node_name = self._node_of.get(pod.uid)
        if node_name is not None:
            self._on_node[node_name][pod.uid] = pod
            self._tell(node_name)

    def update(self, old: Pod, new: Pod) -> None:
        """Apply an update of the pod.

        If neither version has a nomination, the one in memory stays: the API server may have sent the update
        before the nomination was written.
        """
        kept: str | None = None
        if not old.nominated_node and not new.nominated_node:
            kept = self._node_of.get(old.uid)
        self.remove(old)
        self.nominate(new, kept)

    def remove(self, pod: Pod) -> None:
        """Remove the pod's nomination, if it has one."""
        node_name = self._node_of.pop(pod.uid, None)
        if node_name is None:
            return
        pods = self._on_node[node_name]
        del pods[pod.uid]
        if not pods:
            del self._on_node[node_name]
        self._tell(node_name)

    def popped(self, uids: Iterable[str]) -> None:
        """Let these popped members of a group claim nothing on their nodes, until `returned`.

        kube-scheduler looks a nominated pod up in the queue. Of a pod that is not there it knows only the
        name: the pod counts with priority 0 and without requests. So a member of a group may take the node
        that another member was nominated to.
        """
        for uid in uids:
            self._popped.add(uid)
            self._tell_of(uid)

    def returned(self, uid: str) -> None:
        """Let a pod whose attempt has ended claim its requests again."""
        if uid in self._popped:
            self._popped.remove(uid)
            self._tell_of(uid)

    def node_of(self, uid: str) -> str:
        """Return the node that a pod is nominated to; "" for none."""
        return self._node_of.get(uid, "")

    def on_node(self, node_name: str) -> list[Pod]:
        """Return the pods nominated to a node, in the order of nomination."""
        return list(self._on_node.get(node_name, {}).values())

    def by_node(self) -> Mapping[str, list[Pod]]:
        """Return the nominated pods by node."""
        return {node_name: list(pods.values()) for node_name, pods in self._on_node.items()}

    def _tell_of(self, uid: str) -> None:
        node_name = self._node_of.get(uid)
        if node_name is not None:
            self._tell(node_name)

    def _tell(self, node_name: str) -> None:
        pods = self.on_node(node_name)
        if self._popped:
            pods = [_bare(pod) if pod.uid in self._popped else pod for pod in pods]
        self.columns.set(node_name, pods)


def _bare(pod: Pod) -> Pod:
    return Pod(name=pod.name, namespace=pod.namespace, uid=pod.uid, group_key=pod.group_key)
