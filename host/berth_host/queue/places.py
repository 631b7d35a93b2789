"""`Places`: activeQ, backoffQ and the pool of unschedulable pods; every queued entity is in one of them.

    (new, or back from an attempt) -> activeQ | backoffQ | pool
    pool -an event helps-> backoffQ | activeQ      an entity with a closed gate stays in, or goes to, the pool
    backoffQ -backoff is over, or activated-> activeQ -pop-> in flight (not here)

An entity is a pod or a pod group. Owned by `SchedulingQueue`, which decides on each move with `GroupEntries`;
this module makes the moves.
Source: kube-scheduler `backend/queue/scheduling_queue.go` (moveToActiveQ, moveToBackoffQ,
requeueEntityWithQueueingStrategy), v1.37.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Final

from berth_sdk.pod import Pod

from berth_host.queue.backoff import BackoffQueue, BackoffTimes
from berth_host.queue.events import BACKOFF_COMPLETE
from berth_host.queue.gates import UNANSWERED, Answered, Gates
from berth_host.queue.heap import KeyedHeap
from berth_host.queue.hints import Strategy
from berth_host.queue.interfaces import QueueConfig, QueueSeams
from berth_host.queue.nominator import Nominator
from berth_host.queue.order import PodOrder, is_awaited
from berth_host.queue.pool import Alike, UnschedulablePool
from berth_host.queue.queued_pod import GATED, QueuedEntity, QueuedPodInfo
from berth_host.queue.registrations import RegistrationIndex


class Place(Enum):
    """The three places, spelled as the metric's label."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    POOL = "unschedulable"


_ACTIVE: Final = Place.ACTIVE.value
"""Read once: every new pod needs it."""


