"""Pods held at Permit: the plugins that hold them, until when, and which plugin decided.

An entry is registered before the Permit plugins are asked, so a decision that overtakes the reply of
its own call is kept and applied then. Called by the framework (Permit, WaitOnPermit), by the handle
(decisions) and by the failure path. One loop owns it; there are no locks.
Source: kube-scheduler `framework/runtime/waiting_pods_map.go`, v1.36; kubernetes#88179, #82385.

    registered -permit answered, nobody waits-> gone
    registered -somebody waits-> waiting -all allowed-> SUCCESS
                                 waiting -rejected, timed out-> UNSCHEDULABLE
                                 waiting -preempted-> ERROR
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from berth_sdk.permit_wait import MAX_WAIT_S, timed_out
from berth_sdk.pod import Pod
from berth_sdk.results import Decision, WaitingPod
from berth_sdk.status import SUCCESS, Status

from berth_host.model.clock import Clock, Timer


@dataclass(slots=True, eq=False)
class _Entry:
    pod: Pod
    cycle_id: str
    node_name: str
    open: bool = True  # Permit plugins are still being asked
    pending: dict[str, Timer] = field(default_factory=dict)
    deadlines_s: dict[str, float] = field(default_factory=dict)
    early_allows: set[str] = field(default_factory=set)  # holders whose wait was ended before Permit was over
    early_rejects: list[Status] = field(default_factory=list)  # rejections before Permit was over
    outcome: Status | None = None
    waiter: asyncio.Future[None] | None = None

    def decide(self, outcome: Status) -> bool:
        """First signal wins."""
        if self.outcome is not None:
            return False
        self.outcome = outcome
        for timer in self.pending.values():
            timer.cancel()
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)
        return True


class WaitingPods:
    """All pods at Permit of all profiles, by uid. `may_end`: by plugin, the plugins whose waits it may end
    beside its own; a plugin that is not in it may end every wait.
    """

    def __init__(self, clock: Clock, may_end: Mapping[str, frozenset[str]] = MappingProxyType({})) -> None:
        self._clock = clock
        self._may_end = may_end
        self._entries: dict[str, _Entry] = {}

    def __len__(self) -> int:
        return sum(1 for entry in self._entries.values() if not entry.open)

    # --- the framework's side ------------------------------------------------------------------

    def register(self, pod: Pod, cycle_id: str, node_name: str) -> None:
        """Permit is about to be asked; decisions may arrive from now on."""
        self._entries[pod.uid] = _Entry(pod, cycle_id, node_name)

    def discard(self, uid: str) -> None:
        """No plugin holds the pod: Permit approved or denied at once."""
        entry = self._entries.pop(uid, None)
        if entry is not None:
            for timer in entry.pending.values():
                timer.cancel()

    def will_hold(self, uid: str, plugin: str, wait_s: float) -> None:
        """The plugin waits, for so many seconds; others are still being asked."""
        self._entries[uid].deadlines_s[plugin] = self._clock.now_s() + min(wait_s, MAX_WAIT_S)

    def hold(self, uid: str, waits_s: dict[str, float]) -> None:
        """Permit is over and these plugins wait, each for so many seconds."""
        entry = self._entries[uid]
        entry.open = False
        if entry.outcome is not None:
            return
        for plugin, asked_s in waits_s.items():
            wait_s = min(asked_s, MAX_WAIT_S)
            entry.deadlines_s[plugin] = self._clock.now_s() + wait_s
            entry.pending[plugin] = self._clock.call_at(
                self._clock.monotonic_s() + wait_s, _Expiry(entry, plugin, wait_s)
            )
        for status in entry.early_rejects:
            if self._may_reject(status.plugin, entry.pending):
                entry.decide(status)
                return
        for plugin in entry.early_allows:
            if plugin in entry.pending:
                self._allow(entry, plugin)

    def held_by(self, uid: str) -> tuple[str, ...]:
        """The plugins that still hold the pod."""
        entry = self._entries.get(uid)
        return () if entry is None else tuple(entry.pending)

    def is_waiting(self, uid: str) -> bool:
        """True from `hold` until the wait has been collected."""
        entry = self._entries.get(uid)
        return entry is not None and not entry.open

    async def wait(self, uid: str) -> Status:
        """Block until decided; the entry is gone afterwards. SUCCESS at once for a pod that no plugin
        holds."""
        entry = self._entries.get(uid)
        if entry is None or entry.open:
            return SUCCESS
        if entry.outcome is None:
            entry.waiter = asyncio.get_running_loop().create_future()
            await entry.waiter
        if self._entries.get(uid) is entry:
            del self._entries[uid]
        return entry.outcome or SUCCESS

    def deadlines_of(self, plugin: str) -> dict[str, float]:
        """The cycles whose pods this plugin holds, or will hold, each with the end of that (Unix seconds)."""
        return {
            entry.cycle_id: entry.deadlines_s[plugin]
            for entry in self._entries.values()
            if entry.outcome is None
            and (plugin in entry.pending or (entry.open and plugin in entry.deadlines_s))
        }

    # --- decisions -----------------------------------------------------------------------------

    def list(self, plugin: str | None = None) -> list[WaitingPod]:
        """Undecided waiting pods; `plugin`: only pods that this plugin holds."""
        return [
            WaitingPod(
                pod=entry.pod,
                cycle_id=entry.cycle_id,
                node_name=entry.node_name,
                pending_plugins=tuple(entry.pending),
                deadline_s=min(entry.deadlines_s[name] for name in entry.pending),
            )
            for entry in self._entries.values()
            if not entry.open and entry.outcome is None and (plugin is None or plugin in entry.pending)
        ]

    def allow(self, plugin: str, uid: str, cycle_id: str, holder: str = "") -> Decision:
        """End the wait of `holder` alone; empty: that of `plugin`, which decides."""
        found = self._find(uid, cycle_id)
        if isinstance(found, Decision):
            return found
        holder = holder or plugin
        if not self._may_allow(plugin, holder):
            return Decision.NOT_PERMITTED
        if found.open:
            found.early_allows.add(holder)
            return Decision.STORED_EARLY
        if found.outcome is not None:
            return Decision.ALREADY_DECIDED
        if holder not in found.pending:
            return Decision.ALREADY_DECIDED if holder in found.deadlines_s else Decision.NOT_PERMITTED
        self._allow(found, holder)
        return Decision.APPLIED

    def reject(self, plugin: str, uid: str, cycle_id: str, message: str) -> Decision:
        """Send the pod back; all plugins that hold it are overruled."""
        found = self._find(uid, cycle_id)
        if isinstance(found, Decision):
            return found
        status = Status.unschedulable(message).with_plugin(plugin)
        if found.open:
            # Counts only if the pod comes to wait: Permit itself may still deny it or let it through.
            # Who holds it by then decides whether the plugin may reject it.
            found.early_rejects.append(status)
            return Decision.STORED_EARLY
        if found.outcome is None and not self._may_reject(plugin, found.pending):
            return Decision.NOT_PERMITTED
        return Decision.APPLIED if found.decide(status) else Decision.ALREADY_DECIDED

    def reject_pod(self, uid: str) -> bool:
        """The pod was removed or changed hands: end its wait. False if it did not wait."""
        entry = self._entries.get(uid)
        return entry is not None and entry.decide(Status.unschedulable("removed"))

    def preempt(self, uid: str, plugin: str, message: str) -> bool:
        """End the wait with an error, so that the pod is retried instead of parked."""
        entry = self._entries.get(uid)
        if entry is None or entry.open:
            return False
        return entry.decide(Status.error(message).with_plugin(plugin))

    def _find(self, uid: str, cycle_id: str) -> _Entry | Decision:
        entry = self._entries.get(uid)
        if entry is None:
            return Decision.NOT_WAITING
        return entry if entry.cycle_id == cycle_id else Decision.STALE_CYCLE

    def _may_allow(self, plugin: str, holder: str) -> bool:
        named = self._may_end.get(plugin)
        return named is None or holder == plugin or holder in named

    def _may_reject(self, plugin: str, holders: Iterable[str]) -> bool:
        """Return whether the plugin may end all waits of a pod. Its own wait suffices: it could have rejected
        the pod at Permit.
        """
        named = self._may_end.get(plugin)
        return named is None or plugin in holders or named.issuperset(holders)

    def _allow(self, entry: _Entry, plugin: str) -> None:
        entry.pending.pop(plugin).cancel()
        if not entry.pending:
            entry.decide(SUCCESS)


@dataclass(slots=True)
class _Expiry:
    entry: _Entry
    plugin: str
    wait_s: float

    def __call__(self) -> None:
        self.entry.decide(timed_out(self.plugin, self.wait_s))
