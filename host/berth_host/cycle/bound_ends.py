"""`BoundEnds`: holds PostBind, and the end of a bound pod's cycle, until no cycle can miss the pod any more.

    bound -> lacking (the cache lacks what the host wrote) -> taken (an older snapshot is held) -> told
    bound, and nothing is lacking or held -> told

PostBind and an end that says BOUND end what a plugin holds for the pod. From then on the plugin counts the
pod itself, as its snapshot shows it. A plugin that is told too early counts neither, and gives the same thing
away twice. So a held end is told when both of these are true:

- The cache has the pod's event that came after the Binding, and each object that the cycle patched at the
  version of the patch or a later one. An object that is finished or gone needs no event. A version that the
  watch has shown and that cannot be read counts: nothing more comes of it.
- No cycle holds a snapshot that was taken before. A cycle holds its snapshot until its Permit has returned.

No time limit tells an end early. What lacks its event for READ_BACK_S is read from the cluster, where it may
be gone. The binding cycle ends at the Binding; metrics, Events and the drain of a host wait for no held end.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol, TypeAlias

from berth_sdk.errors import BerthError
from berth_sdk.kube_object import KubeObject, ObjectRef

from berth_host.cache.objects import ObjectStores
from berth_host.cache.snapshot import Snapshot
from berth_host.cluster.port import ClusterCalls
from berth_host.cycle.attempt import Attempt
from berth_host.cycle.wait_for_tasks import all_ended
from berth_host.errors.cluster import ClusterError
from berth_host.errors.state import InvariantError
from berth_host.framework.framework import Framework
from berth_host.log import get_logger
from berth_host.model.clock import Clock, Timer
from berth_host.model.internal_error import InternalError
from berth_host.model.readable_ref import readable_ref
from berth_host.model.resources import kind_of

log = get_logger()
MOST_HELD: Final = 10_000
"""The number of ends that are held; the oldest are dropped first."""
READ_BACK_S: Final = 10.0
"""Seconds without an event after which an object is read back, and between two reads of the same object."""
READ_AT_ONCE: Final = 8
"""The number of concurrent reads."""
MOST_READ: Final = 100
"""The most pods that are read back in READ_BACK_S seconds."""
INSTANCE_S: Final = 1.0
"""Seconds between two looks for an instance that an end can be told."""
ABSENT_S: Final = 60.0
"""Seconds after which an end of a host before is told without the plugins that have no instance yet."""
LIST_S: Final = 10.0
"""The least seconds between two lists of live reservations that one plugin gets for its ends."""
FINISHED: Final = frozenset({"Succeeded", "Failed"})
Key: TypeAlias = tuple[str, str]
"""The kind of an object as the watch names it, and its `namespace/name`."""
Awaited: TypeAlias = tuple[str, ObjectRef]
"""The resource of an object, and the object; with the version that the host's write returned, if known."""


