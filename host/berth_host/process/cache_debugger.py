"""The state of a running host as log lines: the nodes of the cache, the queue, and the differences from the
watches.

The process writes them at SIGUSR2, in kube-scheduler's words (key `message`). The lines have names, uids and
amounts, but no annotation, environment or argument, as these may contain secrets.
Source: kube-scheduler `backend/cache/debugger` (dumper.go, comparer.go), v1.36.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from berth_sdk.pod import Pod

from berth_host.app.host import Host
from berth_host.cache.node_info import NodeInfo
from berth_host.log import get_logger
from berth_host.queue.queued_pod import pods_of

log = get_logger()
_NODES_PER_TURN: Final = 20
"""Lines to write before other tasks of the loop run, so that a dump does not block the scheduling cycle."""


async def dump(host: Host) -> None:
    """Compare, then write the nodes and the queue. The state of a node is that of the moment of its line."""
    compare(host)
    for count, info in enumerate(list(host.cache.node_infos()), 1):
        log.info("cache.node_dumped", message="Dump of cached NodeInfo", **_node(host, info))
        if count % _NODES_PER_TURN == 0:
            await asyncio.sleep(0)
    places, in_flight = host.queue.places, host.queue.in_flight
    log.info(
        "queue.dumped",
        message="Dump of scheduling queue",
        summary=f"activeQ:{len(places.active)}; backoffQ:{len(places.backoff)}; "
        f"unschedulablePods:{len(places.pool)}",
        active=_pods(info.pod for info in pods_of(places.active)),
        backoff=_pods(info.pod for info in pods_of((*places.backoff.rejected(), *places.backoff.failed()))),
        unschedulable=_pods(info.pod for info in pods_of(places.pool)),
        in_flight=_pods(info.pod for info in in_flight),
        assumed=_pods(pod for uid in sorted(host.cache.assumed_uids) if (pod := host.cache.get_pod(uid))),
    )


def compare(host: Host) -> None:
    """Write the nodes and pods that the watches show and the cache lacks (missed), and the reverse
    (redundant).

    Pods in the queue or in flight count as cached. Pods without a node that belong to other schedulers or are
    terminating are not compared, as neither cache nor queue keeps them.
    """
    log.info("cache.compared", message="Cache comparer started")
    shown_nodes = {node.name for node in host.objects.nodes()}
    cached_nodes = {info.name for info in host.cache.node_infos() if info.node is not None}
    if shown_nodes != cached_nodes:
        log.warning(
            "cache.mismatched",
            message="Cache mismatch",
            missed_nodes=sorted(shown_nodes - cached_nodes),
            redundant_nodes=sorted(cached_nodes - shown_nodes),
        )
    shown_pods = {pod.uid: pod.key for pod in host.objects.pods() if _is_known_here(host, pod)}
    cached_pods = {pod.uid: pod.key for info in host.cache.node_infos() for pod in info.pods}
    cached_pods |= {info.uid: info.key for info in (*host.queue.pods(), *host.queue.in_flight)}
    missed = sorted(key for uid, key in shown_pods.items() if uid not in cached_pods)
    redundant = sorted(key for uid, key in cached_pods.items() if uid not in shown_pods)
    if missed or redundant:
        log.warning(
            "cache.mismatched", message="Cache mismatch", missed_pods=missed, redundant_pods=redundant
        )
    log.info("cache.compared", message="Cache comparer finished")


def _is_known_here(host: Host, pod: Pod) -> bool:
    is_waiting = pod.scheduler_name in host.scheduler.profiles and not pod.terminating
    return bool(pod.node_name) or is_waiting


def _node(host: Host, info: NodeInfo) -> dict[str, Any]:
    return {
        "node": info.name,
        "deleted": info.node is None,
        "requested": dict(info.requested),
        "allocatable": {} if info.node is None else dict(info.node.allocatable),
        "scheduled_pods": _pods(info.pods),
        "nominated_pods": _pods(host.queue.nominator.on_node(info.name)),
    }


def _pods(pods: Iterable[Pod]) -> list[str]:
    return [
        f"name: {pod.name}, namespace: {pod.namespace}, uid: {pod.uid}, nominated node: {pod.nominated_node}"
        for pod in pods
    ]
