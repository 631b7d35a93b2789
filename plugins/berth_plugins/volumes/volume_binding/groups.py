"""Sets of nodes, one per distinct selector, kept from cycle to cycle; and for each node the first of many
candidates that the node can reach.

Used for volumes and capacities, whose selectors limit their nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from berth_sdk.node_selectors import NodeSelector
from berth_sdk.slices import Work
from berth_sdk.tables import Moved, NodeTable, SlotFollower
from numpy.typing import NDArray

NOBODY: Final = -2
"""In `single`: no node."""
SEVERAL: Final = -1
"""In `single`: more than one node."""
EVERY_NODE: Final = 0
"""The group without a selector."""
_MAX_CHANGES: Final = 4096
Slots = NDArray[np.intp]


class NodeGroups:
    """Groups of nodes by number. Only `clear` removes unused groups.

    After a change of a node's labels, each group tests the node again when the group is next needed.
    """

    def __init__(self) -> None:
        self._follower = SlotFollower(Moved.NODE)
        self._labels: dict[int, Mapping[str, str]] = {}
        self._changes: list[int] = []
        self.clear()

    def clear(self) -> None:
        """Remove every group."""
        self._codes: dict[NodeSelector, int] = {}
        self._selectors: list[NodeSelector | None] = [None]
        self._slots: list[Slots | None] = [None]
        self._seen: list[int] = [0]
        self.single: NDArray[np.int64] = np.array([SEVERAL], dtype=np.int64)
        """int64[groups]: the slot of the only node of a group, `SEVERAL` or `NOBODY`. Current after
        `catch_up`.
        """

    def __len__(self) -> int:
        return len(self._selectors)

    def code_of(self, selector: NodeSelector | None) -> int:
        """Return the number of the group of a selector. None: every node."""
        if selector is None:
            return EVERY_NODE
        code = self._codes.get(selector)
        if code is None:
            code = self._codes[selector] = len(self._selectors)
            self._selectors.append(selector)
            self._slots.append(None)
            self._seen.append(0)
        return code

    def catch_up(self, nodes: NodeTable) -> Work[None]:
        """Apply the added and removed nodes, and the changed labels. Yields after each requirement of a
        selector whose nodes are looked up.
        """
        moved = self._follower.moved(nodes)
        whole = nodes.whole
        changed: list[int] = []
        if moved is None or len(self._changes) + len(moved) > _MAX_CHANGES:
            self._labels = {int(slot): whole.node(i).labels for i, slot in enumerate(whole.slots.tolist())}
            self._changes.clear()
            self._slots = [None] * len(self)
            self._seen = [0] * len(self)
        else:
            for slot in moved:
                position = whole.position_of_slot(slot)
                labels = None if position is None else whole.node(position).labels
                if labels != self._labels.get(slot):
                    changed.append(slot)
                    if labels is None:
                        del self._labels[slot]
                    else:
                        self._labels[slot] = labels
            self._changes += changed
        if changed or moved is None or len(self.single) < len(self):
            yield from self._settle(whole)

    def slots(self, code: int) -> Slots:
        """Return intp[m]: the nodes of a group of several."""
        found = self._slots[code]
        return np.zeros(0, dtype=np.intp) if found is None else found

    def _settle(self, whole: NodeTable) -> Work[None]:
        self._slots[EVERY_NODE] = whole.slots
        codes, code = self._codes, 1
        while code < len(self):
            have = len(self.single)
            if have < len(self):
                self.single = np.concatenate([self.single, np.full(len(self) - have, NOBODY, dtype=np.int64)])
            seen = len(self._changes)
            if self._slots[code] is None or self._seen[code] < seen:
                slots = yield from self._looked_up(code, whole)
                if codes is not self._codes:
                    # Another call has removed every group meanwhile, and made others.
                    codes, code = self._codes, 1
                    continue
                self._slots[code], self._seen[code] = slots, seen
                self.single[code] = NOBODY if not len(slots) else slots[0] if len(slots) == 1 else SEVERAL
            code += 1

    def _looked_up(self, code: int, whole: NodeTable) -> Work[Slots]:
        selector, known = self._selectors[code], self._slots[code]
        if selector is None:
            return whole.slots
        changed = self._changes[self._seen[code] :]
        if known is None or len(changed) * len(selector.terms) > _MAX_CHANGES:
            return whole.slots[(yield from selector.over_in_steps(whole))]
        now = set(known.tolist()) if len(known) < len(self._changes) else None
        come = []
        for slot in changed:
            labels = self._labels.get(slot)
            if labels is not None and (yield from selector.matches_in_steps(labels, "")):
                come.append(slot)
        if now is not None:
            return np.asarray(sorted((now - set(changed)) | set(come)), dtype=np.intp)
        kept = known[~np.isin(known, changed)]
        return np.union1d(kept, np.asarray(come, dtype=np.intp)).astype(np.intp)


def positions_by_slot(nodes: NodeTable) -> NDArray[np.int64]:
    """Return int64[slots]: the row of each slot, -1 for slots that are not among `nodes`."""
    positions = np.full(nodes.slot_count, -1, dtype=np.int64)
    positions[nodes.slots] = np.arange(len(nodes))
    return positions


class Taken:
    """The candidates that others have taken, by row. A candidate is taken by at most one taker on each row.

    `count`: the number of rows.
    """

    def __init__(self, count: int) -> None:
        self.takers = 0
        self._count = count
        # By candidate: on how many rows it is taken, and which these are if its group has several nodes.
        self._counts: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._rows: dict[int, NDArray[np.bool_]] = {}

    def add(self, numbers: NDArray[np.int64], is_alone: NDArray[np.bool_]) -> None:
        """Add a taker. `numbers`: what it takes on each row, -1: nothing. `is_alone`: bool[n], whether that
        candidate can be reached from this row only.
        """
        self.takers += 1
        picked = numbers >= 0
        if not picked.any():
            return
        missing = int(numbers.max()) + 1 - len(self._counts)
        if missing > 0:
            self._counts = np.concatenate([self._counts, np.zeros(missing + len(self._counts), np.int64)])
        np.add.at(self._counts, numbers[picked], 1)
        for number in np.unique(numbers[picked & ~is_alone]).tolist():
            rows = self._rows.setdefault(number, np.zeros(self._count, dtype=np.bool_))
            rows |= numbers == number

    def counts(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each candidate the number of rows on which it is taken."""
        found = np.zeros(len(numbers), dtype=np.int64)
        known = numbers < len(self._counts)
        found[known] = self._counts[numbers[known]]
        return found

    def rows(self, number: int) -> NDArray[np.bool_] | None:
        """Return bool[n]: the rows on which a candidate of a group of several nodes is taken; None: none."""
        return self._rows.get(number)


