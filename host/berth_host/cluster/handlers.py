"""`EventHandlers`: applies the cluster's watch events to object stores, cache and queue, in this order.

Composed by `app`, which passes `handle` to the cluster port. Each event is handled completely before the
next one. The handlers store the objects; the queue decides which pods a change may make schedulable.
Source: kube-scheduler `pkg/scheduler/eventhandlers.go`, v1.36.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from berth_sdk.errors import BerthError
from berth_sdk.events import ASSIGNED_POD, ActionType
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.node import Node
from berth_sdk.pod import COSCHEDULING_LABEL, Pod
from berth_sdk.pod_group import COMPOSITE_POD_GROUP, COSCHEDULING, POD_GROUP, PodGroup
from berth_sdk.spec_reads import ALL_OF_SPEC, SpecReads

from berth_host.cache.cache import Cache
from berth_host.cache.objects import ObjectStores
from berth_host.cluster.changes import event_resource, node_changes, nomination_changed, pod_changes
from berth_host.cluster.coscheduling import PodGroupStatuses
from berth_host.cluster.port import EventRecord, WatchEvent
from berth_host.cluster.readable_part import readable_part
from berth_host.config.host_rules import RULES_1_37, HostRules
from berth_host.errors.state import CacheError, InvariantError
from berth_host.log import get_logger
from berth_host.metrics.scheduler_metrics import SchedulerMetrics
from berth_host.metrics.series import SeriesBy, instant_s
from berth_host.model.compact_json import json_bytes
from berth_host.model.readable_ref import readable_ref
from berth_host.model.resources import COSCHEDULING_GROUPS
from berth_host.queue.events import QueueEvent, assigned_pod_deleted, label_of, reservation_freed
from berth_host.queue.scheduling_queue import SchedulingQueue

log = get_logger()

REFUSED: Final = "FailedParsing"
"""The reason of the Kubernetes event about an object that cannot be read."""
MAX_PROBLEM: Final = 600
"""The most characters of an error about an object, in the log and in its event."""
_FINISHED: Final = frozenset({"Succeeded", "Failed"})
_GROUPS: Final = (POD_GROUP, COMPOSITE_POD_GROUP)
_KIND_OF_KEY: Final = {COSCHEDULING_GROUPS: COSCHEDULING}
"""The kind in a group's key, where it is not that of the watch event."""


class Attempts(Protocol):
    """The running attempts, as the handlers need them when a pod is deleted."""

    def reject_waiting(self, uid: str) -> bool:
        """Reject a pod that waits at Permit; return False if the pod does not wait."""
        ...

    def abort(self, uid: str) -> None:
        """Cancel the call that a deleted pod's attempt waits for; do nothing if the pod has no attempt."""
        ...


class BindingsOfOthers(Protocol):
    """Notes the pods of the queue that other clients bind (`cluster.rivals.Rivals`)."""

    @property
    def count(self) -> int:
        """The number of these pods."""
        ...

    def bound(self, pod: Pod) -> None:
        """Note one."""
        ...


class Arrivals(Protocol):
    """The ends of cycles that wait for events (`cycle.bound_ends.BoundEnds`)."""

    @property
    def awaited(self) -> Mapping[tuple[str, str], object]:
        """The objects of which an event is awaited; read for every event, so always the same mapping."""
        ...

    def arrived(self, kind: str, ref: ObjectRef) -> None:
        """Take note that the cache has applied an event of an object."""
        ...


