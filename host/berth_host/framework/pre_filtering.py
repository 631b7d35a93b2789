"""PreFilter of all plugins over all nodes: which plugins skip Filter, narrow the nodes down, or reject at
once.

Called by `answers`.
Source: kube-scheduler `framework/runtime/framework.go` (RunPreFilterPlugins), v1.36.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from berth_sdk.results import PreFilterResult
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.framework.cycle import Cycle
from berth_host.rpc.client import PluginClient


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
    def absent(self) -> Status:
        """The status of the nodes that were not asked about."""
        if self.eligible is None:
            return _ABSENT
        return Status.unresolvable(f"node(s) didn't satisfy plugin(s) {_go_list(self.restricting)}")

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


_REJECTED: Final = (Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
"""Pending has no meaning at PreFilter: it counts as an error."""
_ABSENT = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
PASSED: Final = PreFilterOutcome(SUCCESS)


class PreFiltering:
    """One cycle's PreFilter: answers are taken in order until one ends it."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._skip_filter: set[str] = set()
        self._skip: set[str] = set()
        self._eligible: frozenset[str] | None = None
        self._narrowed: list[tuple[str, frozenset[str]]] = []
        self._rejections: list[Status] = []

    def take(
        self, client: PluginClient, answer: PreFilterResult, *, lasting: bool
    ) -> PreFilterOutcome | None:
        """The answer of the next plugin; not None: it ends PreFilter. `lasting`: a Skip is for the cycle."""
        status = answer.status
        if status.code is Code.SKIP:
            self._skip_filter.add(client.name)
            if lasting:
                self._skip.add(client.name)
        elif status.code in _REJECTED:
            self._rejections.append(status.with_plugin(client.name))
            # After UNSCHEDULABLE the others run on: preemption needs the state that they make.
            if status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return self.outcome()
        elif not status.is_success:
            text = f'running PreFilter plugin "{client.name}": {status.message}'
            return self._ended(PreFilterOutcome(Status(Code.ERROR, (text,), client.name)))
        elif answer.eligible is not None:
            self._narrowed.append((client.name, answer.eligible))
            eligible = answer.eligible if self._eligible is None else self._eligible & answer.eligible
            self._eligible = eligible
            if not eligible:
                nobody = Status.unresolvable(_nobody_left([plugin for plugin, _ in self._narrowed]))
                return self._ended(self._merged(nobody))
        return None

    def outcome(self) -> PreFilterOutcome:
        """The merged result of all answers."""
        return self._ended(self._merged(self._rejections[-1] if self._rejections else SUCCESS))

    def _merged(self, status: Status) -> PreFilterOutcome:
        return PreFilterOutcome(status, self._eligible, tuple(self._narrowed), tuple(self._rejections))

    def _ended(self, outcome: PreFilterOutcome) -> PreFilterOutcome:
        self._cycle.skip_filter = frozenset(self._skip_filter)
        self._cycle.skip = frozenset(self._skip)
        return outcome


def _nobody_left(restricting: Sequence[str]) -> str:
    if len(restricting) == 1:
        return f"node(s) didn't satisfy plugin {restricting[0]}"
    return f"node(s) didn't satisfy plugin(s) {_go_list(restricting)} simultaneously"


def _go_list(names: Sequence[str]) -> str:
    return f"[{' '.join(sorted(names))}]"
