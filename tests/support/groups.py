"""Pod groups for tests with a whole host: manifests, and a `World` that schedules them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod_group import INITIALLY_SCHEDULED
from berth_sdk.rfc3339 import format_time
from support.hosts import START_S, World, node, pod

GROUPS = {"GenericWorkload": True}
"""The feature gate of pod groups."""
HOLDS = {"gangs.berth.io/hold-room": "true", "gangs.berth.io/timeout": "10h"}
"""The annotations of a group that holds room, for as long as a test may take."""


def pod_group(name: str, *, least: int | None = None, priority: int = 0, **spec: Any) -> dict[str, Any]:
    """Return a PodGroup manifest. `least`: the gang's minCount; None: the basic policy."""
    policy: dict[str, Any] = {"basic": {}} if least is None else {"gang": {"minCount": least}}
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": policy, "priority": priority, **spec},
    }


def child_group(name: str, parent: str = "root", **more: Any) -> dict[str, Any]:
    """Return the manifest of a PodGroup in a CompositePodGroup. `more`: as for `pod_group`."""
    workload = {"workloadName": "w", "templateName": "t"}
    return pod_group(name, parentCompositePodGroupName=parent, workloadRef=workload, **more)


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


def gang(name: str, least: int = 6, *, holds: Mapping[str, str] = HOLDS, **more: Any) -> dict[str, Any]:
    """Return a PodGroup that holds room."""
    made = pod_group(name, least=least, **more)
    return {**made, "metadata": {**made["metadata"], "annotations": dict(holds)}}


def running(
    name: str, node_name: str, *, after_s: float = 0.0, ends_s: int | None = None, **more: Any
) -> dict[str, Any]:
    """Return a pod of 1 CPU that has run on a node since `after_s`. `ends_s`: its activeDeadlineSeconds."""
    fields = {
        "restartPolicy": "Never",
        **({} if ends_s is None else {"activeDeadlineSeconds": ends_s}),
        **more,
    }
    made = pod(name, cpu="1", nodeName=node_name, **fields)
    return {**made, "status": {"phase": "Running", "startTime": format_time(START_S + after_s)}}


def full(count: int = 3, **more: Any) -> list[dict[str, Any]]:
    """Return two nodes of 4 CPUs with `count` running pods each: n0-0 is the oldest, then n1-0, n0-1."""
    places = [(name, i) for i in range(count) for name in ("n0", "n1")]
    return [
        *(node(name, cpu="4") for name in ("n0", "n1")),
        *(running(f"{name}-{i}", name, after_s=age, **more) for age, (name, i) in enumerate(places)),
    ]


def world_of(objects: Iterable[Mapping[str, Any]], **more: Any) -> World:
    """Return a world that schedules pod groups, with objects as they are: running pods, too."""
    world = grouped([], **more)
    for one in objects:
        world.server.create(one, restore=True)
    return world
