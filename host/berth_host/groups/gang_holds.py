"""`GangHolds`: keeps room for a group of pods that does not fit, so that smaller pods cannot keep it waiting
for ever. Read after `schedule_group`.

    a group's attempt fails, preemption cannot help -> is it the group's turn? -> where does it fit first?
        (`hold_search`) -> its members are nominated there, for `timeout_s` at most

This is EASY backfilling with one reservation. Other pods see the nominations as they see those of a
preemption, except pods that the hold lets in (`model.hold`). One group holds room at a time. The others wait
in line: the highest priority first, then groups that lost members and refill, then the oldest. A group whose
hold ran out of time goes behind the others until one of them had its turn.
Which groups hold room is a setting (`berth_sdk.gang_policy`); without it nothing here has an effect.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from berth_sdk.gang_policy import GangPolicy, Repair
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup
from berth_sdk.rfc3339 import format_time
from berth_sdk.status import Status

from berth_host.cache.pod_groups import GroupReader
from berth_host.cache.snapshot import Snapshot
from berth_host.cycle.pod_status import PodStatusWriter
from berth_host.groups.hold_search import Ends, Fit, Trials, first_fit, still_fits
from berth_host.log import get_logger
from berth_host.metrics.group_metrics import GroupMetrics
from berth_host.model.clock import Clock, Timer
from berth_host.model.hold import Hold
from berth_host.queue.interfaces import PodLister
from berth_host.queue.scheduling_queue import SchedulingQueue

log = get_logger()
UNFIT_S: Final = 60.0
"""Seconds after which a group that would not fit in an empty cluster looks for room again. It looks at once
when nodes come or go.
"""
REST_S: Final = 10.0
"""Seconds for which no group holds room after a hold ran out of time, so that the pods that the hold kept out
have their turn, also where groups hold room in turns.
"""
RESTS: Final = "holds no room for some seconds, as the time of the last hold is over"
NO_ROOM: Final = "holds no room: it would not fit even without the pods that are expected to leave"
PoliciesOf = Callable[[str, PodGroup], GangPolicy | None]
"""Returns the settings of a group, by the schedulerName of its pods and the root group; None: the plugin
that judges such groups is off.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roomless:
    """A group whose attempt found no room. `pods`: the members to place. `profile`: their schedulerName.
    `may_preempt`: the group may evict pods of lower priority.
    """

    root: PodGroup
    pods: Sequence[Pod]
    profile: str
    may_preempt: bool

    @property
    def priority(self) -> int:
        """The group's priority."""
        return self.root.priority_among(self.pods)


@dataclass(frozen=True, slots=True)
class Promised:
    """The nominations after a failed attempt. `nodes`: the node to nominate each member to, by uid; "":
    none. `text`: a sentence for the group's message; "" for none.
    """

    nodes: Mapping[str, str]
    text: str = ""


@dataclass(slots=True, eq=False)
class _Claim:
    """A group in line. `repairs`: it lost members. `since_s`: Unix seconds, by which it waits. `yields`: its
    last hold ran out of time, and no other group has had its turn since. `unfit_to_s`: monotonic seconds,
    until which it looks for no room on the nodes of `unfit_on`.
    """

    key: str
    uid: str
    priority: int
    repairs: bool
    since_s: float
    yields: bool = False
    unfit_to_s: float = 0.0
    unfit_on: int = -1

    @property
    def rank(self) -> tuple[bool, int, bool, float, str]:
        """The place in line; the smallest is the head."""
        return self.yields, -self.priority, not self.repairs, self.since_s, self.key


