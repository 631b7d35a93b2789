"""Turns an object's old and new version into the queue's events, one per kind of change.

Called by `handlers`. Source: kube-scheduler `framework/events.go` (PodSchedulingPropertiesChange,
NodeSchedulingPropertiesChange), v1.37. The order of the kinds is part of the behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from berth_sdk.events import ASSIGNED_POD, TARGET_POD, ActionType
from berth_sdk.kube_object import KubeObject
from berth_sdk.node import Node
from berth_sdk.pod import Pod

from berth_host.config.host_rules import HostRules
from berth_host.queue.events import QueueEvent, label_of

RESOURCE_OF_KIND = {
    "ReplicaSet": "apps/ReplicaSet",
    "StatefulSet": "apps/StatefulSet",
    "PodDisruptionBudget": "policy/PodDisruptionBudget",
    "CSINode": "storage.k8s.io/CSINode",
    "CSIDriver": "storage.k8s.io/CSIDriver",
    "CSIStorageCapacity": "storage.k8s.io/CSIStorageCapacity",
    "StorageClass": "storage.k8s.io/StorageClass",
    "VolumeAttachment": "storage.k8s.io/VolumeAttachment",
    "ResourceClaim": "resource.k8s.io/ResourceClaim",
    "ResourceSlice": "resource.k8s.io/ResourceSlice",
    "DeviceClass": "resource.k8s.io/DeviceClass",
    "DeviceTaintRule": "resource.k8s.io/DeviceTaintRule",
    "PodGroup": "scheduling.k8s.io/PodGroup",
    "PriorityClass": "scheduling.k8s.io/PriorityClass",
}
"""Kinds whose events carry their API group; kinds of the core group go by the kind alone."""


def pod_changes(old: Pod, new: Pod, rules: HostRules) -> list[QueueEvent]:
    """Return the events of an updated pod: AssignedPod if the pod is on a node, else TargetPod.

    Never empty: an update that fits no kind of change becomes one event with the action UPDATE.
    """
    found = [
        action
        for action, changed in (
            (ActionType.UPDATE_POD_LABEL, dict(old.labels) != dict(new.labels)),
            (ActionType.UPDATE_POD_SCALE_DOWN, _scaled_down(old, new)),
            (ActionType.UPDATE_POD_SCALE_UP, rules.sees_scale_up and _scaled_down(new, old)),
            (
                ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
                bool(old.scheduling_gates) and not new.scheduling_gates,
            ),
            # Tolerations can only be added, so comparing their number is enough.
            (ActionType.UPDATE_POD_TOLERATION, len(old.tolerations) != len(new.tolerations)),
            (ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM, old.generated_claims != new.generated_claims),
        )
        if changed
    ] or [ActionType.UPDATE]
    if new.node_name:
        return [QueueEvent(ASSIGNED_POD, action, old, new) for action in found]
    return [
        QueueEvent(TARGET_POD, action, old, new, label=label_of(rules.target_pod, action)) for action in found
    ]


def node_changes(old: Node, new: Node) -> list[QueueEvent]:
    """Return the events of an updated node; empty if nothing changed that matters for scheduling."""
    raw_old, raw_new = _raw(old.object), _raw(new.object)
    return [
        QueueEvent("Node", action, old, new)
        for action, changed in (
            # A node that was uncordoned counts as a node that lost a taint.
            (ActionType.UPDATE_NODE_TAINT, old.unschedulable and not new.unschedulable),
            (ActionType.UPDATE_NODE_ALLOCATABLE, old.allocatable != new.allocatable),
            (ActionType.UPDATE_NODE_LABEL, dict(old.labels) != dict(new.labels)),
            (ActionType.UPDATE_NODE_TAINT, _taints(old, raw_old) != _taints(new, raw_new)),
            (ActionType.UPDATE_NODE_CONDITION, _conditions(raw_old) != _conditions(raw_new)),
            (ActionType.UPDATE_NODE_ANNOTATION, dict(old.annotations) != dict(new.annotations)),
            (ActionType.UPDATE_NODE_DECLARED_FEATURE, old.declared_features != new.declared_features),
        )
        if changed
    ]


def event_resource(kind: str, item: KubeObject) -> str:
    """Return the resource of an event: `Node`, `storage.k8s.io/CSINode`, `widgets.v1.example.com`.

    The `kind` of a custom resource is its resource name: `example.com/widgets`.
    """
    if "/" not in kind:
        return RESOURCE_OF_KIND.get(kind, kind)
    group, plural = kind.rsplit("/", 1)
    return f"{plural}.{item.api_version.rsplit('/', 1)[-1]}.{group}"


def nomination_changed(old: Pod, new: Pod) -> bool:
    """Return True if the pod was nominated to a node before and is not nominated to the same node now."""
    return bool(old.nominated_node) and old.nominated_node != new.nominated_node


def _scaled_down(old: Pod, new: Pod) -> bool:
    return any(
        name not in new.requests or amount > new.requests[name] for name, amount in old.requests.items()
    )


def _raw(item: KubeObject | None) -> Mapping[str, Any]:
    return {} if item is None else item.parsed


def _taints(node: Node, raw: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Return the taints as tuples that include `timeAdded`, which the `Taint` record leaves out."""
    added = [item.get("timeAdded") for item in (raw.get("spec") or {}).get("taints") or ()]
    if len(added) != len(node.taints):
        added = [None] * len(node.taints)
    return [
        (taint.key, taint.value, taint.effect, when) for taint, when in zip(node.taints, added, strict=True)
    ]


def _conditions(raw: Mapping[str, Any]) -> dict[Any, Any]:
    """Return each condition's status by type, without heartbeats and messages."""
    conditions = (raw.get("status") or {}).get("conditions") or ()
    return {item.get("type"): item.get("status") for item in conditions}
