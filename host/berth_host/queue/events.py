"""Cluster events as the queue handles them, with their labels, and the requests of plugins.

Created by `cluster.handlers` (with `cluster.changes`), by the failure handler and by the queue.
Source: kube-scheduler `framework/types.go` and `framework/events.go`, v1.37.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from berth_sdk.events import (
    ASSIGNED_POD,
    POD_RESOURCES,
    ActionType,
    ClusterEvent,
    EventObject,
    word_of_action,
)
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.pod_group import POD_GROUP, PodGroup

WILDCARD: Final = "*"

_ACTION_TEXT: Final = {
    int(action): "".join(part.capitalize() for part in name.split("_"))
    for name, action in ActionType.__members__.items()
}

# Labels of moves that no cluster event causes.
BACKOFF_COMPLETE: Final = "BackoffComplete"
FORCE_ACTIVATE: Final = "ForceActivate"
POP_FROM_BACKOFF: Final = "PopFromBackoffQ"
ATTEMPT_FAILED: Final = "ScheduleAttemptFailure"
UNSCHEDULABLE_TIMEOUT: Final = "UnschedulableTimeout"
PLUGIN_REQUEST: Final = "PluginRequest"
PLUGIN_RECOVERED: Final = "PluginRecovered"
RESERVATION_OVER: Final = "ReservationOver"


def label_of(resource: str, action: ActionType) -> str:
    """Return the label of an event, such as `NodeUpdateNodeLabel`."""
    return resource + _ACTION_TEXT[int(action)]


class QueueEvent:
    """A cluster event. `old` is None for an add, `new` for a delete.

    `resource` is a resource of EventInterest; of a pod it is the part of POD_RESOURCES, which a registration
    for Pod matches too. `label`: the event's name in metrics and histories.
    """

    __slots__ = ("_cluster_event", "action", "label", "new", "old", "resource")

    def __init__(
        self,
        resource: str,
        action: ActionType,
        old: EventObject | None = None,
        new: EventObject | None = None,
        *,
        label: str = "",
    ) -> None:
        self.resource = resource
        self.action = int(action)
        self.old = old
        self.new = new
        self.label = label or label_of(resource, action)
        self._cluster_event: ClusterEvent | None = None

    @property
    def is_wildcard(self) -> bool:
        """True for an event that concerns every pod, whichever plugin rejected it."""
        return self.resource == WILDCARD

    @property
    def registered_resource(self) -> str:
        """The kind of the object, for which a plugin may register to get this event."""
        return "Pod" if self.resource in POD_RESOURCES else self.resource

    @property
    def cluster_event(self) -> ClusterEvent:
        """The event for hint functions; always the same object."""
        if self._cluster_event is None:
            resource = self.registered_resource
            self._cluster_event = ClusterEvent(
                resource=resource,
                action=word_of_action(resource, ActionType(self.action)),
                old=self.old,
                new=self.new,
            )
        return self._cluster_event

    def __repr__(self) -> str:
        return f"QueueEvent({self.label})"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRequest:
    """A plugin's request to requeue pods: those with `uids`, or (None) all that the plugin rejected.

    Kept for pods in flight like an event. `skip_backoff`: the pods go to activeQ even during their backoff.
    """

    plugin: str
    uids: frozenset[str] | None
    skip_backoff: bool = False
    label: str = PLUGIN_REQUEST


def assigned_pod_deleted(pod: EventObject) -> QueueEvent:
    """Return the event of a pod that left its node, or lost its nomination."""
    return QueueEvent(ASSIGNED_POD, ActionType.DELETE, old=pod)


def reservation_freed(assumed: Pod) -> QueueEvent:
    """Return the event of an assumed pod that will not be bound to its node.

    The event's object contains the node too, because a served plugin gets only the object.
    """
    item = assumed.object
    if item is not None and not item.get("spec.nodeName"):
        raw = item.parsed
        placed = {**raw, "spec": {**raw["spec"], "nodeName": assumed.node_name}}
        assumed = Pod.from_object(KubeObject.of(placed))
    return assigned_pod_deleted(assumed)


COSCHEDULING_GROUP: Final = "podgroups.v1alpha1.scheduling.x-k8s.io"
"""The resource of the events of coscheduling's PodGroups."""


def group_event(action: ActionType, old: PodGroup | None, new: PodGroup | None) -> QueueEvent:
    """Return the event of a PodGroup or CompositePodGroup object; hints get the API objects."""
    group = new or old
    kind = POD_GROUP if group is None else group.api_kind
    return QueueEvent(
        COSCHEDULING_GROUP if group is not None and group.is_coscheduling else f"scheduling.k8s.io/{kind}",
        action,
        None if old is None else old.object,
        None if new is None else new.object,
    )


def timed_out() -> QueueEvent:
    """Return the event for pods that waited too long for an event that helps them."""
    return QueueEvent(WILDCARD, ActionType.ALL, label=UNSCHEDULABLE_TIMEOUT)


def force_activated(pod: EventObject) -> QueueEvent:
    """Return the event of a plugin that activates this pod only."""
    return QueueEvent(WILDCARD, ActionType.ALL, new=pod, label=FORCE_ACTIVATE)
