"""`Placements`: the algorithm of a group's cycle. Finds nodes for the members, and gives them back.

    a group     PlacementGenerate -> each placement is tried -> PlacementScore -> the best placement
    a placement PlacementFeasible -> (a member: PreFilter ... Score, Reserve, assume -> PlacementFeasible) ...

A member that was placed counts in the snapshot for the members after it. Trials are undone newest first:
Unreserve, then the member leaves the snapshot. At the end of the algorithm nothing is reserved or assumed;
the nodes are in `Member.result`. A composite group's placement is divided again for its children.
Source: kube-scheduler `schedule_one_podgroup.go` (podGroupSchedulingDefaultAlgorithm,
podGroupSchedulingPlacementAlgorithm), v1.37.
"""

from __future__ import annotations

from collections.abc import Awaitable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np
from berth_sdk.errors import HandleError
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.pod import Pod
from berth_sdk.pod_group import Assignment, Placement, PlacementProgress, PodGroup
from berth_sdk.results import PodGroupPostFilterResult, Trial
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.attempt.cycle import NO_NODES, POD_DELETED, Cycle
from berth_host.attempt.group_cycle import GroupCycle, PlacementCycle
from berth_host.cache.snapshot import Snapshot
from berth_host.cycle.attempt import Aborted, Attempt, Failed, Restarted, ScheduleResult, TiedNodes
from berth_host.cycle.observer import AttemptStep
from berth_host.cycle.schedule_one import SearchSteps, Undoing
from berth_host.errors.state import InvariantError
from berth_host.groups.group_attempt import Branch, GroupAttempt, GroupStatus, Member
from berth_host.groups.group_rules import GroupRules
from berth_host.groups.kept_trials import KeptMember, KeptPlacement, KeptTrial, KeptTrials
from berth_host.metrics.group_metrics import GroupMetrics
from berth_host.metrics.series import instant_s
from berth_host.model.pre_filter_outcome import PreFilterOutcome
from berth_host.preemption.group_evaluator import (
    GroupEvaluation,
    GroupEvaluator,
    Rerun,
    victim_refs,
)
from berth_host.preemption.node_ranks import NodeRanks
from berth_host.preemption.reprieve import Placed
from berth_host.queue.nominator import Nominator

ALL_NODES: Final = ""
"""The name of the placement with all nodes."""
_LEAST_PERCENTAGE: Final = 5
REVERTED: Final = "the group's cycle gives back the nodes of a trial"


class Restart(Exception):  # noqa: N818  # the way back to the start of the algorithm, not an error
    """A served plugin was restarted and does not know the cycle: the group's algorithm begins again."""

    def __init__(self, restarted: Restarted) -> None:
        self.restarted = restarted
        super().__init__(restarted.message)


@dataclass(slots=True, eq=False)
class _Placed:
    """A member that a trial places. `nominated`: the node that it was nominated to before; "" for none.

    `is_assumed`: Reserve has succeeded, and the snapshot has the pod on its node. `condemned`: the victims
    that the member newly costs (`NodeRanks.condemn`).
    """

    attempt: Attempt
    nominated: str
    is_assumed: bool = False
    condemned: Sequence[int] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Nodes:
    """The nodes of a placement: its rows of the snapshot, None for all nodes; the order in which a sampled
    search visits them.
    """

    rows: NDArray[np.intp] | None
    order: NDArray[np.intp] | None

    def of(self, snapshot: Snapshot) -> NodeTable:
        """Return the nodes as the snapshot has them now."""
        nodes = snapshot.nodes
        return nodes if self.rows is None else nodes.take(self.rows)


@dataclass(frozen=True, slots=True, eq=False)
class _Outcome:
    """The results that a run wrote into the members of a group and into the groups in it."""

    members: Sequence[tuple[Member, Attempt | None, ScheduleResult | None, Failed | None]]
    groups: Sequence[tuple[Branch, GroupStatus | None]]

    def restore(self) -> None:
        """Write the outcome into the members and the groups again."""
        for member, attempt, result, failed in self.members:
            member.attempt, member.result, member.failed = attempt, result, failed
        for branch, status in self.groups:
            branch.status = status

    @classmethod
    def of(cls, branch: Branch) -> _Outcome:
        """Return the present outcome of a group."""
        members = [(one, one.attempt, one.result, one.failed) for one in branch.all_members()]
        return cls(members, [(one, one.status) for one in branch.all()])


@dataclass(slots=True, eq=False)
class _Tried:
    """One placement that was tried. `repeats`: the trial whose outcome was used again; None: the members were
    tried.
    """

    record: PlacementCycle
    status: GroupStatus
    outcome: _Outcome
    repeats: KeptTrial | None = None


class _Differs(Exception):  # noqa: N818  # the way to a trial of the members, not an error
    """A kept trial does not say what happens next."""


