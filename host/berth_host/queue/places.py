"""Where every queued pod is: exactly one of activeQ, backoffQ and the pool.

    (new, or back from an attempt) -> activeQ | backoffQ | pool
    pool -an event helps-> backoffQ | activeQ        a closed gate keeps it in, or sends it to, the pool
    backoffQ -time is up, activated-> activeQ -pop-> in flight (not here)

Owned by `SchedulingQueue`, which decides on each move; this module carries it out.
Source: kube-scheduler `backend/queue/scheduling_queue.go` (moveToActiveQ, moveToBackoffQ,
requeuePodWithQueueingStrategy), v1.36.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum

from berth_sdk.pod import Pod

from berth_host.queue.backoff import Backoff, BackoffQueue
from berth_host.queue.events import BACKOFF_COMPLETE, POD_ADD, POD_UPDATE
from berth_host.queue.gates import Gates
from berth_host.queue.heap import KeyedHeap
from berth_host.queue.hints import Strategy
from berth_host.queue.nominator import Nominator
from berth_host.queue.order import PodOrder, is_awaited
from berth_host.queue.pool import Alike, UnschedulablePool
from berth_host.queue.queued_pod import GATED, QueuedPodInfo
from berth_host.queue.registrations import RegistrationIndex
from berth_host.queue.seams import QueueConfig, QueueSeams


class Place(Enum):
    """The three places, in the spelling of the metric's label."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    POOL = "unschedulable"


class Places:
    """Moves pods between the places. `now_us` reads the clock, Unix microseconds."""

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
        self._backoff_times = Backoff(config)
        self.active: KeyedHeap[QueuedPodInfo] = KeyedHeap()
        self.backoff = BackoffQueue(self._backoff_times)
        self.pool = UnschedulablePool(seams.evicting, seams.profiles)
        self._observer = seams.observer
        self._nominator = nominator
        self._now_us = now_us

    def find(self, key: str) -> tuple[Place, QueuedPodInfo] | None:
        """Where the pod called `namespace/name` is; None if it is not queued."""
        info = self.active.get(key)
        if info is not None:
            return Place.ACTIVE, info
        info = self.backoff.get(key)
        if info is not None:
            return Place.BACKOFF, info
        info = self.pool.get(key)
        return None if info is None else (Place.POOL, info)

    def blamed(self) -> Counter[tuple[str, str]]:
        """Pods by (plugin that rejected them the last time, profile), until they are tried again."""
        found = self.pool.blamed()
        for infos in (self.active, self.backoff.rejected()):
            for info in infos:
                for plugin in info.unschedulable_plugins:
                    found[plugin, info.pod.scheduler_name] += 1
        return found

    def free_at_us(self, info: QueuedPodInfo) -> int | None:
        """When the pod's backoff ends, Unix microseconds; None for a pod that need not wait."""
        return self._backoff_times.expiry_us(info)

    # --- moves -------------------------------------------------------------------------------

    def requeue(
        self, info: QueuedPodInfo, strategy: Strategy, label: str, passed: frozenset[str] = frozenset()
    ) -> Place:
        """Put a pod where its strategy says; `passed`: gates that have let it through just now."""
        if strategy is Strategy.SKIP:
            self._to_pool(info, label)
            return Place.POOL
        if not self.gates.run(info, strategy, label, passed):
            # A gated pod that is also queued elsewhere stays where it is.
            if info.key not in self.active and info.key not in self.backoff:
                self._to_pool(info, label)
            return Place.POOL
        if strategy is Strategy.AFTER_BACKOFF and self._backoff_times.is_backing_off(info, self._now_us()):
            self._to_backoff(info, label)
            return Place.BACKOFF
        self._to_active(info, label)
        return Place.ACTIVE

    def stay_gated(self, alike: Alike, strategy: Strategy, label: str) -> bool:
        """Whether all these pods stay in the pool because their gate is still closed. The gate is asked about
        one of them.
        """
        if not alike.is_gated or not self.gates.keeps(alike, strategy, label):
            return False
        self._observer.pod_entered(Place.POOL.value, label, len(alike.infos))
        return True

    def activate_from_backoff(self, info: QueuedPodInfo, label: str) -> None:
        """To activeQ, although its backoff is not over. It has passed its gates on the way in."""
        self._to_active(info, label)

    def flush_backoff(self) -> int:
        """To activeQ with every pod whose backoff is over; how many moved."""
        completed = list(self.backoff.pop_completed(self._now_us()))
        for info in completed:
            self._to_active(info, BACKOFF_COMPLETE)
        return len(completed)

    def pop(self) -> QueuedPodInfo | None:
        """Take out the next pod to be tried; the first of the backing-off ones if activeQ is empty. None if
        there is none, or its sort key has not come.
        """
        if not self.has_ready:
            return None
        info = self.active.pop() or self.backoff.pop_early()
        if info is not None:
            self.order.forget(info)
        return info

    @property
    def has_ready(self) -> bool:
        """Whether `pop` would answer a pod."""
        first = self.active.peek() or self.backoff.first_poppable
        return first is not None and not is_awaited(first)

    def remove(self, key: str) -> QueuedPodInfo | None:
        """Take a pod out, wherever it is."""
        info = self.active.remove(key) or self.backoff.remove(key) or self.pool.remove(key)
        if info is not None:
            self.order.forget(info)
            self.gates.forget(info)
        return info

    def replace_pod(self, place: Place, info: QueuedPodInfo, pod: Pod) -> None:
        """The pod was updated; it keeps its place, and gets the rank that it has now."""
        info.replace_pod(pod)
        if place is not Place.POOL:
            self.order.renew(info)
            self.reorder(info)

    def reorder(self, info: QueuedPodInfo) -> None:
        """Its sort key has changed: put it where it belongs now, without moving anything else."""
        if self.active.get(info.key) is info:
            self.active.push(info.key, info.sort_key, info)
        elif self.backoff.get(info.key) is info:
            self.backoff.push(info)

    # --- arrivals ----------------------------------------------------------------------------

    def _to_active(self, info: QueuedPodInfo, label: str) -> None:
        now_us = self._now_us()
        if info.initial_attempt_timestamp_us is None:
            info.initial_attempt_timestamp_us = now_us
        info.note(now_us, Place.ACTIVE.value, label)
        key = info.key
        self.pool.remove(key)
        self.backoff.remove(key)
        self.order.assign(info)
        self.active.push(key, info.sort_key, info)
        self._observer.pod_entered(Place.ACTIVE.value, label)
        if label in (POD_ADD, POD_UPDATE):
            self._nominator.nominate(info.pod)

    def _to_backoff(self, info: QueuedPodInfo, label: str) -> None:
        self.pool.remove(info.key)
        self.order.assign(info)
        self.backoff.push(info)
        info.note(self._now_us(), Place.BACKOFF.value, label)
        self._observer.pod_entered(Place.BACKOFF.value, label)

    def note_gated(self, info: QueuedPodInfo) -> None:
        """Keep a line of the pod's history: its gate answered that it stays closed."""
        info.note(self._now_us(), GATED, info.gating_plugin)

    def _to_pool(self, info: QueuedPodInfo, label: str) -> None:
        was_here = info.key in self.pool
        self.pool.put(info)
        if info.is_gated:
            # A gate that has not answered yet may be open, and is often of a plugin without PreEnqueue.
            if self.gates.open_entry(info) is None:
                self.note_gated(info)
        elif not was_here:
            info.note(self._now_us(), Place.POOL.value, label)
        self._observer.pod_entered(Place.POOL.value, label)
