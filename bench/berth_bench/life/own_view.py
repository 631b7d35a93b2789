"""`OwnView`: the laws of what a host knows at one moment: its queue must agree with its cache.

A host hears of a change late, so a law that compares the host with the API server has to wait. What the host
knows agrees at once: the change that makes room for a pod moves the pod in the same turn of the loop, or with
the answer to a question that is open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from berth_host.app import Host
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_sdk.pod import Pod

from berth_bench.life.guard import forbids
from berth_bench.life.plugins import KEEPER

_LIMITING: Final = (
    "spec.topologySpreadConstraints",
    "spec.affinity.nodeAffinity",
    "spec.affinity.podAffinity",
    "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution",
    "spec.schedulingGroup",
    "spec.resourceClaims",
    "spec.volumes",
)
"""The fields by which a pod needs more than room on a node that its selector matches."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The room that a pod waits for. `milli_cpu`: its request. `labels`: its node selector."""

    milli_cpu: int
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Room:
    """An open node, as the host knows it. `milli_cpu`: what is free."""

    name: str
    milli_cpu: int
    labels: Mapping[str, str]

    def fits(self, wanted: _Wanted) -> bool:
        return self.milli_cpu >= wanted.milli_cpu and wanted.labels.items() <= self.labels.items()


class OwnView:
    """The laws, checked between the callbacks of one host."""

    def __init__(self) -> None:
        self._looks = 1
        self._wanted: dict[str, _Wanted | None] = {}
        """By uid of each pod that is judged now; None for a pod that needs more than room."""
        self._waits_since: dict[tuple[str, int], int] = {}
        """By uid and attempts of each pod that is judged: the first look at which it was."""
        self._nominated: dict[str, int] = {}
        """By node: the last look at which a pod was nominated to it."""

    def broken(self, host: Host) -> str:
        """Return the law that does not hold at this moment, with its objects; "" if all hold."""
        if found := sorted(pod.key for pod in _queued_and_bound(host)):
            return f"pods are queued although the host knows their nodes: {', '.join(found)}"
        if found := sorted(self._waits_for_room(host)):
            return f"pods are unschedulable although the host knows of room: {', '.join(found)}"
        return ""

    def _waits_for_room(self, host: Host) -> Iterator[str]:
        """Yield the pods that wait for room on a node to which no pod was nominated meanwhile.

        The end of a nomination frees room when the API server tells of it, which the host may know before.
        Nothing is found while the queue awaits an answer of a plugin: it may move pods. A hint of a plugin in
        process is awaited, too, where the hints of one turn of the loop have taken long.
        """
        self._looks += 1
        self._nominated |= dict.fromkeys(host.queue.nominated_pods(), self._looks)
        before, self._waits_since = self._waits_since, {}
        is_open = bool(host.wiring.busy)
        room: Sequence[_Room] | None = None
        for info, wanted in self._judged(host):
            attempt = info.uid, info.attempts
            since = self._waits_since[attempt] = before.get(attempt, self._looks)
            if is_open:
                continue
            room = _rooms(host) if room is None else room
            for one in room:
                # The pod was tried between this look and the one before `since`.
                if one.fits(wanted) and self._nominated.get(one.name, 0) < since - 1:
                    yield f"{info.key} ({wanted.milli_cpu}m, {one.name} has {one.milli_cpu}m)"
                    break

    def _judged(self, host: Host) -> Iterator[tuple[QueuedPodInfo, _Wanted]]:
        """Yield the pods of the pool that wait for nothing but room.

        Nothing tells the host when the keeper would decide otherwise.
        """
        known, self._wanted = self._wanted, {}
        for info in host.queue.places.pool:
            if not isinstance(info, QueuedPodInfo) or info.is_gated or not info.is_rejected:
                continue
            uid = info.uid
            wanted = self._wanted[uid] = known[uid] if uid in known else _wanted(info.pod)
            if wanted is not None and KEEPER not in info.unschedulable_plugins:
                yield info, wanted


def _wanted(pod: Pod) -> _Wanted | None:
    if pod.object is None or any(map(pod.object.get, _LIMITING)):
        return None
    return _Wanted(pod.requests.get("cpu", 0), pod.node_selector)


def _rooms(host: Host) -> Sequence[_Room]:
    found = []
    for info in host.cache.node_infos():
        node = info.node
        if node is None or node.taints or node.unschedulable or forbids(node.name):
            continue
        free_milli = node.allocatable.get("cpu", 0) - info.requested.get("cpu", 0)
        found.append(_Room(node.name, free_milli, node.labels))
    return found


def _queued_and_bound(host: Host) -> Iterator[Pod]:
    cache = host.cache
    for info in host.queue.pods():
        if cache.get_pod(info.uid) is not None and not cache.is_assumed(info.uid):
            yield info.pod
