"""Verdicts of one attempt over the snapshot's nodes: which plugin rejected which node, and why.

Built by the framework while it filters, read by the failure path, PostFilter and the explainer.
Source: kube-scheduler `framework/types.go` (NodeToStatus, Diagnosis, FitError), v1.36.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from berth_sdk.kept.status_codes import StatusCodes
from berth_sdk.results import NodeRejections
from berth_sdk.status import UNRESOLVABLE, Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray


class NodeStatuses:
    """One group per distinct (plugin, code, reasons), over the n rows of `table`.

    `groups` is int32[n]: 0 where nothing rejected the row, else the position in `statuses`. Rows that
    are not rejected explicitly, and are not feasible either, have the status `absent`.
    """

    __slots__ = ("_codes", "_groups", "absent", "table")

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self._groups: NDArray[np.int32] | None = None
        self.absent: Status = UNRESOLVABLE
        self._codes = StatusCodes()

    @property
    def statuses(self) -> Sequence[Status]:
        """Signed, by group; SUCCESS first."""
        return self._codes.statuses

    @property
    def groups(self) -> NDArray[np.int32]:
        """int32[n]; made when first read: most attempts reject nothing."""
        if self._groups is None:
            self._groups = np.zeros(len(self.table), dtype=np.int32)
        return self._groups

    def reject(self, positions: NDArray[np.intp], verdicts: Verdicts, plugin: str) -> None:
        """Take over the rejections of `verdicts`, one per entry of `positions` (rows of the table)."""
        if verdicts.all_passed:
            return
        lookup = np.zeros(len(verdicts.statuses), dtype=np.int32)
        for group, status in enumerate(verdicts.statuses):
            if group:
                lookup[group] = self.group_of(status.with_plugin(plugin) if plugin else status)
        rejected = verdicts.groups.nonzero()[0]
        self.groups[positions.take(rejected)] = lookup.take(verdicts.groups.take(rejected))

    @property
    def is_empty(self) -> bool:
        """Whether no node was rejected yet."""
        return len(self._codes) == 1

    def take_over(self, groups: NDArray[np.int32], codes: StatusCodes) -> None:
        """Take merged verdicts: signed statuses, and for each row the code of one status."""
        self._groups = groups.copy()
        self._codes = codes.copy()

    def group_of(self, status: Status) -> int:
        """The group of a signed status, made at its first appearance."""
        return self._codes.encode(status)

    def forget(self, positions: NDArray[np.intp]) -> None:
        """Make rows unvisited again: they were judged beyond the sampling limit."""
        self.groups[positions] = 0

    @property
    def rejected_count(self) -> int:
        """Rows with an explicit rejection."""
        return int(np.count_nonzero(self.groups))

    def group_counts(self) -> list[tuple[Status, int]]:
        """Each explicit status with the number of its rows, empty groups left out."""
        if self.is_empty:
            return []
        counts = np.bincount(self.groups, minlength=len(self.statuses)).tolist()
        return [
            (status, count)
            for group, (status, count) in enumerate(zip(self.statuses, counts, strict=True))
            if group and count
        ]

    def reasons(self, counted: Sequence[tuple[Status, int]] | None = None) -> Counter[str]:
        """How many nodes give each reason; a node may give several. Unlisted nodes give `absent`'s.

        `counted`: the `group_counts`, where they are known.
        """
        total: Counter[str] = Counter()
        explicit = 0
        for status, count in self.group_counts() if counted is None else counted:
            explicit += count
            # Without a reason of the plugin's own the nodes would vanish from the sentence.
            for reason in status.reasons or (f'rejected by plugin "{status.plugin}"',):
                total[reason] += count
        missing = len(self.table) - explicit
        if missing:
            for reason in self.absent.reasons:
                total[reason] += missing
        return total

    def status_of(self, name: str) -> Status:
        """The verdict on one node by name; unlisted: `absent`."""
        position = self.table.position(name)
        if position is None or not self.groups[position]:
            return self.absent
        return self.statuses[int(self.groups[position])]

    def rejections(self) -> NodeRejections:
        """The form in which PostFilter plugins see it."""
        return NodeRejections(_ByNode(self), self.absent)


class _ByNode(Mapping[str, Status]):
    """Explicit rejections by name; a plugin that lets the host search never reads them one by one."""

    def __init__(self, statuses: NodeStatuses) -> None:
        self._statuses = statuses

    def __getitem__(self, name: str) -> Status:
        position = self._statuses.table.position(name)
        group = 0 if position is None else self._statuses.groups.item(position)
        if not group:
            raise KeyError(name)
        return self._statuses.statuses[group]

    def __iter__(self) -> Iterator[str]:
        return iter(self._statuses.table.take(np.flatnonzero(self._statuses.groups)).names)

    def __len__(self) -> int:
        return self._statuses.rejected_count
