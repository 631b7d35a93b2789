"""`FaultyCluster`: a cluster that fails as a real one may, around any port, drawn from a seed.

Used by lives, and by tests of what the host does when calls are late, fail, or fail after they took effect.
A watch event may overtake events of other kinds and the answers of calls, but no event of its own kind,
because the port promises that order.
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
    RepeatableError,
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
    """No answer, and the call had no effect."""
    TIME_OUT_AFTER = auto()
    """No answer, although the call took effect."""
    UNAVAILABLE_BEFORE = auto()
    """The connection is lost, and the call had no effect."""
    UNAVAILABLE_AFTER = auto()
    """The connection is lost after the call took effect."""
    INTERNAL_BEFORE = auto()
    """500 or 503, and the call had no effect."""
    INTERNAL_AFTER = auto()
    """500 or 503, although the call took effect."""
    CONFLICT = auto()
    TOO_MANY = auto()
    FORBIDDEN = auto()
    RAISES = auto()
    """The adapter raises another error than a ClusterError."""


HARD = tuple(fault for fault in Fault if fault not in (Fault.NONE, Fault.RAISES))
_AFTER = (Fault.TIME_OUT_AFTER, Fault.UNAVAILABLE_AFTER, Fault.INTERNAL_AFTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How late calls and events are, and how many calls fail.

    `turns`: the most turns of the loop before a call takes effect, and again before its answer.
    `delay_s`: the most seconds of the clock, likewise. `share`: the share of calls that meet one of `kinds`
    (0..1).
    `reorder`: events of different kinds overtake each other.
    """

    turns: int = 3
    delay_s: float = 0.0
    share: float = 0.0
    kinds: tuple[Fault, ...] = HARD
    reorder: bool = True


HARMLESS = Faults()
"""Calls and events are late and out of order, and nothing fails."""


@dataclass(slots=True)
class Gate:
    """A place where a call stops. `arrived`: set when the call is there. `open`: lets the call go on.

    `after`: the place is behind the call's effect, not before it.
    """

    after: bool
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    open: asyncio.Event = field(default_factory=asyncio.Event)


Note = Callable[[str, str, str, str, Fault], None]
NoteEvent = Callable[[Pod, str, str], None]