class GroupHolds(Protocol):
    """The holds of room for groups (`groups.gang_holds.GangHolds`)."""

    def group_changed(self, key: str) -> None:
        """Apply the change or the deletion of a group object."""
        ...

    def member_left(self, pod: Pod) -> None:
        """Apply the deletion of a pending pod, or its binding by another scheduler."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """The parts that receive the changes.

    `report` writes a Kubernetes event about an object that cannot be read. `refused_pod` writes the condition
    of a pending pod that cannot be read. `rules`: those of the version of kube-scheduler that is followed.
    `coscheduling`: writes the statuses of coscheduling's PodGroups, while the host schedules these groups
    (`EventHandlers.schedule_coscheduling`); None: nothing writes them. `holds`: None where no group holds
    room. `rivals`: None where nobody looks for a second scheduler. `ends`: None where nothing waits for an
    event.
    """

    stores: ObjectStores
    cache: Cache
    queue: SchedulingQueue
    attempts: Attempts
    report: Callable[[EventRecord], None] = field(default=lambda _: None)
    refused_pod: Callable[[Pod, str], None] = field(default=lambda _pod, _message: None)
    rules: HostRules = RULES_1_37
    coscheduling: PodGroupStatuses | None = None
    holds: GroupHolds | None = None
    rivals: BindingsOfOthers | None = None
    ends: Arrivals | None = None


class EventHandlers:
    """The handlers of one host's watch events.

    `scheduler_names`: the schedulers whose pending pods this host queues; pods of other schedulers count
    only when they are on a node. `groups`: True if the host schedules pod groups; else members are plain
    pods. `reads`: the fields of a pod's spec that plugins tell pods apart by. `refused`: the number of
    unreadable objects, by kind.
    """

    def __init__(
        self,
        targets: Handled,
        scheduler_names: Collection[str],
        *,
        groups: bool = False,
        reads: SpecReads = ALL_OF_SPEC,
    ) -> None:
        self._stores = targets.stores
        self._cache = targets.cache
        self._queue = targets.queue
        self._attempts = targets.attempts
        self._report = targets.report
        self._rules = targets.rules
        self._scheduler_names = frozenset(scheduler_names)
        self._reporter = next(iter(scheduler_names), "")
        self._groups = groups
        self._reads = reads
        self._statuses = targets.coscheduling
        self._holds = targets.holds
        self._rivals = targets.rivals
        self._ends = targets.ends
        self._awaited: Mapping[tuple[str, str], object] = {} if self._ends is None else self._ends.awaited
        self._has_coscheduling = False
        self._group_kinds = frozenset(_GROUPS if groups else ())
        self._refused_pod = targets.refused_pod
        self._said: dict[tuple[str, str, str], str] = {}
        """The problems of the objects that cannot be read now, which were said."""
        self._leads = False
        self._unwritten: dict[tuple[str, str, str], Callable[[], None]] = {}
        """The reports about objects that cannot be read; written when this host leads."""
        self.refused: Counter[str] = Counter()

    def begin(self) -> None:
        """Write about objects that cannot be read, from now on: this host leads. A standby writes nothing."""
        self._leads = True
        for write in self._unwritten.values():
            write()
        self._unwritten.clear()

    def schedule_coscheduling(self) -> None:
        """Schedule coscheduling's PodGroups from now on: the host has a plugin that judges them.

        A served plugin may come when groups and pods are stored already. They are read again, this time as
        groups and members.
        """
        if self._has_coscheduling:
            return
        self._has_coscheduling = True
        self._group_kinds |= {COSCHEDULING_GROUPS}
        for item in self._stores.of_resource(COSCHEDULING_GROUPS).changed_since(0):
            self._apply(WatchEvent(COSCHEDULING_GROUPS, None, item.object), again=True)
        for old in list(self._stores.pods()):
            if old.object is None or COSCHEDULING_LABEL not in old.labels:
                continue
            new = self._read_pod(old.object)
            if new.group_key != old.group_key:
                self._stores.put_pod(new)
                self._pod_updated(old, new)
            if self._statuses is not None:
                self._statuses.handle(WatchEvent("Pod", None, old.object))

    @property
    def bound_by_others_count(self) -> int:
        """The number of pods of the queue that other clients have bound while this host led."""
        return 0 if self._rivals is None else self._rivals.count

    def handle(self, event: WatchEvent) -> None:
        """Apply one change; skip an object whose resource version is already stored.

        kube-scheduler requeues pods for an update to the same version (as `take_over` does); here a relist
        must not requeue pods. An object that cannot be read is counted, reported once in the log and
        in a Kubernetes event, and skipped: its last readable version stays stored. What can be read of a pod
        counts on its node.

        Raises InvariantError when a bound pod changed its node: the watch, or the cache, is broken.
        """
        self._apply(event)
        if self._awaited and self._ends is not None and (ref := _ref_of(event.new or event.old)).name:
            self._ends.arrived(event.kind, ref)

    def _apply(self, event: WatchEvent, *, again: bool = False) -> None:
        """Apply one change. `again`: also where this version of the object is stored already."""
        try:
            if again or not self._is_known(event):
                self.take_over(event)
                if self._said:
                    self._recovered(event)
        except InvariantError:
            raise
        except Exception as err:  # noqa: BLE001
            # Any client may have written the object, so an error in reading it concerns this object only.
            # The following changes must still be handled.
            self._refuse(event, err)

    def take_over(self, event: WatchEvent) -> None:
        """Apply one change of any version. Raises the errors of reading the object."""
        if event.kind == "Pod":
            self._handle_pod(event)
        elif event.kind == "Node":
            self._handle_node(event)
        elif event.kind in self._group_kinds:
            self._handle_group(event)
        else:
            self._handle_other(event)
        if self._has_coscheduling and self._statuses is not None:
            self._statuses.handle(event)

    def _is_known(self, event: WatchEvent) -> bool:
        """Return True if this version of the object is stored; False for an object without a version."""
        if event.new is None or not (ref := event.new.ref).resource_version:
            return False
        known: Pod | Node | None
        if event.kind == "Pod":
            known = self._stores.pod(_pod_key(event.new))
        elif event.kind == "Node":
            known = self._stores.node(ref.name)
        else:
            other = self._stores.get(event.kind, ref.name, ref.namespace)
            return other is not None and _same_version(other.ref, ref)
        return known is not None and known.resource_version == ref.resource_version and known.uid == ref.uid

    def _refuse(self, event: WatchEvent, err: Exception) -> None:
        problem = _problem_of(err)
        item = event.new or event.old
        ref = _ref_of(item)
        part = None
        if event.kind == "Pod" and event.new is not None:
            part = self._take_readable_part(event.new)
        if event.new is None:
            self._stores.remove_unreadable(event.kind, ref)
        elif ref.name:
            self._stores.put_unreadable(event.kind, ref)
        what = (event.kind, ref.key, ref.uid)
        if self._said.get(what) == problem and ref.name:
            return
        self._said[what] = problem
        self.refused[event.kind] += 1
        log.error(
            "watch.object_refused",
            kind=event.kind,
            object=ref.key,
            error=problem,
            size_bytes=_size_bytes(item),
        )
        if not ref.name:
            return
        write = partial(self._write_refusal, event.kind, ref, part, problem)
        if self._leads:
            write()
        else:
            self._unwritten[what] = write

    def _write_refusal(self, kind: str, ref: ObjectRef, part: Pod | None, problem: str) -> None:
        note = f"this {kind} cannot be read and is skipped: {problem}"
        if part is not None:
            note = f"this Pod cannot be read: {problem}"
            if part.node_name:
                note += "; what can be read of its requests counts on its node"
            elif self._is_ours(part):
                self._refused_pod(part, f"{note}; correct the field, or delete the pod")
        self._report(
            EventRecord(
                regarding=ref,
                regarding_kind=kind,
                type="Warning",
                reason=REFUSED,
                action="Reading",
                note=note,
                reporter=self._reporter,
            )
        )

    def _recovered(self, event: WatchEvent) -> None:
        """Forget that an object could not be read: it was read, or it is gone."""
        ref = _ref_of(event.new or event.old)
        what = (event.kind, ref.key, ref.uid)
        self._said.pop(what, None)
        self._unwritten.pop(what, None)
        self._stores.remove_unreadable(event.kind, ref)

    def _take_readable_part(self, item: KubeObject) -> Pod | None:
        """Apply what can be read of a pod: its end, and its place on a node. Its last known state counts
        where it has one.
        """
        try:
            found = readable_part(item)
            part = None if found is None else self._read_pod(found)
        except Exception:  # noqa: BLE001  # not even a map
            return None
        if part is None:
            return None
        old = self._stores.pod(part.key)
        if old is not None and (old.uid != part.uid or _is_finished(part)):
            self._pod_deleted(old)
            old = None
        if part.node_name and not _is_finished(part):
            if old is None:
                self._stores.put_pod(part)
                self._assigned(part)
            elif not old.node_name:
                bound = old.on_node(part.node_name)
                self._stores.put_pod(bound)
                self._pod_updated(old, bound)
        return part

    # --- pods --------------------------------------------------------------------------------

    def _read_pod(self, item: KubeObject) -> Pod:
        return Pod.from_object(
            item,
            groups=self._groups,
            coscheduling=self._has_coscheduling,
            resizes_by_container=not self._rules.counts_totals_of_resizes,
            scores_pod_level=self._rules.scores_pod_level,
            reads=self._reads,
        )

    def _handle_pod(self, event: WatchEvent) -> None:
        new = None if event.new is None else self._read_pod(event.new)
        if new is None or _is_finished(new):
            # A pod that was deleted, or whose containers have ended, uses no resources of a node.
            seen = event.new or event.old
            old = None if seen is None else self._stores.pod(_pod_key(seen))
            if seen is not None and old is not None and _is_same(seen, old.uid):
                self._pod_deleted(old)
            return
        old = self._stores.pod(new.key)
        if old is not None and (old.uid != new.uid or (old.node_name and not new.node_name)):
            # The pod was deleted and created again between two watch events.
            self._pod_deleted(old)
            old = None
        self._stores.put_pod(new)
        if old is None:
            self._pod_added(new)
        else:
            self._pod_updated(old, new)

    def _pod_added(self, pod: Pod) -> None:
        if pod.node_name:
            self._assigned(pod)
        elif self._is_ours(pod):
            # The gates count the members of the group, this one among them.
            self._cache.groups.put_unscheduled(pod)
            self._queue.add(pod)
            if self._groups:
                self._queue.move_all(QueueEvent(self._rules.unscheduled_pod, ActionType.ADD, new=pod))

    def _pod_updated(self, old: Pod, new: Pod) -> None:
        if old.node_name:
            with _logging_refusal(new.key):
                self._cache.update_pod(old, new)
            for event in pod_changes(old, new, self._rules):
                self._queue.move_all(event)
        elif new.node_name:
            if self._rivals is not None and self._is_ours(old) and not self._cache.is_assumed(new.uid):
                self._rivals.bound(new)
            self._assigned(new)
            if self._is_ours(old):
                self._queue.delete(old)
                self._member_left(old)
        elif self._is_ours(new):
            self._pending_updated(old, new)

    def _assigned(self, pod: Pod) -> None:
        """Add a pod that is on a node, bound by this scheduler or by another one."""
        try:
            reserved_on = self._cache.add_pod(pod)
        except CacheError as err:
            _log_refusal(pod.key, err)
        else:
            if reserved_on is not None:
                log.warning("pod.bound_elsewhere", pod=pod.key, node=pod.node_name, reserved_on=reserved_on)
        self._queue.move_all(QueueEvent(ASSIGNED_POD, ActionType.ADD, new=pod))

    def _pending_updated(self, old: Pod, new: Pod) -> None:
        if old.group_key != new.group_key:
            # The label of coscheduling was changed, or has a meaning only now.
            self._cache.groups.remove_unscheduled(old)
            if not self._cache.is_assumed(new.uid) and new.uid not in self._queue.in_flight:
                self._queue.delete(old)
                self._pod_added(new)
                return
        elif old.resource_version == new.resource_version:
            # The same object again. Treating it as new would schedule a pod in its binding cycle twice
            # (kubernetes#96071).
            return
        self._cache.groups.put_unscheduled(new)
        if self._cache.is_assumed(new.uid):
            if new.terminating and not old.terminating:
                self._assumed_pod_leaves(new)
            return
        self._queue.update(old, new, pod_changes(old, new, self._rules))
        if new.terminating and not old.terminating:
            self._member_left(new)
        if nomination_changed(old, new):
            self._nomination_freed(old)

    def _pod_deleted(self, pod: Pod) -> None:
        self._stores.remove_pod(pod)
        if pod.node_name:
            with _logging_refusal(pod.key):
                self._cache.remove_pod(pod)
            self._queue.move_all(assigned_pod_deleted(pod))
            return
        if not self._is_ours(pod):
            return
        # The gates of the pods that stay in the queue still count this member, as in kube-scheduler.
        self._queue.delete(pod)
        self._cache.groups.remove_unscheduled(pod)
        self._member_left(pod)
        if self._cache.is_assumed(pod.uid):
            self._assumed_pod_leaves(pod)
        elif pod.nominated_node:
            self._nomination_freed(pod)
        self._attempts.abort(pod.uid)

    def _member_left(self, pod: Pod) -> None:
        if pod.group_key and self._holds is not None:
            self._holds.member_left(pod)

    def _assumed_pod_leaves(self, pod: Pod) -> None:
        """Release the reserved resources of an assumed pod that was deleted."""
        assumed = self._cache.get_pod(pod.uid) or pod
        if not self._attempts.reject_waiting(pod.uid):
            with _logging_refusal(pod.key):
                self._cache.forget(assumed)
        self._queue.move_all(reservation_freed(assumed))

    def _nomination_freed(self, pod: Pod) -> None:
        """Requeue the pods that the nomination may have kept away: those of equal or lower priority."""
        self._queue.move_all(assigned_pod_deleted(pod), lambda other: other.priority <= pod.priority)

    def _is_ours(self, pod: Pod) -> bool:
        return pod.scheduler_name in self._scheduler_names

    # --- nodes and all other kinds -------------------------------------------------------------

    def _handle_node(self, event: WatchEvent) -> None:
        if event.new is None:
            old = None if event.old is None else self._stores.node(event.old.ref.name)
            if event.old is not None and old is not None and _is_same(event.old, old.uid):
                self._node_deleted(old)
            return
        node = Node.from_object(event.new)
        old = self._stores.node(node.name)
        if old is not None and old.uid != node.uid:
            self._node_deleted(old)
            old = None
        self._stores.put_node(node)
        if old is None:
            self._cache.add_node(node)
            self._queue.move_all(QueueEvent("Node", ActionType.ADD, new=node))
            return
        self._cache.update_node(node)
        for change in node_changes(old, node):
            self._queue.move_all(change)

    def _node_deleted(self, node: Node) -> None:
        self._stores.remove_node(node.name)
        # The queue gets the event before the cache drops the node: hints read the node as it was.
        self._queue.move_all(QueueEvent("Node", ActionType.DELETE, old=node))
        with _logging_refusal(node.name):
            self._cache.remove_node(node.name)

    def _handle_group(self, event: WatchEvent) -> None:
        groups = self._cache.groups
        if event.new is None:
            if event.old is not None:
                key = PodGroup.key_of(_KIND_OF_KEY.get(event.kind, event.kind), event.old.ref)
                old = groups.object(key)
                if old is not None and _is_same(event.old, old.uid):
                    self._group_deleted(event.kind, old)
            return
        new = PodGroup.of(event.new)
        old = groups.object(new.key)
        if old is not None and old.uid != new.uid:
            self._group_deleted(event.kind, old)
        self._stores.put(event.kind, event.new)
        old, new = groups.put_object(new)
        if old is None:
            self._queue.add_group(new)
        else:
            self._queue.update_group(old, new)
            self._group_changed(new)

    def _group_deleted(self, kind: str, group: PodGroup) -> None:
        self._stores.remove(kind, group.ref)
        self._queue.delete_group(group)
        self._cache.groups.remove_object(group.key)
        self._group_changed(group)

    def _group_changed(self, group: PodGroup) -> None:
        if self._holds is not None:
            self._holds.group_changed(group.key)

    def _handle_other(self, event: WatchEvent) -> None:
        old: KubeObject | None
        if event.new is not None:
            old = self._stores.put(event.kind, event.new)
            action = ActionType.ADD if old is None else ActionType.UPDATE
            change = QueueEvent(event_resource(event.kind, event.new), action, old, event.new)
        elif event.old is not None:
            old = self._stores.remove(event.kind, event.old.ref)
            if old is None:
                return
            change = QueueEvent(event_resource(event.kind, old), ActionType.DELETE, old)
        else:
            return
        if self._queue.wants(change):
            self._queue.move_all(change)


@contextmanager
def _logging_refusal(name: str) -> Iterator[None]:
    """Log a CacheError of the block: the change was a duplicate or came late.

    The queue still gets the event.
    """
    try:
        yield
    except CacheError as err:
        _log_refusal(name, err)


def _log_refusal(name: str, err: CacheError) -> None:
    log.error("cache.event_refused", object=name, error=str(err))


def _same_version(known: ObjectRef, seen: ObjectRef) -> bool:
    return known.resource_version == seen.resource_version and known.uid == seen.uid


def _ref_of(item: KubeObject | None) -> ObjectRef:
    return ObjectRef(name="") if item is None else readable_ref(item)


def _size_bytes(item: KubeObject | None) -> int:
    """Return the size of an object's JSON; 0 where it has none."""
    try:
        return 0 if item is None else len(json_bytes(item.parsed))
    except (TypeError, ValueError):
        return 0


