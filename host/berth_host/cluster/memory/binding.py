"""A pod and a node -> the pod as it is once it is bound.

Called by `ApiServer.bind`. Source: `pkg/registry/core/pod/storage/storage.go` (BindingREST), v1.36, with
ClearingNominatedNodeNameAfterBinding.
"""

from __future__ import annotations

from typing import Any

from berth_sdk.kube_object import KubeObject

from berth_host.cluster.memory.validation.fields import Problems, check_object_name
from berth_host.errors.cluster import ConflictError, InvalidError


def bound(pod: KubeObject, node_name: str, now: str) -> dict[str, Any]:
    """The bound pod. Raises ConflictError where the pod cannot be bound (any more)."""
    problems = Problems()
    check_object_name(problems, node_name, "target.name")
    if problems.found:
        raise InvalidError("pods", pod.ref.key, problems.found)
    parsed = pod.parsed
    spec = parsed["spec"]
    if parsed["metadata"].get("deletionTimestamp") is not None:
        raise ConflictError("pods", pod.ref.key, "is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        text = f'is already assigned to node "{spec["nodeName"]}"'
        raise ConflictError("pods", pod.ref.key, text)
    if spec.get("schedulingGates"):
        raise ConflictError("pods", pod.ref.key, "has non-empty .spec.schedulingGates")
    status = dict(parsed.get("status") or {})
    status.pop("nominatedNodeName", None)
    status["conditions"] = _with_scheduled(status.get("conditions") or [], now)
    return {**parsed, "spec": {**spec, "nodeName": node_name}, "status": status}


def _with_scheduled(conditions: list[dict[str, Any]], now: str) -> list[dict[str, Any]]:
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
    kept = [condition for condition in conditions if condition.get("type") != "PodScheduled"]
    return [*kept, scheduled]
