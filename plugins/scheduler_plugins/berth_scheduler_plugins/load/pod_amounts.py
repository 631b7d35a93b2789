"""Requests and limits of a pod's containers, read from its spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.quantity import nano_value, resource_units

T = TypeVar("T")
READ: Final = (
    "containers.resources",
    "containers.restartPolicy",
    "initContainers.resources",
    "initContainers.restartPolicy",
    "overhead",
)
"""The fields of a pod's spec that this module reads."""
NEEDS: Final = (Need.nodes(), Need.whole_pod(READ), Need.pod_objects("status", "metadata.annotations"))
"""The needs of a plugin that reads pods and the pods on nodes with it."""


def read_spec(pod: Pod, read: Callable[[Mapping[str, Any]], T]) -> T:
    """Return what `read` finds in the pod's spec, without keeping the parsed form of a pod on a node."""
    item = pod.object
    was_parsed = item is None or item.is_parsed
    found = read(pod.spec)
    if item is not None and not was_parsed and pod.node_name:
        item.release()
    return found


def amount(amounts: Mapping[str, Any] | None, resource: str) -> int | None:
    """Return an amount, cpu in milli and all else in base units; None: it is not there."""
    value = (amounts or {}).get(resource)
    return None if value is None else resource_units(resource, nano_value(value))


def limit(spec: Mapping[str, Any], resource: str) -> int:
    """Return what the containers of a pod may use of a resource, with overhead; 0 without any limit.

    Containers that run together are added. An init container counts where it alone may use more.
    """

    def of(container: Mapping[str, Any]) -> int:
        return amount((container.get("resources") or {}).get("limits"), resource) or 0

    together = sum(of(container) for container in spec.get("containers") or ())
    most = beside = 0
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            beside += of(container)
            most = max(most, beside)
        else:
            most = max(most, beside + of(container))
    total = max(together + beside, most)
    return total + (amount(spec.get("overhead"), resource) or 0) if total else 0
