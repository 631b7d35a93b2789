"""The dry run's result per node, for pods of one kind, kept as long as it holds.

A preemptor equal to one before is tried again only on nodes of which something moved since: the node, a pod
on it, or the pods that are nominated to it and count. Filled and read by the evaluator, found by `sharing`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from berth_sdk.kept.status_codes import StatusCodes
from berth_sdk.pod import Pod
from berth_sdk.tables.read_only import extended
from numpy.typing import NDArray

from berth_host.model.node_statuses import NodeStatuses
from berth_host.scheduler.preemption.selection import CRITERIA, Candidates

SPARE_PODS: Final = 4096
_MAX_STATUSES: Final = 4096


class Outcomes:
    """By slot. `known` (bool): the other columns hold the current result; `_codes` (int32): 0 where victims
    make room, else why not; the criteria of `selection`; the victims from `_starts` on in `pods`, as many as
    there are.
    """

    def __init__(self, capacity: int) -> None:
        self.known: NDArray[np.bool_] = np.zeros(capacity, dtype=np.bool_)
        self._codes: NDArray[np.int32] = np.zeros(capacity, dtype=np.int32)
        self._starts: NDArray[np.intp] = np.zeros(capacity, dtype=np.intp)
        self._criteria: dict[str, NDArray[Any]] = {
            name: np.zeros(capacity, dtype=kind) for name, kind in CRITERIA.items()
        }
        self.pods: list[Pod] = []
        self._seen = StatusCodes()
        self._passing: list[NDArray[np.intp]] = []

    def grow(self, capacity: int) -> None:
        """There are that many slots now."""
        more = capacity - len(self.known)
        if more > 0:
            self.known = extended(self.known, more)
            self._codes = extended(self._codes, more)
            self._starts = extended(self._starts, more)
            self._criteria = {name: extended(column, more) for name, column in self._criteria.items()}

    def begin(self) -> None:
        """Begin another preemptor: forget the results that hold for the last preemptor alone."""
        for slots in self._passing:
            self.known[slots] = False
        self._passing.clear()
        if len(self._seen) > _MAX_STATUSES:
            self.clear()
        if len(self.pods) > SPARE_PODS:
            live = self.known & (self._codes == 0)
            if len(self.pods) > SPARE_PODS + 2 * int(self._criteria["counts"][live].sum()):
                self._compact(np.flatnonzero(live))

    def clear(self) -> None:
        """Forget all outcomes."""
        self.known[:] = False
        self.pods = []
        self._seen = StatusCodes()

    def put(
        self, slots: NDArray[np.intp], found: Candidates, rows: NDArray[np.intp], statuses: NodeStatuses
    ) -> None:
        """Keep the results for `slots`: `found`, indexed by positions in `slots`, where it works, else
        the `statuses` of the same nodes, `rows` of its table. Errors hold for this preemptor alone.
        """
        groups = statuses.groups.take(rows)
        codes = np.zeros(len(statuses.statuses), dtype=np.int32)
        sound = np.ones(len(statuses.statuses), dtype=np.bool_)
        for group in np.flatnonzero(np.bincount(groups)).tolist():
            if group:
                codes[group] = self._seen.encode(statuses.statuses[group])
                sound[group] = statuses.statuses[group].is_rejected
        self._codes[slots] = codes.take(groups)
        self.known[slots] = True
        if not sound.all():
            self._passing.append(slots[~sound.take(groups)])
        at = slots[found.places]
        self._codes[at] = 0
        for name, column in self._criteria.items():
            column[at] = getattr(found, name)
        self._starts[at] = found.starts + len(self.pods)
        self.pods.extend(found.pods)

    def keep_for_now(self, slots: NDArray[np.intp]) -> None:
        """Mark the results for `slots` as holding for this preemptor alone."""
        self._passing.append(slots)

    def work(self, slots: NDArray[np.intp]) -> NDArray[np.bool_]:
        """bool: where victims are known to make room."""
        found: NDArray[np.bool_] = self.known.take(slots) & (self._codes.take(slots) == 0)
        return found

    def harmless(self, slots: NDArray[np.intp]) -> NDArray[np.bool_]:
        """bool: where they break no budget; for slots that work."""
        found: NDArray[np.bool_] = self._criteria["violations"].take(slots) == 0
        return found

    def candidates(self, slots: NDArray[np.intp], places: NDArray[np.intp]) -> Candidates:
        """The `slots` that work, indexed by their `places`. All of them must be known."""
        works = self._codes.take(slots) == 0
        at = slots[works]
        criteria = {name: column.take(at) for name, column in self._criteria.items()}
        return Candidates(places[works], self.pods, self._starts.take(at), **criteria)

    def tell(self, slots: NDArray[np.intp], rows: NDArray[np.intp], statuses: NodeStatuses) -> None:
        """Write to `statuses` why nodes, `rows` of its table, do not work. All of them must be known."""
        if len(self._seen) == 1:
            return
        codes = self._codes.take(slots)
        groups = np.zeros(len(self._seen), dtype=np.int32)
        for code in np.flatnonzero(np.bincount(codes)).tolist():
            if code:
                groups[code] = statuses.group_of(self._seen.statuses[code])
        fails = codes != 0
        statuses.groups[rows[fails]] = groups.take(codes[fails])

    def _compact(self, live: NDArray[np.intp]) -> None:
        """Drop the victims of nodes that were judged anew since."""
        counts = self._criteria["counts"][live]
        ends = np.cumsum(counts)
        at = np.repeat(self._starts[live] - (ends - counts), counts) + np.arange(int(counts.sum()))
        self.pods = [self.pods[i] for i in at.tolist()]
        self._starts[live] = ends - counts
