"""`GroupRepair`: follows the gangs that lost members, and evicts what is left of one that nobody refills.

    whole -a bound member is gone, too few are left-> short -enough members are bound again-> whole
    short -`repair: Evict`, and the grace is over-> marked -> evicted -> the group starts anew

Only a host that leads acts. Kept in memory: since when a group is short. So the grace begins anew when
another host begins to lead. A new host finishes at once what an earlier one began: the members that are left
of a group that is short and has marked members.
Members that succeeded are no loss. The watch of pods leaves them out, so they are listed when members are
gone, and once more before an eviction. Kubernetes has nothing of this: `gang_policy` says what users set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final, Protocol

from berth_sdk.duration import format_seconds
from berth_sdk.gang_policy import GANG_SCHEDULING, GangPolicy, Repair
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import COSCHEDULING_LABEL, Pod
from berth_sdk.pod_group import PodGroup
from berth_sdk.rfc3339 import format_time

from berth_host.cache.pod_groups import MAX_DEPTH, PodGroups
from berth_host.cycle.pod_status import PodStatusWriter
from berth_host.errors.state import InvariantError
from berth_host.explain.group_answer import RepairState
from berth_host.groups.gang_minimum import has_condition_of_now, is_of_earlier_group, minimum_before
from berth_host.log import get_logger
from berth_host.model.clock import Clock, sleep
from berth_host.model.internal_error import InternalError
from berth_host.preemption.eligibility import disruption_mark
from berth_host.preemption.victim_calls import Mark, VictimCalls

log = get_logger()
EVICTION_REASON: Final = "EvictionByGangRepair"
"""The reason of the DisruptionTarget condition of members that are evicted."""
LOST: Final = "GangLostMembers"
EVICTED: Final = "GangEvicted"
NOT_EVICTED: Final = "GangNotEvicted"
BAD_ANNOTATION: Final = "InvalidGangAnnotation"
_GROUP_OF_POD: Final = "spec.schedulingGroup.podGroupName"
_FIRST_PAUSE_S: Final = 1.0
_MAX_PAUSE_S: Final = 60.0


class Lister(Protocol):
    """The call of the cluster port that repair makes."""

    async def list(
        self, resource: str, namespace: str, labels: Mapping[str, str], fields: Mapping[str, str] | None
    ) -> Sequence[KubeObject]:
        """Read the objects of a namespace that have these labels and values of fields; finished pods too."""
        ...


class Report(Protocol):
    """Writes an Event about a group, in the background."""

    def __call__(self, group: PodGroup, reporter: str, type: str, reason: str, note: str) -> None:
        """Write it. `reporter`: the schedulerName of the group's members."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairSeams:
    """The parts of the host that repair uses.

    `policies`: the settings of groups by schedulerName. `undo`: ends the attempt of a member that has a node
    and is not bound (its uid, the plugin in whose name, the reason); returns False if it is too late for it.
    """

    groups: PodGroups
    policies: Mapping[str, GangPolicy]
    calls: VictimCalls
    cluster: Lister
    undo: Callable[[str, str, str], bool]
    status: PodStatusWriter
    report: Report
    clock: Clock
    internal_error: InternalError


@dataclass(slots=True, eq=False)
class _Gang:
    """One gang that may be repaired.

    - `had`: the highest minimum that the gang is known to have had; members beyond it were never there.
    - `seen`: the uids of the bound members at the last look. `succeeded`: those of members that succeeded;
      `is_counted`: True if they were listed after the last loss; `losses`: the number of losses so far.
    - `short_s`, `short_at_s`: since when it is short, monotonic and Unix seconds. None: it is whole.
    - `resumes`: True if an earlier host has marked members. `gone`: the uids of members deleted here.
    """

    uid: str
    scheduler: str
    policy: GangPolicy
    had: int = 0
    seen: frozenset[str] = frozenset()
    succeeded: set[str] = field(default_factory=set)
    is_counted: bool = False
    losses: int = 0
    is_short: bool = False
    short_s: float | None = None
    short_at_s: float = 0.0
    resumes: bool = False
    is_told: bool = False
    is_evicting: bool = False
    gone: set[str] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class _Members:
    """The members of a gang that are not leaving: the bound ones, those with a node that is not bound yet,
    and the number of all.
    """

    bound: tuple[Pod, ...]
    assumed: tuple[Pod, ...]
    count: int


