"""`Steady`: the nodes on which nothing has changed for a while, in a life without faults.

A host decides on what it knew a moment ago, and holds room that the API server does not know. A law that
judges one decision by the state of the API server can be sure only of nodes that are steady, and of pods
that may run on every node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from berth_host.app import Host
from berth_host.cluster.port import WatchEvent
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod

STEADY_S: Final = 6.0
"""Seconds for which a steady node has not changed."""
LIMITING: Final = (
    "spec.nodeSelector",
    "spec.topologySpreadConstraints",
    "spec.affinity",
    "spec.schedulingGroup",
    "spec.resourceClaims",
    "spec.volumes",
)
"""The fields by which a pod may not run on every node."""


@dataclass(frozen=True, slots=True)
class PlainPod:
    """A pod that may run on every node. `milli_cpu`: its request."""

    key: str
    priority: int
    milli_cpu: int


class Steady:
    """The record. `host`: returns the host that schedules; None: no host is asked."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.host: Callable[[], Host | None] = lambda: None
        self._now_s = now_s
        self._changed_s: dict[str, float] = {}
        self._plain: dict[str, PlainPod] = {}

    def see(self, event: WatchEvent) -> None:
        """Note a change of the API server."""
        old, new = event.old, event.new
        if event.kind == "Node":
            for node in (old, new):
                self._changes(node.ref.name if node is not None else None)
        elif event.kind == "Pod":
            for pod in (old, new):
                if pod is not None:
                    self._changes(pod.get("spec.nodeName"))
                    self._changes(pod.get("status.nominatedNodeName"))
            if old is None and new is not None and not any(map(new.get, LIMITING)):
                self._plain[new.ref.uid] = plain(new)

    def look(self) -> None:
        """Note the nodes on which the host holds room for assumed or nominated pods: these change, too.

        To be called every few seconds, and before a question.
        """
        host = self.host()
        if host is None:
            return
        for name, pods in host.queue.nominated_pods().items():
            if pods:
                self._changes(name)
        for info in host.cache.node_infos():
            if any(host.cache.is_assumed(pod.uid) for pod in info.pods):
                self._changes(info.name)

    def is_steady(self, node: str) -> bool:
        """Return True if the node has not changed for STEADY_S."""
        return self._now_s() - self._changed_s.get(node, 0.0) >= STEADY_S

    def plain(self, uid: str) -> PlainPod | None:
        """Return a pod of this life that may run on every node; None: it may not."""
        return self._plain.get(uid)

    def forget(self, uid: str) -> None:
        """Forget a pod that exists no more and evicts nobody."""
        self._plain.pop(uid, None)

    def _changes(self, node: str | None) -> None:
        if node:
            self._changed_s[node] = self._now_s()


def plain(pod: KubeObject) -> PlainPod:
    """Return what a law needs to know of a pod without the fields of LIMITING."""
    milli_cpu = Pod.from_object(pod).requests.get("cpu", 0)
    return PlainPod(pod.ref.key, int(pod.get("spec.priority") or 0), milli_cpu)
