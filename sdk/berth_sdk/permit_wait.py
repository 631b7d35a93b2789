"""The wait of a pod at Permit: how long it may last, who may end it, and the outcome of each decision.

Used by the host and by the host of `berth_sdk.testing`. Both bring their own clock.

Source: kube-scheduler `framework/runtime/framework.go` (maxTimeout), `waiting_pods_map.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from berth_sdk.duration import format_seconds
from berth_sdk.pod import Pod
from berth_sdk.results import Decision, WaitingPod
from berth_sdk.status import SUCCESS, Status

MAX_WAIT_S: Final = 15 * 60.0
"""The longest wait, in seconds. Longer waits are cut to it; waits below zero end at once."""
MayEnd: TypeAlias = frozenset[str] | None
"""The plugins whose waits a plugin may end beside its own. None: every plugin."""


@dataclass(slots=True, eq=False)
class PermitWait:
    """The wait of one pod at Permit, in one cycle.

    The record exists before the host calls the Permit plugins (`is_open`). A decision that arrives before the
    reply of its own call is stored, and `apply_early` applies it.

    `pending`: the plugins that hold the pod, each with the seconds of its wait. `deadlines_s`: the ends of
    the waits, Unix seconds. `outcome`: the first decision.
    """

    pod: Pod
    cycle_id: str
    node_name: str
    is_open: bool = True
    pending: dict[str, float] = field(default_factory=dict)
    deadlines_s: dict[str, float] = field(default_factory=dict)
    outcome: Status | None = None
    _early_allows: list[str] = field(default_factory=list)
    _early_rejects: list[tuple[Status, MayEnd]] = field(default_factory=list)

    @property
    def is_held(self) -> bool:
        """True while a plugin holds the pod and nothing is decided."""
        return not self.is_open and self.outcome is None

    def shown(self) -> WaitingPod:
        """Return the waiting pod for plugins. At least one plugin must hold the pod."""
        return WaitingPod(
            pod=self.pod,
            cycle_id=self.cycle_id,
            node_name=self.node_name,
            pending_plugins=tuple(self.pending),
            deadline_s=min(self.deadlines_s[name] for name in self.pending),
        )

    def hold(self, waits_s: Mapping[str, float], now_s: float) -> None:
        """Hold the pod for these plugins, each for its number of seconds, at the end of Permit. `now_s`: Unix
        seconds. Call `apply_early` next.
        """
        for plugin, asked_s in waits_s.items():
            wait_s = min(max(asked_s, 0.0), MAX_WAIT_S)
            self.pending[plugin] = wait_s
            self.deadlines_s[plugin] = now_s + wait_s

    def apply_early(self) -> None:
        """Apply the decisions that came before Permit was over. The plugins that hold the pod now decide
        whether a plugin may reject it.
        """
        for status, may_end in self._early_rejects:
            if _may_reject(status.plugin, may_end, self.pending):
                self.decide(status)
                return
        for plugin in self._early_allows:
            if plugin in self.pending:
                self.release(plugin)

    def allow(self, plugin: str, may_end: MayEnd, holder: str = "") -> Decision:
        """End the wait of `holder` alone. Empty: the wait of `plugin`, which decides."""
        holder = holder or plugin
        if may_end is not None and holder != plugin and holder not in may_end:
            return Decision.NOT_PERMITTED
        if self.is_open:
            self._early_allows.append(holder)
            return Decision.STORED_EARLY
        if self.outcome is not None:
            return Decision.ALREADY_DECIDED
        if holder not in self.pending:
            return Decision.ALREADY_DECIDED if holder in self.deadlines_s else Decision.NOT_PERMITTED
        self.release(holder)
        return Decision.APPLIED

    def reject(self, plugin: str, may_end: MayEnd, message: str) -> Decision:
        """End the waits of all plugins: the pod goes back to the queue."""
        status = Status.unschedulable(message).with_plugin(plugin)
        if self.is_open:
            # The rejection counts only if the pod comes to wait: Permit itself may still deny the pod or pass
            # it.
            self._early_rejects.append((status, may_end))
            return Decision.STORED_EARLY
        if self.outcome is not None:
            return Decision.ALREADY_DECIDED
        if not _may_reject(plugin, may_end, self.pending):
            return Decision.NOT_PERMITTED
        self.decide(status)
        return Decision.APPLIED

    def decide(self, outcome: Status) -> bool:
        """Store the first outcome. Return False when there is one already."""
        if self.outcome is not None:
            return False
        self.outcome = outcome
        return True

    def release(self, plugin: str) -> None:
        """End the wait of one plugin that holds the pod. Without another holder, the outcome is SUCCESS."""
        del self.pending[plugin]
        if not self.pending:
            self.decide(SUCCESS)


def _may_reject(plugin: str, may_end: MayEnd, holders: Collection[str]) -> bool:
    """Return True if the plugin may end all waits of a pod. A wait of its own suffices: the plugin could have
    rejected the pod at Permit.
    """
    return may_end is None or plugin in holders or may_end.issuperset(holders)


def timed_out(plugin: str, wait_s: float) -> Status:
    """Return the rejection of a pod whose wait at `plugin` lasted `wait_s` seconds.

    >>> timed_out("Gang", 90).message
    'rejected due to timeout after waiting 1m30s at plugin Gang'
    """
    text = f"rejected due to timeout after waiting {format_seconds(wait_s)} at plugin {plugin}"
    return Status.unschedulable(text).with_plugin(plugin)
