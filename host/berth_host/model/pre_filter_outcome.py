"""`PreFilterOutcome`: the merged answers of all PreFilter plugins about one pod.

Made by `framework.filtering`, kept in the cycle's record, read by the scheduler for its messages.
Source: kube-scheduler `framework/runtime/framework.go` (RunPreFilterPlugins), v1.36.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class PreFilterOutcome:
    """The merged answers of all PreFilter plugins.

    `status`: SUCCESS, a rejection (with its plugin, or without one if several plugins together left no node),
    or an error. `eligible`: the nodes that are left, or None for all. `narrowed`: each plugin that named
    eligible nodes, with these nodes, in order. `rejections`: each plugin's rejection of the whole pod, in
    order; `status` is the last one.
    """

    status: Status
    eligible: frozenset[str] | None = None
    narrowed: tuple[tuple[str, frozenset[str]], ...] = ()
    rejections: tuple[Status, ...] = ()

    @property
    def restricting(self) -> tuple[str, ...]:
        """The plugins that named eligible nodes, in order."""
        return tuple(plugin for plugin, _ in self.narrowed)

    @property
    def ended_by(self) -> str:
        """The plugin whose answer ended PreFilter, so that those after it were not called; "" for none."""
        if self.status.is_success or self.status.code is Code.UNSCHEDULABLE:
            return ""
        return self.status.plugin or self.narrowed[-1][0]

    @property
    def message(self) -> str:
        """The message of a rejection; empty if PreFilter did not reject the pod."""
        return self.status.message if self.status.is_rejected else ""

    @property
    def absent(self) -> Status:
        """The status of the nodes that were not eligible."""
        if self.eligible is None:
            return _ABSENT
        return Status.unresolvable(f"node(s) didn't satisfy plugin(s) {go_list(self.restricting)}")

    def rejected_rows(self, table: NodeTable) -> Iterator[tuple[Status, NDArray[np.bool_]]]:
        """Yield each plugin's rejection with bool[n], True for the rows of `table` that it concerns.

        A plugin that named eligible nodes rejected every other node, also one that another plugin rejected.
        """
        for status in self.rejections:
            yield status, np.ones(len(table), dtype=np.bool_)
        # kube-scheduler has another text if several plugins together leave no node.
        nobody_left = self.status.is_rejected and not self.status.plugin
        left_out = self.status if nobody_left else self.absent
        for plugin, eligible in self.narrowed:
            rows = np.ones(len(table), dtype=np.bool_)
            rows[rows_named(table, eligible)] = False
            if rows.any():
                yield left_out.with_plugin(plugin), rows


def rows_named(table: NodeTable, names: Collection[str]) -> NDArray[np.intp]:
    """Return the rows of the named nodes, ascending; names without a node are ignored."""
    positions = (table.position(name) for name in names)
    return np.asarray(sorted(row for row in positions if row is not None), dtype=np.intp)


def go_list(names: Sequence[str]) -> str:
    """Return the names as Go prints a sorted list of them."""
    return f"[{' '.join(sorted(names))}]"


_ABSENT: Final = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
PASSED: Final = PreFilterOutcome(SUCCESS)
