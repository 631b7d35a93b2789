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
    `pods` is in kube-scheduler's order: the last pod takes the place of one that leaves.
    `generation` is that of the last change, `node_generation` that of the last change of the Node
    object, `usage_generation` that of the last change of pods; `born`, of the arrival of this node, so
    that a node deleted and made again is told from the old one.
    """

    __slots__ = (
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
        self.generation = 0
        self.node_generation = 0
        self.usage_generation = 0
        self.born = 0

    def add_pod(self, pod: Pod) -> None:
        """Append a pod and count it."""
        self.pods.append(pod)
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
        position = next((i for i, pod in enumerate(self.pods) if pod.uid == uid), None)
        if position is None:
            return None
        pod = self.pods[position]
        last = self.pods.pop()
        if last is not pod:
            self.pods[position] = last
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
        return pod

    def usage(self) -> NodeUsage:
        """A frozen copy of the totals, each capped at int64: columns and messages hold no more."""
        return NodeUsage(
            requested=_capped(self.requested),
            non_zero_requested=_capped(self.non_zero_requested),
            pod_count=len(self.pods),
            host_ports=frozenset(self.host_ports),
        )

    def __repr__(self) -> str:
        return f"NodeInfo({self.name}, {len(self.pods)} pods, generation {self.generation})"


def _capped(totals: dict[str, int]) -> dict[str, int]:
    if max(totals.values(), default=0) <= _MAX_INT64:
        return totals.copy()
    return {name: min(total, _MAX_INT64) for name, total in totals.items()}


def _add(totals: dict[str, int], amounts: Mapping[str, int], sign: int) -> None:
    # No key at 0: a node whose pods all left equals one that never had any.
    for name, amount in amounts.items():
        total = totals.get(name, 0) + sign * amount
        if total:
            totals[name] = total
        else:
            totals.pop(name, None)
