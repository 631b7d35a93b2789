"""The room of a node: what its pods exceed, and whether others took it while a pod was being placed.

`Overfull` counts the nodes whose pods exceed their room, for a metric. `lacking` compares a pod with the pods
that are sure to run on its node; `cycle.binding_cycle` asks it right before a Binding.

A resource counts only if the node offers it: a pod may ask for a resource that a claim brings, and no node
has it then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from berth_sdk.pod import Pod
from berth_sdk.tables.used_ports import UsedPorts

from berth_host.cache.node_info import NodeInfo

PODS: Final = "pods"
TOO_MANY_PODS: Final = "Too many pods"
PORTS_TAKEN: Final = "a host port is taken"


class _Nodes(Protocol):
    def changed_since(self, generation: int) -> list[NodeInfo]: ...
    def node_info(self, name: str) -> NodeInfo | None: ...
    def is_assumed(self, uid: str) -> bool: ...


class Overfull:
    """The nodes of a cache whose pods exceed their room. Assumed pods do not count: the host may still take
    them back.

    Only the nodes that changed since the last reading are looked at.
    """

    def __init__(self, nodes: _Nodes) -> None:
        self._nodes = nodes
        self._seen = -1
        self._suspects: set[str] = set()

    def names(self) -> list[str]:
        """Return the nodes' names, sorted."""
        for info in self._nodes.changed_since(self._seen):
            self._seen = max(self._seen, info.generation)
            if exceeds(info.node_offers, info.requested, len(info.pods)):
                self._suspects.add(info.name)
            else:
                self._suspects.discard(info.name)
        found: list[str] = []
        for name in sorted(self._suspects):
            suspect = self._nodes.node_info(name)
            if suspect is None or suspect.node is None:
                self._suspects.discard(name)
            elif self._exceeds_for_sure(suspect):
                found.append(name)
        return found

    def _exceeds_for_sure(self, info: NodeInfo) -> bool:
        bound = [pod for pod in info.pods if not self._nodes.is_assumed(pod.uid)]
        return exceeds(info.node_offers, totals(bound), len(bound))


def exceeds(offered: Mapping[str, int], requested: Mapping[str, int], pod_count: int) -> bool:
    """Return True if more is requested than offered. Amounts in scheduling units."""
    if pod_count > offered.get(PODS, pod_count):
        return True
    # A loop: asked about every pod, and a generator costs a call for each resource.
    for name, amount in requested.items():  # noqa: SIM110
        if amount > offered.get(name, amount):
            return True
    return False


def totals(pods: Iterable[Pod]) -> dict[str, int]:
    """Return the sum of the pods' requests."""
    found: dict[str, int] = {}
    for pod in pods:
        for name, amount in pod.requests.items():
            found[name] = found.get(name, 0) + amount
    return found


def lacking(info: NodeInfo, pod: Pod, counts: Callable[[Pod], bool], *, ports: bool) -> tuple[str, ...]:
    """Return what is too little on the node for `pod`, which is on it, beside the other pods that count.

    In the words of NodeResourcesFit. `ports`: also look for another pod with one of its host ports.
    """
    others = [other for other in info.pods if other.uid != pod.uid and counts(other)]
    offered = info.node_offers
    found = [TOO_MANY_PODS] if len(others) + 1 > offered.get(PODS, len(others) + 1) else []
    taken = totals(others)
    for name, amount in pod.requests.items():
        if amount and taken.get(name, 0) + amount > offered.get(name, taken.get(name, 0) + amount):
            found.append(f"Insufficient {name}")
    if ports and pod.host_ports:
        used = UsedPorts(port for other in others for port in other.host_ports)
        if used.conflict_with(pod.host_ports):
            found.append(PORTS_TAKEN)
    return tuple(found)
