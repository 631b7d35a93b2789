"""Verdicts as values: `Status` for one answer, `Verdicts` for a table of nodes.

A verdict is data, never an exception. An exception means that the code failed.

Source: kube-scheduler `framework/interface.go`, v1.36 (codes, reasons, IsRejected, AsError).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

MIN_NODE_SCORE: Final = 0
MAX_NODE_SCORE: Final = 100


class Code(IntEnum):
    """A plugin's verdict, which decides what the queue does next. The numbers are kube-scheduler's."""

    SUCCESS = 0
    """The plugin accepts the pod, or the node."""
    ERROR = 1
    """An internal error: the cycle aborts, and the pod is retried after the error backoff."""
    UNSCHEDULABLE = 2
    """Not now, but removing pods might help. The pod waits for an event that its rejecting plugins
    registered.
    """
    UNSCHEDULABLE_AND_UNRESOLVABLE = 3
    """Not now, and removing pods from the node cannot help (from PreFilter: from any node)."""
    WAIT = 4
    """Permit only: hold the pod until the plugin allows it or the timeout ends."""
    SKIP = 5
    """PreFilter, PreScore, PreBindPreFlight, Bind: nothing to do for this pod. Reserve: nothing held for this
    pod.
    """
    PENDING = 6
    """A node is found, but an outside component must act first. Requeueing skips the backoff."""

    __hash__ = int.__hash__  # an enum's own is a function in Python, and costs ten times as much

    @property
    def kube_name(self) -> str:
        """The spelling of kube-scheduler's logs and metrics, such as `UnschedulableAndUnresolvable`."""
        return _KUBE_NAMES[self]


_KUBE_NAMES: Final = {
    Code.SUCCESS: "Success",
    Code.ERROR: "Error",
    Code.UNSCHEDULABLE: "Unschedulable",
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE: "UnschedulableAndUnresolvable",
    Code.WAIT: "Wait",
    Code.SKIP: "Skip",
    Code.PENDING: "Pending",
}
_SUCCESS: Final = Code.SUCCESS  # the look-up in the enum takes longer than the comparison
_REJECTED: Final = frozenset({Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING})


@dataclass(frozen=True, slots=True)
class Status:
    """One verdict: a code, the reasons shown to the pod's owner, and the plugin that returned it.

    >>> Status.unschedulable("Insufficient cpu").message
    'Insufficient cpu'
    >>> Status.success().is_success
    True
    """

    code: Code = Code.SUCCESS
    reasons: tuple[str, ...] = ()
    plugin: str = ""

    @staticmethod
    def success() -> Status:
        """Return the verdict that accepts the pod."""
        return SUCCESS

    @staticmethod
    def unschedulable(*reasons: str) -> Status:
        """Return a rejection that preemption may resolve."""
        return Status(Code.UNSCHEDULABLE, reasons)

    @staticmethod
    def unresolvable(*reasons: str) -> Status:
        """Return a rejection that preemption cannot resolve."""
        return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)

    @staticmethod
    def pending(*reasons: str) -> Status:
        """Return a rejection until an outside component acts. The retry skips the backoff."""
        return Status(Code.PENDING, reasons)

    @staticmethod
    def error(*reasons: str) -> Status:
        """Return an error, which aborts the cycle."""
        return Status(Code.ERROR, reasons)

    @staticmethod
    def skip() -> Status:
        """Return the verdict "nothing to do for this pod at this extension point"."""
        return SKIP

    @property
    def is_success(self) -> bool:
        """True for SUCCESS alone."""
        return self.code is _SUCCESS

    @property
    def is_rejected(self) -> bool:
        """True for UNSCHEDULABLE, UNSCHEDULABLE_AND_UNRESOLVABLE and PENDING."""
        return self.code in _REJECTED

    @property
    def message(self) -> str:
        """The reasons, joined as kube-scheduler joins them."""
        return ", ".join(self.reasons)

    def with_plugin(self, plugin: str) -> Status:
        """Return the same verdict with the name of `plugin`."""
        return self if self.plugin == plugin else Status(self.code, self.reasons, plugin)


SUCCESS: Final = Status()
SKIP: Final = Status(Code.SKIP)
UNRESOLVABLE: Final = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE)


@dataclass(frozen=True, slots=True, eq=False)
class Verdicts:
    """One status per row of a table of nodes, stored by group.

    `groups` is int32[n]: the position in `statuses` of each row's verdict. `statuses[0]` is always SUCCESS,
    so a row is feasible where its group is 0. There is one group per distinct reason, as in the contract's
    `NodeVerdicts`.
    """

    groups: NDArray[np.int32]
    statuses: tuple[Status, ...] = (SUCCESS,)

    @staticmethod
    def feasible(count: int) -> Verdicts:
        """Return verdicts that pass all `count` rows."""
        return Verdicts(np.zeros(count, dtype=np.int32))

    @staticmethod
    def all(count: int, status: Status) -> Verdicts:
        """Return verdicts with `status` for all `count` rows."""
        if status.is_success:
            return Verdicts.feasible(count)
        return Verdicts(np.ones(count, dtype=np.int32), (SUCCESS, status))

    @staticmethod
    def reject_where(mask: NDArray[np.bool_], status: Status) -> Verdicts:
        """Return verdicts with `status` where `mask` (bool[n]) is true. The other rows pass."""
        return Verdicts(mask.astype(np.int32), (SUCCESS, status))

    @staticmethod
    def of(statuses: Iterable[Status]) -> Verdicts:
        """Return one verdict per status, grouped by equality."""
        seen: dict[Status, int] = {SUCCESS: 0}
        groups = [seen.setdefault(status, len(seen)) for status in statuses]
        return Verdicts(np.asarray(groups, dtype=np.int32), tuple(seen))

    def otherwise(self, mask: NDArray[np.bool_], status: Status) -> Verdicts:
        """Return these verdicts with `status` for rows that pass so far and where `mask` is true: the next
        check of a chain.
        """
        if len(self.statuses) == 1:
            return Verdicts.reject_where(mask, status) if np.count_nonzero(mask) else self
        new = mask & (self.groups == 0)
        if not np.count_nonzero(new):
            return self
        groups = np.where(new, np.int32(len(self.statuses)), self.groups)
        return Verdicts(groups, (*self.statuses, status))

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def passed(self) -> NDArray[np.bool_]:
        """bool[n]: the feasible rows."""
        return np.equal(self.groups, 0)

    @property
    def all_passed(self) -> bool:
        """True when every row is feasible."""
        return len(self.statuses) == 1 or not np.count_nonzero(self.groups)

    def status(self, row: int) -> Status:
        """Return the verdict of one row."""
        return self.statuses[int(self.groups[row])]

    def to_list(self) -> list[Status]:
        """Return the verdicts, one per row."""
        return [self.statuses[group] for group in self.groups.tolist()]

    def take(self, rows: NDArray[np.intp] | Sequence[int]) -> Verdicts:
        """Return the verdicts of some rows, in the order given."""
        return Verdicts(self.groups[np.asarray(rows, dtype=np.intp)], self.statuses)
