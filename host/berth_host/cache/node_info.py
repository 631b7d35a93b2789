"""`NodeInfo`: one node with its pods and their totals, changed in place.

Owned by `Cache`, which alone changes it; read by the snapshot's update.
Source: kube-scheduler `framework/types.go` (NodeInfo, HostPortInfo), v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from berth_sdk.node import Node
from berth_sdk.pod import HostPort, Pod
from berth_sdk.tables import NodeUsage

_MAX_INT64: Final = 2**63 - 1
_NOTHING: Final[Mapping[str, int]] = {}


class NodeInfo:
    """One node. Totals are in scheduling units (cpu in milli, else base units); a missing resource is 0.

    `node`: None for a placeholder, whose pods name an unknown or deleted node.
    `pods`: in kube-scheduler's order, in which the last pod takes the place of a removed pod.
    `generation`: of the last change; `node_generation`: of the last change of the Node object;
    `usage_generation`: of the last change of pods; `taken_generation`: of the last change by others that may
    have taken room: a pod that this host did not assume, higher requests, less to offer. `born`: of the
    addition of this node, which differs for a node that was deleted and created again.
    """

    __slots__ = (
        "_is_capped",
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
        "taken_generation",
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
        self._is_capped = False
        """True after a total was beyond int64."""
        self._usage: NodeUsage | None = None
        self.generation = 0
        self.node_generation = 0
        self.usage_generation = 0
        self.taken_generation = 0
        self.born = 0

    @property
    def node_offers(self) -> Mapping[str, int]:
        """The allocatable resources; empty for a placeholder, of which nothing is known."""
        return _NOTHING if self.node is None else self.node.allocatable

    def add_pod(self, pod: Pod) -> None:
        """Append a pod and add it to the totals."""
        self.pods.append(pod)
        self._count(pod)

    def _count(self, pod: Pod) -> None:
        self._usage = None
        beyond = _add(self.requested, pod.requests, 1)
        beyond_non_zero = _add(self.non_zero_requested, pod.non_zero_requests, 1)
        if beyond or beyond_non_zero:
            self._is_capped = True
        for port in pod.host_ports:
            self.host_ports.add(port.normalized)
        for claim in pod.claims:
            key = f"{pod.namespace}/{claim}"
            self.pvc_refs[key] = self.pvc_refs.get(key, 0) + 1

    def remove_pod(self, uid: str) -> Pod | None:
        """Remove the pod with `uid` and subtract it from the totals; return it, or None if it is not here.

        Ports are a set, not a count: if two pods claim the same port, removing either frees the port.
        """
        pod = self._take_out(uid)
        if pod is not None:
            self._uncount(pod)
        return pod

    def restore_ports(self) -> None:
        """Count the ports of all pods again, after a removal that freed a port of another pod."""
        self.host_ports = {port.normalized for pod in self.pods for port in pod.host_ports}
        self._usage = None

    def replace_pod(self, pod: Pod) -> Pod | None:
        """Replace a pod, as `remove_pod` and `add_pod` do together; return the old record, None if unknown.

        The totals are not recomputed if they would not change.
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
        """Return a frozen copy of the totals; the same object until a total changes.

        Each total is limited to int64, which columns and messages can hold.
        """
        if self._usage is None:
            copied = _capped if self._is_capped else dict.copy
            self._usage = NodeUsage(
                requested=copied(self.requested),
                non_zero_requested=copied(self.non_zero_requested),
                pod_count=len(self.pods),
                host_ports=frozenset(self.host_ports),
            )
        return self._usage

    def __repr__(self) -> str:
        return f"NodeInfo({self.name}, {len(self.pods)} pods, generation {self.generation})"


def _counts_alike(old: Pod, new: Pod) -> bool:
    """Return True if replacing one record by the other does not change the totals.

    False for pods with host ports: counting a pod again restores a port that another pod's removal freed.
    """
    if old.host_ports or new.host_ports or old.claims != new.claims:
        return False
    return old.requests == new.requests and old.non_zero_requests == new.non_zero_requests


def _capped(totals: dict[str, int]) -> dict[str, int]:
    if max(totals.values(), default=0) <= _MAX_INT64:
        return totals.copy()
    return {name: min(total, _MAX_INT64) for name, total in totals.items()}


def _add(totals: dict[str, int], amounts: Mapping[str, int], sign: int) -> bool:
    """Add the amounts to the totals. Return True if a total is beyond int64 now."""
    is_beyond = False
    # Totals of 0 have no key, so that a node without pods equals a node that never had any.
    for name, amount in amounts.items():
        total = totals.get(name, 0) + sign * amount
        if total:
            totals[name] = total
            if total > _MAX_INT64:
                is_beyond = True
        else:
            totals.pop(name, None)
    return is_beyond
