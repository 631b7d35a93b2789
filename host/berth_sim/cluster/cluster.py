"""`MemoryCluster`: the embedded cluster as a `ClusterPort`.

Made by the CLI for `berth simulate` and by tests; the host uses only the port. Calls return at once. Their
changes come back through the event loop, in order, a few per turn, as from a watch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from berth_host.cluster.port import (
    MAX_EVENTS_PER_TURN,
    MAX_TURN_S,
    ClusterPort,
    EventRecord,
    WatchEvent,
    WatchHandler,
)
from berth_host.errors.cluster import UnavailableError
from berth_host.model.clock import Clock
from berth_host.model.patch_type import PatchType
from berth_sdk.clocks import work_s
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.slices import PIECES, SLICE_S, Work

from berth_sim.cluster.kinds import BY_RESOURCE
from berth_sim.cluster.server import ApiServer

_POD: Final = BY_RESOURCE["pods"].watch_kind


class MemoryCluster(ClusterPort):
    """A cluster in this process. Tests and the CLI act as users, kubelets and controllers on `server`."""

    answers_at_once = True

    def __init__(self, clock: Clock, server: ApiServer | None = None) -> None:
        self.server = server if server is not None else ApiServer(clock)
        self._deliveries: list[_Delivery] = []
        self.is_cut = False

    async def start(self, handler: WatchHandler, resources: Collection[str]) -> None:
        """Hand over the existing objects, then return; later changes follow."""
        delivery = _Delivery(handler)
        self._deliveries.append(delivery)
        self._begin(delivery, resources)
        delivery.unsubscribe = self.server.store.subscribe(delivery.push)
        await delivery.caught_up()

    async def watch(self, resources: Collection[str]) -> None:
        """Hand over further resources; an unknown resource has no objects."""
        for delivery in self._deliveries:
            self._begin(delivery, resources)
        for delivery in list(self._deliveries):
            await delivery.caught_up()

    def _begin(self, delivery: _Delivery, resources: Collection[str]) -> None:
        found = [BY_RESOURCE[resource] for resource in BY_RESOURCE if resource in resources]
        new = [kind for kind in found if kind.watch_kind not in delivery.kinds]
        delivery.kinds.update(kind.watch_kind for kind in new)
        for kind in new:
            for obj in self.server.store.of(kind):
                delivery.push(WatchEvent(kind.watch_kind, None, obj))

    async def catch_up(self, timeout_s: float) -> Sequence[str]:
        """Hand over every change that was made until now; return the resources that are still behind."""
        try:
            async with asyncio.timeout(timeout_s):
                for delivery in list(self._deliveries):
                    await delivery.caught_up()
        except TimeoutError:
            pending = {kind for delivery in self._deliveries for kind in delivery.pending_kinds}
            return sorted(name for name, kind in BY_RESOURCE.items() if kind.watch_kind in pending)
        return []

    def cut(self) -> None:
        """Refuse every later call with UnavailableError, and drop events."""
        self.is_cut = True

    async def stop(self) -> None:
        """Stop handing over changes."""
        for delivery in self._deliveries:
            delivery.stop()
        self._deliveries.clear()

    @property
    def kept_event_count(self) -> int:
        """Always 0: events are not made into series here."""
        return 0

    @property
    def undelivered_count(self) -> int:
        """The number of changes not handed over yet."""
        return sum(delivery.pending_count for delivery in self._deliveries)

    async def get(self, resource: str, ref: ObjectRef) -> KubeObject | None:
        """Return an object; None if it does not exist."""
        self._check_connected(resource, ref)
        return self.server.get(resource, ref)

    async def list(
        self,
        resource: str,
        namespace: str,
        labels: Mapping[str, str],
        fields: Mapping[str, str] | None = None,
    ) -> list[KubeObject]:
        """Read the objects of a namespace that have all these labels, live; finished pods too."""
        self._check_connected(resource, ObjectRef(name="", namespace=namespace))
        wanted = labels.items()
        return [
            item
            for item in self.server.list(resource)
            if item.ref.namespace == namespace
            and (item.get("metadata.labels") or {}).items() >= wanted
            and all(item.get(path, "") == value for path, value in (fields or {}).items())
        ]

    async def bind(self, pod: ObjectRef, node_name: str) -> None:
        """Bind a pod to a node."""
        self._check_connected("pods", pod)
        self.server.bind(pod, node_name)

    async def patch(
        self,
        resource: str,
        ref: ObjectRef,
        patch: Mapping[str, Any],
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        expected_resource_version: str = "",
    ) -> KubeObject:
        """Apply a patch."""
        self._check_connected(resource, ref)
        return self.server.patch(
            resource,
            ref,
            patch,
            patch_type=patch_type,
            subresource=subresource,
            expected_resource_version=expected_resource_version,
        )

    async def update(self, resource: str, content: Mapping[str, Any], *, subresource: str = "") -> KubeObject:
        """Replace a whole object, or its status."""
        self._check_connected(resource, KubeObject.of(content).ref)
        kind = BY_RESOURCE.get(resource)
        named = {} if kind is None else {"apiVersion": kind.api_version, "kind": kind.kind}
        return self.server.update({**named, **content}, subresource=subresource)

    async def create(self, resource: str, ref: ObjectRef, content: Mapping[str, Any]) -> KubeObject:
        """Create an object."""
        self._check_connected(resource, ref)
        return self.server.create_named(resource, ref, content)

    async def delete(
        self, resource: str, ref: ObjectRef, *, grace_period_s: int | None = None, same_uid: bool = False
    ) -> None:
        """Delete an object. The server refuses another uid than that of `ref` in any case."""
        self._check_connected(resource, ref)
        self.server.delete(resource, ref, grace_period_s=grace_period_s)

    def create_event(self, event: EventRecord) -> None:
        """Keep an event; drop it after `cut`."""
        if not self.is_cut:
            self.server.events.add(event)

    def _check_connected(self, resource: str, ref: ObjectRef) -> None:
        if self.is_cut:
            raise UnavailableError(resource, ref.key, "the host has been cut off from the cluster")


class _Delivery:
    """One watcher's queue of changes, emptied by the event loop. `kinds`: the watched kinds."""

    def __init__(self, handler: WatchHandler) -> None:
        self.kinds: set[str] = set()
        self._handler = handler
        self._pending: deque[WatchEvent] = deque()
        self._ahead: Work[Any] | None = None
        """The work that reads the long lists of the first pending pod; None: nothing is being read."""
        self._loop = asyncio.get_running_loop()
        self._turn_is_due = False
        self._waiters: list[asyncio.Future[None]] = []
        self.unsubscribe: Callable[[], None] = lambda: None

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    @property
    def pending_kinds(self) -> set[str]:
        return {event.kind for event in self._pending}

    def push(self, event: WatchEvent) -> None:
        if event.kind not in self.kinds:
            return
        self._pending.append(event)
        self._plan_turn()

    async def caught_up(self) -> None:
        """Wait until no change is pending."""
        if self._pending:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def stop(self) -> None:
        self.unsubscribe()
        self._pending.clear()
        self._ahead = None
        self._wake()

    def _plan_turn(self) -> None:
        if not self._turn_is_due:
            self._turn_is_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_is_due = False
        ends_s = work_s() + MAX_TURN_S
        try:
            for _ in range(min(MAX_EVENTS_PER_TURN, len(self._pending))):
                if self._ahead is None:
                    self._ahead = _long_parts(self._pending[0])
                if self._ahead is None:
                    self._handler(self._pending.popleft())
                elif (read := _slice_of(self._ahead)) is not None:
                    # What is read is kept until the handler has made the pod of it.
                    self._ahead = None
                    self._handler(self._pending.popleft())
                    del read
                if work_s() >= ends_s:
                    break
        finally:
            # The loop reports a handler that raised; the events after it must still be handed over.
            if self._pending:
                self._plan_turn()
            else:
                self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()


def _long_parts(event: WatchEvent) -> Work[Any] | None:
    """Return the work that reads the long lists of a pod; None: the object is no such pod."""
    if event.new is None or event.kind != _POD:
        return None
    return Pod.long_parts(event.new.parsed)


def _slice_of(work: Work[Any]) -> Any:
    """Do one slice of the work. Return its result at its end; None: there is more to do.

    Work that raises is over: who makes the pod of the object says what is wrong with it.
    """
    ends_s = work_s() + SLICE_S
    try:
        while True:
            for _ in range(PIECES):
                next(work)
            if work_s() >= ends_s:
                return None
    except StopIteration as end:
        return () if end.value is None else end.value
    except Exception as err:  # noqa: BLE001  # hostile objects
        return err
