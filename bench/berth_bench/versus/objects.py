"""Nodes, pods and groups of pods as manifests, and their creation in bulk.

Called by `workloads`, `yard` and the tests of real servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, TypeAlias

from berth_bench.versus.api import ApiClient

Json: TypeAlias = dict[str, Any]


def node(name: str, cpu: str = "8", pods: str = "110", **labels: str) -> Json:
    """Return a Node that is ready for pods."""
    amounts = {"cpu": cpu, "memory": "32Gi", "pods": pods}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def pod(name: str, cpu: str = "10m", **spec: Any) -> Json:
    """Return a pod without a grace period. `spec`: further fields."""
    resources = {"requests": {"cpu": cpu, "memory": "10Mi"}}
    container = {"name": "c", "image": "registry.example.com/app:v1", "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **spec},
    }


def namespace(name: str) -> Json:
    """Return a Namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def service_account(where: str) -> Json:
    """Return the ServiceAccount `default` of a namespace."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "default", "namespace": where},
    }


def pod_group(name: str, members: int) -> Json:
    """Return a PodGroup of Kubernetes whose gang needs so many members."""
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": members}}},
    }


async def create_all(api: ApiClient, objects: Iterable[Json], at_once: int = 16) -> None:
    """Create many objects, some at a time. Raises ApiError for the first that is refused."""
    rest = iter(objects)

    async def create() -> None:
        for content in rest:
            await api.create(content)

    await asyncio.gather(*(create() for _ in range(at_once)))
