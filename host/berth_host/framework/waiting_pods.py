"""Waiting pods (at Permit): the plugins that hold a pod, their deadlines, and their decisions.

An entry is registered before the Permit plugins are called, so that a decision that arrives before the reply
to Permit is kept and applied after it. Called by the framework (Permit, WaitOnPermit), by the handle
(decisions) and by the failure path. All methods run on one asyncio loop, without locks.
Source: kube-scheduler `framework/runtime/waiting_pods_map.go`, v1.36; kubernetes#88179, #82385.

    registered -permit answered, nobody waits-> gone
    registered -somebody waits-> waiting -all allowed-> SUCCESS
                                 waiting -rejected, timed out-> UNSCHEDULABLE
                                 waiting -preempted-> ERROR
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from berth_sdk.permit_wait import MAX_WAIT_S, PermitWait, timed_out
from berth_sdk.pod import Pod
from berth_sdk.results import Decision, WaitingPod
from berth_sdk.status import SUCCESS, Status

from berth_host.model.clock import Clock, Timer


@dataclass(slots=True, eq=False)
class _Entry(PermitWait):
    timers: dict[str, Timer] = field(default_factory=dict)
    waiter: asyncio.Future[None] | None = None

    def decide(self, outcome: Status) -> bool:
        # Not `super()`: a dataclass with slots is made twice, and `super()` refers to the first class.
        if not PermitWait.decide(self, outcome):
            return False
        self.cancel_timers()
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)
        return True

    def release(self, plugin: str) -> None:
        self.timers[plugin].cancel()
        PermitWait.release(self, plugin)

    def cancel_timers(self) -> None:
        for timer in self.timers.values():
            timer.cancel()


class WaitingPods:
    """The pods at Permit of all profiles, by uid.

    `may_end`: for each plugin, the other plugins whose waits the plugin may end. A plugin that is not a key
    may end every wait.
    """

    def __init__(self, clock: Clock, may_end: Mapping[str, frozenset[str]] = MappingProxyType({})) -> None:
        self._clock = clock
        self._may_end = may_end
        self._entries: dict[str, _Entry] = {}

    def __len__(self) -> int:
        return sum(1 for entry in self._entries.values() if not entry.is_open)

    @property
    def has_untaken_decision(self) -> bool:
        """True from a decision about a waiting pod until `wait` has returned it, a turn of the loop later."""
        return any(entry.outcome is not None for entry in self._entries.values() if not entry.is_open)

    # --- the framework's side ------------------------------------------------------------------

    def register(self, pod: Pod, cycle_id: str, node_name: str) -> None:
        """Make the entry of a pod before Permit runs. Decisions about the pod are accepted from now on."""
        self._entries[pod.uid] = _Entry(pod, cycle_id, node_name)

    def discard(self, uid: str) -> None:
        """Remove the entry of a pod that does not wait, because Permit approved or rejected it at once."""
        entry = self._entries.pop(uid, None)
        if entry is not None:
            entry.cancel_timers()

    def will_hold(self, uid: str, plugin: str, wait_s: float) -> None:
        """Note that a plugin will hold the pod for `wait_s` seconds, while other plugins are still called."""
        self._entries[uid].deadlines_s[plugin] = self._clock.now_s() + min(wait_s, MAX_WAIT_S)

    def hold(self, uid: str, waits_s: dict[str, float]) -> None:
        """Begin the wait at the end of Permit. `waits_s`: the seconds that each plugin waits."""
        entry = self._entries[uid]
        entry.is_open = False
        if entry.outcome is not None:
            return
        entry.hold(waits_s, self._clock.now_s())
        for plugin, wait_s in entry.pending.items():
            ends_s = self._clock.monotonic_s() + wait_s
            entry.timers[plugin] = self._clock.call_at(ends_s, _Expiry(entry, plugin, wait_s))
        entry.apply_early()

    def held_by(self, uid: str) -> tuple[str, ...]:
        """Return the plugins that still hold the pod."""
        entry = self._entries.get(uid)
        return () if entry is None else tuple(entry.pending)

    def is_waiting(self, uid: str) -> bool:
        """Return True from `hold` until `wait` has returned the decision."""
        entry = self._entries.get(uid)
        return entry is not None and not entry.is_open

    def fails(self, uid: str) -> bool:
        """Return True if the pod's task is in `wait`, and gets a decision that ends its attempt."""
        entry = self._entries.get(uid)
        if entry is None or entry.waiter is None or entry.outcome is None:
            return False
        return not entry.outcome.is_success

    async def wait(self, uid: str) -> Status:
        """Wait for the decision, then remove the entry. Returns SUCCESS at once if no plugin holds the
        pod.
        """
        entry = self._entries.get(uid)
        if entry is None or entry.is_open:
            return SUCCESS
        if entry.outcome is None:
            entry.waiter = asyncio.get_running_loop().create_future()
            await entry.waiter
        if self._entries.get(uid) is entry:
            del self._entries[uid]
        return entry.outcome or SUCCESS

    def deadlines_of(self, plugin: str) -> dict[str, float]:
        """Return the ids of the cycles whose pods this plugin holds or will hold, with the deadlines (Unix
        seconds).
        """
        return {
            entry.cycle_id: entry.deadlines_s[plugin]
            for entry in self._entries.values()
            if entry.outcome is None
            and (plugin in entry.pending or (entry.is_open and plugin in entry.deadlines_s))
        }

    # --- decisions -----------------------------------------------------------------------------

    def list(self, plugin: str | None = None) -> list[WaitingPod]:
        """Return the undecided waiting pods. `plugin`: only pods that this plugin holds."""
        return [
            entry.shown()
            for entry in self._entries.values()
            if entry.is_held and (plugin is None or plugin in entry.pending)
        ]

    def allow(self, plugin: str, uid: str, cycle_id: str, holder: str = "") -> Decision:
        """End only the wait of `holder`; empty: the wait of `plugin`, which makes the decision."""
        found = self._find(uid, cycle_id)
        if isinstance(found, Decision):
            return found
        return found.allow(plugin, self._may_end.get(plugin), holder)

    def reject(self, plugin: str, uid: str, cycle_id: str, message: str) -> Decision:
        """Reject the pod, and end the waits of all plugins."""
        found = self._find(uid, cycle_id)
        if isinstance(found, Decision):
            return found
        return found.reject(plugin, self._may_end.get(plugin), message)

    def reject_pod(self, uid: str) -> bool:
        """End the wait of a pod that was deleted or has another scheduler now. False if it did not wait."""
        entry = self._entries.get(uid)
        return entry is not None and entry.decide(Status.unschedulable("removed"))

    def preempt(self, uid: str, plugin: str, message: str) -> bool:
        """End the wait with an error, so that the pod is retried after its backoff. False if it did not
        wait.
        """
        entry = self._entries.get(uid)
        if entry is None or entry.is_open:
            return False
        return entry.decide(Status.error(message).with_plugin(plugin))

    def _find(self, uid: str, cycle_id: str) -> _Entry | Decision:
        entry = self._entries.get(uid)
        if entry is None:
            return Decision.NOT_WAITING
        return entry if entry.cycle_id == cycle_id else Decision.STALE_CYCLE


@dataclass(slots=True)
class _Expiry:
    entry: _Entry
    plugin: str
    wait_s: float

    def __call__(self) -> None:
        self.entry.decide(timed_out(self.plugin, self.wait_s))
