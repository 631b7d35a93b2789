"""Sets the defaults of a pod's spec that scheduling reads, and the status of a new pod.

Called by `Admission.admit`, and by the server for a new pod's status. Defaults that no scheduler reads are
left out. Source: `pkg/apis/core/v1/defaults.go` (SetDefaults_Pod, SetDefaults_PodSpec, defaultPodRequests,
setDefaultHostNetworkPorts) and `pkg/registry/core/pod/strategy.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from berth_sdk.pod import DEFAULT_SCHEDULER_NAME
from berth_sdk.pod_requests import requests_of

_CONTAINER_LISTS: Final = ("initContainers", "containers")
Spec = dict[str, Any]


def default_pod(spec: Mapping[str, Any]) -> Spec:
    """Return a new spec with defaults. Given values are kept; the argument is not changed in place."""
    result = dict(spec)
    if not result.get("schedulerName"):
        result["schedulerName"] = DEFAULT_SCHEDULER_NAME
    host_network = bool(result.get("hostNetwork"))
    for key in _CONTAINER_LISTS:
        if result.get(key):
            result[key] = [_container(container, host_network) for container in result[key]]
    if (result.get("resources") or {}).get("limits"):
        result["resources"] = _pod_level(result)
    return result


def new_pod_status(pod: Mapping[str, Any], now: str) -> dict[str, Any]:
    """Return a new pod's status: the given one, with a phase, and with the condition of a gated pod."""
    status = {"phase": "Pending"} | (pod.get("status") or {})
    conditions = status.get("conditions") or []
    known = any(condition.get("type") == "PodScheduled" for condition in conditions)
    if (pod.get("spec") or {}).get("schedulingGates") and not known:
        gated = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastTransitionTime": now,
        }
        status["conditions"] = [*conditions, gated]
    return status


def _container(container: Spec, host_network: bool) -> Spec:
    changes: Spec = {}
    resources = container.get("resources") or {}
    if resources.get("limits"):
        # A missing request is the limit.
        changes["resources"] = resources | {
            "requests": resources["limits"] | (resources.get("requests") or {})
        }
    if container.get("ports"):
        changes["ports"] = [_port(port, host_network) for port in container["ports"]]
    return container | changes if changes else container


def _port(port: Spec, host_network: bool) -> Spec:
    changes: Spec = {}
    if not port.get("protocol"):
        changes["protocol"] = "TCP"
    if host_network and not port.get("hostPort"):
        changes["hostPort"] = port.get("containerPort")
    return port | changes


def _pod_level(spec: Spec) -> Spec:
    """Return the pod-level resources; a missing request is the containers' sum, else the limit."""
    resources: Spec = spec["resources"]
    requests = dict(resources.get("requests") or {})
    limits = {name: amount for name, amount in resources["limits"].items() if _may_be_pod_level(name)}
    containers = {key: spec[key] for key in _CONTAINER_LISTS if spec.get(key)}
    for name, amount in requests_of(containers, None).requests.items():
        if _may_be_pod_level(name) and not name.startswith("hugepages-"):
            requests.setdefault(name, f"{amount}m" if name == "cpu" else str(amount))
    for name, amount in limits.items():
        requests.setdefault(name, amount)
    return resources | {"requests": requests} if requests else resources


def _may_be_pod_level(resource: str) -> bool:
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")
