"""percentageOfNodesToScore: the number of feasible nodes that ends a search, and the start of the search.

Used only where a configuration sets 1..99; berth evaluates every node otherwise.
Source: kube-scheduler `schedule_one.go` (numFeasibleNodesToFind, findNodesThatPassFilters), v1.36.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from berth_host.framework.filtering import Rows
from berth_host.model.node_statuses import NodeStatuses

MIN_FEASIBLE_NODES: Final = 100


def wanted_count(node_count: int, percentage: int) -> int:
    """Return the number of feasible nodes that ends the search among `node_count` nodes."""
    if node_count < MIN_FEASIBLE_NODES:
        return node_count
    return max(node_count * percentage // 100, MIN_FEASIBLE_NODES)


def rotated(rows: Rows, start: int) -> Rows:
    """Return `rows` in visiting order, from position `start` on."""
    return np.roll(rows, -(start % len(rows))) if len(rows) else rows


def cut(statuses: NodeStatuses, visited_order: Rows, passed: Rows, wanted: int) -> tuple[Rows, int]:
    """Cut the result of Filter down to a search that stops after `wanted` feasible nodes.

    Returns the feasible rows in visiting order, and the number of visited rows (feasible and rejected). The
    verdicts of later rows are removed from `statuses`.
    """
    is_passed = np.zeros(len(statuses.table), dtype=np.bool_)
    is_passed[passed] = True
    hits = np.flatnonzero(is_passed[visited_order])
    if len(hits) <= wanted:
        return visited_order[hits], len(visited_order)
    last = int(hits[wanted - 1])
    statuses.forget(visited_order[last + 1 :])
    return visited_order[hits[:wanted]], last + 1
