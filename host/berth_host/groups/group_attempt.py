"""`GroupAttempt`: the scheduler's record of one attempt of a group, with a `Member` for each popped pod.

`schedule_group` fills it in; `placements` tries the group in it. A tree of `Branch`es stands for the groups:
one leaf for a PodGroup, more for a CompositePodGroup.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from berth_sdk.pod import Pod
from berth_sdk.pod_group import Assignment, GroupView, Placement, PodGroup
from berth_sdk.status import Code, Status

from berth_host.attempt.cycle import POD_DELETED
from berth_host.attempt.group_cycle import GroupCycle
from berth_host.cache.snapshot import Snapshot
from berth_host.cycle.attempt import SCHEDULER_ERROR, Attempt, Failed, ScheduleResult
from berth_host.cycle.attempt import UNSCHEDULABLE as NOT_PLACED
from berth_host.cycle.schedule_one import CycleProfile
from berth_host.explain.group_record import GroupRecord, TriedPlacement, TriedPlacements
from berth_host.groups.kept_trials import KeptTrial
from berth_host.metrics.series import instant_s
from berth_host.queue.queued_group import GroupOutcome, QueuedGroupInfo
from berth_host.queue.queued_pod import QueuedPodInfo

UNSCHEDULABLE: Final = "pod group is unschedulable"


class GroupStatus:
    """The status of a group: a code, an error text ("" for none) before the reasons, and the reasons.

    `is_fit_error`: the error says why the group has no place; `plugins`: those that rejected it.
    Before 1.38 a group of a composite group may share the object with a group above it: a reason that is
    added to one is added to both, as in kube-scheduler.
    """

    __slots__ = ("code", "error", "is_fit_error", "plugins", "reasons")

    def __init__(self, code: Code, *reasons: str, error: str = "") -> None:
        self.code = code
        self.error = error
        self.reasons = list(reasons)
        self.is_fit_error = False
        self.plugins: frozenset[str] = frozenset()

    @classmethod
    def of(cls, status: Status, error: str = "") -> GroupStatus:
        """Return a plugin's status as that of the group."""
        return cls(status.code, *status.reasons, error=error)

    @classmethod
    def fit_error(
        cls, text: str, plugins: frozenset[str] = frozenset(), *, code: Code = Code.UNSCHEDULABLE
    ) -> GroupStatus:
        """Return the rejection of a group, for which `plugins` are to blame."""
        made = cls(code, error=text)
        made.is_fit_error, made.plugins = True, plugins
        return made

    @classmethod
    def failed(cls, text: str) -> GroupStatus:
        """Return an error."""
        return cls(Code.ERROR, error=text)

    @property
    def is_success(self) -> bool:
        """True if the group has its places."""
        return self.code is Code.SUCCESS

    @property
    def is_rejected(self) -> bool:
        """True if the group cannot be placed now."""
        return self.status().is_rejected

    @property
    def is_error(self) -> bool:
        """True after an error."""
        return not (self.is_success or self.is_rejected or self.code is Code.WAIT)

    @property
    def message(self) -> str:
        """The error text and the reasons."""
        return ", ".join([self.error, *self.reasons] if self.error else self.reasons)

    @property
    def text(self) -> str:
        """The status as an error: of a status with an error text, that text alone."""
        return self.error or self.message

    @property
    def reason(self) -> str:
        """The reason of the group's condition."""
        if self.is_success:
            return "Scheduled"
        return SCHEDULER_ERROR if self.is_error else NOT_PLACED

    def status(self) -> Status:
        """Return the status with the whole message as its reason."""
        message = self.message
        return Status(self.code, (message,) if message else ())


@dataclass(frozen=True, slots=True)
class GroupProblem:
    """Why a popped group must not be tried. `told`: the groups whose conditions say so, by key, with the
    reason of the condition.
    """

    text: str
    told: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Member:
    """One popped pod of the group. `branch`: its own group.

    `attempt`: the attempt that counts, None before the first one. `result`: its node; None: it has none.
    `failed`: why it has none; None: it was not tried, or has a node. `is_given_back`: it is in its binding
    cycle, or back in the queue. `is_deleted`: it was deleted while the group's cycle ran.
    """

    queued: QueuedPodInfo
    attempt: Attempt | None = None
    result: ScheduleResult | None = None
    failed: Failed | None = None
    is_given_back: bool = False
    is_deleted: bool = False

    @property
    def pod(self) -> Pod:
        """The pod."""
        return self.queued.pod

    def forget(self) -> None:
        """Forget the last trial."""
        self.attempt = self.result = self.failed = None


