"""`GroupEvaluator`: a group that has no room -> the nodes to nominate, and the pods that must leave.

    may the group preempt? -> is a preemption of its own under way? -> all units of lower priority leave the
    snapshot -> the algorithm runs once -> the units that need not leave come back (`reprieve`)

Since 1.38 the algorithm prefers nodes that cost few victims (`node_ranks`), if DefaultPreemption is in the
profile at Reserve and PodGroupPostFilter.

The units (`units`) of the whole cluster count. The nodes that the algorithm chooses do not change any more,
so there may be a smaller set of victims.
Called through the handle of the plugin whose PodGroupPostFilter runs (DefaultPreemption).
Evicts no pod; `evictions` does.
Source: kube-scheduler `framework/preemption/podgrouppreemption.go`, v1.37 and v1.38; `manager.go`, v1.38.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup
from berth_sdk.slices import without_deadline
from berth_sdk.status import SUCCESS, Status
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.config.host_rules import RULES_1_37, HostRules
from berth_host.framework.framework import Framework
from berth_host.metrics.group_metrics import GROUP, PreemptionMetrics
from berth_host.metrics.series import instant_s
from berth_host.preemption.budgets import Budgets, BudgetStore, violating
from berth_host.preemption.eligibility import NEVER, makes_room
from berth_host.preemption.node_ranks import NodeRanks, RankedVictim
from berth_host.preemption.reprieve import MakeAttempts, Placed, TrialSnapshot, victims_among
from berth_host.preemption.units import RANK_NAMES, GroupObjects, Units, units_of
from berth_host.rpc.loop_slices import LoopSlices

_NO_VICTIMS: Final = "No preemption victims found for incoming preemptor"
ONGOING: Final = Status(SUCCESS.code, ("ongoing preemption on nominated nodes",))


@dataclass(frozen=True, slots=True, eq=False)
class Rerun:
    """The outcome of a run of the root algorithm: the members with a node, in the order of the run."""

    status: Status
    placed: Sequence[Placed] = ()


class GroupAttempt(MakeAttempts, Protocol):
    """The cycle of the group that preempts."""

    @property
    def root(self) -> PodGroup:
        """The group, the root of its tree."""
        ...

    @property
    def pods(self) -> Sequence[Pod]:
        """The members of the whole tree to place, in the order of the attempt."""
        ...

    @property
    def framework(self) -> Framework:
        """The plugins of the group's profile."""
        ...

    @property
    def snapshot(self) -> TrialSnapshot:
        """The snapshot that the cycle holds."""
        ...

    async def rerun(self, ranks: NodeRanks | None = None) -> Rerun:
        """Run the root algorithm on the snapshot as it is now, and undo what it assumed and reserved.

        `ranks`: members go to nodes of the lowest rank.
        """
        ...


@dataclass(slots=True, eq=False)
class GroupEvaluation:
    """The result of an evaluation. `status`: SUCCESS with a text, a rejection with the reason, or an error.

    `nominations`: the node of each member, by uid; "" clears the nomination. `victims`: most important first.
    `disruptions`: the number of units among the victims by type, for metrics. `violations`: victims whose
    eviction breaks a budget.
    """

    status: Status
    nominations: dict[str, str] = field(default_factory=dict)
    victims: Sequence[Pod] = ()
    disruptions: Mapping[str, int] = field(default_factory=dict)
    violations: int = 0


class Preemptions(Protocol):
    """The evictions under way."""

    def is_preempting(self, uid: str) -> bool:
        """Return True while pods are evicted for the group with this uid."""
        ...


