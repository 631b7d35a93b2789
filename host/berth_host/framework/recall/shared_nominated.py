"""Verdicts on nodes with the pods that are nominated to them, merged, for pods of one signature.

The first of the two passes of Filter: asked again is about nodes of which something moved, or to which other
pods are nominated than before. The second pass is `shared_verdicts`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from berth_sdk.status import Verdicts
from berth_sdk.tables.read_only import extended
from numpy.typing import NDArray

from berth_host.framework.cycle import Cycle
from berth_host.framework.filtering import Rows, nominated_pass
from berth_host.framework.nominated import NominatedPods
from berth_host.framework.recall.shared_verdicts import SharedVerdicts
from berth_host.model.node_statuses import NodeStatuses
from berth_host.rpc.client import PluginClient


class SharedNominated(SharedVerdicts):
    """`_marks` (int64, by slot): which pods were nominated when the verdict was given."""

    def __init__(self) -> None:
        super().__init__()
        self._marks: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    async def first_pass(
        self,
        clients: Sequence[PluginClient],
        cycle: Cycle,
        statuses: NodeStatuses,
        rows: Rows,
        nominated: NominatedPods,
        second: SharedVerdicts,
    ) -> Rows:
        """As `nominated_pass`, of plugins that share. `second`: their verdicts on the nodes as they are."""
        crowded = rows[nominated.rows[rows]]
        if nominated.marks is None or not len(crowded):
            return await nominated_pass(clients, cycle, statuses, rows, nominated)
        nodes = statuses.table
        self._prepare(clients, nodes._columns.capacity)
        self._marks = extended(self._marks, len(self._known) - len(self._marks))
        slots, marks = nodes.slots.take(crowded), nominated.marks.take(crowded)
        stale = ~(self._known.hold(slots) & (self._marks.take(slots) == marks))
        if np.count_nonzero(stale):
            found, asked = NodeStatuses(nodes), crowded[stale]
            about_pods, light = second.left_to_ask(clients, slots[stale])
            for some, which in ((about_pods, light), (clients, ~light)):
                if np.count_nonzero(which):
                    await nominated_pass(some, cycle, found, asked[which], nominated)
            self._keep(clients, slots[stale], found, asked)
            self._marks[slots[stale]] = marks[stale]
        codes = self._codes.take(slots)
        if not np.count_nonzero(codes):
            return rows
        statuses.reject(crowded, Verdicts(codes, tuple(self._seen.statuses)), "")
        failed = np.zeros(len(nodes), dtype=np.bool_)
        failed[crowded] = codes != 0
        return rows[~failed[rows]]
