"""`Evaluator`: a pod that fits nowhere -> the node to nominate, and the pods that must leave it.

Called through the handle of the plugin whose PostFilter runs (DefaultPreemption). The candidates are those
that a search from a random offset would find. The evaluator judges many nodes at once: first a few more than
the search wants, then all others if it found too few. If a served plugin is asked, it judges all at once.
Source: kube-scheduler `framework/preemption/preemption.go` (Evaluator.Preempt), v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol

import numpy as np
from berth_sdk.extension_points import PodSensitivity
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.results import PostFilterResult
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.attempt.cycle import Cycle
from berth_host.config.host_rules import RULES_1_37, HostRules
from berth_host.cycle.chooser import Chooser
from berth_host.errors.extenders import ExtenderError
from berth_host.explain.fit_error import fit_error_message
from berth_host.extenders.extenders import NO_EXTENDERS, Extenders, Victims
from berth_host.framework.filtering import sensitive
from berth_host.framework.framework import Framework
from berth_host.model.node_statuses import NodeStatuses
from berth_host.preemption import selection
from berth_host.preemption.budgets import Budget, Budgets, BudgetStore
from berth_host.preemption.cross_node_units import victims_on
from berth_host.preemption.dry_run import NO_VICTIMS, DryRun
from berth_host.preemption.eligibility import UNDER_WAY, ineligible_reason
from berth_host.preemption.kept_outcomes import KeptOutcomes, Outcomes
from berth_host.preemption.reprieve import TrialSnapshot
from berth_host.preemption.selection import Candidates
from berth_host.preemption.units import Units, has_groups, units_of
from berth_host.preemption.victims import PotentialVictims, potential_victims

NO_CANDIDATE: Final = Status.unschedulable("no candidate node for preemption")
NOT_HELPFUL: Final = Status.unresolvable("Preemption is not helpful for scheduling")
DEFAULT_PERCENTAGE: Final = 10
DEFAULT_ABSOLUTE: Final = 100


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """The number of candidates that ends a search: the larger of a share of the nodes and a number."""

    percentage: int = DEFAULT_PERCENTAGE
    absolute: int = DEFAULT_ABSOLUTE

    def wanted(self, count: int) -> int:
        """Return the number of candidates to find among `count` nodes."""
        return min(count, max(count * self.percentage // 100, self.absolute))


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The candidates of a preemption. `potential` (intp[c]): rows of `nodes` that were tried; `best`: places
    in `candidates` of the equally good candidates, `chosen` among them.
    """

    nodes: NodeTable
    potential: NDArray[np.intp]
    candidates: Candidates
    best: NDArray[np.intp]
    chosen: int

    def node_name(self, place: int) -> str:
        """Return the node of a candidate."""
        return self.nodes.name(int(self.potential[self.candidates.places[place]]))

    def victims_of(self, place: int) -> Sequence[Pod]:
        """Return the pods that must leave a candidate's node, most important first."""
        return self.candidates.victims(place)


_NO_PLACES: Final = np.zeros(0, dtype=np.intp)


@dataclass(slots=True, eq=False)
class Evaluation:
    """The result of an evaluation. `status`: SUCCESS, UNSCHEDULABLE with the reason, or an error.

    `ineligible`: why the pod may not preempt. `potential`: rows of the nodes where preemption might help;
    `statuses`: why it does not help on the other nodes. `choice` None: preemption helps nowhere.
    """

    statuses: NodeStatuses
    status: Status = SUCCESS
    ineligible: str = ""
    clear_nomination: bool = False
    potential: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    choice: Choice | None = None
    without_victims: list[int] = field(default_factory=list)
    """Rows of the potential nodes that need no victim for the filters: those that extenders may fill."""

    def result(self) -> PostFilterResult:
        """Return the evaluation as the answer of a PostFilter plugin."""
        choice = self.choice
        if choice is None:
            return PostFilterResult(self.status, clear_nomination=self.clear_nomination)
        victims = tuple(_ref(pod) for pod in choice.victims_of(choice.chosen))
        return PostFilterResult(self.status, choice.node_name(choice.chosen), victims=victims)


