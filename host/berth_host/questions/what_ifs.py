"""`WhatIfs`: would the pod of a cycle fit on changed nodes, or on nodes that do not exist?

    a node of the snapshot   SimulateFilter, with the state that the cycle's PreFilter left
    a node that is new       a cycle of its own: the node comes into the snapshot, PreFilter, Filter

Only this module judges one node that does not exist. The nodes of templates come together (`simulating`).
A new node must be there before PreFilter, as in the simulator of cluster-autoscaler: plugins count domains
and pods over all nodes at PreFilter (PodTopologySpread, InterPodAffinity), and a new node may be a new
domain. So a plugin needs no code for new nodes, and its verdict is that of a cluster that has the node.
`WhatIfs` answers RunFilters of plugins, in the middle of a cycle, and the question `WhatIf`.
Source: kube-scheduler `framework/runtime/framework.go` (RunPreFilterPlugins, RunFilterPlugins), v1.37.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from berth_sdk import chance
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.needs import NeedKind
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.status import SUCCESS, Status
from berth_sdk.tables import NodeTable, StateVersion

from berth_host.attempt.cycle import Cycle, CycleEnd
from berth_host.cache.snapshot import Snapshot
from berth_host.cycle.schedule_one import Profile
from berth_host.errors import HostError
from berth_host.errors.endpoints import QuestionError
from berth_host.errors.plugins import CycleRestartError
from berth_host.framework.filtering import filter_scenarios
from berth_host.framework.framework import Framework
from berth_host.questions.questions import AskedCluster, Question


class IncompleteNodeError(HostError):
    """A new node lacks a part that a plugin of the profile declared."""


class GrowingSnapshot(Protocol):
    """The snapshot that a cycle holds; implemented by `cache.snapshot.Snapshot`."""

    @property
    def nodes(self) -> NodeTable:
        """The table of all nodes; a new object after each change."""
        ...

    @property
    def version(self) -> StateVersion:
        """The version of the table."""
        ...

    def with_node(self, node: Node, pods: Sequence[Pod] = ()) -> AbstractContextManager[None]:
        """Have one more node, with these pods, for the length of the block, or until `drop_new_nodes`."""
        ...

    def drop_new_nodes(self) -> None:
        """Drop the nodes of `with_node`, also while a block still runs."""
        ...


class WhatIfs:
    """The what-ifs of one profile over the snapshot. `without`: a plugin that is not asked; "": none."""

    def __init__(self, framework: Framework, snapshot: GrowingSnapshot, *, without: str = "") -> None:
        self._framework = framework
        self._snapshot = snapshot
        self._without = without

    async def run(self, cycle: Cycle, scenarios: Sequence[Scenario]) -> list[Status]:
        """Return for each scenario SUCCESS, or the first rejection in the order of the plugins.

        `cycle`: after PreFilter, unless all nodes are new. Each scenario is judged by itself. Afterwards the
        snapshot is as it was, at a newer version if there were new nodes.

        Raises IncompleteNodeError before any plugin is asked.
        """
        check_complete(
            self._framework, (one.node for one in scenarios if one.node is not None), without=self._without
        )
        known = [scenario for scenario in scenarios if scenario.node is None]
        verdicts = iter(await self._on_known(cycle, known) if known else [])
        return [
            next(verdicts)
            if scenario.node is None
            else await self._on_new(cycle, scenario.node, scenario.added)
            for scenario in scenarios
        ]

    async def _on_known(self, cycle: Cycle, scenarios: Sequence[Scenario]) -> list[Status]:
        clients = [one for one in self._framework.filters_of(cycle) if one.name != self._without]
        found = await filter_scenarios(clients, cycle, Scenarios(cycle.nodes, scenarios))
        return [found.statuses[group] if group else SUCCESS for group in found.groups.tolist()]

    async def _on_new(self, cycle: Cycle, node: Node, pods: Sequence[Pod]) -> Status:
        snapshot = self._snapshot
        try:
            with snapshot.with_node(node, pods):
                number = snapshot.version.generation
                try:
                    return await self._judged(cycle, f"{cycle.cycle_id}.n{number}", node, restarted=False)
                except CycleRestartError:
                    # A plugin lost the state of the node's cycle, which begins anew, once.
                    return await self._judged(cycle, f"{cycle.cycle_id}.r{number}", node, restarted=True)
        finally:
            cycle.version = snapshot.version

    async def _judged(self, cycle: Cycle, cycle_id: str, node: Node, *, restarted: bool) -> Status:
        """Return the verdict on a node of the snapshot, in a cycle of its own."""
        snapshot = self._snapshot
        attempt = Cycle(
            cycle_id,
            cycle.pod,
            cycle.profile,
            nodes=snapshot.nodes,
            version=snapshot.version,
            budget_s=cycle.budget_s,
            restarted=restarted,
        )
        try:
            return await self._framework.judge(attempt, node.name, without=self._without)
        finally:
            self._framework.end_cycle(attempt, CycleEnd.ABORTED)


@dataclass(frozen=True, slots=True)
class WhatIf(Question[list[Status]]):
    """Would the pod fit? For each scenario SUCCESS, or the rejection with the name of its plugin.

    A scenario is a node of the snapshot without some of its pods and with others, or a node that does not
    exist (`Scenario.node`). Each is judged by itself.
    """

    pod: Pod
    scenarios: Sequence[Scenario]

    async def answer(self, cluster: AskedCluster) -> list[Status]:
        """Return the answer of a cluster of one's own.

        Raises QuestionError in another cluster, KeyError for a node that is not there, InvariantError for a
        new node that is, and IncompleteNodeError.
        """
        if not cluster.is_own:
            # There, nominated pods and extenders count, too, which scenarios do not know.
            raise QuestionError("a running host answers no what-if: ask a FrameworkAlone over a copy")
        profile = cluster.profile_of(self.pod)
        check_complete(profile.framework, (one.node for one in self.scenarios if one.node is not None))
        async with cluster.undisturbed():
            try:
                return await self._judged(profile, cluster.snapshot, restarted=False)
            except CycleRestartError:
                # A plugin lost the state of the cycle, which begins anew, once.
                return await self._judged(profile, cluster.snapshot, restarted=True)

    async def _judged(self, profile: Profile, snapshot: Snapshot, *, restarted: bool) -> list[Status]:
        asked, framework = self.scenarios, profile.framework
        what_ifs = WhatIfs(framework, snapshot)
        cycle = Cycle(
            chance.token_hex(16),
            self.pod,
            framework.profile,
            nodes=snapshot.nodes,
            version=snapshot.version,
            budget_s=profile.cycle_budget_s,
            restarted=restarted,
        )
        try:
            rejected = SUCCESS
            if any(one.node is None for one in asked):
                rejected = (await framework.run_pre_filter(cycle)).status
            if rejected.is_success:
                return await what_ifs.run(cycle, asked)
            # On a new node, PreFilter is asked anew.
            found = iter(await what_ifs.run(cycle, [one for one in asked if one.node is not None]))
            return [rejected if one.node is None else next(found) for one in asked]
        finally:
            framework.end_cycle(cycle, CycleEnd.UNSCHEDULABLE)


def check_complete(framework: Framework, nodes: Iterable[Node], *, without: str = "") -> None:
    """Raise IncompleteNodeError if a plugin declared the objects of nodes, and a new node has none.

    `without`: a plugin that is not asked; "": none.
    """
    bare = next((node for node in nodes if node.object is None), None)
    if bare is None:
        return
    for client in framework.plugins_at(ExtensionPoint.FILTER):
        if client.name != without and any(
            need.kind is NeedKind.NODE_OBJECT for need in client.descriptor.needs
        ):
            raise IncompleteNodeError(
                f"the new node {bare.name!r} has no object, and plugin {client.name} declared the objects"
                " of nodes: give the node as a core/v1 Node"
            )
