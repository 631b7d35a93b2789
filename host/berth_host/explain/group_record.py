"""`GroupRecord`: the record of one attempt of a pod group; `GroupRecords`: the last one of each group.

Made by the group's cycle, one for each group of the tree; read by `make_group_answer`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from berth_sdk.pod import Pod

from berth_host.explain.diagnosis import Diagnosis

PLACEMENTS_KEPT: Final = 5
"""The most placements kept for each group: those in which most members got a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedPlacement:
    """One placement in which an attempt tried a group.

    - `name`: the topology domain; "" for all nodes.
    - `untried`: members that the cycle did not come to.
    - `message`: why the group has no place here; "" if it has.
    - `assignments`: the members that got a node here, with its name.
    - `unfit`, `unfit_message`: the attempt of the first member that got no node, and why; None: there was no
      such member.
    """

    name: str
    node_count: int
    untried: int = 0
    message: str = ""
    assignments: tuple[tuple[Pod, str], ...] = ()
    unfit: Diagnosis | None = None
    unfit_message: str = ""

    @property
    def placed(self) -> int:
        """The number of members that got a node here."""
        return len(self.assignments)


@dataclass(slots=True)
class TriedPlacements:
    """The placements that an attempt tried for one group.

    `best`: first those with a place for the group, then by most placed members; the earlier one among equals.
    """

    count: int = 0
    best: list[TriedPlacement] = field(default_factory=list)
    _orders: list[tuple[bool, int]] = field(default_factory=list, repr=False, compare=False)
    """By place in `best`: True without a place for the group, and minus the number of placed members."""

    def takes(self, *, fails: bool, placed: int) -> bool:
        """Return True if `add` would keep a placement with this outcome; otherwise only count it.

        `fails`: the group has no place in it. `placed`: the number of members that got a node.
        """
        if self.wants(fails=fails, placed=placed):
            return True
        self.count += 1
        return False

    def wants(self, *, fails: bool, placed: int) -> bool:
        """Return what `takes` would return; count nothing."""
        return len(self._orders) < PLACEMENTS_KEPT or (fails, -placed) < self._orders[-1]

    def add(self, tried: TriedPlacement) -> None:
        """Add one placement; keep the best PLACEMENTS_KEPT."""
        self.count += 1
        order = bool(tried.message), -tried.placed
        at = bisect_right(self._orders, order)
        self.best.insert(at, tried)
        self._orders.insert(at, order)
        del self.best[PLACEMENTS_KEPT:], self._orders[PLACEMENTS_KEPT:]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """The record of one attempt of a group.

    - `key`, `uid`: of the group. `root_key`: the root of its tree, which is one entry of the queue.
    - `attempt`: the number of the root's attempt.
    - `outcome`: `scheduled`, `unschedulable`, `waitingOnPreemption` or `error`.
    - `message`: as in the group's condition. `post_filter`: what PodGroupPostFilter said, which `message` has
      too; "" where it did not run.
    - `scheduled`: members that had a node before.
    """

    key: str
    uid: str
    root_key: str
    attempt: int
    outcome: str
    message: str
    post_filter: str = ""
    scheduled: int = 0
    placement_count: int = 0
    placements: Sequence[TriedPlacement] = ()

    @property
    def assigned(self) -> int:
        """The number of assignments that this record keeps."""
        return sum(one.placed for one in self.placements)


class GroupRecords:
    """The last record of each of the `capacity` groups that were tried last.

    `assignments`: the most assignments in all records together. The groups tried longest ago are dropped
    first. `now_s`: returns Unix seconds.
    """

    def __init__(
        self, now_s: Callable[[], float], *, capacity: int = 1024, assignments: int = 50_000
    ) -> None:
        self._now_s = now_s
        self._capacity = capacity
        self._limit = assignments
        self._assigned = 0
        self._by_key: OrderedDict[str, tuple[GroupRecord, float]] = OrderedDict()

    def add(self, records: Iterable[GroupRecord]) -> None:
        """Add the records of one attempt, which has just ended."""
        ended_s = self._now_s()
        for record in records:
            self._drop(record.key)
            self._by_key[record.key] = record, ended_s
            self._assigned += record.assigned
        while len(self._by_key) > self._capacity or (self._assigned > self._limit and len(self._by_key) > 1):
            self._drop(next(iter(self._by_key)))

    def get(self, key: str) -> tuple[GroupRecord, float] | None:
        """Return the last record of a group and its end in Unix seconds; None if none is kept."""
        return self._by_key.get(key)

    def __len__(self) -> int:
        return len(self._by_key)

    def _drop(self, key: str) -> None:
        old = self._by_key.pop(key, None)
        if old is not None:
            self._assigned -= old[0].assigned
