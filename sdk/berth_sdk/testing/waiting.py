"""`WaitingRoom`: the pods that a test's host holds at Permit, with the rules of a real host.

A test moves the clock, so nothing here sleeps. An entry exists from before the Permit plugins are asked:
a decision that overtakes the reply of its own call is kept, and applied once Permit is over.
Source: kube-scheduler `framework/runtime/waiting_pods_map.go`, v1.36; kubernetes#88179, #82385.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from berth_sdk.permit_wait import MAX_WAIT_S, timed_out
from berth_sdk.pod import Pod
from berth_sdk.results import Decision, WaitingPod
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.testing.clock import TestClock

WAITS: Final = Status(Code.WAIT)
MayEnd: TypeAlias = frozenset[str] | None
"""The plugins whose waits a plugin may end beside its own; None: every plugin."""


@dataclass(slots=True, eq=False)
class _Entry:
    pod: Pod
    cycle_id: str
    node_name: str
    is_open: bool = True  # Permit plugins are still being asked
    pending: dict[str, float] = field(default_factory=dict)  # the seconds of each plugin's wait
    deadlines_s: dict[str, float] = field(default_factory=dict)
    early_allows: list[str] = field(default_factory=list)
    early_rejects: list[tuple[Status, MayEnd]] = field(default_factory=list)
    outcome: Status | None = None


class WaitingRoom:
    """All pods at Permit, by uid. The first decision about a pod counts; `on_decided` is told the uid."""

    def __init__(self, clock: TestClock, on_decided: Callable[[str], None] = lambda uid: None) -> None:
        self._clock = clock
        self._on_decided = on_decided
        self._entries: dict[str, _Entry] = {}

    @property
    def now_s(self) -> float:
        """The time of the test, Unix seconds."""
        return self._clock.now_s

    # --- the way of a pod ----------------------------------------------------------------------

    def register(self, pod: Pod, cycle_id: str, node_name: str) -> None:
        """Accept decisions from now on: Permit is about to be asked."""
        self._entries[pod.uid] = _Entry(pod, cycle_id, node_name)

    def discard(self, uid: str, cycle_id: str) -> None:
        """Forget the wait of this cycle, if there is one."""
        entry = self._entries.get(uid)
        if entry is not None and entry.cycle_id == cycle_id:
            del self._entries[uid]

    def hold(self, uid: str, waits_s: Mapping[str, float | None]) -> None:
        """Hold the pod for these plugins, each for so many seconds (None: the longest), as Permit is over."""
        entry = self._entries[uid]
        entry.is_open = False
        for plugin, asked_s in waits_s.items():
            wait_s = MAX_WAIT_S if asked_s is None else min(asked_s, MAX_WAIT_S)
            entry.pending[plugin] = wait_s
            entry.deadlines_s[plugin] = self._clock.now_s + wait_s
        for status, may_end in entry.early_rejects:
            if _may_reject(status.plugin, may_end, entry.pending):
                self._decide(entry, status)
                return
        for plugin in entry.early_allows:
            if plugin in entry.pending:
                self._allow(entry, plugin)

    def outcome(self, uid: str, cycle_id: str) -> Status:
        """Return WAIT while a plugin holds the pod, else the decision; SUCCESS where nobody held the pod."""
        entry = self._entries.get(uid)
        if entry is None or entry.is_open or entry.cycle_id != cycle_id:
            return SUCCESS
        return WAITS if entry.outcome is None else entry.outcome

    # --- time ----------------------------------------------------------------------------------

    def next_deadline_s(self) -> float | None:
        """The end of the first wait, Unix seconds; None where no pod waits."""
        ends = [entry.deadlines_s[name] for entry in self._held() for name in entry.pending]
        return min(ends, default=None)

    def expire(self) -> None:
        """Reject the pods whose time is over."""
        for entry in self._held():
            ended = [name for name in entry.pending if entry.deadlines_s[name] <= self._clock.now_s]
            if ended:
                first = min(ended, key=lambda name: entry.deadlines_s[name])
                self._decide(entry, timed_out(first, entry.pending[first]))

    # --- decisions -----------------------------------------------------------------------------

    def undecided(self, plugin: str | None = None) -> list[WaitingPod]:
        """Undecided pods; `plugin`: only pods that this plugin holds."""
        return [
            WaitingPod(
                pod=entry.pod,
                cycle_id=entry.cycle_id,
                node_name=entry.node_name,
                pending_plugins=tuple(entry.pending),
                deadline_s=min(entry.deadlines_s[name] for name in entry.pending),
            )
            for entry in self._held()
            if plugin is None or plugin in entry.pending
        ]

    def allow(self, plugin: str, may_end: MayEnd, waiting: WaitingPod, holder: str = "") -> Decision:
        """End the wait of `holder` alone; empty: the wait of `plugin`, which decides."""
        found = self._find(waiting)
        if isinstance(found, Decision):
            return found
        holder = holder or plugin
        if may_end is not None and holder != plugin and holder not in may_end:
            return Decision.NOT_PERMITTED
        if found.is_open:
            found.early_allows.append(holder)
            return Decision.STORED_EARLY
        if found.outcome is not None:
            return Decision.ALREADY_DECIDED
        if holder not in found.pending:
            return Decision.ALREADY_DECIDED if holder in found.deadlines_s else Decision.NOT_PERMITTED
        self._allow(found, holder)
        return Decision.APPLIED

    def reject(self, plugin: str, may_end: MayEnd, waiting: WaitingPod, message: str) -> Decision:
        """End the waits of all plugins: the pod goes back to the queue."""
        found = self._find(waiting)
        if isinstance(found, Decision):
            return found
        status = Status.unschedulable(message).with_plugin(plugin)
        if found.is_open:
            found.early_rejects.append((status, may_end))
            return Decision.STORED_EARLY
        if found.outcome is not None:
            return Decision.ALREADY_DECIDED
        if not _may_reject(plugin, may_end, found.pending):
            return Decision.NOT_PERMITTED
        self._decide(found, status)
        return Decision.APPLIED

    def _held(self) -> list[_Entry]:
        return [entry for entry in self._entries.values() if not entry.is_open and entry.outcome is None]

    def _find(self, waiting: WaitingPod) -> _Entry | Decision:
        entry = self._entries.get(waiting.pod.uid)
        if entry is None:
            return Decision.NOT_WAITING
        return entry if entry.cycle_id == waiting.cycle_id else Decision.STALE_CYCLE

    def _allow(self, entry: _Entry, plugin: str) -> None:
        del entry.pending[plugin]
        if not entry.pending:
            self._decide(entry, SUCCESS)

    def _decide(self, entry: _Entry, outcome: Status) -> None:
        entry.outcome = outcome
        self._on_decided(entry.pod.uid)


def _may_reject(plugin: str, may_end: MayEnd, holders: Collection[str]) -> bool:
    return may_end is None or plugin in holders or may_end.issuperset(holders)
