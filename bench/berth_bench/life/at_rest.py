"""The laws of a host at rest: no pod waits for room that is there, and an empty cluster leaves no entries.

Raises `laws.LawBrokenError`, as the laws of each step do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from berth_host.app import Host
from berth_host.queue.places import Place
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.quantity import milli_value
from berth_sim.cluster.server import ApiServer

from berth_bench.life.guard import forbids
from berth_bench.life.laws import LawBrokenError, agree
from berth_bench.life.plugins import KEEPER, Ledger
from berth_bench.life.steady import LIMITING, Steady


def check_nobody_waits_for_room_that_is_there(host: Host, server: ApiServer) -> None:
    """Raise LawBrokenError if a pod is unschedulable, although an open node has room for it.

    Only pods that may run on any node are judged, and only those that the keeper did not reject: nothing
    tells the host when the keeper would decide otherwise. Nominated pods take the room of their nodes.
    """
    room = _room(host, server)
    waiting = []
    for item in server.list("pods"):
        if item.get("spec.nodeName") or any(map(item.get, LIMITING)):
            continue
        if item.get("status.nominatedNodeName"):
            continue
        pod = Pod.from_object(item)
        held = host.queue.find(pod)
        if held is None or held.place is not Place.POOL or KEEPER in held.info.unschedulable_plugins:
            continue
        needed = pod.requests.get("cpu", 0)
        if fits := sorted(name for name, free in room.items() if free >= needed):
            waiting.append(f"{pod.key} ({needed}m, {fits[0]} has {room[fits[0]]}m)")
    agree("pods are unschedulable although there is room", waiting)


def check_nobody_waits_for_steady_room(host: Host, steady: Steady, room: Mapping[str, int]) -> None:
    """Raise LawBrokenError if a pod is unschedulable, although a steady node has had room for it for a while.

    For a life without faults. `room`: the free CPU of each open node, in thousandths, as the API server has
    it. Pods that may not run on every node, that the keeper rejected, or that are nominated are not judged.
    """
    steady.look()
    free = {name: amount for name, amount in room.items() if steady.is_steady(name)}
    most = max(free.values(), default=0)
    nominated = {pod.uid for pods in host.queue.nominated_pods().values() for pod in pods}
    waiting = []
    for pod in [info.pod for info in host.queue.pods()]:
        one = steady.plain(pod.uid)
        if one is None or one.milli_cpu > most or pod.uid in nominated:
            continue
        held = host.queue.find(pod)
        if held is not None and held.place is Place.POOL and KEEPER not in held.info.unschedulable_plugins:
            name = min(name for name, amount in free.items() if amount >= one.milli_cpu)
            waiting.append(f"{one.key} ({one.milli_cpu}m, {name} has {free[name]}m)")
    if waiting:
        raise LawBrokenError(f"pods stay unschedulable although there is room: {', '.join(sorted(waiting))}")


def check_conditions(host: Host, server: ApiServer) -> None:
    """Raise LawBrokenError if an unschedulable pod has no condition that says so; for a life without faults.

    Members of groups are not judged: their group is tried, and not each of them.
    """
    without = []
    for pod in [info.pod for info in host.queue.pods()]:
        held = host.queue.find(pod)
        if held is None or held.place is not Place.POOL or not held.info.attempts or pod.group_key:
            continue
        found = server.get("pods", pod.ref)
        conditions = (found.get("status.conditions") or ()) if found is not None else ()
        if not any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions):
            without.append(pod.key)
    agree("pods are unschedulable without a condition that says so", without)


def _room(host: Host, server: ApiServer) -> dict[str, int]:
    """Return the free CPU of each open node, in thousandths."""
    taken: Counter[str] = Counter()
    for item in server.list("pods"):
        node = item.get("spec.nodeName") or item.get("status.nominatedNodeName")
        if node and item.get("status.phase") not in ("Succeeded", "Failed"):
            taken[node] += Pod.from_object(item).requests.get("cpu", 0)
    for info in host.cache.node_infos():
        assumed = sum(pod.requests.get("cpu", 0) for pod in info.pods if host.cache.is_assumed(pod.uid))
        taken[info.name] += assumed
    return {
        node.ref.name: _offered(node) - taken[node.ref.name]
        for node in server.list("nodes")
        if not (node.get("spec.taints") or node.get("spec.unschedulable") or forbids(node.ref.name))
    }


def _offered(node: KubeObject) -> int:
    return milli_value(str(node.get("status.allocatable.cpu")))


def check_totals(host: Host) -> None:
    """Raise LawBrokenError if the cache counts other requests on a node than those of its pods."""
    wrong = []
    for info in host.cache.node_infos():
        total: Counter[str] = Counter()
        for pod in info.pods:
            total.update(pod.requests)
        if {name: amount for name, amount in info.requested.items() if amount} != dict(+total):
            wrong.append(
                f"{info.name} ({dict(sorted(info.requested.items()))}, {dict(sorted(total.items()))})"
            )
    agree("the cache counts other requests than those of the pods", wrong)


def check_emptied(host: Host, ledger: Ledger) -> None:
    """Raise LawBrokenError if a table of the host has entries, after every object has been deleted."""
    queue, cache = host.queue, host.cache
    left: dict[str, Any] = {
        "pods in the queue": [pod.key for pod in queue.pods()],
        "pods in flight": [pod.key for pod in queue.in_flight],
        "kept events": sorted(queue.in_flight.labels()),
        "nominations": sorted(queue.nominated_pods()),
        "nodes in the cache": [info.name for info in cache.node_infos()],
        "groups in the cache": sorted(cache.groups.group_keys()),
        "pods in the object stores": [pod.key for pod in host.objects.pods()],
        "preemptions": ["preemption"] * len(host.preempting) + sorted(host.preempting.waited_for_by),
        "evictions": ["eviction"] * len(host.evictions),
        "binding cycles": ["binding cycle"] * len(host.binding),
        "bindings without an outcome": [pod.key for pod in host.binding.undecided],
        "writes of statuses": ["write"] * host.status.pending_count,
        "pods that the keeper holds": [*ledger.held.values(), *ledger.waiting.values(), *ledger.permitted],
    }
    agree(
        "after everything was deleted, there are left",
        [f"{what}: {found}" for what, found in left.items() if found],
    )
