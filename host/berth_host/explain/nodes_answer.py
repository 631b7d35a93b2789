"""The nodes of a running host as a table of columns, and what the last attempt of one pod found on each.

Read by `GET /berth/v1/nodes` and the page. Rows are lists, as 5000 objects with the same keys would be three
times as large.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from berth_sdk.node import Node
from berth_sdk.rfc3339 import format_micro_time

from berth_host.cache.node_info import NodeInfo
from berth_host.explain.diagnosis import NO_REASON, Diagnosis, Outcome
from berth_host.explain.pod_state import AnsweringHost

COLUMNS: Final = ("node", "zone", "unschedulable", "taints", "allocatable", "requested")
POD_COLUMNS: Final = ("verdict", "plugin", "reason", "score")
_ZONE: Final = "topology.kubernetes.io/zone"
_FIRST: Final = ("cpu", "memory", "ephemeral-storage", "pods")
_NODES_PER_TURN: Final = 500
"""Nodes to list before other tasks of the loop run."""
_UNKNOWN: Final = ("notKept", "", "", None)


async def nodes_answer(host: AnsweringHost, pod: str = "") -> dict[str, Any] | None:
    """Return all nodes; None if `pod` is unknown here.

    `pod`: `namespace/name` of the pod whose last attempt adds POD_COLUMNS to each row; "": none.
    """
    latest = None
    if pod:
        known = host.objects.pod(pod)
        latest = host.diagnoses.find(pod) if known is None else host.diagnoses.get(known.uid)
        if known is None and latest is None:
            return None
    found = {} if latest is None else dict(_verdicts(latest))
    nodes = list(host.objects.nodes())
    resources = _resources(nodes)
    rows = []
    for count, node in enumerate(nodes, 1):
        if not count % _NODES_PER_TURN:
            await asyncio.sleep(0)
        row = _row(node, host.cache.node_info(node.name), resources)
        rows.append([*row, *found.get(node.name, _UNKNOWN)] if pod else row)
    return {
        "resources": resources,
        "columns": [*COLUMNS, *(POD_COLUMNS if pod else ())],
        "pod": None if not pod else _pod_json(pod, latest),
        "nodes": rows,
        "answeredAt": format_micro_time(host.clock.now_s()),
    }


def _resources(nodes: list[Node]) -> list[str]:
    """Return the resources that some node has: those of every node first, then the others by name."""
    known = {name for node in nodes for name in node.allocatable}
    return [*(name for name in _FIRST if name in known), *sorted(known.difference(_FIRST))]


def _row(node: Node, info: NodeInfo | None, resources: list[str]) -> list[Any]:
    used = {} if info is None else {**info.requested, "pods": len(info.pods)}
    return [
        node.name,
        node.labels.get(_ZONE, ""),
        node.unschedulable,
        len(node.taints),
        [node.allocatable.get(name) for name in resources],
        [used.get(name, 0) for name in resources],
    ]


def _pod_json(pod: str, latest: Diagnosis | None) -> dict[str, Any]:
    return {
        "pod": pod,
        "attempt": 0 if latest is None else latest.attempt,
        "node": None if latest is None else latest.node_name or None,
        "feasible": 0 if latest is None else latest.feasible_count,
        "scored": 0 if latest is None else len(latest.top_scores),
    }


def _verdicts(latest: Diagnosis) -> Iterator[tuple[str, tuple[str, str, str, int | None]]]:
    """Yield for each node that the record names: verdict, rejecting plugin, reasons, total score.

    The verdict is `rejected`, `fits`, or `chosen`.
    """
    names = latest.slot_names
    if names is not None:
        for item in latest.rejections:
            reason = ", ".join(item.status.reasons) or NO_REASON
            for name in names[item.slots()].tolist():
                yield name, ("rejected", item.status.plugin, reason, None)
    if latest.outcome in (Outcome.UNSCHEDULABLE, Outcome.ERROR):
        return
    scores = latest.top_scores
    if latest.node_name:
        # Any of the nodes with the highest total is chosen. The record has the first of them.
        yield latest.node_name, ("chosen", "", "", scores[0].total if scores else None)
    for score in scores:
        if score.node_name != latest.node_name:
            yield score.node_name, ("fits", "", "", score.total)
