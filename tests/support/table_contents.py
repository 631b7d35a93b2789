"""The contents of tables, read through their columns, by node name and pod uid: for comparing two of them."""

from __future__ import annotations

import math
from typing import Any

from berth_sdk.pod import HostPort
from berth_sdk.tables import NodeTable, PodTable

RESOURCES = ("cpu", "memory", "ephemeral-storage", "pods", "example.com/gpu")
LABELS = ("app", "tier", "example.com/x", "topology.kubernetes.io/zone")
PORTS = (HostPort("", "", 80), HostPort("10.0.0.1", "TCP", 80), HostPort("", "UDP", 81))
Contents = dict[str, dict[str, Any]]


def node_contents(table: NodeTable) -> Contents:
    """Every column of every row, decoded."""
    columns: dict[str, list[Any]] = {
        "unschedulable": table.unschedulable.tolist(),
        "pod_count": table.pod_count.tolist(),
        "taints": [table.taint_sets.values[code] or () for code in table.taint_set.tolist()],
    }
    for resource in RESOURCES:
        columns[f"allocatable {resource}"] = table.allocatable(resource).tolist()
        columns[f"requested {resource}"] = table.requested(resource).tolist()
    for resource in ("cpu", "memory"):
        columns[f"non-zero {resource}"] = table.non_zero_requested(resource).tolist()
    for key in LABELS:
        codes, values = table.label(key)
        columns[f"label {key}"] = [values.values[code] for code in codes.tolist()]
    for port in PORTS:
        columns[f"port {port}"] = table.port_taken(port).tolist()
    columns["feature"] = table.declares_feature("alpha").tolist()
    names = table.names
    return {
        name: {column: values[row] for column, values in columns.items()} | _record(table, row)
        for row, name in enumerate(names)
    }


def _record(table: NodeTable, row: int) -> dict[str, Any]:
    view = table.node(row)
    return {
        "name": view.name,
        "labels": dict(view.labels),
        "annotations": dict(view.annotations),
        "allocatable": dict(view.allocatable),
        "images": view.node.images,
        "features": view.node.declared_features,
        "usage": view.usage,
        "found": table.position(view.name) == row,
    }


def pod_contents(table: PodTable, node_names: dict[int, str]) -> Contents:
    """Every column of every pod, decoded. `node_names`: by slot."""
    columns: dict[str, list[Any]] = {
        "node": [node_names[slot] for slot in table.node_index.tolist()],
        "priority": table.priority.tolist(),
        "namespace": [table.namespaces.values[code] for code in table.namespace.tolist()],
        "start": [None if math.isnan(start) else start for start in table.start_time_s.tolist()],
        "terminating": table.terminating.tolist(),
        "assumed": table.assumed.tolist(),
    }
    for resource in RESOURCES:
        columns[f"requests {resource}"] = table.requests(resource).tolist()
    for key in LABELS:
        codes, values = table.label(key)
        columns[f"label {key}"] = [values.values[code] for code in codes.tolist()]
    owners, owner_values = table.encoded("test/owner", lambda pod: pod.owner)
    columns["owner"] = [owner_values.values[code] for code in owners.tolist()]
    return {
        table.pod(row).uid: {column: values[row] for column, values in columns.items()}
        | {"pod": table.pod(row), "found": table.position(table.pod(row).uid) == row}
        for row in range(len(table))
    }


def pods_by_node(table: NodeTable) -> dict[str, list[str]]:
    """Per node, the uids of its pods in their order."""
    return {view.name: [pod.uid for pod in view.pods] for view in table}
