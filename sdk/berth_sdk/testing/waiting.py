"""`WaitingRoom`: the pods that a test host holds at Permit, with the rules of a real host.

The test advances the clock, so nothing sleeps. `berth_sdk.permit_wait` has the rules of a wait.

Source: kube-scheduler `framework/runtime/waiting_pods_map.go`, v1.36; kubernetes#88179, #82385.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from berth_sdk.permit_wait import MAX_WAIT_S, MayEnd, PermitWait, timed_out
from berth_sdk.pod import Pod
from berth_sdk.results import Decision, WaitingPod
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.testing.clock import TestClock

WAITS: Final = Status(Code.WAIT)


class WaitingRoom:
    """All pods at Permit, by uid. The first decision about a pod counts. `on_decided`: called with the
    uid.
    """

    def __init__(self, clock: TestClock, on_decided: Callable[[str], None] = lambda uid: None) -> None:
        self._clock = clock
        self._on_decided = on_decided
        self._entries: dict[str, PermitWait] = {}

    @property
    def now_s(self) -> float:
        """The time of the test, Unix seconds."""
        return self._clock.now_s

    # --- a pod's wait --------------------------------------------------------------------------

    def register(self, pod: Pod, cycle_id: str, node_name: str) -> None:
        """Accept decisions from now on. Call before Permit."""
        self._entries[pod.uid] = PermitWait(pod, cycle_id, node_name)

    def discard(self, uid: str, cycle_id: str) -> None:
        """Drop the wait of this cycle, if there is one."""
        entry = self._entries.get(uid)
        if entry is not None and entry.cycle_id == cycle_id:
            del self._entries[uid]

    def hold(self, uid: str, waits_s: Mapping[str, float | None]) -> None:
        """Hold the pod for these plugins, each for its number of seconds (None: the maximum), at the end of
        Permit.
        """
        entry = self._entries[uid]
        entry.is_open = False
        asked_s = {plugin: MAX_WAIT_S if wait_s is None else wait_s for plugin, wait_s in waits_s.items()}
        entry.hold(asked_s, self._clock.now_s)
        entry.apply_early()
        self._tell(entry)

    def outcome(self, uid: str, cycle_id: str) -> Status:
        """Return WAIT while a plugin holds the pod, else the decision. SUCCESS if no plugin held the pod."""
        entry = self._entries.get(uid)
        if entry is None or entry.is_open or entry.cycle_id != cycle_id:
            return SUCCESS
        return WAITS if entry.outcome is None else entry.outcome

    # --- time ----------------------------------------------------------------------------------

    def next_deadline_s(self) -> float | None:
        """Return the end of the first wait, Unix seconds. None: no pod waits."""
        ends = [entry.deadlines_s[name] for entry in self._held() for name in entry.pending]
        return min(ends, default=None)

    def expire(self) -> None:
        """Reject the pods whose wait is over."""
        for entry in self._held():
            ended = [name for name in entry.pending if entry.deadlines_s[name] <= self._clock.now_s]
            if ended:
                first = min(ended, key=lambda name: entry.deadlines_s[name])
                entry.decide(timed_out(first, entry.pending[first]))
                self._tell(entry)

    # --- decisions -----------------------------------------------------------------------------

    def undecided(self, plugin: str | None = None) -> list[WaitingPod]:
        """Return the undecided pods. `plugin`: only the pods that this plugin holds."""
        return [entry.shown() for entry in self._held() if plugin is None or plugin in entry.pending]

    def allow(self, plugin: str, may_end: MayEnd, waiting: WaitingPod, holder: str = "") -> Decision:
        """End the wait of `holder` alone. Empty: the wait of `plugin`, which decides."""
        return self._decided(waiting, lambda entry: entry.allow(plugin, may_end, holder))

    def reject(self, plugin: str, may_end: MayEnd, waiting: WaitingPod, message: str) -> Decision:
        """End the waits of all plugins: the pod goes back to the queue."""
        return self._decided(waiting, lambda entry: entry.reject(plugin, may_end, message))

    def _decided(self, waiting: WaitingPod, decide: Callable[[PermitWait], Decision]) -> Decision:
        found = self._find(waiting)
        if isinstance(found, Decision):
            return found
        decision = decide(found)
        if decision is Decision.APPLIED:
            self._tell(found)
        return decision

    def _held(self) -> list[PermitWait]:
        return [entry for entry in self._entries.values() if entry.is_held]

    def _find(self, waiting: WaitingPod) -> PermitWait | Decision:
        entry = self._entries.get(waiting.pod.uid)
        if entry is None:
            return Decision.NOT_WAITING
        return entry if entry.cycle_id == waiting.cycle_id else Decision.STALE_CYCLE

    def _tell(self, entry: PermitWait) -> None:
        if entry.outcome is not None:
            self._on_decided(entry.pod.uid)
