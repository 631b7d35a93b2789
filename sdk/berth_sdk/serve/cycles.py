"""The open cycles of a server: the pod, each plugin's CycleState, and recent Unreserves.

The servicers use it from their threads. `ended` in a call, EndCycles, PostBind and Unreserve release a cycle.
A cycle that is never released expires. The size is bounded by the number of open cycles.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from berth_sdk.clocks import monotonic_s
from berth_sdk.cycle_state import CycleState, SharedState
from berth_sdk.errors import PluginAnswerError
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.pod import Pod
from berth_sdk.pod_group import GroupView

if TYPE_CHECKING:
    from berth_sdk.runtime.plugin_runtime import PluginRuntime
    from berth_sdk.serve.served import ServedPlugin

Subject: TypeAlias = Pod | GroupView
"""The subject of the calls of a cycle."""
EXPIRY_S: Final = 600.0
RESERVED_EXPIRY_S: Final = 3600.0
"""Seconds without a call until a reservation expires, as its pod may wait at Permit for long. Every Reconcile
lists the reservation, which counts as a call.
"""
TOMBSTONE_S: Final = 300.0
MAX_TOKEN_BYTES: Final = 4096
MEMORY_TOKEN: Final = b"\x00berth-sdk:memory"
"""The token of a plugin that has written to its state and set no token. If a process gets this token back and
does not know the cycle, the plugin's state is lost.
"""


@dataclass(slots=True)
class PluginCycle:
    """One plugin's part of one cycle. `shared`: values that other plugins published; `state` reads them.

    `subject`: the pod or the group of the cycle; None: not known yet, of a cycle that others belong to.
    `first_replies`: the replies to Reserve and Permit, for duplicates of these calls.
    """

    served: ServedPlugin
    state: CycleState
    shared: SharedState
    subject: Subject | None
    node_name: str = ""
    reserved: bool = False
    first_replies: dict[ExtensionPoint, Any] = field(default_factory=dict)

    @property
    def pod(self) -> Pod:
        """The pod of the cycle. Raises LookupError in a group's cycle."""
        if not isinstance(self.subject, Pod):
            raise LookupError(f"the cycle {self.state.cycle_id} is not about a pod")
        return self.subject


@dataclass(slots=True)
class _Cycle:
    subject: Subject | None = None
    used_s: float = 0.0
    parts: dict[str, PluginCycle] = field(default_factory=dict)

    @property
    def reserved(self) -> bool:
        return any(part.reserved for part in self.parts.values())