class Places:
    """The places, and the moves between them. `now_us`: returns Unix microseconds."""

    def __init__(
        self,
        config: QueueConfig,
        seams: QueueSeams,
        registrations: Mapping[str, RegistrationIndex],
        nominator: Nominator,
        now_us: Callable[[], int],
    ) -> None:
        self.gates = Gates(seams, registrations)
        self.order = PodOrder(seams)
        self._backoff_times = BackoffTimes(config)
        self.active: KeyedHeap[QueuedEntity] = KeyedHeap()
        self.backoff = BackoffQueue(self._backoff_times)
        self.pool = UnschedulablePool(seams.evicting, seams.profiles)
        self._observer = seams.observer
        self._nominator = nominator
        rules = config.rules
        self._nominating = () if rules.nominates_gated_pods else (rules.pod_add, rules.late_pod_add)
        self._now_us = now_us

    def find(self, key: str) -> tuple[Place, QueuedEntity] | None:
        """Return place and record of the pod called `namespace/name`, or of the group with this key.

        None if the entity is not queued. A member of a group has no place of its own.
        """
        info = self.active.get(key)
        if info is not None:
            return Place.ACTIVE, info
        info = self.backoff.get(key)
        if info is not None:
            return Place.BACKOFF, info
        info = self.pool.get(key)
        return None if info is None else (Place.POOL, info)

    def __iter__(self) -> Iterator[QueuedEntity]:
        """Return every queued entity."""
        yield from (*self.active, *self.backoff.rejected(), *self.backoff.failed(), *self.pool)

    def blamed(self) -> Counter[tuple[str, str]]:
        """Return the number of queued pods by (plugin that rejected them in the last attempt, profile)."""
        found = self.pool.blamed()
        for infos in (self.active, self.backoff.rejected(), self.backoff.failed()):
            for info in infos:
                for pod in info.pods():
                    for plugin in pod.unschedulable_plugins:
                        found[plugin, pod.pod.scheduler_name] += 1
        return found

    def free_at_us(self, info: QueuedEntity) -> int | None:
        """Return when the entity's backoff ends (Unix microseconds); None without backoff."""
        return self._backoff_times.expiry_us(info)

    # --- moves -------------------------------------------------------------------------------

    def requeue(
        self,
        info: QueuedEntity,
        strategy: Strategy,
        label: str,
        answered: Answered = UNANSWERED,
        *,
        afresh: bool = False,
    ) -> Place:
        """Move an entity as its strategy says; return its new place. `answered`: what gates just answered.

        `afresh`: the entity is new, or comes back as a new one: metrics count it in whichever place.
        """
        awaited = self.gates.open_move(info)
        if awaited is not None and strategy is not Strategy.SKIP:
            # An event must not weaken the move that the gates interrupted.
            strategy = max(strategy, awaited.strategy)
        if strategy is Strategy.SKIP:
            self._to_pool(info, label, counts=afresh)
            return Place.POOL
        if not self.gates.run(info, strategy, label, answered):
            # A gated entity that is in activeQ or backoffQ stays there.
            if info.key not in self.active and info.key not in self.backoff:
                self._to_pool(info, label)
            return Place.POOL
        if strategy is Strategy.AFTER_BACKOFF and self._backoff_times.is_backing_off(info, self._now_us()):
            self._to_backoff(info, label, counts=afresh)
            return Place.BACKOFF
        self._to_active(info, label, counts=afresh or strategy is not Strategy.IMMEDIATELY)
        return Place.ACTIVE

    def stay_gated(self, alike: Alike, strategy: Strategy, label: str) -> bool:
        """Return True if all these pods stay in the pool because their gate is still closed.

        The gate is called for one of the pods only.
        """
        if not alike.is_gated or not self.gates.keeps(alike, strategy, label):
            return False
        self._observer.pod_entered(Place.POOL.value, label, len(alike.infos))
        self._observer.entity_entered(Place.POOL.value, label, alike.first.type, len(alike.infos))
        return True

    def activate_from_backoff(self, info: QueuedEntity, label: str) -> None:
        """Move an entity to activeQ before its backoff is over: its gates were open when it entered."""
        self._to_active(info, label)

    def flush_backoff(self) -> int:
        """Move every entity whose backoff is over to activeQ; return their number."""
        completed = list(self.backoff.pop_completed(self._now_us()))
        for info in completed:
            self._to_active(info, BACKOFF_COMPLETE)
        return len(completed)

    def pop(self) -> QueuedEntity | None:
        """Remove and return the next entity; if activeQ is empty, the first one of backoffQ.

        None if there is none, or its sort key has not arrived.
        """
        if not self.has_ready:
            return None
        info = self.active.pop() or self.backoff.pop_early()
        if info is not None:
            self.order.forget(info)
        return info

    @property
    def has_ready(self) -> bool:
        """True if `pop` would return an entity."""
        first = self.active.peek() or self.backoff.first_poppable
        return first is not None and not is_awaited(first)

    def remove(self, key: str) -> QueuedEntity | None:
        """Remove an entity from its place; None if it is not queued."""
        info = self.take_out(key)
        if info is not None:
            self.order.forget(info)
        return info

    def take_out(self, key: str) -> QueuedEntity | None:
        """Remove an entity that its caller requeues at once; its sort key stays. None if it is not queued."""
        info = self.active.remove(key) or self.backoff.remove(key) or self.pool.remove(key)
        if info is not None:
            self.gates.forget(info)
        return info

    def replace_pod(self, place: Place, entity: QueuedEntity, info: QueuedPodInfo, pod: Pod) -> None:
        """Store a new version of a pod of the entity, and sort the entity again; it stays in its place."""
        info.replace_pod(pod)
        entity.changed(info)
        entity.sort_key = None
        if place is not Place.POOL:
            self.renew_order(entity)

    def renew_order(self, info: QueuedEntity) -> None:
        """Request the sort key of an entity in activeQ or backoffQ again, and sort it."""
        self.order.renew(info)
        self.reorder(info)

    def reorder(self, info: QueuedEntity) -> None:
        """Sort an entity again within its place, after its sort key has changed."""
        if self.active.get(info.key) is info:
            self.active.push(info.key, info.sort_key, info)
        elif self.backoff.get(info.key) is info:
            self.backoff.push(info)

    # --- arrivals ----------------------------------------------------------------------------

    def _to_active(self, info: QueuedEntity, label: str, *, counts: bool = True) -> None:
        now_us = self._now_us()
        info.entered_active(now_us)
        info.note(now_us, _ACTIVE, label)
        key = info.key
        self.pool.remove(key)
        self.backoff.remove(key)
        self.order.assign(info)
        self.active.push(key, info.sort_key, info)
        self.entered(Place.ACTIVE, label, info, counts=counts)
        if label in self._nominating and isinstance(info, QueuedPodInfo):
            self._nominator.nominate(info.pod)

    def _to_backoff(self, info: QueuedEntity, label: str, *, counts: bool) -> None:
        self.pool.remove(info.key)
        self.order.assign(info)
        self.backoff.push(info)
        info.note(self._now_us(), Place.BACKOFF.value, label)
        self.entered(Place.BACKOFF, label, info, counts=counts)

    def note_gated(self, info: QueuedEntity) -> None:
        """Record in the history of each pod that the gate of the entity is closed."""
        info.note(self._now_us(), GATED, info.gating_plugin)

    def _to_pool(self, info: QueuedEntity, label: str, *, counts: bool = True) -> None:
        was_here = info.key in self.pool
        self.pool.put(info)
        if info.is_gated:
            # A gate that has not answered may be open; often its plugin has no PreEnqueue.
            if self.gates.open_move(info) is None:
                self.note_gated(info)
        elif not was_here:
            info.note(self._now_us(), Place.POOL.value, label)
        if not was_here:
            self.entered(Place.POOL, label, info, counts=counts)

    def entered(self, place: Place, label: str, info: QueuedEntity, *, counts: bool = True) -> None:
        """Report that an entity came into a place. `label`: the cause. `counts`: as an entity, too.

        kube-scheduler counts the pods each time, and the entity only if it is new or did not come into the
        place that its strategy meant.
        """
        queue = place.value
        self._observer.pod_entered(queue, label, len(info.pods()))
        if counts:
            self._observer.entity_entered(queue, label, info.type)
