"""`NodeStatuses`: which plugin rejected which node in one attempt, and why.

Built by the framework during Filter; read by the failure path, PostFilter and the explainer.
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
    """The statuses of the n rows of `table`, in groups of equal (plugin, code, reasons).

    `groups` is int32[n]: 0 for a row without an explicit rejection, else the position in `statuses`. A row
    that is neither rejected explicitly nor feasible has the status `absent`.
    """

    __slots__ = ("_codes", "_groups", "absent", "table")

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self._groups: NDArray[np.int32] | None = None
        self.absent: Status = UNRESOLVABLE
        self._codes = StatusCodes()

    @property
    def statuses(self) -> Sequence[Status]:
        """The statuses with their plugins, by group; SUCCESS first."""
        return self._codes.statuses

    @property
    def groups(self) -> NDArray[np.int32]:
        """The group of each row, int32[n]; allocated when first read, as most attempts reject no node."""
        if self._groups is None:
            self._groups = np.zeros(len(self.table), dtype=np.int32)
        return self._groups

    def reject(self, positions: NDArray[np.intp], verdicts: Verdicts, plugin: str) -> None:
        """Record the rejections of `verdicts`, one per entry of `positions` (rows of the table)."""
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
        """True if no node was rejected explicitly."""
        return len(self._codes) == 1

    def take_over(self, groups: NDArray[np.int32], codes: StatusCodes) -> None:
        """Copy merged verdicts: the statuses with their plugins, and each row's code of one status."""
        self._groups = groups.copy()
        self._codes = codes.copy()

    def group_of(self, status: Status) -> int:
        """Return the group of a status with its plugin; create it at the first use."""
        return self._codes.encode(status)

    def forget(self, positions: NDArray[np.intp]) -> None:
        """Clear rows that were filtered beyond the sampling limit, as if they had not been visited."""
        self.groups[positions] = 0

    @property
    def rejected_count(self) -> int:
        """The number of rows with an explicit rejection."""
        return int(np.count_nonzero(self.groups))

    def group_counts(self) -> list[tuple[Status, int]]:
        """Return each explicit status with the number of its rows, without empty groups."""
        if self.is_empty:
            return []
        counts = np.bincount(self.groups, minlength=len(self.statuses)).tolist()
        return [
            (status, count)
            for group, (status, count) in enumerate(zip(self.statuses, counts, strict=True))
            if group and count
        ]

    def reasons(self, counted: Sequence[tuple[Status, int]] | None = None) -> Counter[str]:
        """Return the number of nodes by reason; a node may have several. Other rows have those of `absent`.

        `counted`: the result of `group_counts`, if it is known.
        """
        total: Counter[str] = Counter()
        explicit = 0
        for status, count in self.group_counts() if counted is None else counted:
            explicit += count
            # Without any reason the nodes would be missing from the message.
            for reason in status.reasons or (f'rejected by plugin "{status.plugin}"',):
                total[reason] += count
        missing = len(self.table) - explicit
        if missing:
            for reason in self.absent.reasons:
                total[reason] += missing
        return total

    def status_of(self, name: str) -> Status:
        """Return the status of one node by name; `absent` if it was not rejected explicitly."""
        position = self.table.position(name)
        if position is None or not self.groups[position]:
            return self.absent
        return self.statuses[int(self.groups[position])]

    def rejections(self) -> NodeRejections:
        """Return the rejections in the form for PostFilter plugins."""
        return NodeRejections(_ByNode(self), self.absent)


class _ByNode(Mapping[str, Status]):
    """The explicit rejections by name, made on access: many plugins never read them one by one."""

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