class CycleBook:
    """The open cycles by id, the least recently used first."""

    def __init__(self, clock: Callable[[], float] = monotonic_s) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._cycles: OrderedDict[str, _Cycle] = OrderedDict()
        self._tombstones: OrderedDict[tuple[str, str], tuple[float, bool]] = OrderedDict()

    @property
    def undone_count(self) -> int:
        """The number of recent Unreserves that are kept."""
        return len(self._tombstones)

    def __len__(self) -> int:
        with self._lock:
            return len(self._cycles)

    def look(
        self, plugin: str, cycle_id: str, sent: Subject | None, owner_id: str = ""
    ) -> tuple[PluginCycle | None, Subject | None]:
        """Return the plugin's part of a cycle and the cycle's pod or group; None for what is unknown.

        `sent`: the pod or group of this call, which the cycle keeps; None: the call has none. `owner_id`: the
        cycle that keeps it instead, of a placement; empty: this one.
        """
        with self._lock:
            cycle = self._touched(cycle_id)
            owner = self._touched(owner_id) if owner_id else cycle
            known = owner.subject
            if sent is not None and (known is None or _object_of(known) is None or _object_of(sent)):
                owner.subject = known = sent
            return cycle.parts.get(plugin), known

    def go_on(self, plugin: str, earlier_id: str, cycle_id: str) -> None:
        """Keep what the plugin has in an earlier cycle under the id `cycle_id`, unless that is known."""
        with self._lock:
            earlier = self._cycles.get(earlier_id)
            part = None if earlier is None else earlier.parts.get(plugin)
            if earlier is None or part is None or plugin in self._touched(cycle_id).parts:
                return
            cycle = self._touched(cycle_id)
            cycle.subject = cycle.subject or earlier.subject
            cycle.parts[plugin] = part
            part.state.cycle_id = cycle_id
            part.reserved = False
            part.first_replies.clear()
            self._drop(earlier_id, plugin)

    def find(self, plugin: str, cycle_id: str) -> PluginCycle | None:
        """Return the plugin's part of a cycle; None if unknown."""
        with self._lock:
            cycle = self._cycles.get(cycle_id)
            return None if cycle is None else cycle.parts.get(plugin)

    def open(
        self,
        served: ServedPlugin,
        cycle_id: str,
        subject: Subject | None,
        state_class: type[CycleState] = CycleState,
    ) -> PluginCycle:
        """Return the plugin's part of a cycle; make it at the plugin's first call. Called after `look`."""
        with self._lock:
            cycle = self._cycles.get(cycle_id) or self._touched(cycle_id)
            part = cycle.parts.get(served.name)
            if part is None:
                shared = SharedState()
                state = state_class(cycle_id, plugin=served.name, shared=shared)
                part = cycle.parts[served.name] = PluginCycle(served, state, shared, subject)
            part.served = served
            part.subject = subject or part.subject
            return part

    def end(self, plugin: str, cycle_id: str, *, bound: bool) -> None:
        """Release the plugin's part of a cycle that has ended; keep a reservation until its Unreserve."""
        with self._lock:
            cycle = self._cycles.get(cycle_id)
            if cycle is None:
                return
            part = cycle.parts.get(plugin)
            if part is None or bound or not part.reserved:
                self._drop(cycle_id, plugin)
        if bound and part is not None:
            part.state.was_ended()

    def release(self, plugin: str, cycle_id: str) -> None:
        """Release the plugin's part of a cycle."""
        with self._lock:
            self._drop(cycle_id, plugin)

    def reservations(self, plugin: str) -> dict[str, PluginCycle]:
        """Return the plugin's reservations and waits at Permit, by cycle."""
        with self._lock:
            return {
                cycle_id: cycle.parts[plugin]
                for cycle_id, cycle in self._cycles.items()
                if plugin in cycle.parts and cycle.parts[plugin].reserved
            }

    def with_reservations(self) -> set[PluginRuntime]:
        """Return the instances of plugins that have a reservation or a wait at Permit."""
        with self._lock:
            parts = (part for cycle in self._cycles.values() for part in cycle.parts.values())
            return {part.served.runtime for part in parts if part.reserved}

    # --- recent Unreserves ---------------------------------------------------------------------

    def undo_begins(self, plugin: str, cycle_id: str) -> bool:
        """Record that an Unreserve of the cycle begins, so that a later Reserve is refused.

        Returns False if an earlier Unreserve has completed.
        """
        with self._lock:
            now_s = self._clock()
            self._expire(now_s)
            _, done = self._tombstones.pop((plugin, cycle_id), (0.0, False))
            self._tombstones[plugin, cycle_id] = (now_s, done)
            return not done

    def undo_ended(self, plugin: str, cycle_id: str, *, keep: bool = False) -> None:
        """Record that the Unreserve has completed, and release the cycle. `keep`: the cycle of a trial, which
        may go on under another id.
        """
        with self._lock:
            if (plugin, cycle_id) in self._tombstones:
                self._tombstones[plugin, cycle_id] = (self._clock(), True)
            cycle = self._cycles.get(cycle_id)
            if not keep or cycle is None or plugin not in cycle.parts:
                self._drop(cycle_id, plugin)
            else:
                cycle.parts[plugin].reserved = False

    def is_undone(self, plugin: str, cycle_id: str) -> bool:
        """Return True if an Unreserve of the cycle arrived within TOMBSTONE_S."""
        with self._lock:
            if not self._tombstones:
                return False
            self._expire(self._clock())
            return (plugin, cycle_id) in self._tombstones

    # --- plumbing ------------------------------------------------------------------------------

    def _touched(self, cycle_id: str) -> _Cycle:
        cycle = self._cycles.get(cycle_id)
        now_s = self._clock()
        if cycle is None:
            self._expire(now_s)
            cycle = self._cycles[cycle_id] = _Cycle()
        else:
            self._cycles.move_to_end(cycle_id)
        cycle.used_s = now_s
        return cycle

    def _drop(self, cycle_id: str, plugin: str) -> None:
        cycle = self._cycles.get(cycle_id)
        if cycle is not None:
            cycle.parts.pop(plugin, None)
            if not cycle.parts:
                del self._cycles[cycle_id]

    def _expire(self, now_s: float) -> None:
        expired: list[str] = []
        for cycle_id, cycle in self._cycles.items():
            if now_s - cycle.used_s <= EXPIRY_S:
                break
            if now_s - cycle.used_s > RESERVED_EXPIRY_S or not cycle.reserved:
                expired.append(cycle_id)
        for cycle_id in expired:
            del self._cycles[cycle_id]
        while self._tombstones:
            key, (undone_s, _) = next(iter(self._tombstones.items()))
            if now_s - undone_s <= TOMBSTONE_S:
                break
            del self._tombstones[key]


def _object_of(subject: Subject) -> Any:
    return subject.group.object if isinstance(subject, GroupView) else subject.object


def memory_is_lost(known: PluginCycle | None, token: bytes) -> bool:
    """Return True if this process lacks state of earlier calls of the cycle, and a token to restore it."""
    return known is None and token == MEMORY_TOKEN


def token_to_send(plugin: str, state: CycleState, echoed: bytes) -> bytes | None:
    """Return the token for the reply; None if the host has it already.

    Raises PluginAnswerError for a token that is too long.
    """
    wanted = state.token if state.token is not None else (MEMORY_TOKEN if state.has_values else b"")
    if len(wanted) > MAX_TOKEN_BYTES:
        raise PluginAnswerError(
            f"{plugin} set a token of {len(wanted)} bytes, {MAX_TOKEN_BYTES} is the limit: keep a key in it"
        )
    return None if wanted == echoed else wanted