@dataclass(slots=True, eq=False)
class Branch:
    """One group of the tree. `members`: its popped pods to place, in order; `children`: of a composite group.

    `view`: what plugins get of the group. `status`: the outcome, once there is one.
    """

    group: PodGroup
    members: list[Member]
    scheduled: tuple[Pod, ...]
    children: list[Branch]
    view: GroupView = field(init=False)
    status: GroupStatus | None = None

    def __post_init__(self) -> None:
        self.view = GroupView(
            self.group,
            tuple([member.pod for member in self.members]),
            self.scheduled,
            tuple([child.view for child in self.children]),
        )

    @property
    def entity(self) -> str:
        """The type of the group in metrics."""
        return self.group.api_kind.lower()

    def leaves(self) -> Iterator[Branch]:
        """Yield the groups with pods, in order."""
        if not self.group.is_composite:
            yield self
        for child in self.children:
            yield from child.leaves()

    def all(self) -> Iterator[Branch]:
        """Yield the group and all groups in it."""
        yield self
        for child in self.children:
            yield from child.all()

    def all_members(self) -> Iterator[Member]:
        """Yield the members of the group and of all groups in it, in the order in which they are tried."""
        yield from self.members
        for child in self.children:
            yield from child.all_members()

    def placed_members(self) -> Iterator[Member]:
        """Yield the members with a node in the groups that have their places, and whose groups above have."""
        if self.status is not None and self.status.is_success:
            yield from (member for member in self.members if member.result is not None)
            for child in self.children:
                yield from child.placed_members()

    def assignments(self) -> list[Assignment]:
        """Return the nodes that the present trial gives to members; child groups that fail keep none."""
        placed = chain(self.members, *(child.placed_members() for child in self.children))
        return [
            Assignment(member.pod, member.result.node_name) for member in placed if member.result is not None
        ]

    def name_change(self, now: PodGroup | None) -> None:
        """Name in the status of a group without a place what happened to its object since the snapshot.

        `now`: the object as it is now; None: it is gone. Only a change that concerns the next attempt counts.
        """
        status, group = self.status, self.group
        if status is None or status.is_success:
            return
        if now is None or now.uid != group.uid:
            text = "the group was deleted meanwhile"
        elif now.min_count != group.min_count:
            minimum = "minMember" if group.is_coscheduling else "minCount"
            text = f"{'minGroupCount' if group.is_composite else minimum} is {now.min_count} meanwhile"
        else:
            return
        if text not in status.reasons:
            status.reasons.append(text)

    def trial(
        self, placement: Placement, status: GroupStatus, repeats: KeptTrial | None = None
    ) -> TriedPlacement:
        """Return the record of the present trial. `status`: its outcome. `repeats`: the kept trial of equal
        members whose outcome was used again.
        """
        if repeats is not None:
            return self._repeated(placement, status, repeats)
        members = [one for one in self.all_members() if not one.is_deleted]
        unfit = next((one for one in members if one.attempt is not None and one.failed is not None), None)
        return TriedPlacement(
            name=placement.name,
            node_count=len(placement.nodes),
            untried=sum(one.attempt is None for one in members),
            message="" if status.is_success else status.message,
            assignments=tuple([(one.pod, one.result.node_name) for one in members if one.result is not None]),
            unfit=None if unfit is None or unfit.attempt is None else unfit.attempt.diagnosis,
            unfit_message="" if unfit is None or unfit.failed is None else unfit.failed.message,
        )

    def _repeated(self, placement: Placement, status: GroupStatus, repeats: KeptTrial) -> TriedPlacement:
        """Return the record of a trial whose outcome is that of `repeats`."""
        found = list(zip(self.members, repeats.members, strict=False))
        unfit = next(((member, kept) for member, kept in found if kept.unfit is not None), None)
        diagnosis = None
        if unfit is not None and unfit[1].unfit is not None:
            # The nodes said no to an equal pod.
            diagnosis = copy(unfit[1].unfit)
            diagnosis.pod, diagnosis.attempt = unfit[0].pod, unfit[0].queued.attempts
        return TriedPlacement(
            name=placement.name,
            node_count=len(placement.nodes),
            untried=len(self.members) - len(found),
            message="" if status.is_success else status.message,
            assignments=tuple([(one.pod, kept.node_name) for one, kept in found if kept.node_name]),
            unfit=diagnosis,
            unfit_message="" if unfit is None else unfit[1].message,
        )


