"""`ShadowFollower`: tells the decisions of a shadow what the real scheduler did, from the watch.

    bound to a node -> the decision is compared and dropped; the assumed placement makes room for the real one
    reported as unschedulable, or no outcome in time -> counted once; the assumed placement goes, and the pod
        waits in the queue for an event
    deleted -> dropped

The real scheduler is often faster. The binding of a pod that waits in activeQ is held back until the shadow
has tried the pod: so the shadow decides on the cluster as the real scheduler saw it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, Final

from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.status import Status

from berth_host.cache.cache import Cache
from berth_host.cache.objects import ObjectStores
from berth_host.cluster.port import WatchEvent
from berth_host.cycle.attempt import Failure
from berth_host.cycle.schedule_one import FailureHandler
from berth_host.queue.events import reservation_freed
from berth_host.queue.places import Place
from berth_host.queue.scheduling_queue import SchedulingQueue
from berth_host.shadow.decision import Decision
from berth_host.shadow.record import ShadowRecord

HELD_MOST: Final = 1000
"""The most pods whose bindings are held back; a shadow that is so far behind leaves pods undecided."""
NO_OUTCOME: Final = "the real scheduler has not bound the pod in {seconds:g} s"


class ShadowFollower:
    """The changes of the cluster on their way to the handlers of a shadow.

    `apply`: the handlers. `names`: the schedulerNames whose pods are decided.
    """

    def __init__(
        self,
        record: ShadowRecord,
        apply: Callable[[WatchEvent], None],
        stores: ObjectStores,
        cache: Cache,
        queue: SchedulingQueue,
        failures: FailureHandler,
        names: Collection[str],
    ) -> None:
        self._record = record
        self._apply = apply
        self._stores = stores
        self._cache = cache
        self._queue = queue
        self._failures = failures
        self._names = frozenset(names)
        self._held: dict[str, list[WatchEvent]] = {}
        self._is_on = False

    def begin(self) -> None:
        """Compare from now on. After a reload, take over the decisions of the host before."""
        self._is_on = True
        for uid, decision in list(self._record.open.items()):
            decision.is_assumed = self._cache.is_assumed(uid)
            self._watch_over(uid)

    def handle(self, event: WatchEvent) -> None:
        """Handle one change, now or after the decision about its pod. Raises InvariantError."""
        uid = _pod_uid(event)
        if not uid or not self._is_on:
            self._apply(event)
        elif uid in self._held:
            self._held[uid].append(event)
        elif self._comes_too_early(uid, event):
            self._held[uid] = [event]
            asyncio.get_running_loop().call_later(self._record.assumed_s, self._release, uid)
        else:
            self._take(uid, event)

    def decided(self, uid: str) -> None:
        """Apply what was held back for a pod; start the timer of its assumed placement."""
        self._release(uid)
        self._watch_over(uid)

    def _watch_over(self, uid: str) -> None:
        decision = self._record.open.get(uid)
        if decision is None:
            return
        if self._pending(uid) is None:
            self._record.close(uid)  # the pod was bound or deleted meanwhile
        elif decision.is_assumed and self._is_on:
            text = NO_OUTCOME.format(seconds=self._record.assumed_s)
            loop = asyncio.get_running_loop()
            decision.timer = loop.call_later(self._record.assumed_s, self._lapse, decision, text)

    def _release(self, uid: str) -> None:
        """Apply what was held back for a pod."""
        for event in self._held.pop(uid, ()):
            self._take(uid, event)

    def stop(self) -> None:
        """Stop comparing."""
        self._is_on = False
        for decision in self._record.open.values():
            decision.cancel_timer()

    def _comes_too_early(self, uid: str, event: WatchEvent) -> bool:
        """Return True for the binding of a pod that the shadow tries now, or is about to try first."""
        old = self._pending(uid)
        if old is None or not _node_of(event.new) or len(self._held) >= HELD_MOST:
            return False
        if uid in self._queue.in_flight:
            return True
        if uid in self._record.open:
            return False
        found = self._queue.find(old)
        return found is not None and found.place is Place.ACTIVE

    def _take(self, uid: str, event: WatchEvent) -> None:
        old, node_name = self._pending(uid), _node_of(event.new)
        if event.new is not None and old is not None and node_name:
            self._bound(uid, old, node_name, event)
            return
        self._apply(event)
        decision = self._record.open.get(uid)
        if decision is None:
            return
        if self._stores.pod_by_uid(uid) is None:
            self._record.close(uid)
        elif report := _new_report(None if old is None else old.object, event.new):
            self._lapse(decision, report)

    def _bound(self, uid: str, old: Pod, node_name: str, event: WatchEvent) -> None:
        found = self._queue.find(old)
        gate = ("", "") if found is None else (found.info.gating_plugin, found.info.gating_message)
        decision = self._record.close(uid)
        assumed = self._forget(decision)
        self._record.bound(old.key, decision, node_name, gate)
        self._apply(event)
        if assumed is not None and assumed.node_name != node_name:
            self._queue.move_all(reservation_freed(assumed))

    def _lapse(self, decision: Decision, reason: str) -> None:
        """End an assumed placement without an outcome, and let the pod wait for an event."""
        decision.cancel_timer()
        self._record.still_pending(decision, reason)
        assumed = self._forget(decision)
        if assumed is None:
            return
        # In flight from now on, so that no earlier event has the pod tried again at once.
        self._queue.in_flight.start(decision.queued)
        failure = Failure(
            status=Status.unschedulable(reason), nominated=None, unschedulable_plugins=decision.filters
        )
        self._failures.handle(decision.queued, failure)
        self._queue.move_all(reservation_freed(assumed), lambda other: other.uid != assumed.uid)

    def _forget(self, decision: Decision | None) -> Pod | None:
        """Remove the assumed placement from the cache, and return it; None if there is none."""
        if decision is None or not decision.is_assumed:
            return None
        decision.is_assumed = False
        assumed = decision.pod.on_node(decision.node_name)
        if not self._cache.is_assumed(assumed.uid):
            return None
        self._cache.forget(assumed)
        return assumed

    def _pending(self, uid: str) -> Pod | None:
        """Return the stored pod if it is one of ours and has no node."""
        pod = self._stores.pod_by_uid(uid)
        if pod is None or pod.node_name or pod.scheduler_name not in self._names:
            return None
        return pod


def _pod_uid(event: WatchEvent) -> str:
    """Return the pod's uid; "" for other kinds, and for a pod that cannot be read."""
    item = event.new or event.old
    if event.kind != "Pod" or item is None:
        return ""
    try:
        uid = item.ref.uid
        item.get("spec.nodeName")
    except Exception:  # noqa: BLE001  # the handlers report the object
        return ""
    return uid if isinstance(uid, str) else ""


def _node_of(item: KubeObject | None) -> str:
    node_name = None if item is None else item.get("spec.nodeName")
    return node_name if isinstance(node_name, str) else ""


def _new_report(old: KubeObject | None, new: KubeObject | None) -> str:
    """Return the real scheduler's report that no node fits the pod, if the change brings one; else ""."""
    now, before = _report_of(new), _report_of(old)
    if now is None or now == before:
        return ""
    return str(now.get("message") or "the real scheduler found no node")


def _report_of(item: KubeObject | None) -> dict[str, Any] | None:
    conditions = [] if item is None else item.get("status.conditions", [])
    for one in conditions if isinstance(conditions, list) else ():
        if isinstance(one, dict) and one.get("type") == "PodScheduled":
            return one if one.get("status") == "False" and one.get("reason") == "Unschedulable" else None
    return None
