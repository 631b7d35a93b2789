"""`SchedulingQueue`: the pending pods, and the requeueing of rejected ones. Read this module first (queue).

An entity of the queue is a pod, or a pod group with its members, which `GroupEntries` puts together.

    add, update ----------> activeQ --pop--> in flight --done--> (bound, or deleted)
                  backoff over ^  ^                |
                               |  | event helps    | add_unschedulable
                            backoffQ <---- pool <--+        (an error goes to backoffQ at once)

The queue has no locks, because one event loop owns it. It is called by the event handlers
(`cluster.handlers`), the scheduler and its failure handler; `wiring` passes late answers of served plugins
to it. A queued pod is in exactly one of activeQ, backoffQ and the pool of unschedulable pods; a popped pod is
in flight until its attempt ends. So no pod is lost.

An event requeues the unschedulable pods that it helps:

    event -> pods whose rejecting plugins registered for it -> hints -> gates -> backoffQ | activeQ | stay

If the plugins answer the same for alike pods, only one of them is judged, so that thousands of pods that wait
for the same event cost no more than one.
Source: kube-scheduler `backend/queue/scheduling_queue.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from berth_sdk.events import ActionType
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup
from berth_sdk.status import Status

from berth_host.log import get_logger
from berth_host.metrics.series import instant_s
from berth_host.model.clock import Clock, steady_us
from berth_host.queue import events
from berth_host.queue.backoff import SECOND_US
from berth_host.queue.counts import QueueCounts
from berth_host.queue.events import PluginRequest, QueueEvent
from berth_host.queue.flush_timers import FlushTimers
from berth_host.queue.group_entries import Aside, GroupEntries, Held
from berth_host.queue.hints import Hints, Strategy, strategy_of
from berth_host.queue.in_flight import InFlight
from berth_host.queue.interfaces import (
    GateQuestion,
    HintQuestion,
    HintVerdict,
    PreCheck,
    QueueConfig,
    QueueSeams,
    SortKeyQuestion,
)
from berth_host.queue.moves import Moves
from berth_host.queue.nominated_columns import NominatedColumns
from berth_host.queue.nominator import Nominator
from berth_host.queue.places import Place, Places
from berth_host.queue.queued_group import GroupOutcome, QueuedGroupInfo
from berth_host.queue.queued_pod import TRIED, QueuedEntity, QueuedPodInfo, pods_of
from berth_host.queue.readiness import Readiness
from berth_host.queue.registrations import Registration, RegistrationIndex
from berth_host.queue.requests import PluginRequests
from berth_host.rpc.hint_answer import HintAnswer

log = get_logger()


class SchedulingQueue:
    """The queue of one host; the module has its states. `start` begins the periodic flushes."""

    def __init__(self, config: QueueConfig, clock: Clock, seams: QueueSeams) -> None:
        self._registrations = registrations = {
            name: RegistrationIndex(profile.registrations) for name, profile in seams.profiles.items()
        }
        # A step of the wall clock must not prolong or end a backoff.
        self._now_us = now_us = steady_us(clock)
        self._seams = seams
        self._observer = seams.observer
        self._rules = config.rules
        self._max_in_pool_us = round(config.pod_max_in_unschedulable_pods_s * SECOND_US)
        self.nominator = Nominator(seams.pods)
        self.in_flight = InFlight()
        self.places = Places(config, seams, registrations, self.nominator, now_us)
        self.groups = GroupEntries(self.places, now_us)
        self.counts = QueueCounts(self.places, self.groups)
        self._hints = Hints(seams, registrations, every_plugin=config.ask_every_plugin)
        self._moves = Moves(self.places, self._hints, seams.evicting)
        self._requests = PluginRequests(self.places, self._hints)
        self._timers = FlushTimers(clock, self, now_us)
        self._readiness = Readiness()
        self.scheduling_cycle = 0
        """The number of pops."""

    # --- the watches' side -------------------------------------------------------------------

    def add(self, pod: Pod) -> None:
        """Add a new pending pod."""
        self._enter(pod, self._rules.pod_add)

    def update(self, old: Pod, new: Pod, own_events: Iterable[QueueEvent]) -> None:
        """Apply an update of a pending pod. `own_events`: the changes, at least one.

        A queued pod gets the new version. An unschedulable pod is requeued if a change may help it. A pod in
        flight is judged by the events when it comes back.
        """
        changes = list(own_events)
        for event in changes:
            self._observer.event_received(event, own_update=True)
        if new.uid in self.in_flight:
            self.nominator.refresh(new)
            for event in changes:
                self.in_flight.remember(event)
            return
        held = self.find(new)
        if held is None:
            self._enter(new, self._rules.late_pod_add)
            return
        self.groups.replace_pod(held, new)
        self.nominator.update(old, new)
        if held.entity is not None and held.place is Place.POOL:
            self._moves.by_own_update(held.entity, changes)
        self._settle()

    def delete(self, pod: Pod) -> None:
        """Remove a pod that was deleted or bound."""
        self.nominator.remove(pod)
        if pod.group_key:
            if self.groups.remove(pod):
                self._settle()
            return
        found = self.places.find(pod.key)
        if found is not None and found[1].uid == pod.uid:
            self.places.remove(pod.key)
            self._requests.failed_on.forget(pod.key)

    def add_group(self, new: PodGroup) -> None:
        """Apply a new group object: queue the members that waited for it, then apply the event."""
        self.groups.add_group(new)
        self.move_all(events.group_event(ActionType.ADD, None, new))
        self._settle()

    def update_group(self, old: PodGroup, new: PodGroup) -> None:
        """Apply a new version of a group object, and its event."""
        self.groups.update_group(new)
        self.move_all(events.group_event(ActionType.UPDATE, old, new))

    def delete_group(self, old: PodGroup) -> None:
        """Apply the deletion of a group object: its members wait for a new one. Then apply the event."""
        self.groups.delete_group(old)
        self.move_all(events.group_event(ActionType.DELETE, old, None))
        self._settle()

    def move_all(self, event: QueueEvent, pre_check: PreCheck | None = None) -> None:
        """Apply a cluster event: requeue the unschedulable pods that it helps, keep it for pods in flight.

        `pre_check`: only unschedulable pods for which it returns True are judged. The event is kept for pods
        in flight in any case.
        """
        self._observer.event_received(event, own_update=False)
        if not self._hints.is_of_interest(event):
            return
        somebody_waits = len(self.places.pool) > 0
        if somebody_waits:
            self._moves.by_event(event, pre_check)
        self.in_flight.remember(event)
        if somebody_waits:
            self._settle()

    def wants(self, event: QueueEvent) -> bool:
        """Return True if a plugin registered for this kind of event."""
        return self._hints.is_of_interest(event)

    # --- the scheduler's side ----------------------------------------------------------------

    @property
    def has_ready(self) -> bool:
        """True if `pop` would return a pod or a group."""
        return self.places.has_ready

    async def ready(self) -> None:
        """Wait until `pop` would return a pod or a group.

        The wait includes every sort key requested before the first one could have been popped, so that the
        order is the same as if all keys had arrived at once. Keys requested later do not prolong the wait, so
        that a stream of new pods cannot block the scheduler.
        """
        order = self.places.order
        last: int | None = None
        while True:
            if self._has_candidates:
                if not order.open_count:
                    return
                last = order.last_asked if last is None else last
                if not order.awaits_any_to(last) and self.has_ready:
                    return
            await self._readiness.wait()

    def pop(self) -> QueuedPodInfo | QueuedGroupInfo | None:
        """Remove and return the next pod or group; None if there is none.

        The pod, or each member of the group, is then in flight. Members that are given back, and new ones,
        are kept until `group_attempted` ends the group's cycle.
        """
        early = not self.places.active.by_key
        entity = self.places.pop()
        if entity is None:
            return None
        self._requests.failed_on.forget(entity.key)
        pods = entity.pods()
        for info in tuple(pods):
            if info.uid not in self.in_flight:
                continue
            # Two attempts at once could bind the pod twice. The running one requeues the pod if it fails.
            log.error("queue.pod_in_flight_twice", pod=info.key, pod_uid=info.uid)
            if not isinstance(entity, QueuedGroupInfo):
                return None
            entity.remove(info)
            pods = entity.pods()
        if not pods:
            return None
        if early:
            self.places.entered(Place.ACTIVE, events.POP_FROM_BACKOFF, entity)
        entity.count_attempt()
        self.scheduling_cycle += 1
        now_us = self._now_us()
        for info in pods:
            info.note(now_us, TRIED, str(info.attempts))
            self.in_flight.start(info)
        if isinstance(entity, QueuedGroupInfo):
            self.groups.popped(entity)
            self.nominator.popped(info.uid for info in entity.pods())
            return entity
        return entity  # type: ignore[return-value]  # an entity is a group or a pod

    def done(self, uid: str) -> None:
        """End a pod's attempt, or the part in which it may requeue the pod: stop keeping events for it."""
        self.in_flight.end(uid)
        self.nominator.returned(uid)

    def add_unschedulable(self, info: QueuedPodInfo, *, failed_plugin: str = "") -> bool:
        """Requeue a popped pod after a failed attempt, and end the attempt.

        The pod's plugin sets name the plugins that rejected it. Empty sets mean that the attempt ended in an
        error, and the pod backs off; `failed_plugin`: the plugin that caused the error. Returns False, and
        does not requeue the pod, if it is queued already.

        A member of a group goes into the entry of its group, or waits until its group's cycle ends: only the
        group backs off, and no event that came during the attempt is consulted.
        """
        since = self.in_flight.events_since(info.uid)
        self.in_flight.end(info.uid)
        self.nominator.returned(info.uid)
        if self.find(info.pod) is not None:
            log.error("queue.pod_queued_twice", pod=info.key, pod_uid=info.uid)
            return False
        if info.is_rejected:
            info.unschedulable_count += 1
            info.consecutive_errors_count = 0
        else:
            info.consecutive_errors_count += 1
        info.timestamp_us = self._now_us()
        info.backoff_expiration_us = None
        info.sort_key = None
        info.was_flushed_from_unschedulable = False
        info.flushed_at_us = None
        for plugin in info.unschedulable_plugins | info.pending_plugins:
            self._observer.pod_rejected(plugin, info.pod.scheduler_name)
        if info.pod.group_key:
            self.groups.add(info, failed_plugin)
            self._settle()
            return True
        if info.is_rejected and since is not None:
            strategy = self._hints.judge_all(info, since)
        else:
            strategy = Strategy.AFTER_BACKOFF
        place = self.places.requeue(info, strategy, events.ATTEMPT_FAILED)
        if failed_plugin and place is Place.BACKOFF:
            self._requests.failed_on.note(info.key, failed_plugin)
        self._settle()
        return True

    def group_attempted(self, info: QueuedGroupInfo, outcome: GroupOutcome) -> None:
        """End the cycle of a popped group, after its members were given back or sent to their binding cycles.

        The members that were given back, and those that came in the meantime, are queued as a new entry:
        after SUCCESS in activeQ, else with the group's backoff.
        """
        plugin = self.groups.attempted(info, outcome)
        if plugin:
            self._requests.failed_on.note(info.key, plugin)
        self._settle()

    # --- nominations ---------------------------------------------------------------------------

    def nominate(self, pod: Pod, node_name: str | None) -> None:
        """Set the pod's nomination: a node, "" for none, None for the node in the pod's status."""
        self.nominator.nominate(pod, node_name)

    def delete_nomination(self, pod: Pod) -> None:
        """Remove the pod's nomination."""
        self.nominator.remove(pod)

    def nominated_pods(self) -> Mapping[str, list[Pod]]:
        """Return the nominated pods by node, in the order of nomination."""
        return self.nominator.by_node()

    def nominated_to(self, node_name: str) -> list[Pod]:
        """Return the pods nominated to a node."""
        return self.nominator.on_node(node_name)

    @property
    def nominated_columns(self) -> NominatedColumns:
        """The nominated pods as columns."""
        return self.nominator.columns

    # --- requests of plugins -------------------------------------------------------------------

    def activate(self, pods: Iterable[Pod]) -> None:
        """Move these pods to activeQ for a plugin. For a pod in flight this is an event that helps."""
        for pod in pods:
            if not self._moves.activate(self.groups.entity_key(pod)) and pod.uid in self.in_flight:
                self.in_flight.remember(events.force_activated(pod))
        self._settle()

    def reopen(self, pod: Pod) -> None:
        """Call the gates of a gated pod again, because its obstacle may be gone without an event."""
        held = self.find(pod)
        if held is None or held.entity is None or held.place is not Place.POOL:
            return
        if held.info.uid == pod.uid and held.entity.is_gated:
            self.activate([held.info.pod])

    def activate_named(self, keys: Iterable[str]) -> None:
        """Activate pods by `namespace/name`; unknown pods are ignored."""
        found = [pod for key in keys if (pod := self._seams.pods.pod(key)) is not None]
        if found:
            self.activate(found)

    def requeue(self, request: PluginRequest) -> int:
        """Requeue pods for a plugin's request; return how many left the pool or backoffQ."""
        moved = self._requests.requeue(request)
        self.in_flight.remember(request)
        self._settle()
        return moved

    def register_events(self, profile: str, plugin: str, items: Sequence[Registration]) -> None:
        """Set the registrations of a served plugin in one profile."""
        self._registrations[profile].replace(plugin, items)

    def plugin_recovered(self, plugin: str) -> int:
        """Requeue pods after a plugin's recovery; return the number of moved pods.

        Pods that failed because of the plugin are activated. Its gates are called again. Pods without a sort
        key from it get one, in their place.
        """
        moved = self._requests.recover(plugin)
        if plugin == self._seams.sort.plugin:
            for info in self.places.order.take_keyless():
                self.places.renew_order(info)
        self._settle()
        return moved

    def invalidate_sort_keys(self, uids: frozenset[str] | None = None) -> None:
        """Request the sort keys of these queued pods again; None: of all pods."""
        backoff = self.places.backoff
        for info in [*self.places.active, *backoff.rejected(), *backoff.failed()]:
            if uids is None or info.has_any(uids):
                self.places.renew_order(info)
        self._settle()

    # --- answers that were deferred --------------------------------------------------------------

    def gate_answered(self, question: GateQuestion, status: Status) -> bool:
        """Take the late answer of a served PreEnqueue plugin: the pod continues, or stays gated.

        Returns True if the question is still open, after an error, and must be asked again.
        """
        move = self.places.gates.answered(question, status)
        if move is not None:
            self._moves.continue_move(move)
        else:
            held = self.find(question.pod.pod)
            if held is not None and held.entity is not None and held.place is Place.POOL:
                self.places.pool.put(held.entity)
                if held.info.uid == question.pod.pod.uid and held.info.gating_plugin == question.plugin:
                    self.places.note_gated(held.entity)
        self._settle()
        return self.places.gates.waits_for(question)

    def hint_answered(self, question: HintQuestion, answer: HintAnswer) -> None:
        """Take the late hint of a served plugin; it is ignored if the pod was tried since the question."""
        verdict = HintVerdict.of(answer)
        self._seams.observer.hint_took(
            question.plugin, question.label, verdict, instant_s() - question.asked_s
        )
        held = self.find(question.pod)
        if held is None or held.entity is None:
            return
        info, entity = held.info, held.entity
        if info.uid != question.pod.uid or info.attempts != question.attempts:
            return
        self._seams.observer.hint_given(question.plugin, question.label, (info,), verdict)
        if verdict is HintVerdict.SKIP:
            return
        strategy = strategy_of(info, question.plugin)
        if held.place is Place.POOL:
            if not self.places.gates.postpones_hint(entity, strategy, question):
                self.places.requeue(entity, strategy, question.label)
        elif held.place is Place.BACKOFF and strategy is Strategy.IMMEDIATELY:
            self.places.activate_from_backoff(entity, question.label)
        self._settle()

    def sort_key_answered(self, question: SortKeyQuestion, key: bytes | None) -> None:
        """Take the late key of a served QueueSort plugin: the pod is sorted, and may be popped.

        None or empty: the plugin gave no key or failed; the key is requested again when it recovers.
        """
        info = self.places.order.answered(question, key or b"")
        if info is not None:
            self.places.reorder(info)
            self._wake()

    # --- time ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the periodic flushes, on the queue's clock."""
        self._timers.start()

    def stop(self) -> None:
        """Stop the periodic flushes."""
        self._timers.stop()

    def flush_backoff(self) -> int:
        """Move the pods whose backoff is over to activeQ; return their number."""
        moved = self.places.flush_backoff()
        self._settle()
        return moved

    def flush_leftover(self) -> int:
        """Requeue the pods that have waited too long in the pool; return their number."""
        now_us = self._now_us()
        due = [info for info in self.places.pool if now_us > self.flush_at_us(info)]
        for info in due:
            info.mark_flushed()
            if self._rules.remembers_flushes:
                info.flushed_at_us = now_us
        if due:
            event = events.timed_out()
            self._moves.each(due, event, gated=self._rules.remembers_flushes)
            for info in due:
                if info.is_gated and self._rules.remembers_flushes:
                    info.mark_flushed(flushed=False)  # no attempt follows this flush
            self.in_flight.remember(event)
            self._settle()
        return len(due)

    # --- the pods held, and their history -----------------------------------------------------

    def pods(self) -> Iterator[QueuedPodInfo]:
        """Yield every pod that the queue holds, members of groups too; pods in flight are not among them."""
        yield from pods_of(self.places)
        for which in Aside:
            yield from self.groups.aside(which)

    def find(self, pod: Pod) -> Held | None:
        """Return where the queue holds a pod; None if the pod is in flight, or unknown.

        A pod without a group is found by its name, also if the queue has another pod of this name.
        """
        return self.groups.held(pod)

    def note(self, info: QueuedPodInfo, what: str, about: str) -> None:
        """Add an entry to the pod's history, with the time."""
        info.note(self._now_us(), what, about)

    def events_for(self, profile: str, plugin: str) -> tuple[Registration, ...]:
        """Return the registrations of `plugin` in a profile; empty for an unknown plugin or profile."""
        index = self._registrations.get(profile)
        return () if index is None else index.all_of(plugin)

    def flush_at_us(self, info: QueuedEntity) -> int:
        """Return when an entity in the pool is retried without an event (Unix microseconds)."""
        return max(info.timestamp_us, info.flushed_at_us or 0) + self._max_in_pool_us

    @property
    def next_backoff_flush_s(self) -> float | None:
        """When backoffQ is flushed next (monotonic seconds); None while it is empty."""
        return self._timers.next_backoff_flush_s

    @property
    def has_backing_off(self) -> bool:
        """True if backoffQ has pods."""
        return bool(len(self.places.backoff))

    @property
    def active_pod_count(self) -> int:
        """The number of pods in activeQ, members of groups included."""
        return sum(len(info.pods()) for info in self.places.active)

    @property
    def has_unschedulable(self) -> bool:
        """True if the pool of unschedulable pods has pods."""
        return bool(len(self.places.pool))

    # --- how it is done ----------------------------------------------------------------------------

    def _enter(self, pod: Pod, label: str) -> None:
        info = QueuedPodInfo(pod, timestamp_us=self._now_us())
        if pod.group_key or self._rules.nominates_gated_pods:
            self.nominator.nominate(pod)
        if pod.group_key:
            self.groups.add(info)
            self._settle()
            return
        if self.places.requeue(info, Strategy.IMMEDIATELY, label, afresh=True) is Place.ACTIVE:
            self._wake()
        else:
            self._settle()

    def _settle(self) -> None:
        """Wake the waiters for a pod and set the timers; called after every change."""
        self._wake()
        self._timers.arm()

    def _wake(self) -> None:
        """Wake the waiters for a pod; enough if no pod entered backoffQ or the pool."""
        if self._readiness.is_awaited and self._has_candidates:
            self._readiness.notify()

    @property
    def _has_candidates(self) -> bool:
        """True if a pod could be popped after its sort key arrives."""
        return bool(self.places.active.by_key or self.places.backoff.poppable_count)