class GroupAttempt(GroupCycle):
    """The scheduler's record of one attempt of a root group. `started_s`: `instant_s` at the start."""

    task: asyncio.Task[None] | None = None
    """The task that the scheduling loop runs in; None: the attempt is not in its cycle."""
    cancellations: int = 0
    """The number of times that the host cancelled the task because of this attempt."""
    aborted: str = ""
    """Why the attempt was cut short."""
    has_deleted: bool = False
    """True if a member was deleted while the cycle ran."""

    def __init__(
        self, cycle_id: str, info: QueuedGroupInfo, profile: CycleProfile, tree: Branch, snapshot: Snapshot
    ) -> None:
        super().__init__(
            cycle_id,
            tree.view,
            profile.framework.profile,
            nodes=snapshot.nodes,
            version=snapshot.version,
            budget_s=profile.cycle_budget_s,
        )
        self.info = info
        self.scheduling = profile
        self.tree = tree
        self.started_s = instant_s()
        self.outcome = GroupOutcome.ERROR
        """The outcome for the queue, once the cycle has ended."""
        self.members = list(tree.all_members())
        self._by_uid = {one.queued.uid: one for one in self.members}
        self.tried: Member | None = None
        """The member whose steps are under way."""
        self.tried_placements: dict[str, TriedPlacements] = {}
        """The placements that the last run of the algorithm tried, by key of the group; for `berth why`."""

    @property
    def tried_attempt(self) -> Attempt | None:
        """The attempt of the member whose steps are under way."""
        return None if self.tried is None else self.tried.attempt

    @property
    def key(self) -> str:
        """The group's key, for logs."""
        return self.info.key

    def stopped(self) -> None:
        """Note the end of a guarded part of the cycle."""

    def begin_again(self, cycle_id: str) -> None:
        """Begin the attempt from its start, under another id, without the plugins' answers."""
        self.cycle_id, self.restarted = cycle_id, True
        self.parts = {}
        self.wire = {}

    def note_trial(
        self, branch: Branch, placement: Placement, status: GroupStatus, repeats: KeptTrial | None = None
    ) -> None:
        """Record the trial of a group in one placement, before its nodes are given back. `repeats`: as in
        `Branch.trial`.
        """
        tried = self.tried_placements.get(branch.group.key)
        if tried is None:
            tried = self.tried_placements[branch.group.key] = TriedPlacements()
        if repeats is not None:
            # Of fifty racks, most are only counted.
            fails = not status.is_success and bool(status.message)
            if not tried.takes(fails=fails, placed=repeats.placed_of(len(branch.members))):
                return
        tried.add(branch.trial(placement, status, repeats))

    def records(
        self, tried: Mapping[str, TriedPlacements], post_filter: str, *, is_preempting: bool
    ) -> Iterator[GroupRecord]:
        """Yield the record of each group of the tree, for `berth why`.

        `tried`: the placements that the algorithm tried, by key of the group. `post_filter`: what
        PodGroupPostFilter said.
        """
        for branch in self.tree.all():
            status = branch.status
            if status is None:
                continue
            found = tried.get(branch.group.key, TriedPlacements())
            outcome = "scheduled" if status.is_success else "error" if status.is_error else "unschedulable"
            if is_preempting and not status.is_success:
                outcome = "waitingOnPreemption"
            yield GroupRecord(
                key=branch.group.key,
                uid=branch.group.uid,
                root_key=self.key,
                attempt=self.info.attempts,
                outcome=outcome,
                message="" if status.is_success else status.message,
                post_filter="" if status.is_success else post_filter,
                scheduled=len(branch.scheduled),
                placement_count=found.count,
                placements=tuple(found.best),
            )

    def member(self, uid: str) -> Member | None:
        """Return the member with this uid."""
        return self._by_uid.get(uid)

    def attempts(self) -> list[Attempt]:
        """Return the attempts of the members that are not in their binding cycle."""
        return [one.attempt for one in self.members if one.attempt is not None and not one.attempt.binding]

    def member_deleted(self, uid: str) -> bool:
        """Note that a member was deleted, and cancel the call about it. Return False for other pods, and for
        members that are in the queue or in their binding cycle.
        """
        member = self.member(uid)
        if member is None or member.is_given_back:
            return False
        member.is_deleted = self.has_deleted = True
        if member is self.tried and member.attempt is not None:
            member.attempt.abort(POD_DELETED)
        return True

    def cut(self, reason: str) -> None:
        """Mark the attempt as cut short. The caller cancels the task of the scheduling loop."""
        self.aborted = reason
        if self.tried is not None and self.tried.attempt is not None:
            self.tried.attempt.aborted = reason
