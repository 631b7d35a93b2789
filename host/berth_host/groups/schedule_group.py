"""One cycle of a pod group, from the queue to the start of its members' binding cycles. Read after
`schedule_one`.

    pop -> snapshot -> checks -> the algorithm (`placements`): nodes for the members [PodGroupPostFilter]
        -> each member with a node: assume -> Reserve -> Permit -> a task for its binding cycle
        -> each other member: `FailureHandler` puts it back into the queue -> condition -> the group goes back

All members share one snapshot, in which a member that got a node counts for the members after it. The
algorithm gives everything back before the members are placed for good, so a failure half-way leaves nothing
reserved. Every popped member ends exactly once: in its binding cycle, back in the queue, or dropped.
Source: kube-scheduler `schedule_one_podgroup.go`, v1.37.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup
from berth_sdk.status import Code, Status

from berth_host.attempt.call_record import Changes
from berth_host.attempt.cycle import POD_DELETED, CycleEnd
from berth_host.cache.cache import Cache
from berth_host.cache.snapshot import Snapshot
from berth_host.cycle.attempt import Aborted, Failed
from berth_host.cycle.observer import AttemptStep
from berth_host.cycle.schedule_one import BindingCycle, CycleProfile, PodSteps
from berth_host.errors.state import InvariantError
from berth_host.explain.group_record import GroupRecord, GroupRecords, TriedPlacements
from berth_host.groups.gang_holds import GangHolds, Promised, Roomless
from berth_host.groups.group_attempt import Branch, GroupAttempt, GroupStatus, Member
from berth_host.groups.group_rules import GroupRules
from berth_host.groups.kept_trials import KeptTrials
from berth_host.groups.placements import Placements, Restart
from berth_host.log import get_logger
from berth_host.metrics.group_metrics import GroupMetrics
from berth_host.metrics.series import instant_s
from berth_host.preemption.group_evaluator import GroupEvaluator
from berth_host.preemption.preemptor import Preemptor
from berth_host.queue.queued_group import GroupOutcome, QueuedGroupInfo
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_host.queue.scheduling_queue import SchedulingQueue

log = get_logger()


class EvictForGroup(Protocol):
    """Executes the preemption of a group (`evictions`)."""

    def evict(
        self,
        preemptor: Preemptor,
        plugin: str,
        victims: Iterable[ObjectRef],
        changes: asyncio.Future[None] | None = None,
        *,
        disruptions: Mapping[str, int] = MappingProxyType({}),
        budget_violations: int = 0,
    ) -> None:
        """Evict the victims in the background, after `changes`. The two numbers are for metrics."""
        ...

    def change(self, pods: Sequence[Pod], changes: Sequence[Changes]) -> asyncio.Future[None] | None:
        """Apply the changes that plugins ask for, in the background."""
        ...


class WriteCondition(Protocol):
    """Writes the condition PodGroupInitiallyScheduled of a group (`group_status`)."""

    def attempted(self, group: PodGroup, *, placed: bool, reason: str, message: str) -> None:
        """Write the outcome of an attempt in the background."""
        ...


class GroupScheduler:
    """The cycles of groups, over the parts of one host. `in_cycle`: the attempt under way, if any.

    `records`: gets the record of each attempt. `rules`: those of the version that is followed.
    """

    def __init__(
        self,
        profiles: Mapping[str, CycleProfile],
        steps: PodSteps,
        queue: SchedulingQueue,
        cache: Cache,
        snapshot: Snapshot,
        binding: BindingCycle,
        evictions: EvictForGroup,
        conditions: WriteCondition,
        evaluator: GroupEvaluator,
        metrics: GroupMetrics,
        records: GroupRecords,
        holds: GangHolds,
        rules: GroupRules,
    ) -> None:
        self._profiles = profiles
        self._steps = steps
        self._observer = steps.observer
        self._queue = queue
        self._cache = cache
        self._snapshot = snapshot
        self._binding = binding
        self._evictions = evictions
        self._conditions = conditions
        self._evaluator = evaluator
        self._metrics = metrics
        self._records = records
        self._holds = holds
        self._rules = rules
        self._kept: dict[str, KeptTrials] = {}
        self.in_cycle: GroupAttempt | None = None

    async def schedule_group(self, info: QueuedGroupInfo) -> None:
        """Make one attempt for one popped group. No error loses a member."""
        outcome = GroupOutcome.ERROR
        try:
            self._steps.hold_snapshot()
            attempt = await self._open(info)
            if isinstance(attempt, GroupOutcome):
                outcome = attempt
            else:
                outcome = await self._run(attempt)
        finally:
            self._snapshot.release()
            self._queue.group_attempted(info, outcome)

    async def _run(self, attempt: GroupAttempt) -> GroupOutcome:
        self.in_cycle = attempt
        self._observer.begun(attempt)
        try:
            attempt.outcome = await self._schedule(attempt)
        finally:
            self._observer.ended(attempt)
            self.in_cycle = None
        return attempt.outcome

    # --- the checks before -----------------------------------------------------------------------

    async def _open(self, info: QueuedGroupInfo) -> GroupAttempt | GroupOutcome:
        """Return the record of the attempt; the outcome for a group that must not be tried now."""
        pods = [queued.pod for queued in info.members]
        problem = self._rules.problem(self._snapshot.groups, info, pods, self._profiles)
        if problem is not None:
            self._holds.passed_over(info.key)
            await self._fail_all(info, problem.text)
            for key, reason in problem.told.items():
                group = self._snapshot.groups.object(key)
                if group is not None:
                    self._told(group, placed=False, reason=reason, message=problem.text)
            self._note_problem(info, problem.text)
            return GroupOutcome.ERROR
        members = [queued for queued in info.members if not self._is_dropped(queued)]
        if not members:
            return GroupOutcome.SUCCESS
        profile = self._profiles[members[0].pod.scheduler_name]
        waiting: dict[str, list[Member]] = {}
        for queued in members:
            waiting.setdefault(queued.pod.group_key, []).append(Member(queued))
        tree = self._tree(info.key, waiting)
        attempt = GroupAttempt(self._steps.next_id(), info, profile, tree, self._snapshot)
        attempt.nodes, attempt.version = self._snapshot.nodes, self._snapshot.version
        return attempt

    def _is_dropped(self, queued: QueuedPodInfo) -> bool:
        """Drop a member that must not be scheduled: it is being deleted, or has a node already."""
        pod = queued.pod
        if pod.terminating:
            self._binding.skip_deleting(pod)
        elif not self._cache.is_assumed(pod.uid):
            return False
        self._queue.done(pod.uid)
        log.info("pod.dropped", pod=pod.key, known_profile=True, terminating=pod.terminating)
        return True

    def _tree(self, key: str, members: Mapping[str, list[Member]]) -> Branch:
        """Return the tree of groups with the members to place. `members`: by key of their group."""
        groups = self._snapshot.groups
        group, state = groups.object(key), groups.state(key)
        if group is None:
            raise InvariantError(f"the snapshot has no group {key}, which was there just now")
        return Branch(
            group,
            members.get(key, []),
            () if state is None else state.scheduled,
            [self._tree(child.key, members) for child in groups.children(key)],
        )

    async def _fail_all(self, info: QueuedGroupInfo, problem: str) -> None:
        for queued in info.members:
            profile = self._profiles.get(queued.pod.scheduler_name) or next(iter(self._profiles.values()))
            attempt = self._steps.begin(queued, profile)
            self._observer.begun(attempt)
            await self._binding.fail_cycle(attempt, Failed(Status.error(problem), problem))

    # --- the cycle -------------------------------------------------------------------------------

    async def _schedule(self, attempt: GroupAttempt) -> GroupOutcome:
        """Find nodes, then bind the members or give them back. Returns the outcome for the queue."""
        placements = Placements(
            attempt,
            self._steps,
            self._snapshot,
            self._queue.nominator,
            self._binding,
            self._evaluator,
            self._metrics,
            self._rules,
            self._kept_trials(attempt.scheduling),
        )
        tree = attempt.tree
        nominations: Mapping[str, str] | None = None
        promised: Promised | None = None
        outcome = GroupOutcome.ERROR
        tried: Mapping[str, TriedPlacements] = {}
        said = ""
        with self._steps.guard(attempt) as ended:
            status = await self._search(attempt, placements)
            outcome = _outcome_of(status)
            self._rules.fill_in(tree)
            # PodGroupPostFilter may run the algorithm again.
            tried = attempt.tried_placements
            if status.code is Code.UNSCHEDULABLE:
                count = len(status.reasons)
                nominations = await self._post_filter(attempt, placements)
                said = ", ".join(dict.fromkeys(status.reasons[count:]))
                promised = await self._hold_room(attempt, placements, nominations)
            elif status.is_success:
                promised = self._holds.placed(attempt.key, [one.pod for one in attempt.members])
        if ended.failed is not None:
            status = tree.status = GroupStatus.failed(ended.failed.message)
            outcome = GroupOutcome.ERROR
            for branch in tree.all():
                branch.status = status
        for branch in tree.all():
            branch.name_change(self._cache.groups.object(branch.group.key))
        if not status.is_success and (promised is None or status.is_error):
            promised = self._holds.passed_over(attempt.key)
        self._records.add(attempt.records(tried, said, is_preempting=nominations is not None))
        await self._submit(attempt, nominations, {} if promised is None else promised.nodes)
        self._end(attempt, placements, nominations)
        return outcome

    def _kept_trials(self, profile: CycleProfile) -> KeptTrials:
        """Return the kept trials of a profile."""
        name = profile.framework.profile
        kept = self._kept.get(name)
        if kept is None:
            kept = self._kept[name] = KeptTrials(profile.framework)
        return kept

    async def _search(self, attempt: GroupAttempt, placements: Placements) -> GroupStatus:
        """Run the algorithm. Run it again, from the start, if a placed member was deleted meanwhile, and once
        if a served plugin was restarted.
        """
        begun_s = instant_s()
        while True:
            try:
                status = await placements.run()
                if not any(one.is_deleted and one.result is not None for one in attempt.members):
                    break
            except Restart as restart:
                if attempt.restarted:
                    raise restart.restarted from restart
                why = restart.restarted.restart
                log.info("cycle.restarted", group=attempt.key, plugin=why.plugin, reason=why.reason)
                attempt.begin_again(self._steps.next_id())
        profile, entity = attempt.scheduling.framework.profile, attempt.tree.entity
        self._metrics.placed(profile, instant_s() - begun_s, entity=entity)
        return status

    async def _post_filter(self, attempt: GroupAttempt, placements: Placements) -> Mapping[str, str] | None:
        """Run PodGroupPostFilter, and write its answer into the statuses. Return the nodes to nominate, by
        uid; None: the group does not wait for a preemption.
        """
        points = attempt.scheduling.framework.groups
        if not points.has(ExtensionPoint.POD_GROUP_POST_FILTER):
            return None
        ran = points.run_pod_group_post_filter(attempt, placements)
        plugin, result = await self._observer.step(attempt, AttemptStep.POD_GROUP_POST_FILTER, ran)
        if not result.status.is_success and not result.status.is_rejected:
            failed = GroupStatus.failed(result.status.message)
            for branch in attempt.tree.all():
                branch.status = failed
            return None
        self._rules.add_reason(attempt.tree, result.status.message)
        pods = [one.pod for one in attempt.members if not one.is_deleted]
        changes = self._evictions.change(pods, attempt.changes) if pods else None
        if not result.status.is_success:
            return None
        nodes = {one.pod.uid: one.node_name for one in result.nominations}
        if pods:
            preemptor = Preemptor.of_group(attempt.tree.group, pods, nodes)
            found = placements.evaluation
            self._evictions.evict(
                preemptor,
                plugin,
                result.victims,
                changes,
                disruptions={} if found is None else found.disruptions,
                budget_violations=0 if found is None else found.violations,
            )
        return nodes

    async def _hold_room(
        self, attempt: GroupAttempt, placements: Placements, nominations: Mapping[str, str] | None
    ) -> Promised | None:
        """Let the group hold room, unless it waits for a preemption, and say so in the statuses."""
        root, status = attempt.tree.group, attempt.tree.status
        if nominations is not None:
            self._holds.preempts(attempt.key, [one.pod for one in attempt.members])
        if nominations is not None or status is None or not status.is_rejected:
            return None
        pods = [one.pod for one in attempt.members if not one.is_deleted]
        profile = attempt.scheduling.framework.profile
        promised = await self._holds.failed(
            Roomless(root=root, pods=pods, profile=profile, may_preempt=placements.may_preempt), placements
        )
        if promised is not None and promised.text:
            self._rules.add_reason(attempt.tree, promised.text)
        return promised

    # --- what becomes of the members -------------------------------------------------------------

    async def _submit(
        self, attempt: GroupAttempt, nominations: Mapping[str, str] | None, held: Mapping[str, str]
    ) -> None:
        """Bind the members that have a node in a group that is placed; give the others back.

        `nominations`: the nodes that members get after a preemption; None: there is none. `held`: those that
        they get without one, "" for none.
        """
        for branch in attempt.tree.leaves():
            status = branch.status
            if status is None:
                raise InvariantError(f"the cycle of {attempt.key} left {branch.group.key} without a status")
            for member in branch.members:
                await self._submit_one(attempt, branch, member, status, nominations, held)

    async def _submit_one(
        self,
        attempt: GroupAttempt,
        branch: Branch,
        member: Member,
        status: GroupStatus,
        nominations: Mapping[str, str] | None,
        held: Mapping[str, str],
    ) -> None:
        promised = held if nominations is None else nominations
        if attempt.aborted:
            await self._give_back(attempt, member, Aborted(attempt.aborted))
        elif member.is_deleted:
            await self._give_back(attempt, member, Aborted(POD_DELETED))
        elif status.is_error:
            own = member.failed is not None and not member.failed.status.is_rejected
            own_text = "" if member.failed is None else member.failed.message
            text = own_text if own else self._rules.error_text(branch, member)
            node = held.get(member.queued.uid, "")
            await self._give_back(attempt, member, Failed(Status.error(text), text, nominated=node))
        elif member.failed is not None:
            failed = member.failed
            if member.queued.uid in promised:
                failed.nominated = promised[member.queued.uid]
            await self._give_back(attempt, member, failed)
        elif status.is_success:
            await self._take(attempt, member)
        else:
            failed = self._rules.refused(branch, waits=nominations is not None)
            failed.nominated = promised.get(member.queued.uid, None if nominations is not None else "")
            await self._give_back(attempt, member, failed)

    async def _take(self, group: GroupAttempt, member: Member) -> None:
        """Place a member for good. A failure from here on concerns this member alone."""
        attempt, result = member.attempt, member.result
        if attempt is None or result is None:
            raise InvariantError(f"pod {member.pod.key} has no node in a group that is placed")
        attempt.decide(self._steps.next_id())
        group.tried = member
        with self._steps.guard(attempt) as ended:
            await self._steps.take(attempt, result)
        group.tried = None
        member.is_given_back = True
        if ended.failed is None:
            # Reserve of the next member must see this one, as if the members were single pods.
            self._snapshot.assume(attempt.pod.on_node(result.node_name))
            self._binding.start(attempt)
        else:
            await self._steps.give_back(attempt, ended.failed)

    async def _give_back(self, group: GroupAttempt, member: Member, failed: Failed) -> None:
        """Put a member back into the queue."""
        attempt = member.attempt
        if attempt is None:
            attempt = self._steps.begin(member.queued, group.scheduling)
            self._observer.begun(attempt)
        member.is_given_back = True
        if isinstance(failed, Aborted):
            attempt.aborted = attempt.aborted or failed.message
        await self._steps.give_back(attempt, failed)

    def _note_problem(self, info: QueuedGroupInfo, problem: str) -> None:
        """Keep the record of an attempt that ended before its algorithm."""
        groups = [info.group, *self._snapshot.groups.leaves(info.key)]
        self._records.add(
            GroupRecord(
                key=group.key,
                uid=group.uid,
                root_key=info.key,
                attempt=info.attempts,
                outcome="error",
                message=problem,
            )
            for group in {one.key: one for one in groups}.values()
        )

    def _told(self, group: PodGroup, *, placed: bool, reason: str, message: str) -> None:
        """Write a group's condition, on the object as it is now where the version does so."""
        if self._rules.judges_trees:
            now = self._cache.groups.object(group.key)
            if now is None or now.uid != group.uid:
                return
            group = now
        self._conditions.attempted(group, placed=placed, reason=reason, message=message)

    def _end(
        self, attempt: GroupAttempt, placements: Placements, nominations: Mapping[str, str] | None
    ) -> None:
        """Write the conditions and the metrics, and end the cycle at the served plugins."""
        framework, root = attempt.scheduling.framework, attempt.tree.status
        for branch in attempt.tree.all():
            status = branch.status
            if status is None:
                continue
            message = "" if status.is_success else status.message
            self._told(branch.group, placed=status.is_success, reason=status.reason, message=message)
        if framework.has_served:
            kept = {id(member.attempt) for member in attempt.members}
            for made in placements.made:
                if id(made) not in kept:
                    framework.end_cycle(made, CycleEnd.ABORTED)
            framework.groups.end_cycle(attempt, CycleEnd.UNSCHEDULABLE)
        if root is not None:
            result = "scheduled" if root.is_success else "error" if root.is_error else "unschedulable"
            if nominations is not None:
                result = "waiting_on_preemption"
            seconds = instant_s() - attempt.started_s
            self._metrics.attempted(framework.profile, result, seconds, entity=attempt.tree.entity)


def _outcome_of(status: GroupStatus) -> GroupOutcome:
    if status.is_success:
        return GroupOutcome.SUCCESS
    return GroupOutcome.REJECTED if status.is_rejected else GroupOutcome.ERROR
