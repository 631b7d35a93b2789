"""Finds the potential victims that must really leave, for all candidate nodes at once.

    all potential victims away -> Filter; where it rejects, the node is no candidate
    step k: the k-th unit of every node comes back -> Filter; where it rejects, that unit is a victim

Each step asks every plugin once, about all nodes. The number of calls to a served plugin is one more than the
largest number of units on a node. One call holds both passes for nominated pods.
Called by the evaluator. Source: kube-scheduler `framework/preemption/preemption.go` (DryRunPreemption) and
`framework/plugins/defaultpreemption/default_preemption.go` (SelectVictimsOnNode), v1.37.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from berth_sdk.scenarios import Scenarios
from berth_sdk.status import Status
from berth_sdk.tables import PodChanges
from numpy.typing import NDArray

from berth_host.attempt.cycle import Cycle
from berth_host.framework.filtering import filter_scenarios, sensitive
from berth_host.framework.framework import Framework
from berth_host.model.node_statuses import NodeStatuses
from berth_host.preemption.victims import PotentialVictims
from berth_host.rpc.client import PluginClient

NO_VICTIMS: Final = Status.unresolvable("No preemption victims found for incoming pod")


class DryRun:
    """The dry run of one preemption. `candidates` (intp[c]): ascending rows of the cycle's nodes.

    `statuses`: why a node is no candidate, by rows of the cycle's nodes.
    """

    def __init__(
        self,
        framework: Framework,
        cycle: Cycle,
        candidates: NDArray[np.intp],
        potential: PotentialVictims,
        statuses: NodeStatuses,
    ) -> None:
        self._cycle = cycle
        self._clients = _left_to_ask(framework.filters_of(cycle), cycle, candidates)
        self._candidates = candidates
        self._potential = potential
        self._statuses = statuses
        self._away = np.ones(len(potential), dtype=np.bool_)
        nominated = cycle.nominated
        self._nominated = nominated.added(candidates) if nominated else None
        self._nodes = cycle.nodes.take(candidates)

    async def run(self) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Return the places in `candidates` where evictions help, and bool[v]: the units that must leave.

        Writes to `statuses` why the other candidates do not work.
        """
        potential, counts = self._potential, self._potential.counts
        alive = np.flatnonzero(counts)
        if len(alive) < len(counts):
            without = np.flatnonzero(counts == 0)
            self._statuses.groups[self._candidates[without]] = self._statuses.group_of(NO_VICTIMS)
        alive = await self._judge(alive, self._clients, record=True)
        if not len(alive):
            return alive, self._away
        # The verdicts of plugins that other pods cannot influence are known for these nodes.
        clients = sensitive(self._clients)
        for step in range(int(counts[alive].max())):
            asked = alive[counts[alive] > step]
            back = potential.starts[asked] + step
            self._away[back] = False
            fits = await self._judge(asked, clients, record=False)
            needed = np.ones(len(self._candidates), dtype=np.bool_)
            needed[fits] = False
            self._away[back] = needed[asked]
        return alive, self._away

    async def _judge(
        self, asked: NDArray[np.intp], clients: Sequence[PluginClient], *, record: bool
    ) -> NDArray[np.intp]:
        """Return the places of `asked` (in `candidates`) that pass without the victims now away, in order."""
        if not len(asked) or not clients:
            return asked
        crowded, scenarios = self._scenarios(asked)
        verdicts = await filter_scenarios(clients, self._cycle, scenarios)
        groups = verdicts.groups[len(crowded) :].copy()
        if len(crowded):
            # The pass with nominated pods comes first: where it rejects, the other pass does not count.
            at = asked.searchsorted(crowded)
            first = verdicts.groups[: len(crowded)]
            groups[at] = np.where(first != 0, first, groups[at])
        if record:
            for group in np.flatnonzero(np.bincount(groups)).tolist():
                if group:
                    rows = self._candidates[asked[groups == group]]
                    self._statuses.groups[rows] = self._statuses.group_of(verdicts.statuses[group])
        passed: NDArray[np.intp] = asked[groups == 0]
        return passed

    def _scenarios(self, asked: NDArray[np.intp]) -> tuple[NDArray[np.intp], Scenarios]:
        """Return the places of `asked` with nominated pods, and the scenarios to ask about.

        The scenarios: one for each of these places with its nominated pods added, then one for each of
        `asked`.
        """
        removed = self._potential.leaving(self._away)
        if self._nominated is None:
            everything = len(asked) == len(self._candidates)
            return asked[:0], Scenarios.of_changes(
                self._nodes if everything else self._nodes.take(asked),
                removed if everything else removed.take(asked),
                PodChanges.none(len(asked)),
            )
        crowded = asked[self._nominated.counts()[asked] > 0]
        both = np.concatenate([crowded, asked])
        come = self._nominated.take(crowded)
        added = PodChanges(come.table, come.rows, np.append(come.starts, np.full(len(asked), len(come))))
        return crowded, Scenarios.of_changes(self._nodes.take(both), removed.take(both), added)


def _left_to_ask(
    clients: Sequence[PluginClient], cycle: Cycle, candidates: NDArray[np.intp]
) -> Sequence[PluginClient]:
    """Drop the plugins that other pods cannot influence and that come before every plugin that rejected a
    candidate: the cycle's Filter knows already that they pass all of these nodes.
    """
    statuses = cycle.statuses
    if statuses is None:
        return clients
    present = np.flatnonzero(np.bincount(statuses.groups[candidates], minlength=len(statuses.statuses)))
    rejecting = {statuses.statuses[group].plugin if group else "" for group in present.tolist()}
    names = [client.name for client in clients]
    first = min((names.index(name) if name in names else 0 for name in rejecting), default=0)
    return [*sensitive(clients[:first]), *clients[first:]]
