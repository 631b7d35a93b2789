"""Finds the nodes that lack the fewest resources for a pod that fits on no node.

Called by `berth why` and by a running host (`make_pod_answer`) with the nodes that only plugins rejected that
account for resources. Amounts are those of the cluster at that moment: cpu in milli, all else in base units.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from berth_sdk.node import Node
from berth_sdk.pod import Pod

from berth_host.config.checks.names import is_extended_resource_name
from berth_host.config.configuration import ResolvedProfile

_POWERS: Final = (("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10))
_BYTES: Final = ("memory", "ephemeral-storage", "storage")


@dataclass(frozen=True, slots=True)
class Shortage:
    """A shortage. `lacking`: resources and amounts, by name. `node_names`: the nodes with this shortage."""

    lacking: tuple[tuple[str, int], ...]
    node_names: tuple[str, ...]

    @property
    def text(self) -> str:
        """The shortage in words: `12 nodes lack 2 CPU and 1Gi memory`."""
        count = len(self.node_names)
        subject = f"node {self.node_names[0]} lacks" if count == 1 else f"{count} nodes lack"
        return f"{subject} {' and '.join(shown_amount(name, amount) for name, amount in self.lacking)}"


Lacking = tuple[tuple[str, int], ...]
Counts = Callable[[str], bool]
"""The test whether the profile counts a resource."""


def everything_counts(resource: str) -> bool:
    """Return True: a profile counts every resource unless the arguments of its plugins say otherwise."""
    return True


def counted_in(profile: ResolvedProfile | None) -> Counts:
    """Return the test for one profile, which may leave extended resources to others.

    None: an unknown profile, as for a pod of an earlier configuration.
    """
    names, groups = ((), ()) if profile is None else profile.ignored_resources
    if not (names or groups):
        return everything_counts

    def counts(resource: str) -> bool:
        ignored = resource in names or resource.partition("/")[0] in groups
        return not (ignored and is_extended_resource_name(resource))

    return counts


def shortages(
    pod: Pod, nodes: Iterable[Node], pods: Iterable[Pod], counts: Counts = everything_counts
) -> list[Shortage]:
    """Return the resources that `nodes` lack for `pod`, grouped, nearest first.

    `pods`: all pods; those with a node use its resources. `counts`: see `counted_in`.
    """
    used = requested_by_node(pods)
    return grouped(
        pod, ((node.name, lacking(pod, node, used.get(node.name, Counter()), counts)) for node in nodes)
    )


def grouped(pod: Pod, found: Iterable[tuple[str, Lacking]]) -> list[Shortage]:
    """Return nodes with equal shortages in groups, nearest first; nodes without a shortage are left out.

    The nearest group has the smallest sum of missing amounts, each as a share of the pod's request.
    """
    groups: dict[Lacking, list[str]] = {}
    for name, missing in found:
        if missing:
            groups.setdefault(missing, []).append(name)
    shortages = [Shortage(missing, tuple(names)) for missing, names in groups.items()]
    return sorted(shortages, key=lambda item: (_distance(pod, item), -len(item.node_names), item.lacking))


def requested_by_node(pods: Iterable[Pod]) -> dict[str, Counter[str]]:
    """Return the requests of the pods on each node, with the number of pods as `pods`."""
    used: dict[str, Counter[str]] = {}
    for pod in pods:
        if pod.node_name:
            total = used.setdefault(pod.node_name, Counter())
            total.update(pod.requests)
            total["pods"] += 1
    return used


def lacking(pod: Pod, node: Node, used: Mapping[str, int], counts: Counts = everything_counts) -> Lacking:
    """Return the resources that a node lacks for `pod`. `used`: its pods' requests and their number.

    `counts`: see `counted_in`.
    """
    wanted = {name: amount for name, amount in pod.requests.items() if amount > 0 and counts(name)}
    wanted["pods"] = 1
    missing = {
        name: amount - (node.allocatable.get(name, 0) - used.get(name, 0)) for name, amount in wanted.items()
    }
    return tuple(sorted((name, amount) for name, amount in missing.items() if amount > 0))


def _distance(pod: Pod, shortage: Shortage) -> float:
    return sum(amount / max(1, pod.requests.get(name, 1)) for name, amount in shortage.lacking)


def shown_amount(resource: str, amount: int) -> str:
    """Format an amount: `2 CPU`, `500m CPU`, `1536Mi memory`, `1 example.com/gpu`, `room for 1 pod`."""
    if resource == "pods":
        return f"room for {amount} pod{'s' if amount > 1 else ''}"
    if resource == "cpu":
        return f"{amount // 1000 if amount % 1000 == 0 else f'{amount}m'} CPU"
    if resource in _BYTES or resource.startswith("hugepages-"):
        return f"{shown_bytes(amount)} {resource}"
    return f"{amount} {resource}"


def shown_bytes(amount: int) -> str:
    """Format bytes with the largest binary suffix that gives a whole number; large ones with a decimal."""
    for suffix, power in _POWERS:
        if amount >= 1 << power:
            if amount % (1 << power) == 0:
                return f"{amount >> power}{suffix}"
            if amount >= 100 << power:
                return f"{amount / (1 << power):.1f}{suffix}"
    return str(amount)


def totals(nodes: Sequence[Node], pods: Iterable[Pod]) -> Mapping[str, tuple[int, int]]:
    """Return (requested, allocatable) of all nodes together, by resource."""
    offered: Counter[str] = Counter()
    for node in nodes:
        offered.update(node.allocatable)
    taken: Counter[str] = Counter()
    for used in requested_by_node(pods).values():
        taken.update(used)
    return {name: (taken[name], amount) for name, amount in sorted(offered.items())}
