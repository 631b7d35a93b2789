"""`group_trials`: would a pod group fit? Tries the group with the algorithm of its cycle, and takes all back.

Part of `FrameworkAlone`. The answer is that of `groups.placements`, which places the groups of a host.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup

from berth_host.cache.cache import Cache
from berth_host.cache.objects import ObjectStores
from berth_host.cache.snapshot import Snapshot
from berth_host.cycle.attempt import Failed
from berth_host.cycle.schedule_one import CycleProfile, SearchSteps, Undoing
from berth_host.explain.group_answer import Domain
from berth_host.explain.group_record import TriedPlacements
from berth_host.groups.group_attempt import Branch, GroupAttempt, GroupStatus, Member
from berth_host.groups.placements import Placements, Restart
from berth_host.groups.schedule_group import differences
from berth_host.metrics.group_metrics import GroupMetrics
from berth_host.model.clock import RealClock
from berth_host.queue.nominator import Nominator
from berth_host.queue.queued_group import QueuedGroupInfo
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_host.rpc.cycle import CycleEnd
from berth_host.rpc.group_cycle import PlacementCycle


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFit:
    """The answer of `FrameworkAlone.try_group`. Pods are named `namespace/name`.

    - `fits`: True if the minimum of the group fits.
    - `message`: why the group does not fit; "" if it does.
    - `placement`: the topology domain of the assignments; "" for all nodes, as for a group without a topology
      constraint.
    - `assignments`: nodes by pod. Of a group that does not fit: in the placement where most members fit.
    - `unfit`: why a pod got no node, by pod. Of a group that does not fit in any of several placements: the
      first such pod of the best one.
    - `untried`: pods that were not tried, as the answer about the group was certain before.
    - `placements`: the placements that were tried, the best ones first, at most five.
    """

    fits: bool
    message: str
    placement: str
    assignments: Mapping[str, str]
    unfit: Mapping[str, str]
    untried: Sequence[str]
    placements: Sequence[Domain]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTrials:
    """The parts of a `FrameworkAlone` that a trial uses."""

    cache: Cache
    snapshot: Snapshot
    profile: CycleProfile
    group_policy: bool

    async def fit(self, group: PodGroup, pods: Iterable[Pod], nominated: Iterable[Pod]) -> GroupFit:
        """Try a group; see `FrameworkAlone.try_group`. Raises ValueError."""
        members = _members(group, pods)
        groups = self.cache.groups
        groups.put_object(group)
        for pod in members:
            groups.put_unscheduled(pod)
        try:
            problem = differences(groups, group.key, members, group_policy=self.group_policy)
            if problem:
                raise ValueError(f"{problem}: give the group and its pods the same")
            self.snapshot.update(self.cache)
            self.snapshot.hold()
            return await self._tried(group, members, nominated)
        finally:
            self.snapshot.release()
            for pod in members:
                groups.remove_unscheduled(pod)
            groups.remove_object(group.key)

    async def _tried(self, group: PodGroup, members: Sequence[Pod], nominated: Iterable[Pod]) -> GroupFit:
        waiting = ObjectStores()
        promised = [_known(pod) for pod in nominated]
        for pod in (*promised, *members):
            waiting.put_pod(pod)
        nominator = Nominator(waiting)
        for pod in promised:
            nominator.nominate(pod)
        # As in the cycle: members that are tried claim no room by their nominations.
        nominator.popped(pod.uid for pod in members)
        steps = SearchSteps(nominator.columns, self.snapshot, RealClock())
        queued = [QueuedPodInfo(pod, timestamp_us=place) for place, pod in enumerate(members)]
        info = QueuedGroupInfo(group=group, timestamp_us=0)
        for one in queued:
            info.add(one)
        state = self.snapshot.groups.state(group.key)
        tree = Branch(
            group, [Member(one) for one in info.members], () if state is None else state.scheduled, []
        )
        attempt = GroupAttempt(uuid.uuid4().hex, info, self.profile, tree, self.snapshot)
        placements = Placements(
            attempt, steps, self.snapshot, nominator, Undoing(), evaluator=None, metrics=GroupMetrics()
        )
        try:
            status = await placements.run()
        except (Failed, Restart) as err:
            status = GroupStatus.failed(str(err))
        finally:
            for made in placements.made:
                self.profile.framework.end_cycle(made, CycleEnd.ABORTED)
            self.profile.framework.groups.end_cycle(attempt, CycleEnd.UNSCHEDULABLE)
        return _answer(attempt, status)


def _members(group: PodGroup, pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods as members of the group. Raises ValueError for pods that cannot be placed with it."""
    found: dict[str, Pod] = {}
    for pod in pods:
        if pod.group_key not in ("", group.key):
            raise ValueError(f"pod {pod.key} belongs to {pod.group_key}, not to {group.key}: leave it out")
        if pod.namespace != group.namespace:
            raise ValueError(
                f"pod {pod.key} is not in the namespace of {group.key}: leave it out, or move it there"
            )
        if pod.node_name:
            raise ValueError(f"pod {pod.key} is on node {pod.node_name} already: give it to add_pod instead")
        if pod.key in found:
            raise ValueError(f"pod {pod.key} is there twice: give each pod a name of its own")
        found[pod.key] = replace(_known(pod), group_key=group.key)
    if not found:
        raise ValueError(f"no pods of {group.key} were given: give the pods that wait for a node")
    return list(found.values())


def _known(pod: Pod) -> Pod:
    """Return the pod with a uid: pods of a template have none."""
    return pod if pod.uid else replace(pod, uid=pod.key)


def _answer(attempt: GroupAttempt, status: GroupStatus) -> GroupFit:
    tried = attempt.tried_placements.get(attempt.key, TriedPlacements())
    assignments = {one.pod.key: one.node_name for one in attempt.tree.assignments()}
    unfit = {one.pod.key: one.failed.message for one in attempt.members if one.failed is not None}
    placement = ""
    if status.is_success or tried.count == 1:
        records = [one.attempt.parent for one in attempt.members if one.attempt is not None]
        placement = next((one.placement.name for one in records if isinstance(one, PlacementCycle)), "")
    elif tried.best:
        best = tried.best[0]
        placement = best.name
        assignments = {pod.key: node_name for pod, node_name in best.assignments}
        unfit = {} if best.unfit is None else {best.unfit.pod.key: best.unfit_message}
    known = {*assignments, *unfit}
    return GroupFit(
        fits=status.is_success,
        message="" if status.is_success else status.message,
        placement=placement,
        assignments=assignments,
        unfit=unfit,
        untried=[one.pod.key for one in attempt.members if one.pod.key not in known],
        placements=[
            Domain(name=one.name, nodes=one.node_count, placed=one.placed, message=one.message)
            for one in tried.best
        ],
    )
