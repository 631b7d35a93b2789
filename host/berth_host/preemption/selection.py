"""Picks the candidate node with the least costly victims. Called by the evaluator.

Source: kube-scheduler `framework/preemption/preemption.go` (pickOneNodeForPreemption, DryRunPreemption),
v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from berth_sdk.pod import Pod
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.extenders.extenders import Victims
from berth_host.preemption.units import started_s
from berth_host.preemption.victims import PotentialVictims

_PRIORITY_OFFSET: Final = 2**31
"""Makes every priority positive, so that each victim adds to the sum."""

CRITERIA: Final[Mapping[str, type]] = {
    "violations": np.int64,
    "highest": np.int64,
    "total": np.int64,
    "counts": np.int64,
    "earliest_s": np.float64,
}
"""The criteria by which candidates are compared, in this order."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """k candidate nodes by their `places` (intp[k], ascending). Victims of node i are in `pods` from
    `starts[i]` on, `counts[i]` of them, most important first. Costs (int64[k], float64[k]): broken budgets,
    highest priority, sum of priorities, number of victims, start of the earliest of the highest priority.
    """

    places: NDArray[np.intp]
    pods: Sequence[Pod]
    starts: NDArray[np.intp]
    violations: NDArray[np.int64]
    highest: NDArray[np.int64]
    total: NDArray[np.int64]
    counts: NDArray[np.int64]
    earliest_s: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.places)

    def victims(self, i: int) -> Sequence[Pod]:
        """Return the pods that must leave node i."""
        start = self.starts.item(i)
        return self.pods[start : start + self.counts.item(i)]

    def take(self, kept: NDArray[np.intp]) -> Candidates:
        """Return the candidates at the positions `kept`, in that order."""
        costs: dict[str, NDArray[Any]] = {name: getattr(self, name).take(kept) for name in CRITERIA}
        return Candidates(self.places.take(kept), self.pods, self.starts.take(kept), **costs)


def candidates_of(
    potential: PotentialVictims, works: NDArray[np.intp], away: NDArray[np.bool_]
) -> Candidates:
    """Return the candidates of a dry run: the places `works`, each with at least one victim in `away`."""
    if not len(works):
        return nobody()
    owner = np.repeat(np.arange(len(potential.counts)), potential.counts)
    is_candidate = np.zeros(len(potential.counts), dtype=np.bool_)
    is_candidate[works] = True
    chosen = np.flatnonzero(away & is_candidate[owner])
    if len(chosen) > 1:
        # The dry run puts units back in the order of the budgets; victims are listed by importance.
        chosen = chosen[np.lexsort((potential.importance[chosen], owner[chosen]))]
    violations = np.bincount(owner[chosen], weights=potential.violations[chosen], minlength=len(is_candidate))
    table = potential.table
    rows, sizes = potential.all_pods(chosen)
    owners = owner[chosen].repeat(sizes)
    starts = owners.searchsorted(works)
    counts = owners.searchsorted(works, side="right") - starts
    priority = table.priority.take(rows)
    # As in kube-scheduler, the first victim counts as the one of the highest priority, but all of the highest
    # priority count for the start. The two differ for pods of groups, which leave in the order of the groups.
    highest = priority[starts]
    of_highest = priority == np.repeat(np.maximum.reduceat(priority, starts), counts)
    counted = np.where(of_highest, started_s(table, rows), np.inf)
    return Candidates(
        works,
        table.several(rows),
        starts,
        violations[works].astype(np.int64),
        highest,
        np.add.reduceat(priority + _PRIORITY_OFFSET, starts),
        counts,
        np.minimum.reduceat(counted, starts),
    )


def named(nodes: NodeTable, victims: Victims) -> tuple[NDArray[np.intp], Candidates]:
    """Return candidates by the names of their nodes: rows of `nodes`, and the candidates, whose places are
    positions in these rows. `victims`: at least one pod for each node, in the given order.

    As in kube-scheduler, the first victim counts as the one of the highest priority.
    """
    by_row = sorted((row, name) for name in victims if (row := nodes.position(name)) is not None)
    pods = [pod for _, name in by_row for pod in victims[name][0]]
    counts = np.asarray([len(victims[name][0]) for _, name in by_row], dtype=np.int64)
    ends = counts.cumsum()
    starts = (ends - counts).astype(np.intp)
    priority = np.asarray([pod.priority for pod in pods], dtype=np.int64)
    started = np.asarray([np.inf if pod.started_at_s is None else pod.started_at_s for pod in pods])
    of_highest = priority == np.repeat(np.maximum.reduceat(priority, starts), counts)
    candidates = Candidates(
        np.arange(len(by_row), dtype=np.intp),
        pods,
        starts,
        np.asarray([victims[name][1] for _, name in by_row], dtype=np.int64),
        priority[starts],
        np.add.reduceat(priority + _PRIORITY_OFFSET, starts),
        counts,
        np.minimum.reduceat(np.where(of_highest, started, np.inf), starts),
    )
    return np.asarray([row for row, _ in by_row], dtype=np.intp), candidates


def nobody() -> Candidates:
    """Return no candidates."""
    costs: dict[str, NDArray[Any]] = {name: np.zeros(0, dtype=kind) for name, kind in CRITERIA.items()}
    none = np.zeros(0, dtype=np.intp)
    return Candidates(none, (), none, **costs)


def searched(candidates: Candidates, offset: int, count: int, wanted: int) -> tuple[NDArray[np.intp], bool]:
    """Return the candidates that a search from the `offset`-th of `count` nodes finds, and whether it ended.

    The search ends after `wanted` candidates, at least one of which breaks no budget. Candidates that break
    no budget come first.
    """
    if not len(candidates):
        return np.zeros(0, dtype=np.intp), False
    # The places ascend: the first candidate is at or behind the offset, and the order goes round.
    first = int(candidates.places.searchsorted(offset % count))
    turned = np.concatenate([np.arange(first, len(candidates)), np.arange(first)])
    harmless = candidates.violations[turned] == 0
    end = max(wanted, int(harmless.argmax()) + 1)
    ended = end <= len(turned) and bool(harmless.any())
    if not ended:
        end = len(turned)
    found, harmless = turned[:end], harmless[:end]
    return np.concatenate([found[harmless][:wanted], found[~harmless][:wanted]]), ended


def searched_with_empty(
    candidates: Candidates, empty: NDArray[np.intp], offset: int, count: int, wanted: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the candidates, and of the places `empty` those, that a search as `searched` makes finds. A node
    without victims counts as a candidate that breaks no budget.
    """
    places = np.concatenate([candidates.places, empty])
    order = np.argsort(places)
    violations = np.concatenate([candidates.violations, np.zeros(len(empty), dtype=np.int64)])
    none = nobody()
    together = replace(none, places=places[order], violations=violations[order])
    kept = order[searched(together, offset, count, wanted)[0]]
    return kept[kept < len(candidates)], empty[kept[kept >= len(candidates)] - len(candidates)]


def best(candidates: Candidates) -> NDArray[np.intp]:
    """Return the equally good candidates: fewest broken budgets, lowest highest priority, lowest sum of
    priorities, fewest victims, latest start of the earliest started victim among the victims of the highest
    priority.
    """
    left = np.arange(len(candidates))
    for criterion in (
        candidates.violations,
        candidates.highest,
        candidates.total,
        candidates.counts,
        -candidates.earliest_s,
    ):
        values = criterion[left]
        left = left[values == values.min()]
        if len(left) == 1:
            break
    return left
