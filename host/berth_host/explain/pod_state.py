"""The state of a pod in a running host (`whereabouts`), and the steps of its history (`timeline`)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from berth_sdk.events import ActionType, word_of_action
from berth_sdk.pod import Pod

from berth_host.cache.cache import Cache
from berth_host.cache.objects import ObjectStores
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.host_rules import RULES_1_36, RULES_1_37
from berth_host.explain.diagnosis import Diagnoses, Diagnosis, Outcome
from berth_host.explain.group_answer import RepairState
from berth_host.explain.group_record import GroupRecords
from berth_host.explain.pod_answer import PermitState, PodState, QueueState, RequeueEvent, Step
from berth_host.framework.waiting_pods import WaitingPods
from berth_host.model.clock import Clock
from berth_host.queue import events
from berth_host.queue.group_entries import Aside, Held
from berth_host.queue.places import Place
from berth_host.queue.queued_pod import (
    GATED,
    INCOMPLETE,
    PRE_BIND,
    TRIED,
    WAITING,
    HistoryEntry,
    QueuedEntity,
    QueuedPodInfo,
)
from berth_host.queue.scheduling_queue import SchedulingQueue

_STATES: Final = {
    Place.ACTIVE: PodState.QUEUED,
    Place.BACKOFF: PodState.BACKOFF,
    Place.POOL: PodState.UNSCHEDULABLE,
}
_LAST_SECOND: Final = 253_402_300_799
"""The last second of the year 9999. In a simulation pods are flushed after that time, which is not shown."""
_CAUSES: Final[Mapping[str, str]] = {
    **{rules.late_pod_add: "the pod was changed" for rules in (RULES_1_36, RULES_1_37)},
    **{rules.pod_add: "the pod was added" for rules in (RULES_1_36, RULES_1_37)},
    events.BACKOFF_COMPLETE: "its backoff is over",
    events.FORCE_ACTIVATE: "a plugin activated it",
    events.UNSCHEDULABLE_TIMEOUT: "it has waited too long for an event",
    events.PLUGIN_REQUEST: "a plugin requested a requeue",
    events.PLUGIN_RECOVERED: "a plugin that it needs can be called again",
    events.RESERVATION_OVER: "a plugin gave back what it held for a pod that is gone",
    events.ATTEMPT_FAILED: "an event that may help came during the attempt",
}
_ENDS: Final = {
    Outcome.BOUND: "bound",
    Outcome.DECIDED: "decided",
    Outcome.UNSCHEDULABLE: "rejected",
    Outcome.ERROR: "failed",
}
_PLACES: Final = tuple(place.value for place in Place)


class RunningAttempt(Protocol):
    """A running attempt (`cycle.attempt.Attempt`)."""

    @property
    def pod(self) -> Pod:
        """The pod, as it was popped."""
        ...

    @property
    def queued(self) -> QueuedPodInfo:
        """The pod's entry of the queue."""
        ...

    @property
    def node_name(self) -> str:
        """The node that the attempt has chosen; "" before that."""
        ...

    @property
    def diagnosis(self) -> Diagnosis:
        """The record of the attempt."""
        ...


class RunningGroup(Protocol):
    """The running attempt of a group (`groups.group_attempt.GroupAttempt`)."""

    @property
    def key(self) -> str:
        """The key of the root group."""
        ...


class GroupCycles(Protocol):
    """The cycles of groups (`groups.schedule_group.GroupScheduler`)."""

    @property
    def in_cycle(self) -> RunningGroup | None:
        """The group in its cycle now."""
        ...


class SchedulingCycle(Protocol):
    """The scheduling cycle (`cycle.loop.Scheduler`)."""

    @property
    def in_cycle(self) -> RunningAttempt | None:
        """The attempt in the scheduling cycle now."""
        ...

    @property
    def profiles(self) -> Collection[str]:
        """The schedulerNames of this host."""
        ...

    @property
    def groups(self) -> GroupCycles:
        """The cycles of groups."""
        ...


class BindingCycles(Protocol):
    """The binding cycles (`cycle.schedule_one.BindingCycle`)."""

    def attempts(self) -> Sequence[RunningAttempt]:
        """Return the attempts in a binding cycle now."""
        ...


class Preemptions(Protocol):
    """The evictions (`preemption.evictions.Evictions`)."""

    @property
    def preempted_by(self) -> Mapping[str, str]:
        """The pod (`namespace/name`) that preempted each of the latest victims, by the victim's uid."""
        ...


class Repairs(Protocol):
    """The repair of groups (`groups.group_repair.GroupRepair`)."""

    def state_of(self, key: str) -> RepairState | None:
        """Return what is known about a gang that lost members; None for any other group."""
        ...

    def problems_of(self, key: str) -> Sequence[str]:
        """Return the problems with the annotations of a group."""
        ...


