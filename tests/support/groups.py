"""Pod groups for tests with a whole host: manifests, and a `World` that schedules them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod_group import INITIALLY_SCHEDULED
from support.hosts import World, pod

GROUPS = {"GenericWorkload": True}
"""The feature gate of pod groups."""


def pod_group(name: str, *, least: int | None = None, priority: int = 0, **spec: Any) -> dict[str, Any]:
    """Return a PodGroup manifest. `least`: the gang's minCount; None: the basic policy."""
    policy: dict[str, Any] = {"basic": {}} if least is None else {"gang": {"minCount": least}}
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": policy, "priority": priority, **spec},
    }


def member(name: str, group: str, *, cpu: str = "1", **more: Any) -> dict[str, Any]:
    """Return the manifest of a pod of a group."""
    return pod(name, cpu=cpu, schedulingGroup={"podGroupName": group}, **more)


def members(group: str, count: int, *, cpu: str = "1", **more: Any) -> list[dict[str, Any]]:
    """Return pods `<group>-0` and so on."""
    return [member(f"{group}-{i}", group, cpu=cpu, **more) for i in range(count)]


def grouped(objects: Iterable[Mapping[str, Any]], plugins: Iterable[type] = (), **more: Any) -> World:
    """Return a world whose host schedules pod groups."""
    return World(objects, plugins, gates={**GROUPS, **more.pop("gates", {})}, **more)


def condition_of(world: World, group: str) -> tuple[str, str, str]:
    """Return status, reason and message of the condition of a group; empty texts without a condition."""
    found = world.server.get("scheduling.k8s.io/podgroups", ObjectRef(namespace="default", name=group))
    for one in (found.get("status.conditions") if found is not None else None) or ():
        if one["type"] == INITIALLY_SCHEDULED:
            return one["status"], one["reason"], one.get("message", "")
    return "", "", ""


def nodes_of(world: World, group: str) -> dict[str, str]:
    """Return the node of each pod of a group that has one, by name."""
    return {
        one.ref.name: one.get("spec.nodeName")
        for one in world.server.list("pods")
        if one.get("spec.schedulingGroup.podGroupName") == group and one.get("spec.nodeName")
    }


def message_of(world: World, name: str) -> str:
    """Return the message of the condition PodScheduled of a pod."""
    found = world.server.get("pods", ObjectRef(namespace="default", name=name))
    conditions = (found.get("status.conditions") if found is not None else None) or ()
    return next((one.get("message", "") for one in conditions if one["type"] == "PodScheduled"), "")
