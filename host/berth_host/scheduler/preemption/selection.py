"""Which of the candidate nodes loses least. Called by the evaluator.

Source: kube-scheduler `framework/preemption/preemption.go` (pickOneNodeForPreemption, DryRunPreemption),
v1.36.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from berth_host.scheduler.preemption.victims import PotentialVictims

_PRIORITY_OFFSET: Final = 2**31
"""Makes every priority positive, so that one victim more always adds to the sum."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """k candidate nodes: `places` (intp[k]) in the dry run's candidates, ascending. Victims of node i are
    those from `starts[i]` to `starts[i + 1]` in `rows` (intp, rows of the pod table), most important first.
    """

    places: NDArray[np.intp]
    rows: NDArray[np.intp]
    starts: NDArray[np.intp]
    violations: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.places)

    def take(self, kept: NDArray[np.intp]) -> Candidates:
        """Some of them, in the order given."""
        counts = np.diff(self.starts)[kept]
        starts = np.concatenate([[0], np.cumsum(counts)])
        at = np.repeat(self.starts[kept] - starts[:-1], counts) + np.arange(starts[-1])
        return Candidates(self.places[kept], self.rows[at], starts, self.violations[kept])


def candidates_of(
    potential: PotentialVictims, alive: NDArray[np.intp], away: NDArray[np.bool_]
) -> Candidates:
    """What the dry run found."""
    owner = np.repeat(np.arange(len(potential.counts)), potential.counts)
    works = np.zeros(len(potential.counts), dtype=np.bool_)
    works[alive] = True
    chosen = np.flatnonzero(away & works[owner])
    # Put back in the order of the budgets, they are listed by importance alone.
    chosen = chosen[np.lexsort((potential.importance[chosen], owner[chosen]))]
    owners = owner[chosen]
    violations = np.bincount(owners, weights=potential.breaks_budget[chosen], minlength=len(works))
    bounds = owners.searchsorted(np.append(alive, len(works)))
    return Candidates(alive, potential.rows[chosen], bounds, violations[alive].astype(np.int64))


def searched(candidates: Candidates, offset: int, count: int, wanted: int) -> tuple[NDArray[np.intp], bool]:
    """(the candidates that a search from the `offset`-th of `count` nodes finds before it has enough, whether
    it had enough): `wanted` of them, one that breaks no budget included; those that break none come first.
    """
    if not len(candidates):
        return np.zeros(0, dtype=np.intp), False
    turned = np.argsort((candidates.places - offset) % count, kind="stable")
    harmless = candidates.violations[turned] == 0
    enough = (np.cumsum(harmless) > 0) & (np.arange(1, len(turned) + 1) >= wanted)
    ended = bool(enough.any())
    end = int(np.argmax(enough)) + 1 if ended else len(turned)
    found, harmless = turned[:end], harmless[:end]
    return np.concatenate([found[harmless][:wanted], found[~harmless][:wanted]]), ended


def best(candidates: Candidates, potential: PotentialVictims) -> NDArray[np.intp]:
    """The equally good ones: fewest broken budgets, lowest highest priority, lowest sum of priorities,
    fewest victims, latest start of the earliest started victim among those of the highest priority.
    """
    table, starts = potential.table, candidates.starts[:-1]
    priority = table.priority.take(candidates.rows)
    highest = priority[starts]
    started_s = np.nan_to_num(table.start_time_s.take(candidates.rows), nan=np.inf)
    counts = np.diff(candidates.starts)
    counted = np.where(priority == np.repeat(highest, counts), started_s, np.inf)
    left = np.arange(len(candidates))
    for criterion in (
        candidates.violations,
        highest,
        np.add.reduceat(priority + _PRIORITY_OFFSET, starts),
        counts,
        -np.minimum.reduceat(counted, starts),
    ):
        values = criterion[left]
        left = left[values == values.min()]
        if len(left) == 1:
            break
    return left
