"""`NodeInfo`: one node with the pods on it and their running totals, changed in place.

Owned and changed by `Cache` alone; read by the snapshot's update.
Source: kube-scheduler `framework/types.go` (NodeInfo, HostPortInfo), v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from berth_sdk.node import Node
from berth_sdk.pod import HostPort, Pod
from berth_sdk.tables import NodeUsage

_MAX_INT64: Final = 2**63 - 1


class NodeInfo:
    """Totals in scheduling units (cpu in milli, else base units); a resource without key is 0.

    `node` is None for a placeholder: pods name a node that is not known, or not any more.
    `pods` is in kube-scheduler's order: the last pod takes the place of a leaving pod.
    `generation` is that of the last change, `node_generation` that of the last change of the Node
    object, `usage_generation` that of the last change of pods; `born`, of the arrival of this node, so
    that a node deleted and made again is told from the old one.
    """

    __slots__ = (
        "_usage",
        "born",
        "generation",
        "host_ports",
        "name",
        "node",
        "node_generation",
        "non_zero_requested",
        "pods",
        "pvc_refs",
        "requested",
        "usage_generation",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.node: Node | None = None
        self.pods: list[Pod] = []
        self.requested: dict[str, int] = {}
        self.non_zero_requested: dict[str, int] = {}
        self.host_ports: set[HostPort] = set()
        self.pvc_refs: dict[str, int] = {}
        self._usage: NodeUsage | None = None
        self.generation = 0
        self.node_generation = 0
        self.usage_generation = 0
        self.born = 0

    def add_pod(self, pod: Pod) -> None:
        """Append a pod and count it."""
        self.pods.append(pod)
        self._count(pod)

    def _count(self, pod: Pod) -> None:
        self._usage = None
        _add(self.requested, pod.requests, 1)
        _add(self.non_zero_requested, pod.non_zero_requests, 1)
        for port in pod.host_ports:
            self.host_ports.add(port.normalized)
        for claim in pod.claims:
            key = f"{pod.namespace}/{claim}"
            self.pvc_refs[key] = self.pvc_refs.get(key, 0) + 1

    def remove_pod(self, uid: str) -> Pod | None:
        """Take out the pod with `uid` and uncount it; None if it is not here.

        Ports are a set, not a count: when two pods claim the same one, either's leaving frees it.
        """
        pod = self._take_out(uid)
        if pod is not None:
            self._uncount(pod)
        return pod

    def replace_pod(self, pod: Pod) -> Pod | None:
        """Replace the record of a pod, as `remove_pod` and `add_pod` do together; returns the older record,
        None if unknown. A pod that requests what it did before is not counted anew.
        """
        old = self._take_out(pod.uid)
        if old is None:
            return None
        self.pods.append(pod)
        if not _counts_alike(old, pod):
            self._uncount(old)
            self._count(pod)
        return old

    def _take_out(self, uid: str) -> Pod | None:
        pods = self.pods
        for position, pod in enumerate(pods):
            if pod.uid == uid:
                last = pods.pop()
                if last is not pod:
                    pods[position] = last
                return pod
        return None

    def _uncount(self, pod: Pod) -> None:
        self._usage = None
        _add(self.requested, pod.requests, -1)
        _add(self.non_zero_requested, pod.non_zero_requests, -1)
        for port in pod.host_ports:
            self.host_ports.discard(port.normalized)
        for claim in pod.claims:
            key = f"{pod.namespace}/{claim}"
            left = self.pvc_refs.get(key, 0) - 1
            if left > 0:
                self.pvc_refs[key] = left
            else:
                self.pvc_refs.pop(key, None)

    def usage(self) -> NodeUsage:
        """A frozen copy of the totals, each capped at int64: columns and messages hold no more. The same
        object until a pod is counted.
        """
        if self._usage is None:
            self._usage = NodeUsage(
                requested=_capped(self.requested),
                non_zero_requested=_capped(self.non_zero_requested),
                pod_count=len(self.pods),
                host_ports=frozenset(self.host_ports),
            )
        return self._usage

    def __repr__(self) -> str:
        return f"NodeInfo({self.name}, {len(self.pods)} pods, generation {self.generation})"


def _counts_alike(old: Pod, new: Pod) -> bool:
    """Whether uncounting one record and counting the other changes nothing. Ports are not looked at: counting
    a pod again brings back a port that another pod's leaving has freed.
    """
    if old.host_ports or new.host_ports or old.claims != new.claims:
        return False
    return old.requests == new.requests and old.non_zero_requests == new.non_zero_requests


def _capped(totals: dict[str, int]) -> dict[str, int]:
    if max(totals.values(), default=0) <= _MAX_INT64:
        return totals.copy()
    return {name: min(total, _MAX_INT64) for name, total in totals.items()}


def _add(totals: dict[str, int], amounts: Mapping[str, int], sign: int) -> None:
    # No key at 0: a node whose pods all left equals a node that never had any.
    for name, amount in amounts.items():
        total = totals.get(name, 0) + sign * amount
        if total:
            totals[name] = total
        else:
            totals.pop(name, None)
