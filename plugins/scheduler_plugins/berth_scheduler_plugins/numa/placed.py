"""The pods on a node that its topology does not count yet, and the zones without what they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from berth_sdk.pod import Pod

from berth_scheduler_plugins.load.pod_amounts import read_spec
from berth_scheduler_plugins.numa.asks import Kind, PodAsks, read_asks
from berth_scheduler_plugins.numa.fingerprint import PREFIX, fingerprint
from berth_scheduler_plugins.numa.topology import POD, SINGLE_NUMA_NODE, Topology

_MOST_TRIED = 64
"""The number of latest pods that may be missing in a fingerprint."""


def asks_of(pod: Pod) -> PodAsks:
    """Return what a pod needs of zones."""
    return read_spec(pod, read_asks)


def counts_all(topology: Topology, pods: Sequence[Pod]) -> bool:
    """Return True if the topology's fingerprint is that of these pods."""
    return topology.fingerprint.startswith(PREFIX) and topology.fingerprint == fingerprint(
        (pod.namespace, pod.name) for pod in pods if _is_counted(topology, pod)
    )


def uncounted(topology: Topology, pods: Sequence[Pod], seen_s: float) -> list[Pod]:
    """Return the pods of a node that the topology does not count, the oldest first.

    By the fingerprint, if it is that of all pods but the latest ones. Else the pods that started after
    `seen_s`, when the topology was first seen, and those that did not start.
    """
    by_age = sorted(pods, key=lambda pod: (pod.started_at_s is None, pod.started_at_s or 0.0, pod.key))
    if topology.fingerprint:
        for count in range(min(len(by_age), _MOST_TRIED) + 1):
            if counts_all(topology, by_age[: len(by_age) - count]):
                return by_age[len(by_age) - count :]
    return [pod for pod in by_age if pod.started_at_s is None or pod.started_at_s > seen_s]


def take_aligned(asks: PodAsks, topology: Topology, free: Sequence[dict[str, int]]) -> None:
    """Take what a pod uses off the zones, as the kubelet gives zones to its containers.

    A container that fits into no zone, or whose kubelet needs no single zone, takes from the lowest zones on.
    """
    containers = [(Kind.MAIN, asks.together)] if topology.scope == POD else list(asks.containers)
    for kind, requests in containers:
        if kind is Kind.INIT:
            continue
        bound = {name: amount for name, amount in requests.items() if amount > 0 and asks.binds(name)}
        if topology.policy == SINGLE_NUMA_NODE:
            fitting = [zone for zone in free if _has_room(zone, bound, free)]
            _take(bound, fitting[:1] or free)
        else:
            _take(bound, free)


def take_everywhere(asks: PodAsks, free: Sequence[dict[str, int]]) -> None:
    """Take what a pod uses off every zone, as its zone is not known."""
    for name, amount in asks.together.items():
        if asks.binds(name):
            for zone in free:
                if name in zone:
                    zone[name] = max(zone[name] - amount, 0)


def is_exclusive(asks: PodAsks) -> bool:
    """Return True for a pod that has cores or devices for itself."""
    cores = [requests.get("cpu", 0) for _, requests in asks.containers]
    has_cores = asks.guaranteed and any(amount and amount % 1000 == 0 for amount in cores)
    return has_cores or any("/" in name and amount > 0 for name, amount in asks.together.items())


def _is_counted(topology: Topology, pod: Pod) -> bool:
    return not topology.only_exclusive or is_exclusive(asks_of(pod))


def _has_room(zone: Mapping[str, int], asked: Mapping[str, int], free: Sequence[Mapping[str, int]]) -> bool:
    return all(
        zone.get(name, 0) >= amount for name, amount in asked.items() if any(name in other for other in free)
    )


def _take(asked: Mapping[str, int], zones: Sequence[dict[str, int]]) -> None:
    for name, amount in asked.items():
        left = amount
        for zone in zones:
            taken = min(zone.get(name, 0), left)
            if taken:
                zone[name] -= taken
                left -= taken
