"""Executes a nomination in the background: evicts the victims that a plugin named for a pod or a group.

    victims marked -> the pods' failures written, nominations included -> lower nominations cleared
      -> all victims but the last deleted -> the last one deleted

The order lets a new host take over after a crash at any point. When a nomination is written, all its victims
are marked, and no victim is deleted before that. So a host that finds a nominated pod with marked pods on its
node only has to delete those (`resume`). PreEnqueue holds the pod, or the members of the group, back until
the victims are gone.
Called by the scheduling cycles after PostFilter and PodGroupPostFilter. The relay has checked the victims.
Source: kube-scheduler `framework/preemption/executor.go`, v1.37 (prepareCandidateAsync, PreemptPod,
IsPodRunningPreemption); the order of the writes is berth's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar, cast

from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.results import PatchOutcome, PatchResult, PostFilterResult

from berth_host.attempt.call_record import Changes
from berth_host.attempt.cycle import Cycle
from berth_host.cache.cache import Cache
from berth_host.cache.pod_groups import GroupReader
from berth_host.config.host_rules import RULES_1_37, HostRules
from berth_host.cycle.pod_status import PodStatusWriter
from berth_host.cycle.wait_for_tasks import all_ended
from berth_host.errors.cluster import ClusterError
from berth_host.errors.state import InvariantError
from berth_host.framework.waiting_pods import WaitingPods
from berth_host.log import get_logger
from berth_host.metrics.group_metrics import PreemptionMetrics
from berth_host.metrics.series import instant_s
from berth_host.model.internal_error import InternalError
from berth_host.preemption.evicting_pods import Preempting
from berth_host.preemption.preemptor import POD, Preemptor
from berth_host.preemption.victim_calls import Mark, VictimCalls, is_marked_for
from berth_host.queue.events import PluginRequest
from berth_host.queue.interfaces import PodLister

log = get_logger()
T = TypeVar("T")
REMEMBERED_VICTIMS: Final = 16384
"""The number of victims whose preemptors are kept for reports. The oldest are dropped first."""


class EvictionQueue(Protocol):
    """The methods of the queue that evictions call."""

    def activate(self, pods: Iterable[Pod]) -> None:
        """Move these pods to activeQ, so that they are tried again."""
        ...

    def nominated_to(self, node_name: str) -> list[Pod]:
        """Return the pods nominated to a node."""
        ...

    def delete_nomination(self, pod: Pod) -> None:
        """Remove the nomination of a pod."""
        ...

    def reopen(self, pod: Pod) -> None:
        """Run PreEnqueue again for a pod that it held back."""
        ...

    def requeue(self, request: PluginRequest) -> int:
        """Requeue the pods that a plugin names, after their backoff; return the number of moved pods."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionSeams:
    """The parts of the host that evictions use. `preempt_binding`: aborts a pod's binding cycle during
    PreBind; returns False if the pod is not in PreBind. `cycle_ended`: waits for the end of a binding cycle.
    `rules`: those of the version of kube-scheduler that is followed.
    """

    cache: Cache
    pods: PodLister
    queue: EvictionQueue
    waiting_pods: WaitingPods
    preempting: Preempting
    preempt_binding: Callable[[str, str], bool]
    cycle_ended: Callable[[str], Awaitable[None]]
    internal_error: InternalError
    metrics: PreemptionMetrics = field(default_factory=PreemptionMetrics)
    rules: HostRules = RULES_1_37


@dataclass(frozen=True, slots=True)
class _Eviction:
    preemptor: Preemptor
    plugin: str
    victims: tuple[Pod, ...]


class ChangeFailedError(ClusterError):
    """The failure of a change that a PostFilter plugin asked for. Attribute: plugin."""

    def __init__(self, plugin: str, resource: str, result: PatchResult) -> None:
        self.plugin = plugin
        problem = f"{plugin}: patch of {result.ref.key}: {result.message or result.outcome.name}"
        super().__init__(resource, result.ref.key, problem, server_message=problem)