class PodsAndPreemptions(Protocol):
    """The pods as the watch last showed them, and the evictions under way."""

    def current(self, pod: Pod) -> Pod | None:
        """Return the newest record of a pod; None if the pod is gone."""
        ...

    def is_preempting(self, uid: str) -> bool:
        """Return True while victims of the pod are being evicted."""
        ...


class Evaluator:
    """The evaluator of one host. Keeps the results of a preemption for equal preemptors (`kept_outcomes`)."""

    def __init__(
        self,
        chooser: Chooser,
        budgets: BudgetStore,
        pods: PodsAndPreemptions,
        extenders: Extenders = NO_EXTENDERS,
        groups_in: TrialSnapshot | None = None,
        rules: HostRules = RULES_1_37,
    ) -> None:
        """Make the evaluator. `groups_in`: the snapshot, if pod groups count; None: they do not. `rules`:
        those of the version.
        """
        self._snapshot = groups_in
        self._chooser = chooser
        self._extenders = extenders
        self._budgets = Budgets(budgets, rules)
        self._rules = rules
        self._pods = pods
        self.kept = KeptOutcomes()

    async def evaluate(
        self, framework: Framework, cycle: Cycle, limits: SearchLimits | None = None
    ) -> Evaluation:
        """Choose the node and the victims for the cycle's pod, from the cycle's reasons why no node fits."""
        nodes, statuses = cycle.nodes, cycle.statuses
        found = Evaluation(NodeStatuses(nodes))
        found.statuses.absent = NOT_HELPFUL
        # A pod that is only asked about need not exist.
        current = cycle.pod if cycle.is_question else self._pods.current(cycle.pod)
        if current is None or statuses is None:
            found.status = Status.error(f'pod "{cycle.pod.name}" not found')
            return found
        groups = None if self._snapshot is None else self._snapshot.groups
        found.ineligible = ineligible_reason(current, nodes, statuses, groups)
        if not found.ineligible and self._pods.is_preempting(current.uid):
            found.ineligible = UNDER_WAY
        if found.ineligible:
            found.status = Status.unschedulable(found.ineligible)
            return found
        found.potential = _potential(statuses)
        if len(found.potential):
            try:
                found.choice = await self._choose(framework, cycle, limits or SearchLimits(), found)
            except ExtenderError as err:
                found.status = Status.error(str(err))
        if found.choice is None and found.status.is_success:
            found.status = _no_candidate(found.statuses)
            found.clear_nomination = found.status.is_rejected
        return found

    async def _choose(
        self, framework: Framework, cycle: Cycle, limits: SearchLimits, found: Evaluation
    ) -> Choice | None:
        fills = self._rules.offers_nodes_without_victims and self._extenders.preempt_for(cycle.pod)
        search = _Search(
            framework,
            cycle,
            found,
            self._budgets.read(),
            self.kept,
            self._units(cycle.nodes),
            self._snapshot,
            self._rules,
            fills=fills,
        )
        count = len(found.potential)
        offset, wanted = self._chooser.offset(count), limits.wanted(count)
        part = wanted + wanted // 4
        # The search most often ends early. A served plugin is still asked once about all nodes, because a
        # call costs more than rows do.
        if 0 < 2 * part < count and not framework.has_served and not fills:
            candidates = await search.among(search.first_part(offset, wanted, part))
            kept, ended = selection.searched(candidates, offset, count, wanted)
            if ended:
                return await self._best(cycle, found, candidates.take(np.sort(kept)))
        candidates = await search.among(np.arange(count))
        empty = np.sort(found.potential.searchsorted(np.asarray(found.without_victims, dtype=np.intp)))
        if not len(candidates) and not (fills and len(empty)):
            return None
        if fills and len(empty):
            kept, empty = selection.searched_with_empty(candidates, empty, offset, count, wanted)
            return await self._best(cycle, found, candidates.take(np.sort(kept)), np.sort(empty))
        kept, _ = selection.searched(candidates, offset, count, wanted)
        return await self._best(cycle, found, candidates.take(np.sort(kept)))

    def _units(self, nodes: NodeTable) -> Units | None:
        """Return the units of the snapshot's pods; None while each pod is a unit."""
        if self._snapshot is None or not has_groups(nodes.pods):
            return None
        return units_of(nodes.pods, self._snapshot.groups)

    async def _best(
        self,
        cycle: Cycle,
        found: Evaluation,
        candidates: Candidates,
        empty: NDArray[np.intp] = _NO_PLACES,
    ) -> Choice | None:
        """Return the best of the candidates that the extenders leave; None if they leave none. Raises
        ExtenderError. `empty`: the places of nodes without victims, which extenders may fill.
        """
        nodes, rows = cycle.nodes, found.potential
        if self._extenders.preempt_for(cycle.pod):
            victims = {
                **_by_node(nodes, rows, candidates),
                **{nodes.name(int(rows[place])): ((), 0) for place in empty.tolist()},
            }
            left = await self._extenders.preempt(cycle, victims, partial(_on, nodes))
            if not left:
                found.status = NO_CANDIDATE
                return None
            rows, candidates = selection.named(nodes, left)
        best = selection.best(candidates)
        names = _Tied(nodes.take(rows[candidates.places[best]]))
        chosen = int(best[self._chooser.pick(names)])
        return Choice(nodes, rows, candidates, best, chosen)


