"""`AttachmentEvents`: what becomes of plugins elsewhere, as Kubernetes events.

About the host's own pod, so that `kubectl describe pod` shows them. A host that does not know its pod
(`POD_NAME`, `POD_NAMESPACE`) writes none; the log has everything. Hears of changes from `HostAttachments`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from berth_sdk.kube_object import ObjectRef

from berth_host.attach.state import PlaceChange, State, Swap
from berth_host.attach.trial import Refusal
from berth_host.cluster.port import EventRecord

_ACTION_MAX: Final = 128
"""The API server takes no longer action."""
_NORMAL, _WARNING = "Normal", "Warning"
_REASONS: Final[Mapping[State, tuple[str, str]]] = {
    State.ACTIVE: (_NORMAL, "PluginActive"),
    State.DEGRADED: (_WARNING, "PluginDegraded"),
    State.QUARANTINED: (_WARNING, "PluginQuarantined"),
    State.REJECTED: (_WARNING, "PluginRejected"),
    State.BACKOFF: (_WARNING, "PluginNotAttached"),
}


class AttachmentEvents:
    """`report`: writes an event in the background. `own_pod` None: there are no events."""

    def __init__(
        self, report: Callable[[EventRecord], None], own_pod: ObjectRef | None, reporter: str
    ) -> None:
        self._report = report
        self._own_pod = own_pod
        self._reporter = reporter

    def place_changed(self, change: PlaceChange) -> None:
        """A place has another state, which lasts."""
        if change.state in _REASONS:
            kind, reason = _REASONS[change.state]
            names = ", ".join(change.plugins)
            where = f"plugin {names} at {change.place}" if names else change.place
            self._write(
                names or change.place,
                kind,
                reason,
                f"{where}: {change.reason or 'it is attached, and is asked'}",
            )

    def swapped(self, swap: Swap) -> None:
        """Another instance is asked in place of one that was."""
        kind, reason, why = (
            (_WARNING, "PluginFellBack", f", an older one: {swap.reason}")
            if swap.falls_back
            else (_NORMAL, "PluginSwapped", "")
        )
        note = f"plugin {swap.plugin}: instance {swap.instance_id} is asked in place of {swap.before}{why}"
        self._write(swap.plugin, kind, reason, note)

    def refused(self, refusal: Refusal) -> None:
        """Another configuration is not used, because a plugin does not accept its arguments in it."""
        note = (
            f"plugin {refusal.plugins} at {refusal.place} {refusal.reason};"
            " the configuration before stays in use"
        )
        self._write(refusal.plugins, _WARNING, "ConfigurationRefused", note)

    def _write(self, what: str, kind: str, reason: str, note: str) -> None:
        """`what`: in the action, as events that differ in their notes alone are one series, with one note."""
        if self._own_pod is None:
            return
        self._report(
            EventRecord(
                regarding=self._own_pod,
                type=kind,
                reason=reason,
                action=f"Attaching {what}"[:_ACTION_MAX],
                note=note,
                reporter=self._reporter,
            )
        )
