"""`TryGroup`: would a pod group fit? Tries the group with the algorithm of its cycle, and takes all back.

The answer is that of `groups.placements`, which places the groups of a host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from berth_sdk import chance
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup

from berth_host.attempt.cycle import CycleEnd
from berth_host.attempt.group_cycle import PlacementCycle
from berth_host.cache.objects import ObjectStores
from berth_host.cache.snapshot import Snapshot
from berth_host.cluster.watching import GROUP_POLICY, group_gates, judges_coscheduling
from berth_host.config.configuration import LoadedConfiguration
from berth_host.cycle.attempt import Failed
from berth_host.cycle.schedule_one import CycleProfile, SearchSteps, Undoing
from berth_host.errors.endpoints import QuestionError
from berth_host.explain.group_answer import Domain
from berth_host.explain.group_record import TriedPlacements
from berth_host.framework.framework import Framework
from berth_host.groups.group_attempt import Branch, GroupAttempt, GroupStatus, Member
from berth_host.groups.group_rules import GroupRules, rules_of
from berth_host.groups.placements import Placements, Restart
from berth_host.metrics.group_metrics import GroupMetrics
from berth_host.model.clock import RealClock
from berth_host.model.resources import POD_GROUPS
from berth_host.questions.questions import AskedCluster, Question
from berth_host.queue.nominator import Nominator
from berth_host.queue.queued_group import QueuedGroupInfo
from berth_host.queue.queued_pod import QueuedPodInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFit:
    """The answer to `TryGroup`. Pods are named `namespace/name`.

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


@dataclass(frozen=True, slots=True)
class TryGroup(Question[GroupFit]):
    """Does a pod group fit: its minimum at once, with the nodes that its pods would get?

    Plugins get Reserve and Unreserve, as in the cycle of a group; nobody is preempted. `pods`: the members
    without a node. Members with a node are pods of the cluster, read with their group
    (`Pod.from_object(..., groups=True)`), and count for the minimum. `nominated`: pods with a
    `nominated_node`, which count as pods of that node; may include members.
    """

    group: PodGroup
    pods: Sequence[Pod]
    nominated: Sequence[Pod] = ()

    async def answer(self, cluster: AskedCluster) -> GroupFit:
        """Return the answer of a cluster of one's own.

        Raises ValueError, with the cure, for groups and pods that cannot be tried together, and where the
        configuration does not schedule such groups; QuestionError in another cluster.
        """
        group = self.group
        if not cluster.is_own:
            raise QuestionError("a running host tries no group: ask a FrameworkAlone over a copy")
        members = _members(group, self.pods)
        profile = cluster.profile_of(members[0])
        _check_kind(group, profile.framework, cluster.configuration)
        groups = cluster.cache.groups
        groups.put_object(group)
        for pod in members:
            groups.put_unscheduled(pod)
        try:
            group_policy = cluster.configuration.gates.values.get(GROUP_POLICY, False)
            rules = rules_of(cluster.configuration.emulation.rules, group_policy=group_policy)
            asked = QueuedGroupInfo(group=group, timestamp_us=0)
            problem = rules.problem(groups, asked, members, {members[0].scheduler_name})
            if problem is not None:
                raise ValueError(f"{problem.text}: give the group and its pods the same")
            async with cluster.undisturbed():
                trial = _Trial(profile, cluster.snapshot, rules)
                return await trial.tried(group, members, self.nominated)
        finally:
            for pod in members:
                groups.remove_unscheduled(pod)
            groups.remove_object(group.key)


def _check_kind(group: PodGroup, framework: Framework, configuration: LoadedConfiguration) -> None:
    """Raise ValueError for a group that a host with this configuration would not schedule."""
    if group.is_composite:
        raise ValueError(f"{group.key} is a group of groups: try its PodGroups, one by one")
    if group.is_coscheduling:
        if not any(judges_coscheduling(client.descriptor) for client in framework.clients):
            raise ValueError(
                f"the profile does not schedule {group.key}: enable the plugin Coscheduling in it"
            )
    elif POD_GROUPS not in group_gates(configuration):
        raise ValueError(
            f"the configuration does not schedule {group.key}: load it with"
            f" feature_gates={{{POD_GROUPS!r}: True}}"
        )


@dataclass(frozen=True, slots=True)
class _Trial:
    """One trial over a snapshot that is held."""

    profile: CycleProfile
    snapshot: Snapshot
    rules: GroupRules

    async def tried(self, group: PodGroup, members: Sequence[Pod], nominated: Sequence[Pod]) -> GroupFit:
        """Place the members, and take everything back."""
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
        attempt = GroupAttempt(chance.token_hex(16), info, self.profile, tree, self.snapshot)
        placements = Placements(
            attempt, steps, self.snapshot, nominator, Undoing(), None, GroupMetrics(), self.rules
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
