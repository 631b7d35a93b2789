"""Small API objects as plain dicts, for tests of the embedded cluster and of the commands above it."""

from __future__ import annotations

from typing import Any


def node_object(name: str, *, cpu: str = "4", memory: str = "16Gi", **metadata: Any) -> dict[str, Any]:
    """Return a node with room for 110 pods."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **metadata},
        "status": {"capacity": {"cpu": cpu, "memory": memory, "pods": "110"}},
    }


def pod_object(
    name: str, *, cpu: str = "100m", namespace: str = "default", metadata: Any = None, **spec: Any
) -> dict[str, Any]:
    """Return a pod with one container; `spec` is merged into its spec, `metadata` into its metadata."""
    container = {"name": "main", "image": "example.com/app:1", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace} | (metadata or {}),
        "spec": {"containers": [container]} | spec,
    }


def workload_object(kind: str, name: str, *, template: Any = None, **spec: Any) -> dict[str, Any]:
    """Return a Deployment, ReplicaSet, StatefulSet or Job whose pods have the label `app: <name>`."""
    api_version = "batch/v1" if kind == "Job" else "apps/v1"
    labels = {"app": name}
    pod_spec = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "100m"}}}]}
    selector = {} if kind == "Job" else {"selector": {"matchLabels": labels}}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "template": {"metadata": {"labels": labels}, "spec": pod_spec | (template or {})},
            **selector,
            **spec,
        },
    }
