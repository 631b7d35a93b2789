"""The events that each plugin registered for, and how they match.

Built once per profile by `wiring` from the plugins' declarations; read by `hints` and `gates`. Source:
kube-scheduler `framework/events.go` (MatchClusterEvents), `scheduler.go` (buildQueueingHintMap,
registration of node taints) and `framework/interface.go` (EnqueueExtensions), v1.37.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from berth_sdk.events import ANY_RESOURCE, TARGET_POD, ActionType, EventInterest, Hint
from berth_sdk.selectors import LabelSelector

from berth_host.queue.events import WILDCARD, QueueEvent

REJECTING_POINTS: Final = frozenset({"preEnqueue", "preFilter", "filter", "reserve", "permit"})
"""The extension points at which plugins can reject pods; the registrations of other plugins are not used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A registration for some actions on one resource.

    `ask`: the plugin's hint decides; False: the event always helps. `leaves_scope`: the event helps a pod
    that is outside the plugin's scope now. `implied`: the host added the registration, not the plugin.
    `selector`: only objects with matching labels count.
    """

    resource: str
    action: int
    ask: bool = False
    implied: bool = False
    leaves_scope: bool = False
    selector: LabelSelector | None = None

    def matches(self, event: QueueEvent) -> bool:
        """Return True if the registration matches `event`.

        The numeric comparison is part of the rule: a general update, whose number has the bits of all kinds
        of update, does not match a registration for one kind.
        """
        if self.resource == WILDCARD:
            return True
        if self.resource not in (event.resource, event.registered_resource):
            return False
        return bool(self.action & event.action) and event.action <= self.action

    def selects(self, event: QueueEvent) -> bool:
        """Return True if the event's object, or the last state of a deleted one, matches the selector."""
        if self.selector is None:
            return True
        subject = event.new if event.new is not None else event.old
        if subject is None:
            return True
        labels = getattr(subject, "labels", None)
        if labels is None:
            labels = subject.get("metadata.labels", {})  # type: ignore[union-attr]  # Records have `labels`.
        return self.selector.matches(labels)


LEAVES_SCOPE: Final = Registration(
    resource=TARGET_POD, action=int(ActionType.UPDATE), leaves_scope=True, implied=True
)
"""For a plugin with a scope: an update may take the very pod that it rejected out of the scope."""
CLAIMS_LEAVE_SCOPE: Final = tuple(
    # Not implied: pods at a closed gate wait for it, too.
    Registration(resource=resource, action=int(ActionType.ADD | ActionType.UPDATE), leaves_scope=True)
    for resource in ("PersistentVolumeClaim", "resource.k8s.io/ResourceClaim")
)
"""For a plugin whose scope names classes: a claim that was not known may turn out to be of another class."""
NAMESPACE_LEAVES_SCOPE: Final = Registration(
    # Not implied: pods at a closed gate wait for it, too.
    resource="Namespace",
    action=int(ActionType.ADD | ActionType.UPDATE | ActionType.DELETE),
    leaves_scope=True,
)
"""For an operator's scope that selects namespaces: a namespace may get other labels, and leave the scope."""
_PLAIN_NODE_TAINT: Final = Registration(resource="Node", action=int(ActionType.UPDATE_NODE_TAINT))


def registrations_of(interests: Iterable[EventInterest] | None) -> tuple[Registration, ...]:
    """Return the registrations for a plugin's declared interests. None: every change; empty: none."""
    if interests is None:
        return tuple(Registration(resource=resource, action=int(ActionType.ALL)) for resource in ANY_RESOURCE)
    return _with_node_taints(
        Registration(
            resource=interest.resource,
            action=int(interest.action),
            ask=interest.hint is Hint.ASK_PLUGIN,
            selector=LabelSelector.parse(interest.label_selector) if interest.label_selector else None,
        )
        for interest in interests
    )


def _with_node_taints(declared: Iterable[Registration]) -> tuple[Registration, ...]:
    """Add a registration for changed node taints to a plugin that registered for new nodes.

    A node may be added with a taint and lose the taint later. Default plugins rely on this, as
    kube-scheduler's do.
    """
    found = tuple(declared)
    nodes = [item for item in found if item.resource == "Node"]
    if not any(item.action & ActionType.ADD for item in nodes):
        return found
    if any(item.action & ActionType.UPDATE_NODE_TAINT for item in nodes):
        return found
    return (*found, replace(_PLAIN_NODE_TAINT, implied=True))


class RegistrationIndex:
    """The registrations of one profile, by resource and action of an event."""

    def __init__(self, by_plugin: Mapping[str, Sequence[Registration]]) -> None:
        self._by_plugin = {name: tuple(items) for name, items in by_plugin.items()}
        self._found: dict[tuple[str, int], dict[str, tuple[Registration, ...]]] = {}
        self._declared: dict[str, tuple[Registration, ...]] = {}

    def replace(self, plugin: str, items: Sequence[Registration]) -> None:
        """Set a plugin's registrations."""
        self._by_plugin[plugin] = tuple(items)
        self._found.clear()
        self._declared.pop(plugin, None)

    def matching(self, event: QueueEvent) -> dict[str, tuple[Registration, ...]]:
        """Return the matching registrations by plugin, without plugins that have none."""
        kind = (event.resource, event.action)
        found = self._found.get(kind)
        if found is None:
            found = self._found[kind] = {
                name: hits
                for name, items in self._by_plugin.items()
                if (hits := tuple(item for item in items if item.matches(event)))
            }
        return found

    def all_of(self, plugin: str) -> tuple[Registration, ...]:
        """Return the plugin's registrations, including implied ones."""
        return self._by_plugin.get(plugin, ())

    def declared_by(self, plugin: str) -> tuple[Registration, ...]:
        """Return the plugin's own registrations; the same object until `replace`."""
        found = self._declared.get(plugin)
        if found is None:
            items = self._by_plugin.get(plugin, ())
            found = self._declared[plugin] = tuple(item for item in items if not item.implied)
        return found