class GroupRepair:
    """The repair of all groups: made -begin-> acts -stop-> over. `changed` gets every change of a group.

    `evicted_count`: the number of members evicted so far.
    """

    def __init__(self, seams: RepairSeams) -> None:
        self._seams = seams
        self._groups = seams.groups
        self._clock = seams.clock
        self._gangs: dict[str, _Gang] = {}
        self._problems: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._due: dict[str, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._rests = False
        self._resting = 0
        self._begins = False
        self.evicted_count = 0

    # --- its life ----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to act: this host leads."""
        self._due = dict.fromkeys(group.key for group in self._groups.objects())
        self._begins = True
        self._woken.set()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="repair of pod groups")
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Begin nothing more. The next host finishes an eviction under way."""
        tasks = [self._task, *(gang.task for gang in self._gangs.values())]
        self._task = None
        self._gangs.clear()
        running = [task for task in tasks if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def changed(self, key: str) -> None:
        """Look at a group whose object or members changed, once the change is complete."""
        if self._task is not None:
            self._due[key] = None
            self._woken.set()

    @property
    def is_idle(self) -> bool:
        """True if nothing happens before the next change, or the next timer."""
        working = sum(gang.task is not None for gang in self._gangs.values()) - self._resting
        return self._task is None or (self._rests and not self._due and not working)

    async def _run(self) -> None:
        while True:
            self._rests = True
            await self._woken.wait()
            self._rests = False
            self._woken.clear()
            due, self._due = self._due, {}
            for key in due:
                self._look(key)
            self._begins = False

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (err := task.exception()) is not None:
            self._seams.internal_error.fail(err)

    @contextmanager
    def _resting_until(self) -> Iterator[None]:
        """Count as idle during the block, which waits for a timer or a change."""
        self._resting += 1
        try:
            yield
        finally:
            self._resting -= 1

    # --- what others ask -----------------------------------------------------------------------------

    def is_refilling(self, key: str) -> bool:
        """Return True if a gang is to be refilled: members are lost, and too few have a node."""
        gang = self._gangs.get(key)
        if gang is None or not gang.is_short or gang.is_evicting:
            return False
        # After another loss the members that succeeded are listed again: the first loss stands meanwhile.
        return gang.is_counted or gang.is_told

    def state_of(self, key: str) -> RepairState | None:
        """Return what is known about a gang that lost members; None for any other group."""
        gang = self._gangs.get(key)
        if gang is None or gang.short_s is None or not gang.is_counted:
            return None
        evicts = gang.policy.repair is Repair.EVICT
        return RepairState(
            since_s=gang.short_at_s,
            repair=str(gang.policy.repair),
            evicts_at_s=gang.short_at_s + gang.policy.grace_s if evicts else None,
            is_evicting=gang.is_evicting,
        )

    def problems_of(self, key: str) -> tuple[str, ...]:
        """Return the problems with the annotations of a group that this host schedules."""
        return self._problems.get(key, ("", ()))[1]

    # --- one look at a group -------------------------------------------------------------------------

    def _look(self, key: str) -> None:
        group = self._groups.object(key)
        gang = self._gangs.get(key)
        if gang is not None and (group is None or group.uid != gang.uid):
            self._forget(key)
            gang = None
        if group is None:
            self._problems.pop(key, None)
            return
        scheduler = self._scheduler_of(key)
        if not scheduler:
            self._forget(key)
            return
        for one in islice(self._groups.known_path(key), MAX_DEPTH):
            self._tell_problems(one, scheduler)
        policy, _ = self._seams.policies[scheduler].for_group(group)
        if not group.is_gang or group.is_composite or policy.repair is Repair.LEAVE:
            self._forget(key)
            return
        members = self._members(key, gang)
        if gang is None:
            gang = self._gangs[key] = _Gang(group.uid, scheduler, policy)
            gang.had = minimum_before(group, len(members.bound))
            gang.resumes = self._begins and any(map(_is_marked, members.bound))
        self._judge(key, gang, group, policy, members)

    def _judge(self, key: str, gang: _Gang, group: PodGroup, policy: GangPolicy, members: _Members) -> None:
        """Note whether the gang is short, and begin or end its repair."""
        bound = frozenset(pod.uid for pod in members.bound)
        if gang.seen - bound:
            gang.is_counted = False  # gone, or succeeded: only a list tells
            gang.losses += 1
        gang.seen = bound
        there = len(bound) + len(gang.succeeded)
        if there >= group.min_count or has_condition_of_now(group):
            gang.had = group.min_count
        is_other = policy != gang.policy
        gang.policy = policy
        gang.changed.set()
        if gang.is_evicting:
            return
        need = _needed(gang, group)
        gang.is_short = bool(bound) and there + len(members.assumed) < need
        if not bound or there >= need:
            self._settle(gang)
            return
        if is_other and gang.task is not None:
            gang.task.cancel()
            gang.task = None
        if gang.is_short and gang.short_s is None:
            gang.short_s, gang.short_at_s = self._clock.monotonic_s(), self._clock.now_s()
        is_waiting = policy.repair is Repair.REFILL and gang.is_counted
        if gang.is_short and gang.task is None and not is_waiting:
            gang.task = asyncio.get_running_loop().create_task(self._mend(key, gang), name=f"repair of {key}")
            gang.task.add_done_callback(partial(self._mended, key, gang))

    def _members(self, key: str, gang: _Gang | None) -> _Members:
        state = self._groups.state(key)
        if state is None:
            return _Members((), (), 0)
        if gang is not None:
            gang.gone &= state.all.keys()
        gone = frozenset[str]() if gang is None else gang.gone

        def stay(pods: Mapping[str, Pod]) -> tuple[Pod, ...]:
            return tuple(pod for uid, pod in pods.items() if not pod.terminating and uid not in gone)

        return _Members(stay(state.assigned), stay(state.assumed), len(stay(state.all)))

    def _scheduler_of(self, key: str) -> str:
        """Return the schedulerName of the group's members; "" if it has none of this host's profiles."""
        for leaf in self._groups.leaves(key, MAX_DEPTH):  # no group of a deeper tree is scheduled
            state = self._groups.state(leaf.key)
            for pod in () if state is None else state.all.values():
                if pod.scheduler_name in self._seams.policies:
                    return pod.scheduler_name
        return ""

    def _tell_problems(self, group: PodGroup, scheduler: str) -> None:
        _, problems = self._seams.policies[scheduler].for_group(group)
        if self._problems.get(group.key, (group.uid, ())) == (group.uid, problems):
            return
        self._problems[group.key] = (group.uid, problems)
        for problem in problems:
            log.warning("group.bad_annotation", group=group.key, problem=problem)
            self._seams.report(group, scheduler, "Warning", BAD_ANNOTATION, problem)

    def _forget(self, key: str) -> None:
        gang = self._gangs.pop(key, None)
        if gang is not None and gang.task is not None:
            gang.task.cancel()

    def _settle(self, gang: _Gang) -> None:
        """Note that a gang is whole, or that none of its members is left."""
        gang.short_s, gang.is_short, gang.is_told, gang.resumes = None, False, False, False
        if gang.task is not None and gang.task is not asyncio.current_task():
            gang.task.cancel()
            gang.task = None

    # --- the repair of one gang ------------------------------------------------------------------------

    async def _mend(self, key: str, gang: _Gang) -> None:
        """Wait until the gang is whole again; evict it if it is still short after the grace."""
        if not await self._counted(key, gang) or not gang.is_short:
            return
        self._tell_loss(key, gang)
        if gang.policy.repair is Repair.REFILL:
            return
        while True:
            left_s = (gang.short_s or 0.0) + gang.policy.grace_s - self._clock.monotonic_s()
            if left_s > 0 and not gang.resumes:
                with self._resting_until():
                    await sleep(self._clock, left_s)
            if not await self._counted(key, gang):
                return
            if self._may_evict(key, gang):
                break
            # Replacements have a node and are not bound yet, or the group could not start anew.
            gang.changed.clear()
            with self._resting_until():
                await gang.changed.wait()
        await self._evict(key, gang)

    async def _counted(self, key: str, gang: _Gang) -> bool:
        """List the members that succeeded, and judge again. Returns False if the gang is whole."""
        pause_s = _FIRST_PAUSE_S
        while (group := self._groups.object(key)) is not None and self._gangs.get(key) is gang:
            losses = gang.losses
            try:
                succeeded = await self._succeeded(group)
            except InvariantError:
                raise
            except Exception as err:  # noqa: BLE001 (logged and tried again)
                log.warning("group_repair.not_listed", group=key, error=str(err), again_after_s=pause_s)
                with self._resting_until():
                    await sleep(self._clock, pause_s)
                pause_s = min(2 * pause_s, _MAX_PAUSE_S)
                continue
            gang.succeeded |= succeeded
            self._look(key)
            if gang.losses == losses:  # else the list may be older than a member's end
                gang.is_counted = True
                return gang.short_s is not None
        return False

    async def _succeeded(self, group: PodGroup) -> set[str]:
        """Return the uids of the members that succeeded. Raises ClusterError."""
        labels = {COSCHEDULING_LABEL: group.name} if group.is_coscheduling else {}
        found = await self._seams.cluster.list("pods", group.namespace, labels, {"status.phase": "Succeeded"})
        return {
            pod.ref.uid
            for pod in found
            if (group.is_coscheduling or pod.get(_GROUP_OF_POD, "") == group.name)
            and not is_of_earlier_group(pod, group)
        }

    def _may_evict(self, key: str, gang: _Gang) -> bool:
        """Return True if the gang is short, and could start anew.

        Members that succeeded do not come again. With too few others, an eviction would end the group's work
        for good.
        """
        group = self._groups.object(key)
        if group is None or not gang.is_short:
            return False
        return not gang.succeeded or self._members(key, gang).count >= group.min_count

    async def _evict(self, key: str, gang: _Gang) -> None:
        group = self._groups.object(key)
        if group is None:
            return
        members = self._members(key, gang)
        gang.is_evicting = True
        name = f"{group.namespace}/{group.name}"
        since = format_seconds(round(self._clock.monotonic_s() - (gang.short_s or 0.0)))
        why = f"pod group {name} had fewer than {_needed(gang, group)} members with a node for {since}"
        try:
            self._seams.report(
                group,
                gang.scheduler,
                "Warning",
                EVICTED,
                f"evicts the {len(members.bound)} other members, so that the group starts anew: {why}",
            )
            log.info("group_repair.evicts", group=key, members=len(members.bound), since_s=gang.short_at_s)
            mark = Mark(EVICTION_REASON, f"{gang.scheduler}: evicting what is left of pod group {name}")
            # All marks first: they tell the next host to go on where this one stops.
            await self._each(key, gang, members.bound, lambda pod: self._seams.calls.mark(pod, mark))
            gang.is_evicting = False
            self._look(key)
            if gang.is_short:  # else replacements came while the marks were written
                gang.is_evicting = True
                for pod in members.assumed:
                    self._seams.undo(pod.uid, GANG_SCHEDULING, f"evicted: {why}")
                await self._each(key, gang, members.bound, lambda pod: self._delete(pod, gang, why))
        finally:
            gang.is_evicting = False
        self.changed(key)

    async def _delete(self, pod: Pod, gang: _Gang, why: str) -> None:
        await self._seams.calls.delete_only(pod)
        gang.gone.add(pod.uid)
        self.evicted_count += 1
        log.info("group_repair.evicted", pod=pod.key, node=pod.node_name)
        self._seams.status.event(pod, "Normal", EVICTED, "Evicting", f"Evicted: {why}")

    async def _each(
        self, key: str, gang: _Gang, pods: Sequence[Pod], step: Callable[[Pod], Awaitable[None]]
    ) -> None:
        """Do a step for each member that is still there, and repeat it where it failed."""
        pause_s = _FIRST_PAUSE_S
        left = list(pods)
        while left:
            there = {pod.uid for pod in self._members(key, gang).bound}
            left = [pod for pod in left if pod.uid in there]
            ends = await asyncio.gather(*(_problem(step, pod) for pod in left))
            failed = [(pod, err) for pod, err in zip(left, ends, strict=True) if err is not None]
            left = [pod for pod, _ in failed]
            if failed:
                self._tell_failure(key, gang, len(left), str(failed[0][1]), pause_s)
                with self._resting_until():
                    await sleep(self._clock, pause_s)
                pause_s = min(2 * pause_s, _MAX_PAUSE_S)

    def _tell_loss(self, key: str, gang: _Gang) -> None:
        group = self._groups.object(key)
        if group is None or gang.is_told:
            return
        gang.is_told = True
        members = self._members(key, gang)
        note = f"{len(members.bound) + len(members.assumed)} members have a node"
        if gang.succeeded:
            note += f" and {len(gang.succeeded)} succeeded"
        note += f", {_needed(gang, group)} are needed"
        if gang.policy.repair is Repair.EVICT and not gang.resumes:
            at = format_time(gang.short_at_s + gang.policy.grace_s)
            note += f"; those that are left are evicted at {at} unless the lost ones are replaced"
        log.info("group_repair.lost", group=key, note=note)
        self._seams.report(group, gang.scheduler, "Warning", LOST, note)

    def _tell_failure(self, key: str, gang: _Gang, count: int, problem: str, pause_s: float) -> None:
        log.warning("group_repair.failed", group=key, members=count, error=problem, again_after_s=pause_s)
        group = self._groups.object(key)
        if group is not None and pause_s == _FIRST_PAUSE_S:
            note = f"{count} members are not evicted yet, and the scheduler tries again: {problem}"
            self._seams.report(group, gang.scheduler, "Warning", NOT_EVICTED, note)

    def _mended(self, key: str, gang: _Gang, task: asyncio.Task[None]) -> None:
        if gang.task is task:
            gang.task = None
            if task.cancelled():
                # Not by this class: a client gave up a call.
                self.changed(key)
        self._ended(task)


async def _problem(step: Callable[[Pod], Awaitable[None]], pod: Pod) -> Exception | None:
    """Do a step for one member; return its error, None if there was none. Raises InvariantError."""
    try:
        await step(pod)
    except InvariantError:
        raise
    except Exception as err:  # noqa: BLE001 (the caller tells it, and tries again)
        return err
    return None


def _needed(gang: _Gang, group: PodGroup) -> int:
    """Return the number of members below which the gang is short: a minimum that was raised counts once the
    gang had it.
    """
    return min(group.min_count, gang.had)


def _is_marked(pod: Pod) -> bool:
    return disruption_mark(pod, EVICTION_REASON) is not None
