"""Binds a pod to a node: builds the bound pod.

Called by `ApiServer.bind`. Source: `pkg/registry/core/pod/storage/storage.go` (BindingREST), v1.36, with
ClearingNominatedNodeNameAfterBinding.
"""

from __future__ import annotations

from typing import Any, Final

from berth_sdk.kube_object import KubeObject

from berth_host.cluster.memory import answers
from berth_host.cluster.memory.kinds import POD, Kind
from berth_host.cluster.memory.validation.fields import Problems, check_object_name

_BINDING: Final = Kind("v1", "Binding", "pods")


def bound(pod: KubeObject, node_name: str, now: str) -> dict[str, Any]:
    """Return the bound pod.

    Raises ConflictError if the pod cannot be bound (bound, terminating or gated), and InvalidError for an
    invalid node name.
    """
    problems = Problems()
    check_object_name(problems, node_name, "target.name")
    if problems.found:
        raise answers.invalid(_BINDING, pod.ref.key, pod.ref.name, problems.found)
    parsed = pod.parsed
    spec = parsed["spec"]
    if parsed["metadata"].get("deletionTimestamp") is not None:
        raise answers.cannot_bind(POD, pod.ref, "is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise answers.cannot_bind(POD, pod.ref, f'is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise answers.cannot_bind(POD, pod.ref, "has non-empty .spec.schedulingGates")
    status = dict(parsed.get("status") or {})
    status.pop("nominatedNodeName", None)
    status["conditions"] = _with_scheduled(status.get("conditions") or [], now)
    return {**parsed, "spec": {**spec, "nodeName": node_name}, "status": status}


def _with_scheduled(conditions: list[dict[str, Any]], now: str) -> list[dict[str, Any]]:
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
    types = [condition.get("type") for condition in conditions]
    if "PodScheduled" not in types:
        return [*conditions, scheduled]
    place = types.index("PodScheduled")
    if conditions[place].get("status") == "True":
        scheduled["lastTransitionTime"] = conditions[place].get("lastTransitionTime") or now
    return [*conditions[:place], scheduled, *conditions[place + 1 :]]
