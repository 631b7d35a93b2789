"""ResourceClaims, ResourceSlices and DeviceClasses for tests, written short."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]
API = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"
POOL = {"generation": 1, "resourceSliceCount": 1}


def device(name: str, model: str = "", memory: str = "", **fields: Any) -> Json:
    """Return a device; its model and memory are named without a domain."""
    made: Json = {"name": name, **fields}
    if model:
        made.setdefault("attributes", {})["model"] = {"string": model}
    if memory:
        made.setdefault("capacity", {})["memory"] = {"value": memory}
    return made


def resource_slice(name: str, devices: Sequence[Json], pool: str = "", **spec: Any) -> Json:
    """Return a slice of `pool`, which is called like the slice if nothing else is said; of the node called
    so, if nothing is said of nodes.
    """
    if not spec.keys() & {"nodeName", "allNodes", "nodeSelector", "perDeviceNodeSelection", "sharedCounters"}:
        spec["nodeName"] = name
    counts = {key: spec.pop(key, value) for key, value in POOL.items()}
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": pool or name, **counts},
            "devices": list(devices),
            **spec,
        },
    }


def device_class(name: str = "gpu", *expressions: str, **spec: Any) -> Json:
    """Return a class with CEL selectors."""
    selectors = [{"cel": {"expression": one}} for one in expressions]
    return {
        "apiVersion": API,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors, **spec},
    }


def exactly(name: str = "r", class_name: str = "gpu", **fields: Any) -> Json:
    """Return a request."""
    return {"name": name, "exactly": {"deviceClassName": class_name, **fields}}


def claim(name: str, *requests: Json, allocated: Sequence[str] = (), **fields: Any) -> Json:
    """Return a claim; `allocated`: `node/device` of pools that are called like their nodes."""
    made: Json = {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            **fields.pop("metadata", {}),
        },
        "spec": {"devices": {"requests": list(requests) or [exactly()], **fields.pop("devices", {})}},
    }
    if allocated:
        parts = [one.split("/") for one in allocated]
        results = [
            {"request": "r", "driver": DRIVER, "pool": pool, "device": device} for pool, device in parts
        ]
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [parts[0][0]]}]}
        made["status"] = {
            "allocation": {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [term]}},
            **fields.pop("status", {}),
        }
    return {**made, **fields}


def pod_with(*claims: str, name: str = "web", requests: Mapping[str, str] | None = None) -> Json:
    """Return a pod that uses claims by name; `template` stands for one made from a template."""
    entries = [
        {"name": f"c{i}", "resourceClaimName": one}
        if one != "template"
        else {"name": f"c{i}", "resourceClaimTemplateName": "t"}
        for i, one in enumerate(claims)
    ]
    container = {"name": "c", "image": "app", "resources": {"requests": dict(requests or {})}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"containers": [container], **({"resourceClaims": entries} if entries else {})},
        "status": {"phase": "Pending"},
    }