class Evictions:
    """The preemptions under way. `preempted_by`: the preemptors of the latest victims, by the uid of the
    victim, for reports. `victim_count`: the number of victims so far.
    """

    def __init__(self, calls: VictimCalls, status: PodStatusWriter, seams: EvictionSeams) -> None:
        self._calls = calls
        self._status = status
        self._seams = seams
        self._tasks: set[asyncio.Future[None]] = set()
        self._latest: dict[str, _Eviction] = {}
        self._is_over = False
        self.preempting = seams.preempting
        self.preempting.on_end(self._held_no_more)
        self.preempted_by: dict[str, str] = {}
        self.victim_count = 0

    def __len__(self) -> int:
        """Return the number of preemptions under way."""
        return len(self._tasks)

    def nominate(self, cycle: Cycle, plugin: str, result: PostFilterResult) -> str | None:
        """Begin the evictions as a task, which runs when the cycle next waits; return the nominated node."""
        preemptor = Preemptor.of_pod(cycle.pod, result.nominated_node)
        self.evict(preemptor, plugin, result.victims, self.change((cycle.pod,), cycle.changes))
        return result.nominated_node

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
        """Begin the evictions as a task, which runs when the cycle next waits.

        `plugin`: the one that named the victims. `changes`: what must be done first (`change`). For metrics,
        `disruptions`: the number of the victims' units by type; `budget_violations`: the victims
        whose eviction breaks a budget.
        """
        refs = list(victims)
        begun_s = self._seams.metrics.begun(
            len(refs),
            preemptor=preemptor.type,
            disruptions=disruptions,
            budget_violations=budget_violations,
        )
        found = (self._seams.cache.get_pod(ref.uid) for ref in refs)
        # A victim that was deleted meanwhile needs no eviction.
        left = tuple(pod for pod in found if pod is not None and not pod.terminating)
        if left:
            self._begin(_Eviction(preemptor, plugin, left), begun_s, marked=False, changes=changes)

    def change(self, pods: Sequence[Pod], changes: Sequence[Changes]) -> asyncio.Future[None] | None:
        """Begin the changes that plugins ask for, before any other write about the first of `pods`.

        `pods`: the pods that the changes may help; tried again if a change fails. None: there are no changes.
        """
        if not changes:
            return None
        task = self._status.in_order(pods[0], partial(_apply, tuple(changes)))
        self._tasks.add(task)
        task.add_done_callback(partial(self._changed, pods))
        return task

    def resume(self, pending: Iterable[Pod]) -> None:
        """Finish the evictions of an earlier host, which marked the victims. `pending`: the nominated pods.

        For a pod, the victims are on its node; for a group whose members are all nominated, on any nodes.
        """
        groups = self._seams.cache.groups
        members: dict[str, list[Pod]] = {}
        for pod in pending:
            key = groups.root_key(pod)
            if key:
                members.setdefault(key, []).append(pod)
            else:
                self._resume_pod(pod)
        preemptors = [
            Preemptor.of_group(root, pods, {pod.uid: pod.nominated_node for pod in pods})
            for key, pods in members.items()
            # As long as a member lacks its nomination no victim has been deleted, and the group chooses anew.
            if (root := groups.object(key)) is not None
            and _waiting_in(groups, key) <= {pod.uid for pod in pods}
        ]
        # A mark does not name its group. Of several groups, the one of the highest priority goes first.
        taken: set[str] = set()
        for preemptor in sorted(preemptors, key=lambda one: -one.priority):
            everywhere = (pod for node in self._seams.cache.node_infos() for pod in node.pods)
            taken |= self._finish(preemptor, (pod for pod in everywhere if pod.uid not in taken))

    def _resume_pod(self, pod: Pod) -> None:
        node = self._seams.cache.node_info(pod.nominated_node)
        self._finish(Preemptor.of_pod(pod, pod.nominated_node), node.pods if node is not None else ())

    def _finish(self, preemptor: Preemptor, among: Iterable[Pod]) -> set[str]:
        """Evict the pods that are marked for a preemptor; return their uids."""
        groups = self._seams.cache.groups
        left = [
            pod
            for pod in among
            if not pod.terminating
            and is_marked_for(pod, preemptor)
            and groups.eviction_priority(pod) < preemptor.priority
        ]
        if left:
            log.info("preemption.resumed", pod=preemptor.key, node=preemptor.place, victims=len(left))
            self._begin(_Eviction(preemptor, "", tuple(left)), instant_s(), marked=True)
        return {pod.uid for pod in left}

    async def finish(self, timeout_s: float) -> bool:
        """Wait until no preemption is under way, at most `timeout_s` (real time), and cancel the others.

        The next host finishes those (see the order above). Returns True if none was cancelled.
        """
        ended = await all_ended(self._tasks, timeout_s)
        self._is_over = True
        for task in self._tasks:
            task.cancel()
        return ended

    # --- after a preemption --------------------------------------------------------------------------

    def _held_no_more(self, uid: str) -> None:
        if uid in self._latest:
            # Only after all handlers have seen the event that ended the preemption.
            asyncio.get_running_loop().call_soon(self._look_again, uid)

    def _look_again(self, uid: str) -> None:
        """Run PreEnqueue again for the preemptor whose preemption ended, if no event will do so.

        No event comes for a victim that another preemptor evicted too, or that had lost its node before.
        """
        if uid in self.preempting:
            return
        eviction = self._latest.pop(uid, None)
        if eviction is None or any(map(self._leaves_a_node, eviction.victims)):
            return
        waiting = self._waiting(eviction.preemptor)
        if waiting:
            # For a group, the first member stands for all of them.
            self._seams.queue.reopen(waiting[0])

    def _leaves_a_node(self, victim: Pod) -> bool:
        """Return True if an event will follow when the victim is gone."""
        now = self._seams.pods.pod_by_uid(victim.uid)
        return self._seams.cache.is_assumed(victim.uid) or (now is not None and bool(now.node_name))

    # --- one preemption ----------------------------------------------------------------------------

    def _begin(
        self,
        eviction: _Eviction,
        begun_s: float,
        *,
        marked: bool,
        changes: asyncio.Future[None] | None = None,
    ) -> None:
        preemptor = eviction.preemptor
        self.preempting.begin(preemptor.uid)
        self._latest[preemptor.uid] = eviction
        for victim in eviction.victims:
            self.preempted_by[victim.uid] = preemptor.key
            self.victim_count += 1
            if len(self.preempted_by) > REMEMBERED_VICTIMS:
                del self.preempted_by[next(iter(self.preempted_by))]
        marks: asyncio.Future[None] | None = None
        if not marked:
            # Marks come before every other write about the pods: see the order above.
            first, *others = preemptor.pods
            marks = self._status.in_order(first, lambda: self._mark(eviction, changes))
            for other in others:
                self._status.in_order(other, partial(_after, marks))
        task = asyncio.ensure_future(self._run(eviction, marks))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(eviction, begun_s, done))

    def _ended(self, eviction: _Eviction, begun_s: float, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        preemptor = eviction.preemptor
        err = None if task.cancelled() else task.exception()
        if task.cancelled() and not self._is_over:
            # The task itself was not cancelled: a client gave up a call. Without this end the pod would wait
            # forever.
            resource = "pods" if preemptor.type == POD else f"{preemptor.type}s"
            err = ClusterError(resource, preemptor.key, "the eviction was cancelled by the client")
        failed = task.cancelled() or err is not None
        self._seams.metrics.ended(begun_s, failed=failed, preemptor=preemptor.type)
        if err is None:
            return
        self.preempting.end(preemptor.uid)
        if isinstance(err, ClusterError):
            log.warning("preemption.failed", pod=preemptor.key, node=preemptor.place, problem=str(err))
        else:
            log.error("task.failed", pod=preemptor.key, exc_info=err)
            if isinstance(err, InvariantError):
                self._seams.internal_error.fail(err)
        # No event will requeue the pods, so they are tried again even if there is no room.
        self._seams.queue.activate(preemptor.pods)

    async def _run(self, eviction: _Eviction, marks: asyncio.Future[None] | None) -> None:
        preemptor = eviction.preemptor
        if marks is not None:
            await marks
            await self._together([self._status.settled(pod) for pod in preemptor.pods])
            waiting = self._waiting(preemptor)
            if not waiting:
                self.preempting.end(preemptor.uid)
                return  # the room is no longer needed
            # The write of a nomination may have failed.
            await self._together(
                [
                    self._status.nominate(pod, preemptor.nodes[pod.uid])
                    for pod in waiting
                    if pod.uid in preemptor.nodes
                ]
            )
        for lower in self._lower_nominations(eviction):
            self._status.in_order(lower, partial(self._status.nominate, lower, ""))
            if not lower.nominated_node:
                # Only the queue has this nomination: the pod's status does not change, so no event follows.
                self._seams.queue.delete_nomination(lower)
        *others, last = eviction.victims
        deleted = await self._together([self._evict(eviction, victim) for victim in others])
        self.preempting.last(preemptor.uid, last)
        last_one = await self._evict(eviction, last)
        deleted.append(last_one)
        gone = tuple(victim for victim in deleted if victim is not None)
        self.preempting.deleted(preemptor.uid, gone)
        if last_one is None and self._seams.rules.activates_after_undone_victim:
            # No event of a deletion will requeue the preemptor. The victim is in the way until its attempt is
            # undone, and would be deleted.
            await self._seams.cycle_ended(last.uid)
            self._seams.queue.activate(preemptor.pods)

    async def _mark(self, eviction: _Eviction, changes: asyncio.Future[None] | None) -> None:
        if changes is not None:
            await changes  # already done; a failed change raises here, before any eviction
        stays = self._seams.waiting_pods.is_waiting
        await self._together(
            [
                self._calls.mark(victim, Mark.of_preemption(eviction.preemptor))
                for victim in eviction.victims
                if not stays(victim.uid)  # a waiting pod is rejected in memory, and tried again
            ]
        )

    async def _evict(self, eviction: _Eviction, victim: Pod) -> Pod | None:
        """Evict one victim; return it if it was deleted, None if only its attempt was undone in memory."""
        deleted: Pod | None = None
        seams, plugin, preemptor = self._seams, eviction.plugin, eviction.preemptor
        note = f"Preempted by {preemptor.type} {preemptor.uid} on node {preemptor.place}"
        if seams.waiting_pods.preempt(victim.uid, plugin, "preempted") or seams.preempt_binding(
            victim.uid, f"preempted by {plugin}"
        ):
            note += " (in kube-scheduler memory)."
        else:
            await self._calls.delete(victim)
            deleted = victim
        log.info("victim.evicted", pod=victim.key, node=preemptor.place, preemptor=preemptor.key)
        related = preemptor.ref if seams.rules.relates_victims else None
        self._status.event(victim, "Normal", "Preempted", "Preempting", note, related, preemptor.kind)
        return deleted

    def _waiting(self, preemptor: Preemptor) -> list[Pod]:
        """Return the preemptor's pods that exist and have no node, as the watch last showed them."""
        found = (self._seams.pods.pod_by_uid(pod.uid) for pod in preemptor.pods)
        return [pod for pod in found if pod is not None and not pod.node_name]

    def _lower_nominations(self, eviction: _Eviction) -> Sequence[Pod]:
        """Return the pods of lower priority that are nominated to the preemptor's nodes; before 1.38, none
        for a group.
        """
        preemptor = eviction.preemptor
        if preemptor.type != POD and not self._seams.rules.judges_group_trees:
            return []
        return [
            pod
            for node_name in sorted(set(preemptor.nodes.values()))
            for pod in self._seams.queue.nominated_to(node_name)
            if pod.priority < preemptor.priority
        ]

    # --- changes that plugins ask for ---------------------------------------------------------------

    def _changed(self, pods: Sequence[Pod], task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        err = None if task.cancelled() else task.exception()
        if err is None:
            return
        log.warning("post_filter.change_failed", pod=pods[0].key, problem=str(err))
        if isinstance(err, InvariantError):
            self._seams.internal_error.fail(err)
        self._status.event(pods[0], "Warning", "FailedScheduling", "Scheduling", str(err))
        # The event that the plugin expects after its change will not come.
        plugin = err.plugin if isinstance(err, ChangeFailedError) else ""
        uids = frozenset(pod.uid for pod in pods)
        self._seams.queue.requeue(PluginRequest(plugin=plugin, uids=uids))

    async def _together(self, steps: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """Run `steps`, concurrently where that is faster; raise the first error after all have ended."""
        answers: list[T | BaseException] = []
        if self._calls.side_by_side and len(steps) > 1:
            answers += await asyncio.gather(*steps, return_exceptions=True)
        else:
            rest = iter(steps)
            try:
                for step in rest:
                    try:
                        answers.append(await step)
                    except Exception as err:  # noqa: BLE001 (raised after the other steps)
                        answers.append(err)
            finally:
                for step in rest:
                    step.close()
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return cast(list[T], answers)


async def _apply(asked: Sequence[Changes]) -> None:
    """Apply changes in order. Raises ChangeFailedError."""
    for changes in asked:
        results = await changes.apply()
        for patch, done in zip(changes.patches, results, strict=True):
            if done.outcome is not PatchOutcome.APPLIED:
                raise ChangeFailedError(changes.plugin, patch.resource, done)


def _waiting_in(groups: GroupReader, root_key: str) -> set[str]:
    """Return the uids of the members of a tree that have no node."""
    states = (groups.state(leaf.key) for leaf in groups.leaves(root_key))
    return {uid for state in states if state is not None for uid in state.unscheduled}


async def _after(earlier: asyncio.Future[None]) -> None:
    """Wait until another write has ended, with or without success."""
    await asyncio.wait({earlier})