def _problem_of(err: Exception) -> str:
    """Return the error's text, cut: it may quote what any user wrote."""
    text = str(err) if isinstance(err, BerthError) else f"{type(err).__name__}: {err}"
    return text if len(text) <= MAX_PROBLEM else f"{text[:MAX_PROBLEM]}... ({len(text)} characters)"


def _is_finished(pod: Pod) -> bool:
    return pod.object is not None and (pod.object.parsed.get("status") or {}).get("phase") in _FINISHED


def _is_same(item: KubeObject, uid: str) -> bool:
    """Return True if a deletion is about the stored object, not about an older one of the same name."""
    return item.ref.uid in ("", uid)


def _pod_key(item: KubeObject) -> str:
    ref = item.ref
    return f"{ref.namespace or 'default'}/{ref.name}"


class HandlerMetrics:
    """Measures the time that `handle` takes for a watch event, per label of the queue's events that follow.

    `labels`: a list to which the queue appends the label of each event.
    """

    def __init__(
        self,
        metrics: SchedulerMetrics,
        labels: list[str],
        handle: Callable[[WatchEvent], None],
        rules: HostRules = RULES_1_37,
    ) -> None:
        self._durations: SeriesBy[str] = metrics.event_durations.by(lambda label: (label,))
        self._labels = labels
        self._handle = handle
        self._pod_delete = label_of(rules.unscheduled_pod, ActionType.DELETE)

    def handle(self, event: WatchEvent) -> None:
        """Handle the event. An event for which no plugin is registered, and an update that changes nothing
        that scheduling reads, are not counted.
        """
        labels = self._labels
        # Reports of the queue between two watch events belong to neither of the two.
        labels.clear()
        started_s = instant_s()
        self._handle(event)
        seconds = instant_s() - started_s
        if not labels and event.kind == "Pod" and event.new is None:
            labels.append(self._pod_delete)  # the queue removes the pod without a report
        for label in labels:
            self._durations[label].observe(seconds)
