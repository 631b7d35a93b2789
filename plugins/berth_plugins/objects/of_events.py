"""The objects that plugins get -> the record or field that a rule needs.

Used by hints, and by plugins that read more of a pod than its summary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from berth_sdk.errors import ObjectError
from berth_sdk.events import EventObject
from berth_sdk.kube_object import KubeObject
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup


def spec_of(pod: Pod) -> Mapping[str, Any]:
    """Return the pod's whole spec. Raises ObjectError when the pod came without its object."""
    if pod.object is None:
        raise ObjectError(pod.key, "came without its object: add Need.whole_pod() to its plugin's `needs`")
    return pod.spec


def as_pod(value: EventObject | None) -> Pod:
    """Return a pod of an event. Raises ObjectError for anything else."""
    if not isinstance(value, Pod):
        raise ObjectError("event", f"expected a Pod, got {type(value).__name__}")
    return value


def as_node(value: EventObject | None) -> Node:
    """Return a node of an event. Raises ObjectError for anything else."""
    if not isinstance(value, Node):
        raise ObjectError("event", f"expected a Node, got {type(value).__name__}")
    return value


def as_object(value: EventObject | None) -> KubeObject:
    """Return another object of an event. Raises ObjectError for a pod, a node, or None."""
    if not isinstance(value, KubeObject):
        raise ObjectError("event", f"expected an object, got {type(value).__name__}")
    return value


def as_group(value: EventObject | None) -> PodGroup:
    """Return a group of an event. Raises ObjectError for anything else."""
    return PodGroup.of(as_object(value))


def holds_place(pod: Pod) -> bool:
    """Return True if a pod is on a node, or nominated to one: only then can its deletion help others."""
    return bool(pod.node_name or pod.nominated_node)


def may_give_reservation_back(pod: Pod) -> bool:
    """Return True for a pod that left its node without having started there: it may not have been bound."""
    return bool(pod.node_name) and pod.started_at_s is None