class Telling(Protocol):
    """The last step of an attempt whose pod was bound (`schedule_one.BindingCycle`)."""

    async def report_bound(self, attempt: Attempt) -> None:
        """Run PostBind and end the cycle at the plugins."""
        ...

    def leave_bound(self, attempt: Attempt) -> None:
        """End the attempt without a word to the plugins: a list of live reservations tells them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSeams:
    """The host's parts that `BoundEnds` uses.

    `watched`: returns the resources that the host watches. `list_again`: sends the list of its live
    reservations to a plugin, given its name.
    """

    stores: ObjectStores
    snapshot: Snapshot
    cluster: ClusterCalls
    clock: Clock
    internal_error: InternalError
    watched: Callable[[], Collection[str]]
    list_again: Callable[[str], None]


@dataclass(slots=True, eq=False)
class _Held:
    """A held end. `lacks`: what the cache has yet to show, by key. `since_s`, `read_s`: when it was held, and
    read back last (monotonic seconds).
    """

    attempt: Attempt
    plugins: tuple[str, ...]
    telling: Telling
    lacks: dict[Key, Awaited]
    since_s: float
    read_s: float
    is_moved: bool = False
    """Another host held the end before: no instance of this host has a call of its cycle yet."""
    absent_since_s: float | None = None
    """When the end could be told first, but for a plugin without an instance (monotonic seconds)."""


class BoundEnds:
    """The held ends of one host. `dropped`: by plugin, the number of ends that were dropped.

    `awaited`: the held ends that lack an object, by its key. The handlers of watch events call `arrived` for
    these objects alone, so a host that holds nothing has no work.
    """

    def __init__(self, seams: EndSeams) -> None:
        self._stores = seams.stores
        self._snapshot = seams.snapshot
        self._cluster = seams.cluster
        self._clock = seams.clock
        self._internal_error = seams.internal_error
        self._watched = seams.watched
        self._list_again = seams.list_again
        self.awaited: dict[Key, list[_Held]] = {}
        self.dropped: Counter[str] = Counter()
        self._held: dict[str, _Held] = {}
        """By cycle, the oldest first."""
        self._taken: list[_Held] = []
        """Those that wait for the release of the snapshot."""
        self._told: dict[str, _Held] = {}
        """Those that are being told, by cycle."""
        self._tasks: set[asyncio.Future[None]] = set()
        self._stopped = False
        self._timer: Timer | None = None
        self._is_behind = False
        self._unlisted: set[str] = set()
        """The plugins that are due another list, as for ends that were dropped."""
        self._listed_s = -LIST_S
        self._list_timer: Timer | None = None

    # --- what is held ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of ends that are held or being told."""
        return len(self._held) + len(self._told)

    def attempts(self, plugin: str) -> list[Attempt]:
        """Return the attempts whose end the plugin has yet to be told."""
        return [held.attempt for held in self._all() if plugin in held.plugins]

    def oldest_s(self) -> dict[str, float]:
        """Return by plugin the age of the oldest held end, in seconds; nothing for a plugin without one."""
        now_s = self._clock.monotonic_s()
        ages_s: dict[str, float] = {}
        for held in self._all():
            for plugin in held.plugins:
                ages_s[plugin] = max(ages_s.get(plugin, 0.0), now_s - held.since_s)
        return ages_s

    def _all(self) -> Iterable[_Held]:
        yield from self._told.values()
        yield from self._held.values()

    # --- holding ---------------------------------------------------------------------------------------

    def holds(self, attempt: Attempt, plugins: tuple[str, ...], telling: Telling) -> bool:
        """Hold the end of an attempt whose pod was just bound. Return False if it can be told now.

        `plugins`: those to tell that may hold something for the pod.
        """
        lacks = self._lacking(attempt)
        if not lacks and not self._is_hidden(attempt):
            return False
        now_s = self._clock.monotonic_s()
        held = _Held(attempt, plugins, telling, lacks, now_s, now_s)
        attempt.forget_search()
        self._held[attempt.cycle_id] = held
        for key in lacks:
            self.awaited.setdefault(key, []).append(held)
        if lacks:
            self._await_events(held)
        else:
            self._await_release(held)
        if len(self._held) > MOST_HELD:
            self._drop(next(iter(self._held.values())))
        return True

    def take_over(self, ended: BoundEnds, frameworks: Mapping[str, Framework], telling: Telling) -> None:
        """Hold what a host held that was stopped, after this host has its objects.

        An end that can be told is left out, as the list of live reservations, which the plugins get next,
        does not have it. `frameworks`: of this host, by schedulerName.
        """
        for held in ended._all():
            attempt = held.attempt
            framework = frameworks.get(attempt.profile)
            if framework is None:
                continue
            attempt.change_host(framework)
            plugins = framework.those_told(held.plugins)
            if plugins and self.holds(attempt, plugins, telling):
                self._held[attempt.cycle_id].is_moved = True

    def _lacking(self, attempt: Attempt) -> dict[Key, Awaited]:
        """Return what the host wrote for the pod and the cache has not shown yet."""
        pod = attempt.pod
        key = ("Pod", pod.key)
        lacks: dict[Key, Awaited] = {} if self._has_pod(pod.ref) else {key: ("pods", pod.ref)}
        if attempt.written:
            watched = self._watched()
            for resource, ref in attempt.written:
                if resource in watched and not self._has(resource, ref):
                    # The last write of an object counts.
                    lacks[_key(resource, ref)] = resource, ref
        return lacks

    def _has(self, resource: str, ref: ObjectRef) -> bool:
        """Return True if the cache has the write of an object, or knows that the object is gone."""
        if resource == "pods":
            return self._has_pod(ref)
        known = self._known(resource, ref)
        # An object that the cache lacks is gone, or it was just created.
        return any(
            one is not None and (one.uid != ref.uid or _is_since(one, ref))
            for one in (known, self._unreadable(resource, ref))
        )

    def _unreadable(self, resource: str, ref: ObjectRef) -> ObjectRef | None:
        """Return the newest version of an object that the watch has shown, if it cannot be read."""
        return self._stores.unreadable(_kind(resource), ref)

    def _has_pod(self, ref: ObjectRef) -> bool:
        """Return True if the cache has the pod on a node, or does not have it any more.

        Only an event after the Binding names a node. The host had the pod, as it has scheduled it: a pod that
        is not stored is finished or gone.
        """
        known = self._stores.pod(f"{ref.namespace}/{ref.name}")
        return known is None or known.uid != ref.uid or bool(known.node_name)

    def _known(self, resource: str, ref: ObjectRef) -> ObjectRef | None:
        if resource == "nodes":
            node = self._stores.node(ref.name)
            return None if node is None or node.object is None else node.object.ref
        known = self._stores.get(kind_of(resource), ref.name, ref.namespace)
        return None if known is None else known.ref

    def _is_hidden(self, attempt: Attempt) -> bool:
        """Return True if a cycle may read a snapshot without what the cache has of the pod."""
        snapshot = self._snapshot
        if not snapshot.held:
            return False
        uid = attempt.pod.uid
        # Which version of a patched object a held snapshot has is not asked: its release is soon.
        return bool(attempt.written) or snapshot.pods.position(uid) is None or snapshot.pods.is_assumed(uid)

    # --- what the cache takes --------------------------------------------------------------------------

    def arrived(self, kind: str, ref: ObjectRef) -> None:
        """Take note that the cache has applied an event of an object.

        `ref`: the object; its version does not count, as an event may be about an older one.
        """
        key = (kind, _named(kind, ref))
        for held in tuple(self.awaited.get(key, ())):
            resource, awaited = held.lacks[key]
            known = None if resource == "pods" else self._known(resource, awaited)
            # An event of an object that is not stored afterwards was its deletion.
            if self._has(resource, awaited) or (resource != "pods" and known is None):
                self._has_come(held, key)

    def _has_come(self, held: _Held, key: Key) -> None:
        if held.lacks.pop(key, None) is None:
            return
        self._forget_key(held, key)
        if held.lacks:
            return
        # A held snapshot was taken before this event.
        if self._snapshot.held:
            self._await_release(held)
        else:
            self._tell(held)

    def _forget_key(self, held: _Held, key: Key) -> None:
        others = self.awaited.get(key, [])
        if held in others:
            others.remove(held)
        if not others:
            self.awaited.pop(key, None)
        if not self.awaited and self._timer is not None:
            self._timer.cancel()
            self._timer, self._is_behind = None, False

    def _await_release(self, held: _Held) -> None:
        self._taken.append(held)
        if len(self._taken) == 1:
            self._snapshot.when_released(self._released)

    def _released(self) -> None:
        taken, self._taken = self._taken, []
        for held in taken:
            self._tell(held)

    # --- telling ---------------------------------------------------------------------------------------

    def _tell(self, held: _Held) -> None:
        if self._stopped or held.attempt.cycle_id not in self._held:
            return
        if held.is_moved and not held.attempt.framework.can_tell(held.plugins):
            # The list that the next instance gets has the reservation, so its end must reach that instance.
            now_s = self._clock.monotonic_s()
            if held.absent_since_s is None:
                held.absent_since_s = now_s
            if now_s - held.absent_since_s < ABSENT_S:
                self._clock.call_at(now_s + INSTANCE_S, lambda: self._tell(held))
                return
            # A plugin that may never come keeps no end from the others. From now on no list has the
            # reservation; an instance that gets a list at this moment gets another one.
            self._list_anew(held.plugins, now_s + LIST_S)
        cycle_id = held.attempt.cycle_id
        # Until its task has ended, the list of live reservations has it.
        del self._held[cycle_id]
        self._told[cycle_id] = held
        task = asyncio.get_running_loop().create_task(held.telling.report_bound(held.attempt))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._was_told(held, done))

    def _was_told(self, held: _Held, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        self._told.pop(held.attempt.cycle_id, None)
        if not task.cancelled() and (err := task.exception()) is not None:
            log.error("task.failed", pod=held.attempt.pod.key, exc_info=err)
            if isinstance(err, InvariantError):
                self._internal_error.fail(err)

    async def stop(self, timeout_s: float) -> None:
        """Tell no further end; wait `timeout_s` (seconds of real time) for those that are being told.

        The next host holds what this one held (`take_over`), or its list of live reservations tells the
        plugins.
        """
        self._stopped = True
        for timer in (self._timer, self._list_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._list_timer = None
        for held in self._held.values():
            held.telling.leave_bound(held.attempt)
        if not await all_ended(self._tasks, timeout_s):
            for task in self._tasks:
                task.cancel()
            await all_ended(self._tasks, timeout_s)

    # --- too many --------------------------------------------------------------------------------------

    def _drop(self, held: _Held) -> None:
        """Drop a held end. The plugins release the reservation when a new list does not have it."""
        del self._held[held.attempt.cycle_id]
        for key in held.lacks:
            self._forget_key(held, key)
        if self._unlisted.isdisjoint(held.plugins):
            log.warning("bound_ends.dropped", plugins=held.plugins, pod=held.attempt.pod.key, held=MOST_HELD)
        self.dropped.update(held.plugins)
        held.telling.leave_bound(held.attempt)
        self._list_anew(held.plugins, max(self._listed_s + LIST_S, self._clock.monotonic_s()))

    def _list_anew(self, plugins: Collection[str], due_s: float) -> None:
        """Send the plugins another list of live reservations. `due_s`: when, unless one is due already
        (monotonic seconds).
        """
        self._unlisted.update(plugins)
        if self._list_timer is None and not self._stopped:
            self._list_timer = self._clock.call_at(due_s, self._list)

    def _list(self) -> None:
        self._list_timer = None
        self._listed_s = self._clock.monotonic_s()
        plugins, self._unlisted = sorted(self._unlisted), set()
        for plugin in plugins:
            self._list_again(plugin)

    # --- a watch that is behind ------------------------------------------------------------------------

    def _await_events(self, held: _Held) -> None:
        """Read the objects back after READ_BACK_S; one that the cache never had, at once."""
        if any(
            resource != "pods" and self._known(resource, ref) is None for resource, ref in held.lacks.values()
        ):
            self._read_soon([held])
        if self._timer is None:
            self._timer = self._clock.call_at(held.since_s + READ_BACK_S, self._look)

    def _look(self) -> None:
        """Read back what has lacked its event for READ_BACK_S, those first that were not read for longest."""
        self._timer = None
        now_s = self._clock.monotonic_s()
        lacking = [held for held in self._held.values() if held.lacks]
        # The same sum as in `due_s`: a difference may be rounded to less than READ_BACK_S, without end.
        late = [held for held in lacking if now_s >= READ_BACK_S + held.read_s]
        if lacking and now_s >= READ_BACK_S + lacking[0].since_s:
            if not self._is_behind:
                self._is_behind = True
                oldest_s = round(now_s - lacking[0].since_s)
                log.warning("bound_ends.behind", pods=len(lacking), oldest_s=oldest_s)
        else:
            self._is_behind = False
        if late:
            self._read_soon(sorted(late, key=lambda held: held.read_s)[:MOST_READ])
        if lacking:
            # In one round at most MOST_READ are read, so the next round is a whole READ_BACK_S later.
            due_s = READ_BACK_S + (now_s if late else min(held.read_s for held in lacking))
            self._timer = self._clock.call_at(due_s, self._look)

    def _read_soon(self, late: Sequence[_Held]) -> None:
        now_s = self._clock.monotonic_s()
        for held in late:
            held.read_s = now_s
        task = asyncio.get_running_loop().create_task(self._read_back(late))
        self._tasks.add(task)
        task.add_done_callback(self._was_read)

    def _was_read(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (err := task.exception()) is not None:
            self._internal_error.fail(err)

    async def _read_back(self, late: Sequence[_Held]) -> None:
        lacking = ((held, key) for held in late for key in list(held.lacks))
        while run := list(islice(lacking, READ_AT_ONCE)):
            await asyncio.gather(*(self._read_one(held, key) for held, key in run))

    async def _read_one(self, held: _Held, key: Key) -> None:
        """Read an object; it needs no event if it is finished or gone, or if the cache has this version."""
        awaited = held.lacks.get(key)
        if awaited is None or self._stopped:
            return
        resource, ref = awaited
        wanted = ObjectRef(name=ref.name, namespace=ref.namespace, uid=ref.uid)
        try:
            now = await self._cluster.get(resource, wanted)
        except ClusterError as err:
            # Without an answer nothing is known of the object.
            log.debug("bound_ends.not_read", resource=resource, object=ref.key, error=str(err))
            return
        if self._stopped or held.attempt.cycle_id not in self._held:
            return
        if resource == "pods" and (now is None or _is_finished(now)):
            held.attempt.was_gone = True
            self._has_come(held, key)
        elif now is None or self._shows(resource, ref, now):
            self._has_come(held, key)

    def _shows(self, resource: str, ref: ObjectRef, now: KubeObject) -> bool:
        """Return True if the watch has shown an object as it is `now`, so that no event of it is to come.

        The cache has a pod without its node for as long as the event after the Binding is to come, so its
        stored version says nothing.
        """
        found = readable_ref(now)
        known = None if resource == "pods" else self._known(resource, ref)
        unreadable = self._unreadable(resource, ref)
        return known == found or (unreadable is not None and _is_since(unreadable, found))


def _is_finished(pod: KubeObject) -> bool:
    """Return True if a pod has ended. A pod that cannot be read has not."""
    try:
        phase = pod.get("status.phase")
    except BerthError:
        return False
    return isinstance(phase, str) and phase in FINISHED


def _kind(resource: str) -> str:
    return {"pods": "Pod", "nodes": "Node"}.get(resource) or kind_of(resource)


def _key(resource: str, ref: ObjectRef) -> Key:
    kind = _kind(resource)
    return kind, _named(kind, ref)


def _named(kind: str, ref: ObjectRef) -> str:
    return f"{ref.namespace or 'default'}/{ref.name}" if kind == "Pod" else ref.key


def _is_since(known: ObjectRef, written: ObjectRef) -> bool:
    """Return True if a version of an object is that of a write, or a later one.

    Source: KEP-5504, versions of one resource are numbers that grow.
    """
    seen, wanted = known.resource_version, written.resource_version
    if seen.isdecimal() and wanted.isdecimal():
        return int(seen) >= int(wanted)
    return seen == wanted