@dataclass(slots=True, eq=False)
class _Keeping:
    """The kept trials of one group in several placements. `signed`: its members' signatures. `places`,
    `stamps`: by placement. `judged`: the answers of PlacementFeasible by progress, which hold in every
    placement; None: it is asked in every placement.
    """

    trials: KeptTrials
    signed: tuple[Hashable, ...]
    places: Sequence[KeptPlacement]
    stamps: Sequence[Hashable]
    judged: dict[PlacementProgress, Status] | None
    placing_all: Status | None = None
    """The last answer of PlacementFeasible in a trial that places all members, where `judged` holds it."""
    has_failed: bool = False
    """True after the group had no place in one of them. Before that, counting would find room in each."""
    has_counted: bool = False
    """True after `room` was asked for."""
    room: Sequence[int] | None = None
    """By placement: how many members have room, if the columns tell (`Placements._count_room`)."""
    refusals: dict[int, tuple[KeptTrial, GroupStatus]] = field(default_factory=dict)
    """By number of members with room: the outcome of a trial there, and the group's status."""

    def found(self, place: int) -> KeptTrial | None:
        """Return the kept trial in a placement, if it holds."""
        return self.trials.found(self.places[place], self.signed, self.stamps[place])


class Placements:
    """The algorithm for one group's attempt, over the held snapshot. The group's preemption works on it, too
    (implements `groups.group_attempt.GroupAttempt`), and PodGroupPostFilter asks through it
    (`framework.group_points.Trials`).
    """

    def __init__(
        self,
        attempt: GroupAttempt,
        steps: SearchSteps,
        snapshot: Snapshot,
        nominator: Nominator,
        undoing: Undoing,
        evaluator: GroupEvaluator | None,
        metrics: GroupMetrics,
        rules: GroupRules,
        kept: KeptTrials | None = None,
    ) -> None:
        """Prepare the first run.

        `evaluator` None: nobody may be preempted, as in a what-if. `rules`: those of the version that is
        followed. `kept`: the trials of the profile that are kept; None: none are.
        """
        self._kept = kept
        self._has_repeated = False
        """True after a kept trial, in which PreFilter of the members got to its end, was used again."""
        self._attempt = attempt
        self._profile = attempt.scheduling
        self.framework = attempt.scheduling.framework
        self._points = self.framework.groups
        self._steps = steps
        self._observer = steps.observer
        self.snapshot = snapshot
        self._nominator = nominator
        self._undoing = undoing
        self._evaluator = evaluator
        self.evaluation: GroupEvaluation | None = None
        """The result of the host's preemption; None: no plugin asked for it."""
        self._metrics = metrics
        self._rules = rules
        self._placed: list[_Placed] = []
        self._ranks: NodeRanks | None = None
        """The ranks of nodes in a run for a preemption."""
        self._has_placements = self._points.has(ExtensionPoint.PLACEMENT_GENERATE)
        self.made: list[Attempt] = []
        """Every attempt of a member that was made."""

    @property
    def root(self) -> PodGroup:
        """The group, the root of its tree."""
        return self._attempt.tree.group

    @property
    def pods(self) -> list[Pod]:
        """The members to place, in the order in which they are tried."""
        return [member.pod for member in self._attempt.members]

    @property
    def may_preempt(self) -> bool:
        """True if the group may evict pods of lower priority: a plugin of its profile asked for the host's
        preemption in this attempt, and the preemption policy is not Never.
        """
        if self._evaluator is None or self.evaluation is None:
            return False
        return not self._evaluator.never_preempts(self.root, self.pods)

    async def run(self) -> GroupStatus:
        """Run the algorithm for the whole tree, from the start. Nothing is assumed or reserved afterwards.

        Raises Restart, Failed, and what plugins raise.
        """
        attempt, tree = self._attempt, self._attempt.tree
        for branch in tree.all():
            branch.status = None
        for member in attempt.members:
            member.forget()
        everything, attempt.tried_placements = Placement(ALL_NODES, self.snapshot.nodes), {}
        try:
            if self._has_placements or tree.group.is_composite:
                status = await self._choose(attempt, tree, everything)
            else:
                status = await self._fill(attempt.placement(everything), tree)
                attempt.note_trial(tree, everything, status)
        finally:
            self._steps.search.order = self.snapshot.order
            await self._give_back(0)
        tree.status = status
        if status.is_success and not self._places_anyone(tree):
            # A group in a composite group may have its members on nodes already; the root must place one.
            status = tree.status = _with_deleted(self._rules.nobody_placed(), tree)
        return status

    def reached_pre_filter(self, plugin: str) -> bool:
        """Return True if PreFilter of some member got as far as this plugin.

        A member that was deleted during the cycle counts: kube-scheduler tries such a member all the same.
        """
        order = [client.name for client in self.framework.plugins_at(ExtensionPoint.PRE_FILTER)]
        if plugin not in order:
            return False
        if self._has_repeated or any(member.is_deleted for member in self._attempt.members):
            return True
        for attempt in self.made:
            ended_by = attempt.pre_filter.ended_by
            if attempt.statuses is not None and (
                ended_by not in order or order.index(plugin) <= order.index(ended_by)
            ):
                return True
        return False

    async def preempt(self) -> PodGroupPostFilterResult:
        """Run the host's preemption for the group."""
        if self._evaluator is None:
            raise InvariantError(f"a what-if about {self._attempt.key} must not preempt")
        found = self.evaluation = await self._evaluator.evaluate(self)
        self._metrics.preempted(found.status.code, entity=self._attempt.tree.entity)
        by_uid = {pod.uid: pod for pod in self.pods}
        nominations = [Assignment(by_uid[uid], node) for uid, node in found.nominations.items() if node]
        return PodGroupPostFilterResult(found.status, tuple(nominations), victim_refs(found.victims))

    async def run_without(self, removed: Sequence[Pod]) -> Trial:
        """Run the algorithm as if the pods `removed` had left their nodes. For `Tries.schedule`.

        Raises HandleError for a pod that is on no node.
        """
        mark = self.snapshot.mark()
        try:
            for pod in removed:
                if self.snapshot.pods.position(pod.uid) is None:
                    raise HandleError(f"pod {pod.key} is on no node of the snapshot")
                self.snapshot.remove(pod.uid)
            rerun = await self.rerun()
        finally:
            self.snapshot.revert(mark)
        return Trial(rerun.status, tuple([Assignment(one.cycle.pod, one.node_name) for one in rerun.placed]))

    async def rerun(self, ranks: NodeRanks | None = None) -> Rerun:
        """Run the algorithm once more, on the snapshot as it is now, and leave the outcome of the cycle as it
        was. `ranks`: members go to nodes of the lowest rank.
        """
        tree = self._attempt.tree
        before = _Outcome.of(tree)
        self._ranks = self._steps.search.ranks = ranks
        try:
            try:
                status = await self.run()
            except (Failed, Restart) as end:
                # A plugin waits for the answer: the cycle cannot begin again, or end, before the plugin does.
                return Rerun(Status.error(str(end)))
            members = tree.placed_members() if self._rules.judges_trees else tree.all_members()
            placed = [
                Placed(member.attempt, member.result.node_name)
                for member in members
                if status.is_success and member.attempt is not None and member.result is not None
            ]
            return Rerun(SUCCESS if status.is_success else status.status(), placed)
        finally:
            self._ranks = self._steps.search.ranks = None
            before.restore()

    def again(self, cycle: Cycle) -> Attempt:
        """Return a new attempt of the same member over the snapshot as it is now, for what-ifs."""
        member = self._attempt.member(cycle.pod.uid)
        if member is None:
            raise InvariantError(f"pod {cycle.pod.key} is no member of {self._attempt.key}")
        attempt = self._steps.begin(member.queued, self._profile)
        self._observer.begun(attempt)
        attempt.parent, attempt.payer, attempt.trial = cycle.parent, cycle.payer, cycle.trial
        self.made.append(attempt)
        self._steps.open(attempt, self.snapshot.nodes)
        self._steps.nominations.release()
        return attempt

    def pre_filter(self, cycle: Cycle) -> Awaitable[PreFilterOutcome]:
        """Run PreFilter of a further attempt."""
        return self._observer.step(cycle, AttemptStep.PRE_FILTER, self.framework.run_pre_filter(cycle))

    # --- a group in its placements ---------------------------------------------------------------

    async def _choose(self, cycle: GroupCycle, branch: Branch, parent: Placement) -> GroupStatus:
        """Try the placements of a group in `parent`, and write the best one's outcome into the tree."""
        ran = self._points.run_placement_generate(cycle, parent, merges=self._rules.judges_trees)
        found = await self._observer.step(cycle, AttemptStep.PLACEMENT_GENERATE, ran)
        if isinstance(found, Status):
            return GroupStatus.of(found)
        if self._rules.judges_trees or not branch.group.is_composite:  # as in kube-scheduler
            self._metrics.placements_generated(self.framework.profile, len(found), entity=branch.entity)
        if not found:
            return GroupStatus(Code.UNSCHEDULABLE, "no feasible placements found")
        first: _Tried | None = None
        feasible: list[_Tried] = []
        order, limit = self._search(found)
        nominated = self._nominated(branch, found)
        if nominated is not None:
            order = [nominated, *(place for place in order if place != nominated)]
        keeping = self._keeping(cycle, branch, found)
        has_judged = keeping is not None and keeping.judged is not None
        for place in order:
            one = await self._try_placement(cycle, branch, found[place], keeping, place)
            if one.status.is_error:
                self._rules.after_error(branch)
                return one.status
            first = first or one
            if place != nominated:
                feasible += [one] if one.status.is_success else []
            elif one.status.is_success and _is_any_placed(branch.members):
                return one.status
            if len(feasible) >= limit:
                break
        if not feasible:
            if first is None:
                raise InvariantError(f"{branch.group.key} was tried in none of its placements")
            if not await self._try_members(first, branch, has_judged=has_judged):
                return await self._choose_without_kept(cycle, branch, parent)
            first.outcome.restore()
            return self._rules.without_placement(first.status, len(found))
        chosen = feasible[0]
        if len(feasible) > 1:
            scored = self._points.run_placement_score(cycle, [one.record for one in feasible])
            totals = await self._observer.step(cycle, AttemptStep.PLACEMENT_SCORE, scored)
            if isinstance(totals, Status):
                return GroupStatus.of(totals)
            chosen = feasible[self._best(totals.total, [one.record.placement.name for one in feasible])]
        if not await self._try_members(chosen, branch, has_judged=has_judged):
            return await self._choose_without_kept(cycle, branch, parent)
        chosen.outcome.restore()
        return chosen.status

    async def _choose_without_kept(self, cycle: GroupCycle, branch: Branch, parent: Placement) -> GroupStatus:
        """Begin again, with a trial of the members in every placement: a kept outcome was not that of a new
        trial, because a plugin failed now or a member was deleted.
        """
        if self._kept is not None and not self._attempt.has_deleted:
            self._kept.clear()
        self._kept = None
        self._attempt.tried_placements = {}
        return await self._choose(cycle, branch, parent)

    def _keeping(self, cycle: GroupCycle, branch: Branch, found: Sequence[Placement]) -> _Keeping | None:
        """Return what is kept about trials of the group in these placements; None: nothing can be."""
        kept = self._kept
        if (
            kept is None
            or len(found) < 2
            or branch is not self._attempt.tree
            or branch.group.is_composite
            or self._ranks is not None
            or self._attempt.has_deleted
            or self.snapshot.mark()
            or not self._profile.algorithm.follows_from_plugins
            or not (kept.is_sound and kept.asks_about_group_alone)
        ):
            return None
        signed = kept.signed([member.pod for member in branch.members], self.snapshot)
        if signed is None:
            return None
        kept.catch_up(self.snapshot)
        places = [kept.of(one) for one in found]
        crowded = self._steps.nominations.slots(self.snapshot.nodes)
        stamps = kept.stamps(places)
        if len(crowded) or not all(one.name for one in found):
            # A nomination counts on its node. A placement without a name takes its picks from the run.
            stamps = [
                None if not one.name or np.isin(crowded, one.nodes.slots).any() else stamp
                for one, stamp in zip(found, stamps, strict=True)
            ]
        judged: dict[PlacementProgress, Status] | None = None
        if self._points.feasible_by_progress(cycle):
            judged = {}
        return _Keeping(kept, signed, places, stamps, judged)

    async def _try_again(self, record: PlacementCycle, branch: Branch, count: int) -> None:
        """Try the first `count` members in a placement about which PlacementFeasible was asked already."""
        nodes = self._nodes_of(record.placement)
        for member in branch.members:
            member.forget()
        for member in branch.members[:count]:
            failed = await self._try(member, record, nodes)
            if failed is not None and not failed.status.is_rejected:
                return

    async def _try_members(self, tried: _Tried, branch: Branch, *, has_judged: bool) -> bool:
        """Try the members in a placement whose outcome was used again, and write what they got into it: they
        need attempts of their own. Return False if it is another outcome. `has_judged`: PlacementFeasible was
        not asked in this placement.
        """
        trial, record = tried.repeats, tried.record
        if trial is None:
            return True
        mark = len(self._placed)
        if has_judged:
            # What plugins write at PlacementFeasible is read at Permit.
            tried.status = await self._fill(record, branch)
        else:
            await self._try_again(record, branch, len(trial.members))
        same = not self._attempt.has_deleted
        for member, kept in zip(branch.members, trial.members, strict=False):
            node_name = "" if member.result is None else member.result.node_name
            message = "" if member.failed is None else member.failed.message
            same = same and (node_name, message) == (kept.node_name, kept.message)
        tried.outcome = _Outcome.of(branch)
        await self._give_back(mark)
        return same

    async def _try_placement(
        self,
        cycle: GroupCycle,
        branch: Branch,
        placement: Placement,
        keeping: _Keeping | None,
        place: int,
    ) -> _Tried:
        """Try one placement, and give back what was placed in it."""
        started_s = instant_s()
        mark = len(self._placed)
        record = cycle.placement(placement)
        repeats = None if keeping is None or self._attempt.has_deleted else keeping.found(place)
        if keeping is not None and repeats is not None:
            try:
                status = await self._repeat(record, branch, repeats, keeping)
                self._has_repeated = self._has_repeated or bool(repeats.members)
            except _Differs:
                repeats = None
        if repeats is None and keeping is not None:
            refusal = await self._refusal(cycle, record, branch, keeping, place)
            if refusal is not None:
                repeats, status = refusal
                self._has_repeated = True
        if repeats is None:
            status = await self._fill(record, branch)
            record.assignments = branch.assignments()
        else:
            # Few plugins read them of every placement.
            record.assigns_later(partial(repeats.assignments, branch.members))
        # The outcome of a kept trial is read after `_try_members` alone, which replaces it.
        one = _Tried(record, status, _NO_OUTCOME if repeats is not None else _Outcome.of(branch), repeats)
        self._attempt.note_trial(branch, placement, status, repeats)
        if keeping is not None:
            keeping.has_failed = keeping.has_failed or not status.is_success
            if repeats is None:
                repeats = self._keep(keeping, place, branch, status)
        record.kept_scores = None if repeats is None else repeats.scores
        if len(self._placed) > mark:
            await self._give_back(mark)
        self._metrics.placement_tried(
            self.framework.profile,
            feasible=status.is_success,
            seconds=instant_s() - started_s,
            entity=branch.entity,
        )
        return one

    async def _repeat(
        self, record: PlacementCycle, branch: Branch, trial: KeptTrial, keeping: _Keeping
    ) -> GroupStatus:
        """Return the status of the group with the outcomes of a kept trial's members. Raises _Differs, as
        `_fill` does.
        """
        is_whole = trial.places_all and len(trial.members) == len(branch.members)
        if is_whole and keeping.placing_all is not None and not self._attempt.has_deleted:
            return self._rules.completed(self._rules.feasible(keeping.placing_all))
        status = await self._fill(record, branch, trial, keeping.judged)
        if is_whole and keeping.judged is not None and status.is_success:
            judged = keeping.judged.items()
            ends = [answer for step, answer in judged if not (step.remaining or step.unschedulable)]
            keeping.placing_all = ends[0] if len(ends) == 1 else None
        return status

    async def _refusal(
        self, cycle: GroupCycle, record: PlacementCycle, branch: Branch, keeping: _Keeping, place: int
    ) -> tuple[KeptTrial, GroupStatus] | None:
        """Return the outcome of a trial in a placement without room for enough equal members.

        None: the members have to be tried. The group may have its places, its record needs the trial, or the
        columns do not tell.
        """
        tried = self._attempt.tried_placements.get(branch.group.key)
        if (
            tried is None
            or tried.wants(fails=True, placed=0)
            or not keeping.has_failed
            or keeping.judged is None
            or keeping.stamps[place] is None
            or self._attempt.has_deleted
        ):
            return None
        if not keeping.has_counted:
            keeping.has_counted = True
            keeping.room = await self._count_room(cycle, branch, keeping)
        count = len(branch.members) if keeping.room is None else keeping.room[place]
        if count >= len(branch.members):
            return None
        refusal = keeping.refusals.get(count)
        if refusal is None:
            fits, fails = KeptMember(_SOME_NODE), KeptMember(failed=_NO_ROOM)
            members = [fits if i < count else fails for i in range(len(branch.members))]
            status = await self._fill(record, branch, KeptTrial(members, None), keeping.judged)
            if status.is_error or self._attempt.has_deleted:
                return None
            ended = sum(one.result is not None or one.failed is not None for one in branch.members)
            refusal = keeping.refusals[count] = KeptTrial(members[:ended], None), status
        trial, status = refusal
        fails_here = not status.is_success and bool(status.message)
        if not fails_here or tried.wants(fails=True, placed=trial.placed_of(len(branch.members))):
            return None
        return refusal

    async def _count_room(self, cycle: GroupCycle, branch: Branch, keeping: _Keeping) -> list[int] | None:
        """Return for each placement how many of the members, which are equal, have room in it together.

        One member's PreFilter and Filter about all nodes say where there is room at all, and the columns how
        much. None: the members differ, or a plugin's answers follow from more than the rows.
        """
        snapshot, trials = self.snapshot, keeping.trials
        member, everything = branch.members[0], Placement(ALL_NODES, snapshot.nodes)
        if len(set(keeping.signed)) > 1:
            return None
        attempt = self._begin(member, cycle.placement(everything))
        with self._steps.guard(attempt) as ended:
            try:
                self._steps.open(attempt, snapshot.nodes)
                found = await self._profile.algorithm.find_feasible(attempt, self._steps.search)
            finally:
                self._steps.nominations.release()
        if isinstance(ended.failed, Aborted) and self._attempt.aborted:
            raise ended.failed
        if ended.failed is not None or not found.is_success:
            return None
        copies = self.framework.copies_of(attempt, snapshot.nodes)
        rows = attempt.feasible
        if copies is None or not (trials.is_sound and trials.has_same_objects):
            return None
        if len(rows):
            # A member on a node may make a plugin judge the next one that did not concern it.
            snapshot.assume(member.pod.on_node(snapshot.nodes.name(int(rows[0]))))
            after = trials.signed([member.pod], snapshot)
            snapshot.forget(member.pod.uid)
            if after != keeping.signed[:1]:
                return None
        by_slot = np.zeros(snapshot.columns.capacity, dtype=np.int64)
        by_slot[snapshot.nodes.slots[rows]] = np.minimum(copies[rows], len(branch.members))
        return [int(by_slot.take(one.slots).sum()) for one in keeping.places]

    def _search(self, found: Sequence[Placement]) -> tuple[list[int], int]:
        """Return in which order placements are tried, and how many feasible ones are enough."""
        count = limit = len(found)
        if self._rules.judges_trees:
            is_scored = self._points.has(ExtensionPoint.PLACEMENT_SCORE)
            limit = self._wanted(found) if is_scored else 1
        shuffles = limit < count
        return self._profile.algorithm.chooser.order(count) if shuffles else list(range(count)), limit

    def _wanted(self, found: Sequence[Placement]) -> int:
        """Return how many feasible placements are enough, by percentageOfPlacementsToScore."""
        percentage = self._profile.placements_percentage
        if not percentage:
            nodes = sum(len(one.nodes) for one in found)
            percentage = max(_LEAST_PERCENTAGE, 100 - nodes * 9 // 500)
        return max(1, len(found) * percentage // 100)

    def _nominated(self, branch: Branch, found: Sequence[Placement]) -> int | None:
        """Return the placement that a root group tries before all others: the only one with nodes that its
        members are nominated to.
        """
        if not self._rules.judges_trees or self._attempt.tree.group.is_composite:
            return None
        names = {member.pod.nominated_node for member in branch.members} - {""}
        slots = self.snapshot.nodes.slots_of(names)
        places = [place for place, one in enumerate(found) if np.isin(one.nodes.slots, slots).any()]
        return places[0] if len(places) == 1 else None

    def _places_anyone(self, tree: Branch) -> bool:
        members = tree.placed_members() if self._rules.judges_trees else tree.all_members()
        return _is_any_placed(members)

    def _best(self, totals: NDArray[np.int64], names: Sequence[str]) -> int:
        """Return the position of the best placement; the Chooser breaks ties."""
        best = np.flatnonzero(totals == totals.max()).tolist()
        return int(best[self._profile.algorithm.chooser.pick(Names([names[i] for i in best]))])

    # --- one placement -------------------------------------------------------------------------------

    async def _fill(
        self,
        record: PlacementCycle,
        branch: Branch,
        repeats: KeptTrial | None = None,
        judged: dict[PlacementProgress, Status] | None = None,
    ) -> GroupStatus:
        """Try to place the group in one placement. What was placed stays, also where the group fails.

        `repeats`: a kept trial, whose members' outcomes are used in place of theirs. `judged`: the answers of
        PlacementFeasible that hold for this trial, too. Raises _Differs if the kept trial does not say what
        comes next.
        """
        for member in branch.all_members():
            member.forget()
        if branch.group.is_composite:
            return await self._fill_children(record, branch)
        nodes = _NO_NODES if repeats is not None else self._nodes_of(record.placement)
        state = self.snapshot.groups.state(branch.group.key)
        # A what-if may have removed terminating members. The plugins' view has them, and GangScheduling does
        # not count them where it sees them.
        before = sum(one.terminating and not self._is_on_node(one) for one in branch.scheduled)
        before += 0 if state is None else state.scheduled_count
        remaining, count = len(branch.members), 0
        status = await self._feasible(record, remaining, before, judged=judged)
        if not _goes_on(status):
            return self._rules.not_begun(status)
        for place, member in enumerate(branch.members):
            if repeats is None:
                failed = await self._try(member, record, nodes)
            else:
                failed = _repeat(member, repeats, place)
            if failed is not None and not failed.status.is_rejected and not member.is_deleted:
                return GroupStatus.failed(f"failed to schedule other pod from a pod group: {failed.message}")
            remaining -= 1
            count += failed is None
            left = count
            if self._attempt.has_deleted:
                # A member that was deleted in the meantime holds its place until the end of the trial.
                left -= sum(one.is_deleted and one.result is not None for one in branch.members)
            failures = len(branch.members) - remaining - left
            status = await self._feasible(record, remaining, before + left, failures, judged)
            if not _goes_on(status):
                return _with_deleted(status, branch)
        return _with_deleted(self._rules.completed(status), branch)

    def _is_on_node(self, pod: Pod) -> bool:
        return self.snapshot.pods.position(pod.uid) is not None

    async def _fill_children(self, record: PlacementCycle, branch: Branch) -> GroupStatus:
        """Place the child groups of a composite group one after the other, each in placements of its own."""
        remaining, scheduled = len(branch.children), 0
        status = await self._feasible(record, remaining, scheduled)
        if not _goes_on(status):
            return status
        for child in branch.children:
            cycle = GroupCycle(
                record.cycle_id,
                child.view,
                record.profile,
                nodes=record.placement.nodes,
                version=self.snapshot.version,
                parent=record,
            )
            child.status = await self._choose(cycle, child, record.placement)
            if child.status.is_error:
                return self._rules.child_failed(branch.group, child)
            remaining -= 1
            if child.status.is_success:
                scheduled += 1
                await self._place_again(child, record)
            failures = len(branch.children) - remaining - scheduled
            status = await self._feasible(record, remaining, scheduled, failures)
            if not _goes_on(status):
                return status
        return self._rules.completed(status)

    async def _feasible(
        self,
        record: PlacementCycle,
        remaining: int,
        scheduled: int,
        failures: int = 0,
        judged: dict[PlacementProgress, Status] | None = None,
    ) -> GroupStatus:
        """Return the answer of PlacementFeasible at one step. `judged`: as in `_fill`."""
        step = PlacementProgress(remaining, scheduled, failures)
        known = None if judged is None else judged.get(step)
        if known is not None:
            return self._rules.feasible(known)
        ran = self._points.run_placement_feasible(record, step, is_list=self._rules.judges_trees)
        status = await self._observer.step(record, AttemptStep.PLACEMENT_FEASIBLE, ran)
        if status.is_success or status.is_rejected or status.code is Code.WAIT:
            if judged is not None:
                judged[step] = status
            return self._rules.feasible(status)
        return GroupStatus.failed(f"failed to evaluate placement feasibility: {status.message}")

    # --- one member ----------------------------------------------------------------------------------

    async def _try(self, member: Member, record: PlacementCycle, nodes: _Nodes) -> Failed | None:
        """Find a node for a member, assume it there and reserve. Return why it got none.

        Raises Restart, and Aborted if the host stops.
        """
        if member.is_deleted:
            member.failed = Aborted(POD_DELETED)
            return member.failed
        attempt = self._begin(member, record)
        algorithm = self._profile.algorithm
        self._attempt.tried = member
        with self._steps.guard(attempt) as ended:
            begun_s = instant_s()
            try:
                self._steps.search.order = nodes.order if nodes.rows is not None else self.snapshot.order
                self._steps.open(attempt, nodes.of(self.snapshot))
                found = await algorithm.find_feasible(attempt, self._steps.search)
                if self._ranks is not None and len(attempt.feasible) > 1:
                    attempt.feasible = self._ranks.cheapest(attempt.nodes, attempt.feasible)
                result = await self._steps.pick(attempt, algorithm, found, begun_s)
                self._observer.chosen(attempt, result)
            finally:
                self._steps.nominations.release()
            await self._reserve(attempt, result)
        self._attempt.tried = None
        failed = member.failed = ended.failed
        if failed is None:
            member.result = result
            return None
        if attempt.reserved:
            await self._give_back(len(self._placed) - 1, keeps_nomination=False)
        if isinstance(failed, Restarted):
            raise Restart(failed)
        if isinstance(failed, Aborted) and self._attempt.aborted:
            raise failed
        return failed

    def _begin(self, member: Member, record: PlacementCycle) -> Attempt:
        attempt = self._steps.begin(member.queued, self._profile)
        self._observer.begun(attempt)
        record.take(attempt)
        self.made.append(attempt)
        member.attempt = attempt
        return attempt

    async def _reserve(self, attempt: Attempt, result: ScheduleResult) -> None:
        """Run Reserve, then assume the pod in the snapshot. Raises Failed.

        The snapshot lacks the pod during its own Reserve, as it does for a single pod: a plugin that counts
        what its node has left would otherwise count the pod twice. kube-scheduler assumes first; its own
        plugins do not read the snapshot at Reserve.
        """
        pod, node_name = attempt.pod, result.node_name
        attempt.node_name = attempt.diagnosis.node_name = node_name
        attempt.reserved = True
        placed = _Placed(attempt, self._nominator.node_of(pod.uid))
        self._placed.append(placed)
        self._nominator.remove(pod)
        ran = self.framework.run_reserve(attempt, node_name)
        status = await self._observer.step(attempt, AttemptStep.RESERVE, ran)
        if not status.is_success:
            raise self._undoing.rejected(attempt, status)
        self.snapshot.assume(pod.on_node(node_name))
        placed.is_assumed = True
        if self._ranks is not None:
            placed.condemned = self._ranks.condemn(node_name)

    async def _place_again(self, child: Branch, record: PlacementCycle) -> None:
        """Reserve and assume a child's members on their chosen nodes again, so that its siblings see them.

        Raises Restart, and Failed where a plugin does not reserve again.
        """
        for member in child.placed_members() if self._rules.judges_trees else child.all_members():
            attempt, result = member.attempt, member.result
            if attempt is None or result is None:
                continue
            attempt.try_again(self._steps.next_id())
            self._attempt.tried = member
            with self._steps.guard(attempt) as ended:
                await self._reserve(attempt, result)
            self._attempt.tried = None
            if isinstance(ended.failed, Restarted):
                raise Restart(ended.failed)
            if ended.failed is not None and not member.is_deleted:
                raise ended.failed

    async def _give_back(self, mark: int, *, keeps_nomination: bool = True) -> None:
        """Undo the trials after `mark`, newest first."""
        while len(self._placed) > mark:
            placed = self._placed.pop()
            attempt = placed.attempt
            await self._undoing.unreserve(attempt, REVERTED)
            attempt.reserved = False
            if placed.is_assumed:
                self.snapshot.forget(attempt.pod.uid)
            if self._ranks is not None:
                self._ranks.pardon(placed.condemned)
            if placed.nominated and keeps_nomination:
                self._nominator.nominate(attempt.pod, placed.nominated)

    # --- what is kept --------------------------------------------------------------------------------

    def _keep(self, keeping: _Keeping, place: int, branch: Branch, status: GroupStatus) -> KeptTrial | None:
        """Keep the present trial for equal groups. Return None if it does not hold for them."""
        stamp = keeping.stamps[place]
        if stamp is None or status.is_error or self._attempt.has_deleted or not keeping.trials.is_sound:
            return None
        members: list[KeptMember] = []
        pre_filters = {client.name for client in self.framework.plugins_at(ExtensionPoint.PRE_FILTER)}
        for member in branch.members:
            if member.attempt is None:
                break
            failed, result = member.failed, member.result
            if failed is not None and not failed.fit_error:
                return None
            attempt = member.attempt
            if attempt.statuses is None or attempt.pre_filter.ended_by in pre_filters:
                return None
            members.append(
                KeptMember("" if result is None else result.node_name)
                if failed is None
                else KeptMember("", failed.message, _anew(failed), attempt.diagnosis)
            )
        # The members before may make a plugin judge a member that did not concern it.
        if (
            not keeping.trials.has_same_objects
            or keeping.trials.signed([member.pod for member in branch.members], self.snapshot)
            != keeping.signed
        ):
            return None
        trial = KeptTrial(members, stamp)
        keeping.trials.keep(keeping.places[place], keeping.signed, trial)
        return trial

    # --- nodes ----------------------------------------------------------------------------------------

    def _nodes_of(self, placement: Placement) -> _Nodes:
        """Return the rows of a placement. One with all nodes restricts nothing."""
        nodes = self.snapshot.nodes
        if len(placement.nodes) == len(nodes):
            return _Nodes(None, None)
        rows = np.sort(nodes.positions_of_slots(placement.nodes.slots))
        order = self.snapshot.order
        inside = np.zeros(len(nodes), dtype=np.bool_)
        inside[rows] = True
        return _Nodes(rows, np.searchsorted(rows, order[inside[order]]))


_NO_NODES: Final = _Nodes(None, None)
_SOME_NODE: Final = "?"
"""In the outcome of a trial that was counted: the node of a member with room."""
_NO_ROOM: Final = Failed(Status.unschedulable(), "", fit_error=True)
_NO_OUTCOME: Final = _Outcome((), ())
_NOTHING_TIED: Final = TiedNodes(NO_NODES, np.zeros(0, dtype=np.intp))


def _repeat(member: Member, trial: KeptTrial, place: int) -> Failed | None:
    """Give a member the outcome of the kept trial's member at the same place. Raises _Differs if there is
    none.
    """
    if member.is_deleted or place >= len(trial.members):
        raise _Differs
    kept = trial.members[place]
    if kept.failed is None:
        member.result = ScheduleResult(kept.node_name, 0, 0, _NOTHING_TIED)
        return None
    member.failed = _anew(kept.failed)
    return member.failed


def _anew(failed: Failed) -> Failed:
    """Return an end like this one, without the frames that it went through."""
    return Failed(
        failed.status,
        failed.message,
        nominated=failed.nominated,
        fit_error=failed.fit_error,
        plugins=failed.plugins,
    )


def _is_any_placed(members: Iterable[Member]) -> bool:
    return any(one.result is not None and not one.is_deleted for one in members)


def _goes_on(status: GroupStatus) -> bool:
    """Return True if further members may be tried after this answer of PlacementFeasible."""
    return status.is_success or status.code is Code.WAIT


def _with_deleted(status: GroupStatus, branch: Branch) -> GroupStatus:
    """Name the members that were deleted while the cycle ran, in the status of a group that has no place."""
    gone = [one.pod.key for one in branch.all_members() if one.is_deleted]
    if gone and not status.is_success:
        status.reasons.append(f"deleted meanwhile: {', '.join(gone)}")
    return status


class Names:
    """Placements that are equally good, as the Chooser takes them."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)

    def __len__(self) -> int:
        return len(self.names)

    def name(self, position: int) -> str:
        """Return the name of one of them."""
        return self.names[position]