class _Search:
    """The search of one evaluation. Nodes are named by their places in the evaluation's `potential`."""

    def __init__(
        self,
        framework: Framework,
        cycle: Cycle,
        found: Evaluation,
        budgets: Sequence[Budget],
        shared: KeptOutcomes,
        units: Units | None,
        snapshot: TrialSnapshot | None,
        rules: HostRules,
        *,
        fills: bool,
    ) -> None:
        """Make the search. `fills`: an extender may name victims for a node that needs none."""
        self._rules = rules
        self._fills = fills
        self._units = units
        self._snapshot = snapshot
        self._framework = framework
        self._cycle = cycle
        self._found = found
        self._budgets = budgets
        # The outcome for one node may depend on a group's pods on other nodes.
        self._outcomes = (
            shared.of(framework, cycle, budgets) if units is None else Outcomes(cycle.nodes.slot_count)
        )
        self._slots = cycle.nodes.slots.take(found.potential)

    def first_part(self, offset: int, wanted: int, part: int) -> NDArray[np.intp]:
        """Return the places from `offset` on up to where known verdicts end the search, or the next `part`.
        `wanted`: at least one.
        """
        count = len(self._slots)
        working = np.flatnonzero(self._outcomes.work(self._slots))
        first = int(working.searchsorted(offset))
        working = np.concatenate([working[first:] - offset, working[:first] + (count - offset)])
        end = part
        if len(working) >= wanted:
            harmless = self._outcomes.harmless(self._slots.take((working + offset) % count))
            if harmless.any():
                end = 1 + max(working.item(wanted - 1), working.item(harmless.argmax()))
        behind = np.arange(offset, min(offset + end, count))
        return behind if offset + end <= count else np.concatenate([np.arange(offset + end - count), behind])

    async def among(self, places: NDArray[np.intp]) -> Candidates:
        """Return the candidates at `places` (ascending).

        Writes to the evaluation's statuses why the other places are no candidates.
        """
        outcomes, found = self._outcomes, self._found
        slots = self._slots[places]
        missing = ~outcomes.known.take(slots)
        if missing.any():
            await self._try(places[missing])
        outcomes.tell(slots, found.potential[places], found.statuses)
        return outcomes.candidates(slots, places)

    async def _try(self, places: NDArray[np.intp]) -> None:
        cycle = self._cycle
        rows = self._found.potential[places]
        victims = potential_victims(
            cycle.pod,
            cycle.nodes,
            rows,
            self._budgets,
            self._units,
            by_uid=self._rules.orders_victims_by_uid,
        )
        wide = victims.reaches_further()
        if self._snapshot is not None and wide.any() and self._looks_further():
            # Trials move the rows of the table of pods, so the other nodes come first.
            if not wide.all():
                await self._try(places[~wide])
                await self._try(places[wide])
                return
            candidates = await self._try_apart(rows, victims, self._snapshot)
        else:
            passed, away = await DryRun(self._framework, cycle, rows, victims, self._found.statuses).run()
            counts = np.diff(np.concatenate([[0], np.cumsum(away)])[victims.starts])
            for place in passed[counts[passed] == 0].tolist():
                self._without_victims(int(rows[place]))
            candidates = selection.candidates_of(victims, passed[counts[passed] > 0], away)
        self._outcomes.put(self._slots[places], candidates, rows, self._found.statuses)
        if any(client.is_failing for client in self._framework.filters_of(cycle)):
            # The failure policy may have replaced a plugin's answer.
            self._outcomes.keep_for_now(self._slots[places])

    def _without_victims(self, row: int) -> None:
        """Write what the version says of a node that no evictions are needed on."""
        self._found.without_victims.append(row)
        statuses = self._found.statuses
        if self._rules.offers_nodes_without_victims:
            statuses.groups[row] = statuses.group_of(NO_VICTIMS)
            if self._fills:
                # Outcomes that are kept for equal preemptors do not name these nodes.
                self._outcomes.keep_for_now(self._cycle.nodes.slots[[row]])
            return
        text = f'expected at least one victim pod on node "{self._cycle.nodes.name(row)}"'
        statuses.groups[row] = statuses.group_of(Status.error(text))

    def _looks_further(self) -> bool:
        """Return True if a plugin that judges the pod looks at other nodes than the one it judges."""
        clients = sensitive(self._framework.filters_of(self._cycle))
        return any(client.descriptor.pod_sensitivity is PodSensitivity.CLUSTER for client in clients)

    async def _try_apart(
        self, rows: NDArray[np.intp], victims: PotentialVictims, snapshot: TrialSnapshot
    ) -> Candidates:
        """Return the candidates of a dry run for the units' pods on other nodes too, node after node."""
        nodes, statuses = self._cycle.nodes, self._found.statuses
        units = [victims.unit_pods(i) for i in range(len(victims))]
        works: dict[str, tuple[list[Pod], int]] = {}
        for place, row in enumerate(rows.tolist()):
            start, end = int(victims.starts[place]), int(victims.starts[place + 1])
            name = nodes.name(row)
            found = await victims_on(self._framework, self._cycle, name, units[start:end], snapshot)
            if isinstance(found, Status):
                statuses.groups[row] = statuses.group_of(found)
                continue
            away = start + np.flatnonzero(found)
            if not len(away):
                self._without_victims(row)
                continue
            by_importance = away[np.argsort(victims.importance[away])]
            pods = [pod for i in by_importance.tolist() for pod in units[i]]
            works[name] = pods, int(victims.violations[away].sum())
        self._units = units_of(nodes.pods, snapshot.groups)
        if not works:
            return selection.nobody()
        at, candidates = selection.named(nodes, works)
        return replace(candidates, places=rows.searchsorted(at))


