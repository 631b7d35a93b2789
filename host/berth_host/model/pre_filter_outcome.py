"""`PreFilterOutcome`: the merged answers of all PreFilter plugins about one pod.

Made by `framework.pre_filtering`, kept in the cycle's record, read by the scheduler for its messages.
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

    `status`: SUCCESS, a rejection (signed by its plugin, or by none when several plugins left no node
    together), or an error. `eligible`: the only nodes left, or None for all. `narrowed`: in order, each
    plugin that named eligible nodes, with these. `rejections`: in order, each plugin's rejection of the whole
    pod, signed; `status` is the last of them.
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
    def message(self) -> str:
        """The message of a rejection; empty where PreFilter did not reject the pod."""
        return self.status.message if self.status.is_rejected else ""

    @property
    def absent(self) -> Status:
        """The status of the nodes that were not asked about."""
        if self.eligible is None:
            return _ABSENT
        return Status.unresolvable(f"node(s) didn't satisfy plugin(s) {go_list(self.restricting)}")

    def rejected_rows(self, table: NodeTable) -> Iterator[tuple[Status, NDArray[np.bool_]]]:
        """Yield each plugin's rejection, signed, with bool[n] of the rows of `table` that it concerns.

        A plugin that narrowed is to blame for every node that it left out, whether another plugin left the
        node out as well or not.
        """
        for status in self.rejections:
            yield status, np.ones(len(table), dtype=np.bool_)
        # kube-scheduler has another text where the plugins leave no node together.
        nobody_left = self.status.is_rejected and not self.status.plugin
        left_out = self.status if nobody_left else self.absent
        for plugin, eligible in self.narrowed:
            rows = np.ones(len(table), dtype=np.bool_)
            rows[rows_named(table, eligible)] = False
            if rows.any():
                yield left_out.with_plugin(plugin), rows


def rows_named(table: NodeTable, names: Collection[str]) -> NDArray[np.intp]:
    """Return the rows of the named nodes, ascending; a name without a node counts for nothing."""
    positions = (table.position(name) for name in names)
    return np.asarray(sorted(row for row in positions if row is not None), dtype=np.intp)


def go_list(names: Sequence[str]) -> str:
    """Return the names as Go prints a sorted list of them."""
    return f"[{' '.join(sorted(names))}]"


_ABSENT: Final = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
PASSED: Final = PreFilterOutcome(SUCCESS)