class GangHolds:
    """The holds of one host, of which there is one at a time: `current`.

    `is_refilling`: returns True for the key of a group that lost members and gets new ones. `report`: writes
    an Event about a group, from a reporter, with type, reason and note.
    """

    def __init__(
        self,
        queue: SchedulingQueue,
        snapshot: Snapshot,
        groups: GroupReader,
        pods: PodLister,
        status: PodStatusWriter,
        clock: Clock,
        policy_of: PoliciesOf,
        is_refilling: Callable[[str], bool],
        metrics: GroupMetrics,
        report: Callable[[PodGroup, str, str, str, str], None],
    ) -> None:
        self._queue = queue
        self._snapshot = snapshot
        self._columns = queue.nominated_columns
        self._groups = groups
        self._pods = pods
        self._status = status
        self._clock = clock
        self._policy_of = policy_of
        self._is_refilling = is_refilling
        self._metrics = metrics
        self._report = report
        self._line: dict[str, _Claim] = {}
        self._rests_to_s = 0.0
        """Monotonic seconds, until which no group holds room."""
        self._ends = Ends()
        self._timer: Timer | None = None
        self._profile = ""
        """The schedulerName of the group that holds room."""

    @property
    def current(self) -> Hold | None:
        """The hold; None: no group holds room."""
        return self._columns.room

    # --- the cycle of a group ------------------------------------------------------------------------

    async def failed(self, group: Roomless, trials: Trials) -> Promised | None:
        """Decide about room for a group. None: its attempt ends as it does without holds."""
        root, pods = group.root, group.pods
        policy = self._policy_of(group.profile, root)
        if policy is None or not pods or not self._wants(policy, self._snapshot.groups, root):
            return self._withdraw(root.key, "given_up", pods)
        claim = self._claim(root, pods, repairs=self._repairs(root))
        if self._rests_to_s > self._clock.monotonic_s():
            return Promised(_nowhere(pods), RESTS)
        ahead = self._ahead(claim)
        if ahead:
            return Promised(_nowhere(pods), f"waits in line to hold room, behind {ahead}")
        mine = self._hold_of(root.key)
        names_version = self._snapshot.nodes.names_version
        is_unfit = claim.unfit_on == names_version and claim.unfit_to_s > self._clock.monotonic_s()
        if mine is None and is_unfit:
            return Promised(_nowhere(pods), NO_ROOM)
        hold = self.current
        takes_turn = mine is None and hold is not None and hold.priority >= claim.priority
        if hold is not None and takes_turn:
            # A group that refills must not count the nominations of the hold whose turn it takes.
            leaves = {leaf.key for leaf in self._snapshot.groups.leaves(root.key)}
            self._columns.room = replace(hold, group_keys=hold.group_keys | leaves)
        try:
            found = await self._find(group, trials, mine)
        finally:
            now = self.current
            if hold is not None and now is not None and takes_turn:
                self._columns.room = replace(now, group_keys=hold.group_keys)
        nodes = {} if isinstance(found, Status) else found.nodes
        left = {uid: node for uid, node in nodes.items() if self._pods.pod_by_uid(uid) is not None}
        is_gone = self._line.get(root.key) is not claim or (nodes and not left)
        if is_gone or (mine is not None and self._hold_of(root.key) is None):
            # Meanwhile the group or its members were deleted, or the time of its hold is over.
            return Promised(_nowhere(pods))
        if isinstance(found, Status):
            if not found.is_rejected:
                return None if mine is None else Promised(_nodes(mine, pods), self._text(mine))
            if mine is not None:
                self._end("unfit")
            claim.unfit_to_s, claim.unfit_on = self._clock.monotonic_s() + UNFIT_S, names_version
            return Promised(_nowhere(pods), NO_ROOM)
        hold = self._take(group, claim, Fit(left, found.waits_for), policy.timeout_s)
        return Promised(_nodes(hold, pods), self._text(hold))

    def placed(self, key: str, pods: Iterable[Pod]) -> Promised | None:
        """End the hold of a group that has its places. `pods`: the members of the attempt, of which those
        without a place lose their nomination.
        """
        return self._withdraw(key, "placed", pods)

    def preempts(self, key: str, pods: Iterable[Pod]) -> None:
        """End the hold of a group that waits for its victims. `pods`: the members that get other
        nominations.
        """
        self._withdraw(key, "preempts", pods)

    def passed_over(self, key: str) -> Promised | None:
        """Take a group out of the line whose attempt did not come to the question of room, because of an
        error or for another reason; its hold stays.
        """
        mine = self._hold_of(key)
        if mine is None:
            self._line.pop(key, None)
            return None
        return Promised(mine.nodes)

    async def _find(self, group: Roomless, trials: Trials, mine: Hold | None) -> Fit | Status:
        """Return where the group fits first. With a hold: where it fits in time, if it still does."""
        groups = self._snapshot.groups
        states = (groups.state(leaf.key) for leaf in groups.leaves(group.root.key))
        scheduled = (pod for state in states if state is not None for pod in state.scheduled)
        own = {pod.uid for pod in scheduled if not pod.terminating}
        pods = self._ends.leaving(
            self._snapshot.pods,
            own,
            group.priority,
            self._clock.now_s(),
            {} if mine is None else mine.waits_for,
            preempts_lower=group.may_preempt,
        )
        if mine is not None:
            found = await still_fits(trials, pods.chosen(mine.waits_for, mine.expected_start_s))
            if isinstance(found, Fit) or not found.is_rejected:
                return found
        return await first_fit(trials, pods)

    # --- the line --------------------------------------------------------------------------------------

    def _claim(self, root: PodGroup, pods: Iterable[Pod], *, repairs: bool) -> _Claim:
        """Return the group's place in line."""
        claim = self._line.get(root.key)
        if claim is None or claim.uid != root.uid:
            since_s = self._clock.now_s() if root.created_s is None else root.created_s
            claim = self._line[root.key] = _Claim(root.key, root.uid, 0, repairs, since_s)
        claim.priority, claim.repairs = root.priority_among(pods), repairs
        return claim

    def _ahead(self, claim: _Claim) -> str:
        """Return the key of the group that goes before this one; "": it is this group's turn.

        A group that holds room gives it up only to one of higher priority, or to one that refills.
        """
        hold = self.current
        if hold is not None:
            if hold.key == claim.key:
                return ""
            holder = self._line.get(hold.key)
            outranks = holder is None or (claim.priority, claim.repairs) > (holder.priority, holder.repairs)
            return "" if outranks and not claim.yields else hold.key
        first = min((*self._ready(), claim), key=lambda one: one.rank)
        return "" if first is claim else first.key

    def _ready(self) -> Iterator[_Claim]:
        """Yield the groups in line that will be tried without an event, and may find room."""
        now_s = self._clock.monotonic_s()
        for claim in self._line.values():
            found = self._queue.places.find(claim.key)
            if found is not None and not found[1].is_gated and now_s >= claim.unfit_to_s:
                yield claim

    def _hold_of(self, key: str) -> Hold | None:
        hold = self.current
        return hold if hold is not None and hold.key == key else None

    # --- the life of a hold ------------------------------------------------------------------------------

    def _take(self, group: Roomless, claim: _Claim, fit: Fit, timeout_s: float) -> Hold:
        """Begin the hold of a group, or note what it holds now."""
        root, now_s = group.root, self._clock.now_s()
        mine = self._hold_of(root.key)
        if mine is None:
            self._end("displaced", requeues=False)
        since_s = now_s if mine is None else mine.since_s
        hold = Hold(
            key=root.key,
            uid=root.uid,
            group_keys=frozenset(leaf.key for leaf in self._snapshot.groups.leaves(root.key)),
            priority=claim.priority,
            preempts_lower=group.may_preempt,
            nodes=fit.nodes,
            since_s=since_s,
            until_s=since_s + timeout_s,
            waits_for=fit.waits_for,
            backfilled=0 if mine is None else mine.backfilled,
        )
        self._begin(hold, group.profile)
        if mine is None:
            self._report(root, group.profile, "Normal", "HoldingRoom", self._text(hold))
            log.info("group.holds_room", group=root.key, pods=len(hold.nodes), nodes=len(hold.node_names))
        return hold

    def _begin(self, hold: Hold, profile: str) -> None:
        before = self.current
        self._columns.room, self._profile = hold, profile
        if before is None or before.until_s != hold.until_s:
            self.stop()
            left_s = hold.until_s - self._clock.now_s()
            self._timer = self._clock.call_at(self._clock.monotonic_s() + left_s, self._time_is_over)

    def _time_is_over(self) -> None:
        hold = self.current
        if hold is None:
            return
        claim, root = self._line.get(hold.key), self._groups.object(hold.key)
        if claim is not None:
            claim.since_s, claim.yields = self._clock.now_s(), True
        self._rests_to_s = self._clock.monotonic_s() + REST_S
        if root is not None:
            note = f"the group has not started in the time for which it may hold room: {self._text(hold)}"
            self._report(root, self._profile, "Warning", "HoldEnded", note)
        self._end("timed_out", requeues=False)

    def _withdraw(self, key: str, outcome: str, pods: Iterable[Pod]) -> Promised | None:
        """Take a group out of the line, and end its hold. `pods`: the members of its attempt."""
        self._line.pop(key, None)
        if self._hold_of(key) is None:
            return None
        nowhere = _nowhere(pods)
        self._end(outcome, in_attempt=nowhere)
        return Promised(nowhere)

    def _end(self, outcome: str, *, in_attempt: Container[str] = (), requeues: bool = True) -> None:
        """End the hold, and take back its nominations.

        `in_attempt`: the uids of members whose nominations the attempt under way changes. `requeues`: let the
        next group in line be tried.
        """
        hold = self.current
        if hold is None:
            return
        self._columns.room = None
        self.stop()
        self._metrics.hold_ended(outcome, hold.backfilled)
        log.info("group.hold_ended", group=hold.key, outcome=outcome, backfilled=hold.backfilled)
        for claim in self._line.values():
            claim.yields = claim.yields and claim.key == hold.key
        for uid in hold.nodes:
            if uid not in in_attempt:
                self._take_back(uid)
        if requeues:
            head = min(self._ready(), key=lambda one: one.rank, default=None)
            found = None if head is None else self._queue.places.find(head.key)
            if found is not None:
                self._queue.activate([found[1].pods()[0].pod])

    def _take_back(self, uid: str) -> None:
        """Take back the nomination of a pending member."""
        pod = self._pods.pod_by_uid(uid)
        if pod is not None and not pod.node_name:
            self._queue.delete_nomination(pod)
            self._status.in_order(pod, partial(self._status.nominate, pod, ""))

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- what happens in the cluster -----------------------------------------------------------------------

    def group_changed(self, key: str) -> None:
        """Apply the change or the deletion of a group object."""
        claim = self._line.get(key)
        if claim is not None and not self._exists(key, claim.uid):
            del self._line[key]
        hold = self.current
        if hold is None or (key != hold.key and key not in hold.group_keys):
            return
        root = self._groups.object(hold.key)
        if not self._exists(hold.key, hold.uid) or root is None:
            self._line.pop(hold.key, None)
            self._end("deleted")
            return
        policy = self._policy_of(self._profile, root)
        if policy is None or not self._wants(policy, self._groups, root):
            self._line.pop(hold.key, None)
            self._end("given_up")

    def member_left(self, pod: Pod) -> None:
        """Apply the deletion of a pending pod, its binding by another scheduler, or the beginning of its
        deletion: a finalizer may keep the pod for long.
        """
        hold = self.current
        if hold is None or pod.uid not in hold.nodes:
            return
        self._take_back(pod.uid)
        left = {uid: node for uid, node in hold.nodes.items() if uid != pod.uid}
        if left:
            self._columns.room = replace(hold, nodes=left)
        else:
            self._end("deleted")

    def resume(self, nominated: Iterable[Pod], is_preempting: Callable[[str], bool]) -> None:
        """Take up the hold of an earlier host, which only the nominations of its members show.

        `nominated`: the pending pods with a nomination. `is_preempting`: returns True for the uid of a group
        whose victims are being evicted. The next attempt of the group finds out when it may start.
        """
        if self.current is not None:
            return
        members: dict[str, list[Pod]] = {}
        for pod in nominated:
            key = self._groups.root_key(pod)
            if key:
                members.setdefault(key, []).append(pod)
        found: list[tuple[_Claim, GangPolicy]] = []
        for key, pods in members.items():
            root = self._groups.object(key)
            policy = None if root is None else self._policy_of(pods[0].scheduler_name, root)
            if root is None or policy is None or is_preempting(root.uid):
                continue
            if self._wants(policy, self._groups, root):
                found.append((self._claim(root, pods, repairs=self._repairs(root)), policy))
        if not found:
            return
        claim, policy = min(found, key=lambda one: one[0].rank)
        now_s, pods = self._clock.now_s(), members[claim.key]
        hold = Hold(
            key=claim.key,
            uid=claim.uid,
            group_keys=frozenset(leaf.key for leaf in self._groups.leaves(claim.key)),
            priority=claim.priority,
            preempts_lower=False,
            nodes={pod.uid: pod.nominated_node for pod in pods},
            since_s=now_s,
            until_s=now_s + policy.timeout_s,
        )
        self._begin(hold, pods[0].scheduler_name)

    def take_over(self, before: GangHolds) -> None:
        """Go on with the line and the hold of the host before, which has retired, as far as this host's
        configuration lets them.
        """
        self._line, self._rests_to_s = dict(before._line), before._rests_to_s
        hold = before.current
        if hold is not None:
            self._begin(hold, before._profile)
            root = self._groups.object(hold.key)
            policy = None if root is None else self._policy_of(before._profile, root)
            if policy is None or not (policy.holds_room or policy.repair is not Repair.LEAVE):
                self._line.pop(hold.key, None)
                self._end("given_up")

    def _wants(self, policy: GangPolicy, groups: GroupReader, root: PodGroup) -> bool:
        """Return True if the settings let the group hold room now: it is a gang without its minimum."""
        refills = policy.repair is not Repair.LEAVE and self._repairs(root)
        if refills and not root.is_composite:
            return True  # terminating members are lost, though they have a node
        return (policy.holds_room or refills) and root.is_gang and not groups.has_minimum(root)

    def _repairs(self, root: PodGroup) -> bool:
        """Return True if a group, or one in its tree, is refilled."""
        return any(self._is_refilling(leaf.key) for leaf in self._groups.leaves(root.key))

    def _exists(self, key: str, uid: str) -> bool:
        known = self._groups.object(key)
        return known is not None and known.uid == uid

    def _text(self, hold: Hold) -> str:
        """Return what the group holds, in a sentence without a subject."""
        pods, nodes = len(hold.nodes), len(hold.node_names)
        text = (
            f"holds room for {pods} pod{'s' if pods != 1 else ''} on {nodes} node{'s' if nodes != 1 else ''}"
            f" until {format_time(hold.until_s)}"
        )
        if hold.expected_start_s is None:
            return f"{text}; when it starts is not known"
        return f"{text}; it is expected to start at {format_time(hold.expected_start_s)}"


def _nowhere(pods: Iterable[Pod]) -> dict[str, str]:
    return {pod.uid: "" for pod in pods}


def _nodes(hold: Hold, pods: Iterable[Pod]) -> dict[str, str]:
    return {pod.uid: hold.nodes.get(pod.uid, "") for pod in pods}
