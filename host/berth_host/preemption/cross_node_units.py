"""The what-if of one candidate node whose units have pods on other nodes too, while a plugin looks at those.

`dry_run` changes only the pods on the candidate. Here the units leave the snapshot, with their pods on other
nodes, and come back one after the other. Called by the evaluator.
Source: kube-scheduler `framework/plugins/defaultpreemption/default_preemption.go` (SelectVictimsOnNode),
v1.37.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

import numpy as np
from berth_sdk.slices import without_deadline
from berth_sdk.status import SUCCESS, Status
from numpy.typing import NDArray

from berth_host.attempt.cycle import Cycle, CycleEnd
from berth_host.framework.filtering import filter_rows, nominated_pass
from berth_host.framework.framework import Framework
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.pre_filter_outcome import PreFilterOutcome
from berth_host.preemption.reprieve import Placed, TrialSnapshot, Unit, victims_among


class WhatIfAttempts:
    """Makes further attempts of one pod (`reprieve.MakeAttempts`)."""

    def __init__(self, framework: Framework, snapshot: TrialSnapshot) -> None:
        self._framework = framework
        self._snapshot = snapshot
        self._count = 0

    def again(self, cycle: Cycle) -> Cycle:
        """Return a new attempt over the snapshot as it is now."""
        self._count += 1
        made = Cycle(
            f"{cycle.cycle_id}.{self._count}",
            cycle.pod,
            cycle.profile,
            nodes=self._snapshot.nodes,
            version=self._snapshot.version,
            budget_s=cycle.budget_s,
        )
        made.nominated = cycle.nominated
        return made

    def pre_filter(self, cycle: Cycle) -> Awaitable[PreFilterOutcome]:
        """Run PreFilter of such an attempt."""
        return self._framework.run_pre_filter(cycle)


async def victims_on(
    framework: Framework, cycle: Cycle, node_name: str, units: Sequence[Unit], snapshot: TrialSnapshot
) -> Status | NDArray[np.bool_]:
    """Return bool[u]: the units that must leave so that the cycle's pod fits on the node.

    A Status says why the pod does not fit even without all `units`, which come back in the given order.
    """
    attempts = WhatIfAttempts(framework, snapshot)
    mark = snapshot.mark()
    try:
        for unit in units:
            for pod in unit:
                snapshot.remove(pod.uid)
        status = await _verdict(framework, cycle, attempts.again(cycle), node_name)
        if not status.is_success:
            return status
        async with without_deadline():
            return await victims_among(framework, [Placed(cycle, node_name)], units, snapshot, attempts)
    finally:
        snapshot.revert(mark)
        cycle.version = snapshot.version


async def _verdict(framework: Framework, cycle: Cycle, attempt: Cycle, node_name: str) -> Status:
    """Return the verdict of the Filter plugins of `cycle` about one node in the state of `attempt`."""
    row = attempt.nodes.position(node_name)
    if row is None:
        raise KeyError(node_name)
    try:
        await framework.run_pre_filter(attempt)
        clients = [one for one in framework.filters_of(cycle) if one.name not in attempt.skip_filter]
        statuses, rows = NodeStatuses(attempt.nodes), np.asarray([row], dtype=np.intp)
        rows = await nominated_pass(clients, attempt, statuses, rows, attempt.nominated)
        rows = await filter_rows(clients, attempt, statuses, rows)
        return SUCCESS if len(rows) else statuses.status_of(node_name)
    finally:
        framework.end_cycle(attempt, CycleEnd.ABORTED)
