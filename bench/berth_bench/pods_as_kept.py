"""Makes a workload's small pod one as an API server keeps the pods of a Deployment.

A small pod has the fields that scheduling reads. A pod of a real cluster also has env from fields and maps,
probes, the API server's defaults, tolerations, an owner and managedFields: most of what a scheduler gets, and
nothing that it decides by. Used by `actions` and `versus.workloads`. The volume with the pod's token is added
by the admission of the API server, the embedded or a real one.

The owner, a ReplicaSet, does not exist, so the default constraints of PodTopologySpread do not apply.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

Json = dict[str, Any]

_CONTAINERS: Final = ("initContainers", "containers")
MANAGER: Final = "kube-controller-manager"
_HASH: Final = "7c9f8b6d5"
_UID: Final = "5d0f4b3e-8c1a-4f6e-9b7d-2a3c4d5e6f70"
_MADE_AT: Final = "2026-01-01T00:00:00Z"
_TOLERATED: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TOLERATION_S: Final = 300


def as_created(pod: Mapping[str, Any]) -> Json:
    """Return the pod as a controller creates it: with an owner, and with containers that read their
    configuration and are probed. Fields that the pod has are kept.
    """
    spec, metadata = pod["spec"], pod["metadata"]
    containers = {
        key: [_container(one, is_main=key == "containers") for one in spec[key]]
        for key in _CONTAINERS
        if spec.get(key)
    }
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"app-{_HASH}",
        "uid": _UID,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        **pod,
        "metadata": {"ownerReferences": [owner], **metadata},
        "spec": {**spec, **containers},
    }


def as_kept(pod: Mapping[str, Any]) -> Json:
    """Return the pod as an API server keeps it, but for the volume with the token: `as_created`, with the
    API server's defaults, tolerations and managedFields.
    """
    made = as_created(pod)
    spec = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "enableServiceLinks": True,
        **made["spec"],
    }
    for key in _CONTAINERS:
        if spec.get(key):
            spec[key] = [_with_defaults(one) for one in spec[key]]
    metadata = {**made["metadata"]}
    metadata["managedFields"] = [_managed(metadata, spec)]
    said = spec.get("tolerations") or []
    spec["tolerations"] = [
        *said,
        *(
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATION_S}
            for key in _TOLERATED
            if not any(one.get("key") == key for one in said)
        ),
    ]
    return {**made, "metadata": metadata, "spec": spec}


def _container(container: Mapping[str, Any], *, is_main: bool) -> Json:
    name = container["name"]
    env = [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
        {
            "name": "POD_NAMESPACE",
            "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
        },
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}},
        {"name": "LOG_LEVEL", "value": "info"},
        {"name": "LISTEN", "value": ":8080"},
        {"name": "DATABASE", "valueFrom": {"configMapKeyRef": {"name": f"{name}-config", "key": "database"}}},
        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": f"{name}-secret", "key": "password"}}},
        {
            "name": "MEMORY_LIMIT",
            "valueFrom": {
                "resourceFieldRef": {"containerName": name, "resource": "limits.memory", "divisor": "0"}
            },
        },
    ]
    filled: Json = {"env": env, "envFrom": [{"configMapRef": {"name": f"{name}-env"}}]}
    if is_main:
        filled["startupProbe"] = _probe("/healthz", delay_s=1)
        filled["livenessProbe"] = _probe("/healthz", delay_s=10)
        filled["readinessProbe"] = _probe("/readyz", delay_s=5)
    return {**filled, **container}


def _probe(path: str, *, delay_s: int) -> Json:
    return {
        "httpGet": {"path": path, "port": 8080, "scheme": "HTTP"},
        "initialDelaySeconds": delay_s,
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }


def _with_defaults(container: Mapping[str, Any]) -> Json:
    return {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        **container,
    }


def _managed(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Json:
    """Return the entry by which an API server notes that a controller wrote these fields."""
    written = {
        "metadata": {
            "generateName": "app-",
            "labels": metadata.get("labels") or {},
            "ownerReferences": metadata["ownerReferences"],
        },
        "spec": spec,
    }
    return {
        "manager": MANAGER,
        "operation": "Update",
        "apiVersion": "v1",
        "time": _MADE_AT,
        "fieldsType": "FieldsV1",
        "fieldsV1": _fields(written),
    }


def _fields(value: Any) -> Json:
    """Return a value's fields in the form of FieldsV1: maps by `f:` and a name, items of lists by `k:` and
    their key.
    """
    if isinstance(value, dict):
        return {f"f:{name}": _fields(item) for name, item in value.items()}
    if isinstance(value, list) and value and all(_key_of(item) for item in value):
        return {".": {}} | {_key_of(item): {".": {}} | _fields(item) for item in value}
    return {}


def _key_of(item: Any) -> str:
    for key in ("uid", "name"):
        if isinstance(item, dict) and key in item:
            return "k:" + json.dumps({key: item[key]}, separators=(",", ":"))
    return ""
