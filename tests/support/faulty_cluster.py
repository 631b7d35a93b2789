"""A cluster that misbehaves as a real one may: around any port, seeded, on the tests' clock.

Used by `support.hosts.World` and by the tests of what the host does when calls hang, fail, or answer when
nobody can tell any more whether they took effect. Watch events may overtake those of other kinds and the
answers of calls, never those of their own kind: the port promises that order.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, TypeVar

from berth_host.cluster.port import ClusterPort, EventRecord, WatchEvent, WatchHandler
from berth_host.errors.cluster import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    TimedOutError,
    TooManyRequestsError,
    UnavailableError,
)
from berth_host.model.clock import Clock, ManualClock, sleep
from berth_host.model.patch_type import PatchType
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod

T = TypeVar("T")


class Fault(Enum):
    """The fate of one call."""

    NONE = auto()
    TIME_OUT_BEFORE = auto()
    """No answer, and it was not done."""
    TIME_OUT_AFTER = auto()
    """No answer, and it was done."""
    UNAVAILABLE_BEFORE = auto()
    UNAVAILABLE_AFTER = auto()
    CONFLICT = auto()
    TOO_MANY = auto()
    FORBIDDEN = auto()
    RAISES = auto()
    """The adapter has a bug: not a ClusterError at all."""


HARD = tuple(fault for fault in Fault if fault not in (Fault.NONE, Fault.RAISES))
_AFTER = (Fault.TIME_OUT_AFTER, Fault.UNAVAILABLE_AFTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """`turns`: at most so many turns of the loop before a call is done, and as many before it has answered.
    `delay_s`: at most so long on the clock, likewise. `share`: of the calls that meet one of `kinds`.
    `reorder`: events of different kinds overtake each other.
    """

    turns: int = 3
    delay_s: float = 0.0
    share: float = 0.0
    kinds: tuple[Fault, ...] = HARD
    reorder: bool = True


HARMLESS = Faults()
"""Late and out of order, and nothing fails."""


@dataclass(slots=True)
class Gate:
    """Calls that stop in front of it (`arrived`) go on when it is `open`."""

    after: bool
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    open: asyncio.Event = field(default_factory=asyncio.Event)


class FaultyCluster:
    """A `ClusterPort` around `inner`. `calls`: (call, key) as they began; `done`: as they took effect."""

    def __init__(self, inner: ClusterPort, clock: Clock, seed: int = 0, faults: Faults = HARMLESS) -> None:
        self._inner = inner
        self._clock = clock
        self._random = random.Random(seed)
        self._handler: WatchHandler | None = None
        self._waiting: dict[str, deque[WatchEvent]] = {}
        self._turn_is_due = False
        self._empty = asyncio.Event()
        self._dead = asyncio.Event()
        self._dead.set()
        self._is_cut = False
        self._stands_still = False
        self._scripts: dict[str, deque[Fault]] = {}
        self._always: dict[str, Fault] = {}
        self._gates: dict[str, Gate] = {}
        self._sleeping: list[float] = []
        self.faults = faults
        self.calls: list[tuple[str, str]] = []
        self.done: list[tuple[str, str]] = []
        self.resources: set[str] = set()

    # --- what the test says --------------------------------------------------------------------

    def script(self, call: str, *faults: Fault) -> None:
        """What the next calls of this name (`bind`, `get`, `patch`) meet, one after the other."""
        self._scripts.setdefault(call, deque()).extend(faults)

    @contextmanager
    def always(self, call: str, fault: Fault) -> Iterator[None]:
        """Yield what every call of this name meets meanwhile."""
        self._always[call] = fault
        try:
            yield
        finally:
            del self._always[call]

    def gate(self, call: str, *, after: bool = False) -> Gate:
        """Stop the next call of this name before it is done, or before it has answered."""
        gate = self._gates[call] = Gate(after)
        return gate

    def die(self) -> None:
        """The API server is away: calls fail, and nothing is handed over."""
        self._dead.clear()

    def stand_still(self) -> None:
        """Nothing is handed over; calls are answered."""
        self._stands_still = True
        self._dead.clear()

    def revive(self) -> None:
        """It is back, and the watch goes on where it was."""
        self._stands_still = False
        self._dead.set()
        self._plan_turn()

    def behave(self) -> None:
        """Nothing goes wrong any more: gates open, and no fault is drawn."""
        self.faults = replace(self.faults, turns=0, delay_s=0.0, share=0.0)
        self._scripts.clear()
        self._always.clear()
        for gate in self._gates.values():
            gate.open.set()
        self._gates.clear()
        self.revive()

    async def pump(self, clock: ManualClock) -> None:
        """Move the clock while calls wait for it; a task of the test."""
        while True:
            for _ in range(20):
                await asyncio.sleep(0)
            if self._sleeping:
                clock.advance_to(min(self._sleeping))

    # --- the port ------------------------------------------------------------------------------

    async def start(self, handler: WatchHandler, resources: Collection[str]) -> None:
        """As the cluster inside, with kinds mixed."""
        self._handler = handler
        self.resources |= set(resources)
        await self._inner.start(self._take, resources)
        await self._caught_up()

    async def watch(self, resources: Collection[str]) -> None:
        """As the cluster inside."""
        self.resources |= set(resources)
        await self._inner.watch(resources)
        await self._caught_up()

    async def catch_up(self, timeout_s: float) -> Sequence[str]:
        """Wait until what is held back was handed over; return the kinds of what is not."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._inner.catch_up(timeout_s)
                await self._caught_up()
        except TimeoutError:
            return sorted({event.kind for waiting in self._waiting.values() for event in waiting})
        return []

    async def stop(self) -> None:
        """As the cluster inside; what was not handed over never is."""
        self._handler = None
        self._waiting.clear()
        self._empty.set()
        await self._inner.stop()

    def cut(self) -> None:
        """As the cluster inside."""
        self._is_cut = True
        self._inner.cut()

    @property
    def kept_event_count(self) -> int:
        """How many events are remembered, so that their repetitions become a series."""
        return self._inner.kept_event_count

    @property
    def undelivered_count(self) -> int:
        """Changes that are held back count."""
        return self._inner.undelivered_count + sum(map(len, self._waiting.values()))

    @property
    def answers_at_once(self) -> bool:
        """Never."""
        return False

    async def get(self, resource: str, ref: ObjectRef) -> KubeObject | None:
        return await self._call("get", resource, ref, lambda: self._inner.get(resource, ref))

    async def list(
        self,
        resource: str,
        namespace: str,
        labels: Mapping[str, str],
        fields: Mapping[str, str] | None = None,
    ) -> list[KubeObject]:
        where = ObjectRef(name="", namespace=namespace)
        return await self._call(
            "list", resource, where, lambda: self._inner.list(resource, namespace, labels, fields)
        )

    async def bind(self, pod: ObjectRef, node_name: str) -> None:
        await self._call("bind", "pods", pod, lambda: self._inner.bind(pod, node_name))

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
        return await self._call(
            "patch",
            resource,
            ref,
            lambda: self._inner.patch(
                resource,
                ref,
                patch,
                patch_type=patch_type,
                subresource=subresource,
                expected_resource_version=expected_resource_version,
            ),
        )

    async def update(self, resource: str, content: Mapping[str, Any], *, subresource: str = "") -> KubeObject:
        ref = KubeObject("", "", parsed=content).ref
        return await self._call(
            "update", resource, ref, lambda: self._inner.update(resource, content, subresource=subresource)
        )

    async def create(self, resource: str, ref: ObjectRef, content: Mapping[str, Any]) -> KubeObject:
        return await self._call("create", resource, ref, lambda: self._inner.create(resource, ref, content))

    async def delete(
        self, resource: str, ref: ObjectRef, *, grace_period_s: int | None = None, same_uid: bool = False
    ) -> None:
        await self._call(
            "delete",
            resource,
            ref,
            lambda: self._inner.delete(resource, ref, grace_period_s=grace_period_s, same_uid=same_uid),
        )

    def record_event(
        self,
        pod: Pod,
        type: str,
        reason: str,
        action: str,
        note: str,
        related: ObjectRef | None = None,
        related_kind: str = "Pod",
    ) -> None:
        if not self._is_cut:
            self._inner.record_event(pod, type, reason, action, note, related, related_kind)

    def create_event(self, event: EventRecord) -> None:
        if not self._is_cut:
            self._inner.create_event(event)

    # --- calls ---------------------------------------------------------------------------------

    async def _call(self, call: str, resource: str, ref: ObjectRef, do: Callable[[], Awaitable[T]]) -> T:
        self.calls.append((call, ref.key))
        fault = self._draw(call)
        gate = self._gates.pop(call, None)
        await self._dawdle(gate if gate is not None and not gate.after else None)
        self._check_alive(resource, ref)
        if fault is Fault.RAISES:
            raise KeyError(f"a bug of the adapter in {call}")
        if fault is not Fault.NONE and fault not in _AFTER:
            raise _error(fault, resource, ref)
        answer = await do()
        self.done.append((call, ref.key))
        await self._dawdle(gate if gate is not None and gate.after else None)
        self._check_alive(resource, ref)
        if fault in _AFTER:
            raise _error(fault, resource, ref)
        return answer

    def _draw(self, call: str) -> Fault:
        script = self._scripts.get(call)
        if script:
            return script.popleft()
        if call in self._always:
            return self._always[call]
        if self.faults.share and self._random.random() < self.faults.share:
            return self._random.choice(self.faults.kinds)
        return Fault.NONE

    async def _dawdle(self, gate: Gate | None) -> None:
        if gate is not None:
            gate.arrived.set()
            await gate.open.wait()
        for _ in range(self._random.randint(0, self.faults.turns)):
            await asyncio.sleep(0)
        if self.faults.delay_s:
            duration_s = self._random.uniform(0.0, self.faults.delay_s)
            when_s = self._clock.monotonic_s() + duration_s
            self._sleeping.append(when_s)
            try:
                await sleep(self._clock, duration_s)
            finally:
                self._sleeping.remove(when_s)

    def _check_alive(self, resource: str, ref: ObjectRef) -> None:
        if self._is_cut:
            raise UnavailableError(resource, ref.key, "this host is not the leader any more")
        if not self._dead.is_set() and not self._stands_still:
            raise UnavailableError(resource, ref.key, "connection refused")

    # --- the stream ----------------------------------------------------------------------------

    def _take(self, event: WatchEvent) -> None:
        self._waiting.setdefault(event.kind if self.faults.reorder else "", deque()).append(event)
        self._empty.clear()
        self._plan_turn()

    def _plan_turn(self) -> None:
        if not self._turn_is_due and self._waiting and self._dead.is_set():
            self._turn_is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_is_due = False
        try:
            for _ in range(self._random.randint(0, 4) if self.faults.turns else 20):
                if not self._waiting or not self._dead.is_set() or self._handler is None:
                    break
                kind = self._random.choice(sorted(self._waiting))
                events = self._waiting[kind]
                event = events.popleft()
                if not events:
                    del self._waiting[kind]
                self._handler(event)
        finally:
            self._plan_turn()
            if not self._waiting:
                self._empty.set()

    async def _caught_up(self) -> None:
        while self._waiting:
            await self._empty.wait()


def _error(fault: Fault, resource: str, ref: ObjectRef) -> ClusterError:
    if fault in (Fault.TIME_OUT_BEFORE, Fault.TIME_OUT_AFTER):
        return TimedOutError(resource, ref.key, "no answer within 30 s")
    if fault in (Fault.UNAVAILABLE_BEFORE, Fault.UNAVAILABLE_AFTER):
        return UnavailableError(resource, ref.key, "connection lost")
    if fault is Fault.CONFLICT:
        return ConflictError(resource, ref.key, "somebody was faster")
    if fault is Fault.TOO_MANY:
        return TooManyRequestsError(resource, ref.key, "too many requests", retry_after_s=1.0)
    return ForbiddenError(resource, ref.key, "not allowed")