class AnsweringHost(Protocol):
    """The parts of a running host with the state of a pod and its attempts."""

    configuration: LoadedConfiguration

    @property
    def clock(self) -> Clock:
        """The clock of the host."""
        ...

    @property
    def objects(self) -> ObjectStores:
        """The objects from the watches."""
        ...

    @property
    def cache(self) -> Cache:
        """The nodes with their pods, assumed pods included."""
        ...

    @property
    def queue(self) -> SchedulingQueue:
        """The scheduling queue."""
        ...

    @property
    def scheduler(self) -> SchedulingCycle:
        """The scheduling cycle."""
        ...

    @property
    def binding(self) -> BindingCycles:
        """The binding cycles."""
        ...

    @property
    def waiting_pods(self) -> WaitingPods:
        """The pods that wait at Permit."""
        ...

    @property
    def repair(self) -> Repairs:
        """The repair of groups that lost members."""
        ...

    @property
    def evictions(self) -> Preemptions:
        """The evictions of preempted pods."""
        ...

    @property
    def diagnoses(self) -> Diagnoses:
        """The records of ended attempts."""
        ...

    @property
    def group_records(self) -> GroupRecords:
        """The record of the last attempt of each pod group."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """The state of a pod. `node`: the node that the pod is on or is being bound to; "" without a node.

    `info`: the pod's entry of the queue, also during an attempt; None if the pod is neither queued nor tried.
    `attempt`: the running attempt; None without one.
    """

    state: PodState
    node: str = ""
    info: QueuedPodInfo | None = None
    attempt: RunningAttempt | None = None
    queue: QueueState | None = None
    permit: PermitState | None = None


def whereabouts(host: AnsweringHost, pod: Pod, latest: Diagnosis | None) -> Whereabouts:
    """Return the state of an existing pod. `latest`: its last ended attempt."""
    if pod.node_name:
        return Whereabouts(state=PodState.BOUND, node=pod.node_name)
    queued = host.queue.find(pod)
    if queued is not None and queued.info.uid == pod.uid:
        return _queued(host, queued)
    attempt = _attempt(host, pod.uid)
    if attempt is None:
        if latest is not None and latest.outcome is Outcome.BOUND:
            # The watch does not show the binding yet.
            return Whereabouts(state=PodState.BOUND, node=latest.node_name)
        return Whereabouts(state=PodState.DELETED if pod.terminating else PodState.SCHEDULING)
    held = next((item for item in host.waiting_pods.list() if item.pod.uid == pod.uid), None)
    if held is not None:
        permit = PermitState(plugins=held.pending_plugins, node=held.node_name, until_s=held.deadline_s)
        return Whereabouts(state=PodState.WAITING, info=attempt.queued, attempt=attempt, permit=permit)
    is_binding = attempt is not host.scheduler.in_cycle
    state = PodState.BINDING if is_binding else PodState.SCHEDULING
    return Whereabouts(state=state, info=attempt.queued, attempt=attempt)


def requeue_events(host: AnsweringHost, pod: Pod, plugins: Sequence[str]) -> list[RequeueEvent]:
    """Return the events that may requeue the pod, if these plugins rejected it."""
    return [
        RequeueEvent(
            plugin=plugin,
            resource=item.resource,
            actions=_words(item.resource, item.action),
            asks=item.ask,
        )
        for plugin in plugins
        for item in host.queue.events_for(pod.scheduler_name, plugin)
    ]


def _queued(host: AnsweringHost, held: Held) -> Whereabouts:
    info, entity = held.info, held.entity
    if entity is None or isinstance(held.place, Aside):
        missing = host.queue.groups.forest.missing_above(info.pod.group_key)
        state = PodState.INCOMPLETE if held.place is Aside.INCOMPLETE else PodState.PENDING
        queue = QueueState(
            since_s=info.timestamp_us / 1e6,
            rejected_by=tuple(sorted(info.rejecting)),
            group=info.pod.group_key,
            missing_group=missing,
        )
        return Whereabouts(state=state, info=info, queue=queue)
    state = PodState.GATED if entity.is_gated else _STATES[held.place]
    queue = QueueState(
        since_s=info.timestamp_us / 1e6,
        retry_at_s=retry_at_s(host.queue, held.place, entity),
        # The plugin that gates a pod is among those that rejected it.
        rejected_by=tuple(sorted(info.rejecting - {entity.gating_plugin})),
        gated_by=entity.gating_plugin,
        gate_message=entity.gating_message,
        group=entity.key if entity.is_group else "",
        group_members=len(entity.pods()) if entity.is_group else 0,
    )
    return Whereabouts(state=state, info=info, queue=queue)


def retry_at_s(queue: SchedulingQueue, place: Place, entity: QueuedEntity) -> float | None:
    """Return when an entity of the queue is requeued without an event, in Unix seconds; None: not known."""
    retry_us = None
    if place is Place.BACKOFF:
        retry_us = queue.places.free_at_us(entity)
    elif place is Place.POOL and not entity.is_gated:
        retry_us = queue.flush_at_us(entity)
    return retry_us / 1e6 if retry_us is not None and retry_us < _LAST_SECOND * 1e6 else None


def _attempt(host: AnsweringHost, uid: str) -> RunningAttempt | None:
    in_cycle = host.scheduler.in_cycle
    if in_cycle is not None and in_cycle.pod.uid == uid:
        return in_cycle
    return next((attempt for attempt in host.binding.attempts() if attempt.pod.uid == uid), None)


def _words(resource: str, action: int) -> tuple[str, ...]:
    """Return the actions as plugins declare them: `add`, `update.labels`; `update` means any change."""
    if action & ActionType.UPDATE == ActionType.UPDATE:
        bits = [ActionType.ADD, ActionType.DELETE, ActionType.UPDATE]
    else:
        bits = [bit for bit in ActionType if bit.bit_count() == 1]
    return tuple(dict.fromkeys(word_of_action(resource, bit) for bit in bits if action & bit))


def timeline(history: Sequence[HistoryEntry], attempts: Sequence[Diagnosis]) -> list[Step]:
    """Return the steps of a pod in order, with sentences.

    `history`: the record of the pod's queue entry. `attempts`: the kept records of attempts, in any order.
    """
    return list(_steps(history, {item.attempt: item for item in attempts}))


def _steps(history: Sequence[HistoryEntry], attempts: Mapping[int, Diagnosis]) -> Iterator[Step]:
    open_attempt = 0
    for at_us, what, about in history:
        at_s = at_us / 1e6
        if open_attempt and (what in _PLACES or what in (GATED, INCOMPLETE)):
            yield from _end(open_attempt, at_s, attempts.get(open_attempt))
            open_attempt = 0
        if what == TRIED:
            open_attempt = int(about)
            yield Step(at_s=at_s, step="tried", text=f"attempt {about} begins")
        else:
            yield _step(at_s, what, about)
    last = attempts.get(open_attempt)
    if last is not None and last.ended_at_s is not None:
        yield from _end(open_attempt, last.ended_at_s, last)


def _step(at_s: float, what: str, about: str) -> Step:
    if what == GATED:
        return Step(at_s=at_s, step="gated", cause=about, text=f"kept out of the queue by plugin {about}")
    if what == INCOMPLETE:
        text = f"waits for the object {about}, which its pod group needs"
        return Step(at_s=at_s, step="incomplete", cause=about, text=text)
    if what == WAITING:
        return Step(at_s=at_s, step="waiting", cause=about, text=f"waits at Permit for {about}")
    if what == PRE_BIND:
        return Step(at_s=at_s, step="preBind", cause=about, text=f"PreBind plugins prepare node {about}")
    cause = _CAUSES.get(about, f"{about} may help")
    if what == Place.ACTIVE.value:
        return Step(at_s=at_s, step="queued", cause=about, text=cause)
    if what == Place.BACKOFF.value:
        text = "backs off" if about == events.ATTEMPT_FAILED else f"backs off: {cause}"
        return Step(at_s=at_s, step="backoff", cause=about, text=text)
    return Step(at_s=at_s, step="unschedulable", cause=about, text="waits for an event that may help")


def _end(number: int, at_s: float, attempt: Diagnosis | None) -> Iterator[Step]:
    """Yield the end of an attempt; without a kept record, only that the attempt ended."""
    if attempt is None or attempt.outcome not in _ENDS:
        yield Step(at_s=at_s, step="ended", text=f"attempt {number} ended")
        return
    ended_s = attempt.ended_at_s if attempt.ended_at_s is not None else at_s
    step = _ENDS[attempt.outcome]
    if attempt.outcome is Outcome.BOUND:
        yield Step(at_s=ended_s, step=step, cause=attempt.node_name, text=f"bound to {attempt.node_name}")
        return
    if attempt.outcome is Outcome.DECIDED:
        text = f"{attempt.node_name} chosen; a shadow binds nothing"
        yield Step(at_s=ended_s, step=step, cause=attempt.node_name, text=text)
        return
    plugins = ", ".join(sorted(attempt.unschedulable_plugins))
    yield Step(at_s=ended_s, step=step, cause=plugins, text=attempt.message)
    if attempt.nominated_node:
        node = attempt.nominated_node
        yield Step(at_s=ended_s, step="nominated", cause=node, text=f"nominated to {node}: victims leave it")