class FaultyCluster:
    """A `ClusterPort` around `inner`.

    `calls`: the calls that began, each as (call, key). `done`: the calls that took effect. With `note`, the
    two lists stay empty, and each call is told twice: `note(moment, call, resource, key, fault)`, where
    `moment` is "begun" or "done", and `fault` is what the call meets.
    """

    def __init__(
        self,
        inner: ClusterPort,
        clock: Clock,
        seed: int = 0,
        faults: Faults = HARMLESS,
        note: Note | None = None,
        note_event: NoteEvent | None = None,
        look: Callable[[], None] | None = None,
    ) -> None:
        """Wrap `inner`. `note_event`: called with pod, reason and text of each event about a pod.
        `look`: called before and after each event that is handed over, while no code of the host runs.
        """
        self._inner = inner
        self._note = note
        self._note_event = note_event
        self._look = look or (lambda: None)
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

    # --- the faults ------------------------------------------------------------------------------

    def script(self, call: str, *faults: Fault) -> None:
        """Let the next calls of this name (`bind`, `get`, `patch`) meet these faults, one each."""
        self._scripts.setdefault(call, deque()).extend(faults)

    @contextmanager
    def always(self, call: str, fault: Fault) -> Iterator[None]:
        """Let every call of this name meet this fault, until the block ends."""
        self._always[call] = fault
        try:
            yield
        finally:
            del self._always[call]

    def gate(self, call: str, *, after: bool = False) -> Gate:
        """Stop the next call of this name before its effect; with `after`, before its answer."""
        gate = self._gates[call] = Gate(after)
        return gate

    def die(self) -> None:
        """Let calls fail as without an API server, and hand nothing over."""
        self._dead.clear()

    def stand_still(self) -> None:
        """Hand nothing over, and answer calls."""
        self._stands_still = True
        self._dead.clear()

    def revive(self) -> None:
        """End `die` and `stand_still`. The watch goes on where it was."""
        self._stands_still = False
        self._dead.set()
        self._plan_turn()

    def behave(self) -> None:
        """Let nothing fail and nothing be late from now on: open all gates, and draw no fault."""
        self.faults = replace(self.faults, turns=0, delay_s=0.0, share=0.0)
        self._scripts.clear()
        self._always.clear()
        for gate in self._gates.values():
            gate.open.set()
        self._gates.clear()
        self.revive()

    async def pump(self, clock: ManualClock) -> None:
        """Move the clock while calls wait for it, until cancelled."""
        while True:
            for _ in range(20):
                await asyncio.sleep(0)
            if self._sleeping:
                clock.advance_to(min(self._sleeping))

    # --- the port ------------------------------------------------------------------------------

    async def start(self, handler: WatchHandler, resources: Collection[str]) -> None:
        """Start the inner port; mix the events of different kinds."""
        self._handler = handler
        self.resources |= set(resources)
        await self._inner.start(self._take, resources)
        await self._caught_up()

    async def watch(self, resources: Collection[str]) -> None:
        """Watch further resources."""
        self.resources |= set(resources)
        await self._inner.watch(resources)
        await self._caught_up()

    async def catch_up(self, timeout_s: float) -> Sequence[str]:
        """Wait until every held change was handed over; return the kinds of those that were not."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._inner.catch_up(timeout_s)
                await self._caught_up()
        except TimeoutError:
            return sorted({event.kind for waiting in self._waiting.values() for event in waiting})
        return []

    async def stop(self) -> None:
        """Stop the inner port, and drop the changes that are held."""
        self._handler = None
        self._waiting.clear()
        self._empty.set()
        await self._inner.stop()

    def cut(self) -> None:
        """Refuse every later call, and drop events."""
        self._is_cut = True
        self._inner.cut()

    @property
    def kept_event_count(self) -> int:
        """The number of events that the inner port keeps."""
        return self._inner.kept_event_count

    @property
    def undelivered_count(self) -> int:
        """The number of changes not handed over yet, those that are held included."""
        return self._inner.undelivered_count + sum(map(len, self._waiting.values()))

    @property
    def answers_at_once(self) -> bool:
        """Always False."""
        return False

    async def get(self, resource: str, ref: ObjectRef) -> KubeObject | None:
        """Read an object."""
        return await self._call("get", resource, ref, lambda: self._inner.get(resource, ref))

    async def list(
        self,
        resource: str,
        namespace: str,
        labels: Mapping[str, str],
        fields: Mapping[str, str] | None = None,
    ) -> list[KubeObject]:
        """Read the objects of a namespace."""
        where = ObjectRef(name="", namespace=namespace)
        return await self._call(
            "list", resource, where, lambda: self._inner.list(resource, namespace, labels, fields)
        )

    async def bind(self, pod: ObjectRef, node_name: str) -> None:
        """Bind a pod to a node."""
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
        """Apply a patch."""
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
        """Replace an object."""
        ref = KubeObject("", "", parsed=content).ref
        return await self._call(
            "update", resource, ref, lambda: self._inner.update(resource, content, subresource=subresource)
        )

    async def create(self, resource: str, ref: ObjectRef, content: Mapping[str, Any]) -> KubeObject:
        """Create an object."""
        return await self._call("create", resource, ref, lambda: self._inner.create(resource, ref, content))

    async def delete(
        self, resource: str, ref: ObjectRef, *, grace_period_s: int | None = None, same_uid: bool = False
    ) -> None:
        """Delete an object."""
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
        """Write an event about a pod; drop it after `cut`."""
        if self._is_cut:
            return
        if self._note_event is not None:
            self._note_event(pod, reason, note)
        self._inner.record_event(pod, type, reason, action, note, related, related_kind)

    def create_event(self, event: EventRecord) -> None:
        """Write an event; drop it after `cut`."""
        if not self._is_cut:
            self._inner.create_event(event)

    # --- calls ---------------------------------------------------------------------------------

    async def _call(self, call: str, resource: str, ref: ObjectRef, do: Callable[[], Awaitable[T]]) -> T:
        fault = self._draw(call)
        if self._note is None:
            self.calls.append((call, ref.key))
        else:
            self._note("begun", call, resource, ref.key, fault)
        gate = self._gates.pop(call, None)
        await self._dawdle(gate if gate is not None and not gate.after else None)
        self._check_alive(resource, ref)
        if fault is Fault.RAISES:
            raise KeyError(f"a bug of the adapter in {call}")
        if fault is not Fault.NONE and fault not in _AFTER:
            raise _error(fault, resource, ref)
        answer = await do()
        if self._note is None:
            self.done.append((call, ref.key))
        else:
            self._note("done", call, resource, ref.key, fault)
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
        is_first = True
        try:
            for _ in range(self._random.randint(0, 4) if self.faults.turns else 20):
                if not self._waiting or not self._dead.is_set() or self._handler is None:
                    break
                kind = self._random.choice(sorted(self._waiting))
                events = self._waiting[kind]
                event = events.popleft()
                if not events:
                    del self._waiting[kind]
                if is_first:
                    self._look()
                    is_first = False
                self._handler(event)
                self._look()
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
    if fault in (Fault.INTERNAL_BEFORE, Fault.INTERNAL_AFTER):
        return RepeatableError(resource, ref.key, "the API server answered 500")
    if fault is Fault.CONFLICT:
        return ConflictError(resource, ref.key, "somebody was faster")
    if fault is Fault.TOO_MANY:
        return TooManyRequestsError(resource, ref.key, "too many requests", retry_after_s=1.0)
    return ForbiddenError(resource, ref.key, "not allowed")