def first_reached(
    candidates: NDArray[np.int64],
    codes: NDArray[np.int64],
    groups: NodeGroups,
    positions: NDArray[np.int64],
    taken: Taken,
    count: int,
) -> NDArray[np.int64]:
    """Return int64[count]: for each row the first candidate whose group has its node; -1: none.

    `candidates`: ascending numbers; `codes`: their groups. `taken`: the candidates that others have taken.
    """
    nothing = np.iinfo(np.int64).max
    pick = np.full(count, nothing, dtype=np.int64)
    slots = groups.single.take(codes)
    alone = slots >= 0
    if alone.any():
        # From the last to the first, so that the first of several candidates of a node remains.
        rows = positions.take(slots[alone])[::-1]
        numbers = candidates[alone][::-1]
        free = (rows >= 0) & (taken.counts(numbers) == 0)
        pick[rows[free]] = numbers[free]
    shared = slots == SEVERAL
    if shared.any():
        kept_codes, kept_candidates = codes[shared], candidates[shared]
        for code in np.unique(kept_codes).tolist():
            rows = positions.take(groups.slots(code))
            rows = rows[rows >= 0]
            own = kept_candidates[kept_codes == code]
            own = own[taken.counts(own) < len(rows)]
            # Each taker has at most one, so one more than the number of takers is enough.
            for number in own[: taken.takers + 1].tolist():
                free = pick[rows] > number
                if not free.any():
                    break
                theirs = taken.rows(number)
                if theirs is not None:
                    free &= ~theirs[rows]
                pick[rows[free]] = number
    return np.where(pick == nothing, -1, pick)
