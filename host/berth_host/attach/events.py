"""`AttachmentEvents`: the changes of attachments, as Kubernetes Events.

The Events are about the host's own pod, so that `kubectl describe pod` shows them. A host that does not know
its pod (`POD_NAME`, `POD_NAMESPACE`) writes none. The log has every change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from berth_host.attach.state import PlaceChange, Refusal, ScopeChange, State, Swap

_ACTION_MAX: Final = 128
"""The longest action of an Event that the API server accepts, in characters."""
_NORMAL, _WARNING = "Normal", "Warning"
_REASONS: Final[Mapping[State, tuple[str, str]]] = {
    State.ACTIVE: (_NORMAL, "PluginActive"),
    State.DEGRADED: (_WARNING, "PluginDegraded"),
    State.QUARANTINED: (_WARNING, "PluginQuarantined"),
    State.REJECTED: (_WARNING, "PluginRejected"),
    State.BACKOFF: (_WARNING, "PluginNotAttached"),
}


class WriteEvent(Protocol):
    """A function that writes a Kubernetes Event about the host's own pod, in the background."""

    def __call__(self, *, type: str, reason: str, action: str, note: str) -> None:
        """Write the Event. `type`: Normal or Warning."""
        ...


class AttachmentEvents:
    """The Events about attachments. `write`: None if the host does not know its own pod, and writes none."""

    def __init__(self, write: WriteEvent | None) -> None:
        self._write_event = write

    def place_changed(self, change: PlaceChange) -> None:
        """Write the new state of a place, if users can act on that state."""
        if change.state in _REASONS:
            kind, reason = _REASONS[change.state]
            names = ", ".join(change.plugins)
            where = f"plugin {names} at {change.place}" if names else change.place
            self._write(
                names or change.place,
                kind,
                reason,
                f"{where}: {change.reason or 'it is attached and gets calls'}",
            )

    def swapped(self, swap: Swap) -> None:
        """Write that calls of a plugin go to another instance."""
        kind, reason, why = (
            (_WARNING, "PluginFellBack", f", an older one: {swap.reason}")
            if swap.falls_back
            else (_NORMAL, "PluginSwapped", "")
        )
        note = f"plugin {swap.plugin}: instance {swap.instance_id} replaces {swap.before}{why}"
        self._write(swap.plugin, kind, reason, note)

    def scope_changed(self, change: ScopeChange) -> None:
        """Write that a plugin concerns other pods than before."""
        note = (
            f"plugin {change.plugin}: instance {change.instance_id} concerns {change.after};"
            f" the one before concerned {change.before}"
        )
        self._write(change.plugin, _NORMAL, "PluginScopeChanged", note)

    def refused(self, refusal: Refusal) -> None:
        """Write that a plugin refuses its arguments in a new configuration, which is therefore not used."""
        note = (
            f"plugin {refusal.plugins} at {refusal.place} {refusal.reason};"
            " the previous configuration stays in use"
        )
        self._write(refusal.plugins, _WARNING, "ConfigurationRefused", note)

    def _write(self, what: str, kind: str, reason: str, note: str) -> None:
        """Write one Event.

        `what`: a part of the action, so that Events about different plugins are different series. Events that
        differ only in their notes are one series, which keeps one note.
        """
        if self._write_event is not None:
            self._write_event(type=kind, reason=reason, action=f"Attaching {what}"[:_ACTION_MAX], note=note)