class _Tied:
    """The nodes of equally good candidates, for the chooser."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def names(self) -> list[str]:
        """The names of the nodes."""
        return self._nodes.names


def _potential(statuses: NodeStatuses) -> NDArray[np.intp]:
    """Return the rows whose verdict is exactly UNSCHEDULABLE."""
    helps = [status.code is Code.UNSCHEDULABLE for status in statuses.statuses]
    helps[0] = statuses.absent.code is Code.UNSCHEDULABLE
    return np.flatnonzero(np.asarray(helps)[statuses.groups])


def _no_candidate(statuses: NodeStatuses) -> Status:
    errors = [status for status, _ in statuses.group_counts() if not status.is_rejected]
    if errors:
        texts = list(dict.fromkeys(status.message for status in errors))
        return Status.error(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
    return Status.unschedulable(fit_error_message(len(statuses.table), statuses.reasons()))


def _by_node(nodes: NodeTable, rows: NDArray[np.intp], candidates: Candidates) -> Victims:
    """Return the victims of each candidate, and the budgets that their eviction breaks, by node."""
    return {
        nodes.name(int(rows[place])): (candidates.victims(i), candidates.violations.item(i))
        for i, place in enumerate(candidates.places.tolist())
    }


def _on(nodes: NodeTable, name: str) -> Sequence[Pod] | None:
    row = nodes.position(name)
    return None if row is None else list(nodes.pods.on_node(nodes.slots.item(row)))


def _ref(pod: Pod) -> ObjectRef:
    return ObjectRef(namespace=pod.namespace, name=pod.name, uid=pod.uid)
