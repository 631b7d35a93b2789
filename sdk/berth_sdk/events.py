"""Cluster events: the changes that happen, and the changes that a plugin waits for.

A `ClusterEvent` has happened. An `EventInterest` is declared in a plugin's `events`. The module also defines
the action bits, their words and the matching rule.

Source: kube-scheduler `framework/types.go` and `events.go`, v1.37.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntFlag
from typing import Final

from berth_sdk.errors import PluginDefinitionError
from berth_sdk.kube_object import KubeObject
from berth_sdk.node import Node
from berth_sdk.pod import Pod

EventObject = Pod | Node | KubeObject


class ActionType(IntFlag):
    """kube-scheduler's action bits. Their numeric order is part of the matching rule."""

    ADD = 1
    DELETE = 2
    UPDATE_NODE_ALLOCATABLE = 4
    UPDATE_NODE_LABEL = 8
    UPDATE_NODE_TAINT = 16
    UPDATE_NODE_CONDITION = 32
    UPDATE_NODE_ANNOTATION = 64
    UPDATE_NODE_DECLARED_FEATURE = 128
    UPDATE_POD_LABEL = 256
    UPDATE_POD_SCALE_DOWN = 512
    UPDATE_POD_SCALE_UP = 1024
    UPDATE_POD_TOLERATION = 2048
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = 4096
    UPDATE_POD_GENERATED_RESOURCE_CLAIM = 8192
    UPDATE = 16380
    ALL = 16383


ASSIGNED_POD: Final = "AssignedPod"
"""A pod on a node. An assumed pod, too, whose reservation is undone."""
UNSCHEDULED_POD: Final = "UnscheduledPod"
"""Another pod without a node. The host has such events only for pod groups."""
TARGET_POD: Final = "TargetPod"
"""The waiting pod itself, when it is updated."""
POD_RESOURCES: Final = (ASSIGNED_POD, UNSCHEDULED_POD, TARGET_POD)
"""The parts of `Pod` that an EventInterest may name. `Pod` itself is all of them."""

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
"""The resources of a plugin that declares no events: every action on these counts."""

_POD_WORDS: Final = {
    "update.labels": ActionType.UPDATE_POD_LABEL,
    "update.scaleDown": ActionType.UPDATE_POD_SCALE_DOWN,
    "update.scaleUp": ActionType.UPDATE_POD_SCALE_UP,
    "update.tolerations": ActionType.UPDATE_POD_TOLERATION,
    "update.schedulingGates": ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
    "update.generatedResourceClaim": ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM,
}


# The words of EventInterest.actions and of the contract's ClusterEvent.action, per resource.
WORDS: Final[dict[str, dict[str, ActionType]]] = {
    "Node": {
        "update.allocatable": ActionType.UPDATE_NODE_ALLOCATABLE,
        "update.labels": ActionType.UPDATE_NODE_LABEL,
        "update.taints": ActionType.UPDATE_NODE_TAINT,
        "update.conditions": ActionType.UPDATE_NODE_CONDITION,
        "update.annotations": ActionType.UPDATE_NODE_ANNOTATION,
        "update.declaredFeatures": ActionType.UPDATE_NODE_DECLARED_FEATURE,
    },
    **dict.fromkeys(("Pod", *POD_RESOURCES), _POD_WORDS),
}
COMMON: Final = {
    "add": ActionType.ADD,
    "delete": ActionType.DELETE,
    "update": ActionType.UPDATE,
}


def action_of_word(resource: str, word: str) -> ActionType:
    """Return the bit of a word such as `update.labels`. Raises PluginDefinitionError for an unknown word."""
    known = COMMON | WORDS.get(resource, {})
    if word not in known:
        raise PluginDefinitionError(f"{word!r} is not an action of {resource}; use one of {', '.join(known)}")
    return known[word]


def word_of_action(resource: str, action: ActionType) -> str:
    """Return the word of an action that happened. A change of several kinds, or of none, is `update`."""
    for word, bit in (COMMON | WORDS.get(resource, {})).items():
        if action == bit:
            return word
    return "update"


class Hint(Enum):
    """The way in which the host decides whether an event may help a pod."""

    QUEUE = "queue"
    """Every matching event requeues the pod."""
    ASK_PLUGIN = "ask_plugin"
    """The plugin's `queueing_hint` decides."""


@dataclass(frozen=True, slots=True)
class EventInterest:
    """One kind of change that can make a pod schedulable which the plugin rejected.

    `resource`: a kind; for pods `Pod`, or the part of POD_RESOURCES that matters, which costs fewer hints.
    `actions` are words (`add`, `delete`, `update`, `update.labels`, ...); empty: all actions.
    `label_selector` limits the interest to new objects with matching labels; the host evaluates the selector.
    `profiles` limits the interest to pods of these profiles, by schedulerName; empty: all profiles.

    Raises PluginDefinitionError for one text in place of a tuple of texts.
    """

    resource: str
    actions: tuple[str, ...] = ()
    hint: Hint = Hint.QUEUE
    label_selector: str = ""
    profiles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("actions", "profiles"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise PluginDefinitionError(
                    f"EventInterest({self.resource!r}): {name} is one text, {value!r}: write ({value!r},)"
                )
            # A list would make the interest unusable as a key.
            object.__setattr__(self, name, tuple(value))

    @property
    def action(self) -> ActionType:
        """The union of the actions' bits."""
        if not self.actions:
            return ActionType.ALL
        total = ActionType(0)
        for word in self.actions:
            total |= action_of_word(self.resource, word)
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEvent:
    """One change of one object. `old` is None for an add, `new` is None for a delete.

    Pods and nodes come as `Pod` and `Node` records, other kinds as KubeObject. `action` is a word. `resource`
    is the object's kind: `Pod`, whichever part of it the plugin registered for.
    """

    resource: str
    action: str
    old: EventObject | None = None
    new: EventObject | None = None
