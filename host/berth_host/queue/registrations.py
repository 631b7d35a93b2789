"""The events that each plugin registered for, and the rule that matches them.

Built once per profile by `app`, from what the plugins declare; read by
`hints` and `gates`. Source: kube-scheduler `framework/events.go` (MatchClusterEvents), `scheduler.go`
(buildQueueingHintMap, registration of node taints) and `framework/interface.go` (EnqueueExtensions), v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from berth_sdk.events import ActionType, EventInterest, Hint
from berth_sdk.selectors import LabelSelector

from berth_host.config.default_plugins import DEFAULT_PLUGINS_BY_NAME
from berth_host.queue.events import WILDCARD, QueueEvent

REJECTING_POINTS: Final = frozenset({"preEnqueue", "preFilter", "filter", "reserve", "permit"})
"""A plugin at none of these points rejects no pod, so its registrations are not looked at."""

ANY_RESOURCE: Final = (
    "Pod",
    "Node",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "storage.k8s.io/CSINode",
    "storage.k8s.io/CSIDriver",
    "storage.k8s.io/CSIStorageCapacity",
    "storage.k8s.io/StorageClass",
    "resource.k8s.io/ResourceClaim",
    "resource.k8s.io/DeviceClass",
)
"""The resources of a plugin that declares no events: it hears of every action on these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One resource and some of its actions. `ask`: the plugin's hint decides; else the event always helps.

    `implied`: the plugin did not register it, the host did on its behalf. `selector` narrows to objects
    with matching labels.
    """

    resource: str
    action: int
    ask: bool = False
    implied: bool = False
    selector: LabelSelector | None = None

    def matches(self, event: QueueEvent) -> bool:
        """Whether the registration matches `event`.

        The numeric comparison is part of the rule: it keeps a general update, whose number is that of
        all kinds of update together, away from plugins that registered one kind.
        """
        if self.resource == WILDCARD:
            return True
        if self.resource != event.registered_resource:
            return False
        return bool(self.action & event.action) and event.action <= self.action

    def selects(self, event: QueueEvent) -> bool:
        """Whether the object has the labels; the new state, or the last state of a deleted object."""
        if self.selector is None:
            return True
        subject = event.new if event.new is not None else event.old
        if subject is None:
            return True
        labels = getattr(subject, "labels", None)
        if labels is None:
            labels = subject.get("metadata.labels", {})  # type: ignore[union-attr]  # records have labels
        return self.selector.matches(labels)


_PLAIN_NODE_TAINT: Final = Registration(resource="Node", action=int(ActionType.UPDATE_NODE_TAINT))


def registrations_of(interests: Iterable[EventInterest] | None) -> tuple[Registration, ...]:
    """A plugin's declared interests -> its registrations. None: any change; empty: none."""
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


def default_registrations(plugins: Iterable[str]) -> dict[str, Sequence[Registration]]:
    """The registrations of kube-scheduler's own plugins by name, for plugins that are not installed."""
    result: dict[str, Sequence[Registration]] = {}
    for name in plugins:
        plugin = DEFAULT_PLUGINS_BY_NAME[name]
        if not plugin.points & REJECTING_POINTS:
            continue
        events = [
            Registration(
                resource=event.resource,
                action=int(EventInterest(event.resource, event.actions).action),
                ask=event.has_hint,
            )
            for event in plugin.events
        ]
        # The table lists the implied registration too; no default plugin makes this one itself.
        result[name] = _with_node_taints(event for event in events if event != _PLAIN_NODE_TAINT)
    return result


def _with_node_taints(declared: Iterable[Registration]) -> tuple[Registration, ...]:
    """A node may be added tainted and lose the taint later: a plugin that waits for new nodes waits for that
    too."""
    found = tuple(declared)
    nodes = [item for item in found if item.resource == "Node"]
    if not any(item.action & ActionType.ADD for item in nodes):
        return found
    if any(item.action & ActionType.UPDATE_NODE_TAINT for item in nodes):
        return found
    return (*found, replace(_PLAIN_NODE_TAINT, implied=True))


class RegistrationIndex:
    """The registrations of one profile, looked up by event. Matching depends on resource and action only."""

    def __init__(self, by_plugin: Mapping[str, Sequence[Registration]]) -> None:
        self._by_plugin = {name: tuple(items) for name, items in by_plugin.items()}
        self._found: dict[tuple[str, int], dict[str, tuple[Registration, ...]]] = {}
        self._declared: dict[str, tuple[Registration, ...]] = {}

    def replace(self, plugin: str, items: Sequence[Registration]) -> None:
        """Take over a plugin's registrations, for the first time or changed."""
        self._by_plugin[plugin] = tuple(items)
        self._found.clear()
        self._declared.pop(plugin, None)

    def matching(self, event: QueueEvent) -> dict[str, tuple[Registration, ...]]:
        """Per plugin the registrations that match; plugins without any are left out."""
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
        """The plugin's registrations, and the host's on its behalf."""
        return self._by_plugin.get(plugin, ())

    def declared_by(self, plugin: str) -> tuple[Registration, ...]:
        """The plugin's own registrations; the same object until it registers anew."""
        found = self._declared.get(plugin)
        if found is None:
            items = self._by_plugin.get(plugin, ())
            found = self._declared[plugin] = tuple(item for item in items if not item.implied)
        return found
