"""`Units`: the pods that preemption evicts together or not at all, as columns. Read by both evaluators.

A unit is one pod, or all pods on nodes of a group whose disruption mode is `all`. In a tree of groups the
highest such group counts. Before 1.38 a pod of a group has the priority of the root of its tree, whatever its
own is, and counts as a group; a PodGroup of coscheduling has no priority: its pods keep their own. Since 1.38
pods keep their priorities, a single pod counts as a pod, and the uid decides between equal units.
Source: kube-scheduler `framework/preemption/types.go` (getCrossNodesVictims) and `util.go` (GetPodPriority,
MoreImportantVictim), v1.37; `victims.go`, `types.go` and `util.go`, v1.38.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup
from berth_sdk.tables import PodTable
from numpy.typing import NDArray

_COLUMN: Final = "berth/podGroup"
_POD, _GROUP, _COMPOSITE = 1, 2, 3
"""The ranks of units with equal priority. Before 1.38 a single pod of a group has the rank of a group."""
RANK_NAMES: Final = {_POD: "pod", _GROUP: "podgroup", _COMPOSITE: "compositepodgroup"}
"""The types of entity of the ranks, in metrics."""


class GroupObjects(Protocol):
    """The group objects of a snapshot (`cache.pod_groups`)."""

    judges_trees: bool
    """`HostRules.judges_group_trees`."""

    def known_path(self, key: str) -> Iterator[PodGroup]:
        """Yield a group and its ancestors, up to the first one that does not exist."""
        ...

    def eviction_priority(self, pod: Pod) -> int:
        """Return the priority that decides who may preempt the pod."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """u units of the n pods of a table, as of one version of the table.

    `of_pod` (intp[n]): the unit of each row of `table`. `priority` (int64[u]) decides who may preempt the
    unit. `rank`, `size` (int64[u]) and `started_s` (float64[u]; inf: not started) decide who leaves first,
    then `place` (int64[u]): 0 for all, or the place of the uid of the unit's first pod. The rows of unit i
    are `rows[starts[i]:starts[i + 1]]`, ascending.
    """

    table: PodTable
    of_pod: NDArray[np.intp]
    priority: NDArray[np.int64]
    rank: NDArray[np.int64]
    size: NDArray[np.int64]
    started_s: NDArray[np.float64]
    place: NDArray[np.int64]
    rows: NDArray[np.intp]
    starts: NDArray[np.intp]

    def by_importance(self, units: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return `units` with the most important one first, equally important ones in their given order."""
        return units[np.lexsort(self.importance(units))]

    def importance(self, units: NDArray[np.intp]) -> tuple[NDArray[np.float64], ...]:
        """Return sort keys of `units` for `np.lexsort`, the last one first: the most important unit sorts
        first.
        """
        return (
            self.place.take(units).astype(np.float64),
            self.started_s.take(units),
            -self.size.take(units).astype(np.float64),
            -self.rank.take(units).astype(np.float64),
            -self.priority.take(units).astype(np.float64),
        )

    def pods_of(self, units: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the rows of the pods of `units`, unit after unit, and where each unit begins
        (intp[k + 1]).
        """
        counts = self.size.take(units)
        ends = np.zeros(len(units) + 1, dtype=np.intp)
        counts.cumsum(out=ends[1:])
        at = (self.starts.take(units) - ends[:-1]).repeat(counts)
        at += np.arange(len(at))
        return self.rows.take(at), ends

    def is_group(self, units: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return bool[k]: the units that are a group or one pod of a group."""
        found: NDArray[np.bool_] = self.rank.take(units) > _POD
        return found


def has_groups(pods: PodTable) -> bool:
    """Return True if some pod of the table belongs, or belonged, to a group."""
    return len(pods.readings(_COLUMN, _group_key)) > 1


def units_of(pods: PodTable, groups: GroupObjects) -> Units:
    """Return the units of all pods of a table."""
    codes, keys = pods.encoded(_COLUMN, _group_key)
    found = _Groups(keys.values, np.unique(codes).tolist(), groups)
    whole = found.whole.take(codes)
    is_alone = whole == 0
    alone = int(np.count_nonzero(is_alone))
    # Single pods first, in the order of the rows, then the groups that are evicted as a whole.
    of_pod = np.empty(len(pods), dtype=np.intp)
    of_pod[is_alone] = np.arange(alone)
    present, together = np.unique(whole[~is_alone], return_inverse=True)
    of_pod[~is_alone] = together + alone
    count = alone + len(present)
    grouped = codes[is_alone]
    rows = np.argsort(of_pod, kind="stable")
    size = np.bincount(of_pod, minlength=count).astype(np.int64)
    starts = np.zeros(count + 1, dtype=np.intp)
    size.cumsum(out=starts[1:])
    priority = np.empty(count, dtype=np.int64)
    rank = np.empty(count, dtype=np.int64)
    rank[alone:] = np.asarray(found.whole_rank, dtype=np.int64)[present]
    place = np.zeros(count, dtype=np.int64)
    if groups.judges_trees:
        first = rows[starts[:-1]]
        priority[:] = pods.priority.take(first)
        rank[:alone] = _POD
        uids = [pod.uid for pod in pods.several(first)]
        place[sorted(range(count), key=uids.__getitem__)] = np.arange(count)
    else:
        priority[:alone] = np.where(
            found.is_known.take(grouped), found.priority.take(grouped), pods.priority[is_alone]
        )
        priority[alone:] = np.asarray(found.whole_priority, dtype=np.int64)[present]
        rank[:alone] = np.where(grouped > 0, _GROUP, _POD)
    started = np.full(count, np.inf)
    np.minimum.at(started, of_pod, started_s(pods, np.arange(len(pods))))
    return Units(pods, of_pod, priority, rank, size, started, place, rows, starts)


def started_s(pods: PodTable, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return float64[v]: the start times of the pods in `rows` (Unix seconds), inf for pods not started."""
    start_s: NDArray[np.float64] = pods.start_time_s.take(rows)
    start_s[np.isnan(start_s)] = np.inf
    return start_s


class _Groups:
    """The groups of some codes. Arrays by code: `is_known`, `priority`, and `whole`: the number of the group
    that is evicted as a whole, 0 for none. By that number: `whole_priority`, `whole_rank`.
    """

    def __init__(self, keys: list[str | None], present: Iterable[int], groups: GroupObjects) -> None:
        self.is_known = np.zeros(len(keys), dtype=np.bool_)
        self.priority = np.zeros(len(keys), dtype=np.int64)
        self.whole = np.zeros(len(keys), dtype=np.intp)
        self.whole_priority = [0]
        self.whole_rank = [_POD]
        numbers: dict[str, int] = {}
        for code in present:
            path = list(groups.known_path(keys[code] or ""))
            if not path:
                continue
            self.is_known[code] = not path[-1].is_coscheduling
            self.priority[code] = path[-1].priority
            highest = next((group for group in reversed(path) if group.disrupts_all), None)
            if highest is None:
                continue
            number = numbers.get(highest.key)
            if number is None:
                number = numbers[highest.key] = len(self.whole_rank)
                self.whole_priority.append(path[-1].priority)
                self.whole_rank.append(_COMPOSITE if highest.is_composite else _GROUP)
            self.whole[code] = number


def _group_key(pod: Pod) -> str | None:
    return pod.group_key or None