class GroupEvaluator:
    """The evaluator of one host. `group_policy` True: the group says whether it preempts (feature gate
    PodGroupPreemptionPolicy), else its pods. `rules`: those of the version.
    """

    def __init__(
        self,
        budgets: BudgetStore,
        preempting: Preemptions,
        metrics: PreemptionMetrics | None = None,
        *,
        group_policy: bool = False,
        rules: HostRules = RULES_1_37,
    ) -> None:
        self._budgets = Budgets(budgets, rules)
        self._preempting = preempting
        self._metrics = metrics or PreemptionMetrics()
        self._group_policy = group_policy
        self._judges_trees = rules.judges_group_trees

    async def evaluate(self, attempt: GroupAttempt) -> GroupEvaluation:
        """Choose the victims and the members' nodes. The snapshot is the same afterwards."""
        snapshot, root = attempt.snapshot, attempt.root
        never = self.never_preempts(root, attempt.pods)
        if never and not self._judges_trees:
            return GroupEvaluation(Status.unschedulable(NEVER))
        priority = root.priority_among(attempt.pods)
        # After a restart, evictions may run for a group that PreEnqueue does not hold back yet.
        if self._preempting.is_preempting(root.uid) or is_ongoing(
            attempt.pods, priority, snapshot.nodes, snapshot.groups
        ):
            return GroupEvaluation(ONGOING, {pod.uid: pod.nominated_node for pod in attempt.pods})
        if never:
            return GroupEvaluation(Status.unschedulable(NEVER))
        started_s = instant_s()
        async with without_deadline():
            found = await self._search(attempt, priority)
        seconds = instant_s() - started_s
        self._metrics.evaluated(found.status.code, seconds, preemptor=root.api_kind.lower())
        return found

    async def _search(self, attempt: GroupAttempt, priority: int) -> GroupEvaluation:
        snapshot = attempt.snapshot
        units = units_of(snapshot.nodes.pods, snapshot.groups)
        lower = np.flatnonzero(units.priority < priority)
        if not len(lower):
            make = Status.unschedulable if self._judges_trees else Status.unresolvable
            return GroupEvaluation(make(_NO_VICTIMS))
        potential = self._potential(units, lower)
        is_ranked = self._judges_trees and attempt.framework.ranks_nodes
        ranks = NodeRanks(potential.ranked()) if is_ranked else None
        mark = snapshot.mark()
        try:
            pace = LoopSlices()
            for pods in potential.pods:
                for pod in pods:
                    snapshot.remove(pod.uid)
                await pace.step()
            rerun = await attempt.rerun(ranks)
            if not rerun.status.is_success:
                return GroupEvaluation(rerun.status)
            order = potential.order
            away = await victims_among(
                attempt.framework, rerun.placed, [potential.pods[i] for i in order], snapshot, attempt
            )
        finally:
            snapshot.revert(mark)
        gone = np.asarray(order)[away]
        if not self._judges_trees:
            gone = np.sort(gone)
        victims = [pod for i in gone.tolist() for pod in potential.pods[i]]
        return GroupEvaluation(
            Status(SUCCESS.code, (f"found a placement for podgroup, preempting {len(victims)} victims",)),
            {placed.cycle.pod.uid: placed.node_name for placed in rerun.placed},
            victims,
            self._disruptions(potential, gone),
            int(potential.violations[gone].sum()),
        )

    def never_preempts(self, root: PodGroup, pods: Iterable[Pod]) -> bool:
        """Return True if a group with these members must not evict other pods."""
        if root.states_policy if self._judges_trees else self._group_policy:
            return root.never_preempts
        return any(pod.never_preempts for pod in pods)

    def _disruptions(self, potential: _Potential, gone: NDArray[np.intp]) -> Mapping[str, int]:
        """Return the number of units by type of entity. Before 1.38 only groups and pods of groups count."""
        if not self._judges_trees:
            return {GROUP: int(np.count_nonzero(potential.is_group[gone]))}
        return Counter(RANK_NAMES[rank] for rank in potential.rank[gone].tolist())

    def _potential(self, units: Units, lower: NDArray[np.intp]) -> _Potential:
        lower = units.by_importance(lower)
        rows, starts = units.pods_of(lower)
        violations = np.zeros(len(lower), dtype=np.int64)
        budgets = self._budgets.read()
        if budgets:
            everywhere = np.asarray([0, len(rows)], dtype=np.intp)
            broken = violating(budgets, units.table, rows, everywhere)
            violations += np.add.reduceat(broken.astype(np.int64), starts[:-1])
        pods = units.table.several(rows)
        return _Potential(
            [pods[start:end] for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)],
            units.is_group(lower),
            violations,
            units.priority.take(lower),
            units.rank.take(lower),
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Potential:
    """The units that may leave, most important first."""

    pods: Sequence[Sequence[Pod]]
    is_group: NDArray[np.bool_]
    violations: NDArray[np.int64]
    priority: NDArray[np.int64]
    rank: NDArray[np.int64]

    def ranked(self) -> list[RankedVictim]:
        """Return the units for `NodeRanks`."""
        numbers = zip(self.violations.tolist(), self.priority.tolist(), self.rank.tolist(), strict=True)
        return [RankedVictim(pods, *found) for pods, found in zip(self.pods, numbers, strict=True)]

    @property
    def order(self) -> list[int]:
        """The order in which the units come back: those that break a budget first."""
        order: list[int] = np.argsort(self.violations == 0, kind="stable").tolist()
        return order


def is_ongoing(pods: Iterable[Pod], priority: int, nodes: NodeTable, groups: GroupObjects) -> bool:
    """Return True if a pod of lower priority leaves a nominated node of one of `pods`, because a scheduler
    preempted it.
    """
    for name in {pod.nominated_node for pod in pods if pod.nominated_node}:
        node = nodes.node_named(name)
        if node is not None and any(makes_room(other, priority, groups) for other in node.pods):
            return True
    return False


def victim_refs(victims: Iterable[Pod]) -> tuple[ObjectRef, ...]:
    """Return the references by which a plugin's answer names victims."""
    return tuple(ObjectRef(namespace=pod.namespace, name=pod.name, uid=pod.uid) for pod in victims)
