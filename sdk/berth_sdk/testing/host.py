"""`PluginHost`: a test host that calls a plugin on the test's cluster, in the same process.

For an author's unit tests: no server, no event loop, no berth host. Methods may be plain or async. Answers
are read, checked and normalised as a real host does it.

    host = PluginHost(AvoidSpot, nodes=[make_node("n1", labels={"pool": "spot"}), make_node("n2")])
    attempt = host.attempt(make_pod("web"))
    assert attempt.filter()["n1"].message == "node is a spot node"
    assert attempt.score() == {"n2": 100}
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cmp_to_key
from inspect import isawaitable
from typing import Any, Final, TypeVar

from berth_sdk.cycle_state import SharedState
from berth_sdk.errors import PluginAnswerError
from berth_sdk.events import ClusterEvent
from berth_sdk.extension_points import Answer
from berth_sdk.kube_object import KubeObject
from berth_sdk.needs import NeedKind
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.pod_group import GroupView, PodGroup
from berth_sdk.results import PermitResult, QueuedPod
from berth_sdk.runtime.descriptor import Descriptor, describe, describe_instance
from berth_sdk.runtime.plugin_runtime import PluginRuntime, make_plugin
from berth_sdk.serve.lanes import EventLoopThread
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.tables import NodeTable, ObjectStore
from berth_sdk.testing.attempt import Attempt, Cycle, Seat
from berth_sdk.testing.builders import make_table
from berth_sdk.testing.clock import TestClock
from berth_sdk.testing.group_attempt import GroupAttempt
from berth_sdk.testing.handle import RecordingHandle
from berth_sdk.testing.waiting import WAITS, WaitingRoom
from berth_sdk.testing.way import POD_DELETED, Way, failure_of

T = TypeVar("T")
_KEYED, _FALLBACK = 0, 1
_CYCLES: Final = itertools.count(1)
"""The numbers of cycles, different ones in two hosts: after a restart in a test, cycles of both are known."""
_LOOP: Final = EventLoopThread()
"""Runs `async def` methods. The first one starts the thread, which ends with the process."""


class PluginHost:
    """A plugin, optionally other plugins of its profile, and the cluster they see.

    `put_node`, `put_pod` and `remove_pod` change `nodes` and `pods` between calls. `objects`: JSON objects by
    declared resource. `handle`: records the plugin's calls. `beside`: further plugins of the profile, classes
    or (class, args), in the order of the configuration; they come after `plugin` and take part in
    `Attempt.place`. `handles`: the handle of each plugin, by name. `clock.now_s`: the time, Unix seconds;
    only `advance` changes it.

    >>> class First:
    ...     def filter(self, state, pod, node):
    ...         return None if node.name == "n1" else Status.unschedulable("not the first")
    >>> from berth_sdk.testing import make_node, make_pod
    >>> host = PluginHost(First, nodes=[make_node("n1"), make_node("n2")])
    >>> [name for name, status in host.attempt(make_pod("web")).filter().items() if status.is_success]
    ['n1']
    """

    def __init__(
        self,
        plugin: type,
        args: Mapping[str, Any] | None = None,
        *,
        nodes: Iterable[Node] = (),
        pods: Iterable[Pod] = (),
        objects: Mapping[str, Iterable[Mapping[str, Any]]] | None = None,
        beside: Iterable[type | tuple[type, Mapping[str, Any]]] = (),
    ) -> None:
        """Make the plugins.

        Raises PluginDefinitionError for a class that cannot be called, PluginArgsError for its args,
        ValueError for two plugins with one name, and KeyError for objects that no plugin declares.
        """
        self._nodes = {node.name: node for node in nodes}
        self._pods = {pod.uid: pod for pod in pods}
        self._held_back: _HeldBack | None = None
        self._generation = 0
        self._groups = itertools.count(1)
        self._stores: dict[str, ObjectStore] = {}
        self.clock = TestClock()
        self.room = WaitingRoom(self.clock, self._decided_on)
        self.in_pre_bind: dict[str, str] = {}
        self._ways: dict[str, Way] = {}  # by cycle id
        self._under_way: dict[str, Way] = {}  # by uid of the pod
        self._ready: deque[Way] = deque()
        self._replaced: dict[str, Pod | None] = {}  # by cycle id: the pod before it was assumed on a node
        self._is_at_work = False
        others = [item if isinstance(item, tuple) else (item, {}) for item in beside]
        classes = [(plugin, args or {}), *others]
        self._declare(cls for cls, _ in classes)
        self._seats = [self._seat(cls, given) for cls, given in classes]
        self._seats_to_close = list(self._seats)
        self.handle, self.runtime = self._seats[0].handle, self._seats[0].runtime
        self.handles = {seat.handle.plugin: seat.handle for seat in self._seats}
        # A real host, too, makes its plugins before it knows the cluster.
        for resource, items in (objects or {}).items():
            for item in items:
                self.put_object(resource, item)

    # --- the cluster ---------------------------------------------------------------------------

    def table(self) -> NodeTable:
        """Return the current snapshot, or the one that `hold_snapshot` holds back."""
        held = self._held_back
        if held is not None:
            return make_table(held.nodes.values(), held.pods.values())
        return make_table(self._nodes.values(), self._pods.values())

    @contextmanager
    def hold_snapshot(self) -> Iterator[None]:
        """Hold the snapshot back for the block, as in a real host whose watch is behind.

        The plugin sees the nodes and pods of the begin of the block. A pod that the host places in the block
        is on its node from Permit on, without the patches of PreBind. The pods that are bound in the block
        get their `post_bind` at its end, after the snapshot has them as they were bound: a host makes that
        call no earlier. So a plugin that forgets too early what it holds gives it twice in the block.

        Raises ValueError in the block of another `hold_snapshot`.
        """
        if self._held_back is not None:
            raise ValueError("the snapshot is held back already: leave the block before you hold it again")
        held = self._held_back = _HeldBack(dict(self._nodes), dict(self._pods))
        try:
            yield
        finally:
            self._held_back = None
            with self.at_work():
                for call in held.bound:
                    call()

    def put_node(self, node: Node) -> None:
        """Add or replace a node."""
        self._nodes[node.name] = node

    def put_pod(self, pod: Pod) -> None:
        """Add or replace a pod. The pod counts on the node that it names."""
        self._pods[pod.uid] = pod

    def remove_pod(self, pod: Pod) -> None:
        """Remove a pod. A pod between Reserve and Bind fails there, as a deleted pod does."""
        self._pods.pop(pod.uid, None)
        with self.at_work():
            self._abort(pod.uid, POD_DELETED)

    def put_object(self, resource: str, item: Mapping[str, Any]) -> KubeObject:
        """Add or replace an object of a declared resource. Raises KeyError for other resources."""
        self._generation += 1
        kube_object = KubeObject.of(item)
        self._store(resource).put(kube_object.ref, kube_object, self._generation)
        return kube_object

    def get_object(self, resource: str, name: str, namespace: str = "") -> KubeObject | None:
        """Return an object of a declared resource, or None. Raises KeyError for other resources."""
        return self._store(resource).get(name, namespace)

    # --- the queue -----------------------------------------------------------------------------

    def pre_enqueue(self, pod: Pod) -> Status:
        """Return the verdict of PreEnqueue."""
        return self.run(self.runtime.pre_enqueue(QueuedPod(pod=pod)))

    def order(self, pods: Iterable[QueuedPod | Pod]) -> list[Pod]:
        """Return the pods in the order of a host's queue, by the plugin's key or comparison.

        Pods with equal keys: the earlier `added_at_s` first, then in the order given. Pods with an empty key
        come last. Among these, and for a plugin without an order, the higher priority comes first, then the
        earlier `added_at_s`, then the order given.
        """
        queued = [pod if isinstance(pod, QueuedPod) else QueuedPod(pod=pod) for pod in pods]
        keys = [self._sort_key(pod, number) for number, pod in enumerate(queued)]
        return [queued[number].pod for number in sorted(range(len(queued)), key=keys.__getitem__)]

    def hint(self, event: ClusterEvent, pod: Pod) -> bool:
        """Return True if the event may help the pod."""
        return self.run(self.runtime.queueing_hint(event, pod))

    # --- cycles --------------------------------------------------------------------------------

    def attempt(self, pod: Pod) -> Attempt:
        """Return a new attempt to schedule `pod`, with the current snapshot."""
        cycle = Cycle(f"cycle-{next(_CYCLES)}", pod, self.table(), SharedState())
        return Attempt(self, self._seats[0], cycle, self._seats[1:])

    def attempt_group(
        self,
        group: PodGroup,
        pods: Iterable[Pod],
        *,
        scheduled: Iterable[Pod] = (),
        children: Iterable[GroupView] = (),
    ) -> GroupAttempt:
        """Return a new cycle of a group, with the current snapshot. `pods`: the members to place, in order.

        `scheduled`: the members that have a node. `children`: the groups of a CompositePodGroup.
        """
        view = GroupView(group, tuple(pods), tuple(scheduled), tuple(children))
        return GroupAttempt(self, self._seats[0], f"group-{next(self._groups)}", view, self.table())

    def advance(self, seconds: float) -> None:
        """Advance the clock. Expired waits at Permit time out, and PreBind is called again where it asked for
        that, in the order of time. Raises ValueError for a negative number.
        """
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} s: advance by 0 or more seconds")
        end_s = self.clock.now_s + seconds
        while (next_s := self._next_event_s()) is not None and next_s <= end_s:
            self.clock.now_s = max(self.clock.now_s, next_s)
            with self.at_work():
                self.room.expire()
                self._ready.extend(way for way in self._under_way.values() if self._is_due(way))
        self.clock.now_s = end_s

    def close(self) -> None:
        """Call `close` of every plugin, the last one first; a real host closes its plugins at the same time.

        Raises the exception of a plugin, and an ExceptionGroup for several, after the other plugins have been
        closed. Has no effect the second time.
        """
        seats, self._seats_to_close = self._seats_to_close, []
        raised: list[Exception] = []
        for seat in reversed(seats):
            try:
                self.run(seat.runtime.close())
            except Exception as err:  # noqa: BLE001  # a plugin may raise anything
                raised.append(err)
        if len(raised) == 1:
            raise raised[0]
        if raised:
            raise ExceptionGroup("close of several plugins", raised)

    # --- for attempts and handles --------------------------------------------------------------

    def place(self, cycle: Cycle, members: Sequence[Attempt], node_name: str) -> Status:
        """Start the steps from Reserve to PostBind and return the outcome so far.

        Raises ValueError for a pod whose steps are not finished, and KeyError for an unknown node.
        """
        uid = cycle.pod.uid
        if self._nodes and node_name not in self._nodes:
            raise KeyError(f"the cluster has no node {node_name}")
        if uid in self._under_way:
            raise ValueError(
                f"pod {cycle.pod.key} is being placed already: allow, reject or remove it, or let time pass"
            )
        way = self._ways[cycle.cycle_id] = self._under_way[uid] = Way(self, cycle, members, node_name)
        with self.at_work():
            self._resume(way)
        return way.outcome

    def outcome(self, cycle_id: str) -> Status | None:
        """Return the outcome of a cycle's steps. None: `place` was not called."""
        way = self._ways.get(cycle_id)
        return None if way is None else way.outcome

    def ask_permit(
        self, cycle: Cycle, members: Sequence[Attempt], node_name: str
    ) -> tuple[Status, list[PermitResult]]:
        """Call Permit of these plugins in order, and hold the pod if one of them waits.

        Returns (SUCCESS, WAIT or the first failure, the answers).
        """
        uid, answers, waits_s = cycle.pod.uid, list[PermitResult](), dict[str, float | None]()
        with self.at_work():
            self.room.register(cycle.pod, cycle.cycle_id, node_name)
            is_held = False
            try:
                for member in members:
                    answers.append(answer := member.ask_permit(node_name))
                    status = answer.status
                    if status.code is Code.WAIT:
                        waits_s[member.name] = answer.wait_timeout_s
                    elif not status.is_success:
                        return failure_of(status, member.name, "Permit plugin"), answers
                is_held = bool(waits_s)
                if is_held:
                    self.room.hold(uid, waits_s)
                return WAITS if is_held else SUCCESS, answers
            finally:
                if not is_held:
                    self.room.discard(uid, cycle.cycle_id)

    def assume(self, cycle: Cycle, node_name: str) -> None:
        """Count the pod on the node."""
        self._replaced.setdefault(cycle.cycle_id, self._pods.get(cycle.pod.uid))
        self.put_pod(cycle.pod.on_node(node_name))
        if self._held_back is not None:
            known = self._held_back.pods.get(cycle.pod.uid)
            # The second call comes after PreBind, whose patches a watch would show.
            if known is None or not known.node_name:
                self._held_back.pods[cycle.pod.uid] = cycle.pod.on_node(node_name)

    def when_shown(self, call: Callable[[], None]) -> None:
        """Call as soon as the snapshot shows the pods as they are bound: now, unless it is held back."""
        if self._held_back is None:
            call()
        else:
            self._held_back.bound.append(call)

    def forget(self, cycle: Cycle) -> None:
        """Undo `assume`. A pod that was removed meanwhile stays removed."""
        if cycle.cycle_id not in self._replaced:
            return
        replaced = self._replaced.pop(cycle.cycle_id)
        if self._held_back is not None:
            self._held_back.pods.pop(cycle.pod.uid, None)
        if self._pods.pop(cycle.pod.uid, None) is not None and replaced is not None:
            self.put_pod(replaced)

    def go_on(self, way: Way) -> None:
        """Resume the steps after the current call."""
        self._ready.append(way)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Surround a call to a plugin, or a decision. After the outermost block, decided pods continue."""
        if self._is_at_work:
            yield
            return
        self._is_at_work = True
        try:
            yield
        finally:
            errors: list[Exception] = []
            while self._ready:
                try:
                    self._resume(self._ready.popleft())
                except Exception as err:  # noqa: BLE001  # raised below, once every pod went on
                    errors.append(err)
            self._is_at_work = False
            if errors:
                raise errors[0]

    def run(self, answer: Answer[T]) -> T:
        """Return the answer. Awaits an async answer on a separate event loop."""
        return _LOOP.wait_for(answer, _Unending()) if isawaitable(answer) else answer

    def decided(self, point: str, answer: Answer[T | None]) -> T:
        """Return the answer of a point that must decide. Raises PluginAnswerError for None."""
        decision = self.run(answer)
        if decision is None:
            raise PluginAnswerError(
                f"{self.runtime.descriptor.name}.{point} returned None, but must decide: return a Status"
            )
        return decision

    def _declare(self, classes: Iterable[type]) -> None:
        """Make a store for each resource that a plugin declares."""
        names: set[str] = set()
        for descriptor in map(describe, classes):
            if descriptor.name in names:
                raise ValueError(f"two plugins are named {descriptor.name}: a profile has each plugin once")
            names.add(descriptor.name)
            for resource in _resources(descriptor):
                self._stores.setdefault(resource, ObjectStore())

    def _store(self, resource: str) -> ObjectStore:
        store = self._stores.get(resource)
        if store is None:
            raise KeyError(f"no plugin of this host declares Need.objects({resource!r}) in `needs`")
        return store

    def _seat(self, cls: type, args: Mapping[str, Any]) -> Seat:
        stores = {resource: self._stores[resource] for resource in _resources(describe(cls))}
        handle = RecordingHandle(self.table, stores, room=self.room, at_work=self.at_work)
        handle.in_pre_bind, handle.cancel = self.in_pre_bind, self._abort
        plugin = make_plugin(cls, args, handle)
        # The instance may declare more than its class.
        for resource in _resources(describe_instance(plugin)):
            stores[resource] = self._stores.setdefault(resource, ObjectStore())
        runtime = PluginRuntime(plugin, handle=handle)
        handle.plugin = runtime.descriptor.name
        handle.forget = runtime.follows.forget
        return Seat(runtime, handle)

    def _resume(self, way: Way) -> None:
        try:
            way.resume()
        finally:
            if way.outcome.code is not Code.WAIT:
                self._under_way.pop(way.cycle.pod.uid, None)

    def _decided_on(self, uid: str) -> None:
        way = self._under_way.get(uid)
        if way is not None:
            self._ready.append(way)

    def _abort(self, uid: str, message: str) -> None:
        way = self._under_way.get(uid)
        if way is not None:
            way.abort(message)
            self._ready.append(way)

    def _is_due(self, way: Way) -> bool:
        return way.wake_at_s is not None and way.wake_at_s <= self.clock.now_s

    def _next_event_s(self) -> float | None:
        times = [self.room.next_deadline_s(), *(way.wake_at_s for way in self._under_way.values())]
        return min((time_s for time_s in times if time_s is not None), default=None)

    def _sort_key(self, pod: QueuedPod, number: int) -> tuple[Any, ...]:
        added_us = round(pod.added_at_s * 1e6)
        if self.runtime.descriptor.less_only:
            return (_KEYED, cmp_to_key(self._compared)(pod), added_us, number)
        key = self.run(self.runtime.sort_key(pod))
        if key:
            return (_KEYED, key, added_us, number)
        return (_FALLBACK, -pod.pod.priority, added_us, number)

    def _compared(self, first: QueuedPod, second: QueuedPod) -> int:
        return int(self.runtime.less(second, first)) - int(self.runtime.less(first, second))


@dataclass(slots=True)
class _HeldBack:
    """The snapshot of `hold_snapshot`, by name and by uid. `bound`: the calls due at the end of the block."""

    nodes: dict[str, Node]
    pods: dict[str, Pod]
    bound: list[Callable[[], None]] = field(default_factory=list)


def _resources(descriptor: Descriptor) -> Iterator[str]:
    return (need.resource for need in descriptor.needs if need.kind is NeedKind.OBJECT)


class _Unending:
    """A call that is never cancelled."""

    def is_active(self) -> bool:
        return True

    def add_callback(self, callback: Callable[[], None]) -> bool:
        return True
