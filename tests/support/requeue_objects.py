"""The objects of the clusters of `requeue_situations`, on which the requeue of a rejected pod is tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from support.hosts import pod

Json = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def node(name: str, labels: Mapping[str, str] = {}, **more: Any) -> Json:  # read only
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "10", **more.pop("allocatable", {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": more,
        "status": {"allocatable": allocatable},
    }


def namespace(name: str, **labels: str) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def waiter(**more: Any) -> Json:
    return pod("waiter", **more)


def on(where: str, name: str, **more: Any) -> Json:
    return pod(name, nodeName=where, **more)


def term(key: str = "zone", namespaces: Json | None = None, **labels: str) -> Json:
    found: Json = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    return found if namespaces is None else {**found, "namespaceSelector": namespaces}


def near(*terms: Json) -> Json:
    return {"podAffinity": {REQUIRED: list(terms)}}


def away(*terms: Json) -> Json:
    return {"podAntiAffinity": {REQUIRED: list(terms)}}


ZONES: Sequence[Mapping[str, str]] = (
    {"zone": "a"},
    {"zone": "b"},
    {},
    {"zone": "a", "deck": "one", "disk": "ssd"},
)


TEAM = {"matchLabels": {"team": "blue"}}


def spread(**more: Any) -> Json:
    return {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        **more,
    }


def with_port(item: Json, port: int) -> Json:
    item["spec"]["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]
    return item


def asking(item: Json, **requests: str) -> Json:
    named = {name.replace("__", "/").replace("_", "."): value for name, value in requests.items()}
    item["spec"]["containers"][0]["resources"] = {"requests": named, "limits": named}
    return item


GPU = "example.com/gpu"


DEVICE_CLASSES = [
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": spec,
    }
    for spec in ({"extendedResourceName": GPU}, {})
]


def mounting(item: Json, *volumes: Json) -> Json:
    item["spec"]["volumes"] = [{"name": f"v{i}", **one} for i, one in enumerate(volumes)]
    return item


def disk(name: str = "pd-1") -> Json:
    return {"gcePersistentDisk": {"pdName": name}}


def claimed(name: str = "c1") -> Json:
    return {"persistentVolumeClaim": {"claimName": name}}


def claim(
    name: str, volume: str = "", *, cls: str = "slow", mode: str = "ReadWriteOnce", **meta: Any
) -> Json:
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    spec: Json = {
        "accessModes": [mode],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": cls,
        **({"volumeName": volume} if volume else {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations, **meta},
        "spec": spec,
        "status": {"phase": "Bound" if volume else "Pending"},
    }


def volume(name: str, labels: Mapping[str, str] = {}, **spec: Any) -> Json:  # read only
    source = spec or {"csi": {"driver": "csi.example.com", "volumeHandle": name}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "storageClassName": "slow",
            **source,
        },
        "status": {"phase": "Available"},
    }


def lingering(item: Json) -> Json:
    """Return a pod that stays for a while when it is deleted."""
    return {**item, "metadata": {**item["metadata"], "finalizers": ["example.com/linger"]}}


def ending(item: Json) -> Json:
    """Return the same pod once it is deleted."""
    item = lingering(item)
    return {**item, "metadata": {**item["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


def running_with(item: Json, cpu: str) -> Json:
    """Return a pod of which the kubelet says that its container still has so much CPU."""
    state: Json = {"running": {}}
    actual = {"name": "c", "state": state, "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}}
    return {**item, "status": {"phase": "Running", "containerStatuses": [actual]}}


def with_uid(item: Json) -> Json:
    return {**item, "metadata": {**item["metadata"], "uid": f"uid-{item['metadata']['name']}"}}


def made_for(owner: Json, item: Json) -> Json:
    """Return an object that a controller made for the pod `owner`."""
    meta = owner["metadata"]
    ref = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True}
    return {**item, "metadata": {**item["metadata"], "ownerReferences": [ref]}}


def owned_by(kind: str, name: str, item: Json) -> Json:
    version = "v1" if kind == "ReplicationController" else "apps/v1"
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
    return {**item, "metadata": {**item["metadata"], "ownerReferences": [owner]}}


def service(name: str, **selector: str) -> Json:
    spec = {"selector": selector, "ports": [{"port": 80}]}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def controller(kind: str, name: str, **labels: str) -> Json:
    is_old = kind == "ReplicationController"
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "app"}]}}
    spec: Json = {"selector": labels if is_old else {"matchLabels": labels}, "template": template}
    if kind == "StatefulSet":
        spec["serviceName"] = name
    return {
        "apiVersion": "v1" if is_old else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def attachment(name: str, volume_name: str, node_name: str) -> Json:
    spec = {
        "attacher": "csi.example.com",
        "nodeName": node_name,
        "source": {"persistentVolumeName": volume_name},
    }
    return storage("VolumeAttachment", name, spec=spec)


def storage(kind: str, name: str, **more: Any) -> Json:
    metadata = {"name": name, **more.pop("metadata", {})}
    return {"apiVersion": "storage.k8s.io/v1", "kind": kind, "metadata": metadata, **more}


def csi_node(name: str, *limits: int | None) -> Json:
    drivers: list[Json] = [
        {
            "name": "csi.example.com",
            "nodeID": name,
            **({} if limit is None else {"allocatable": {"count": limit}}),
        }
        for limit in limits
    ]
    return storage("CSINode", name, spec={"drivers": drivers})


ZONE = "topology.kubernetes.io/zone"


def tracking(name: str, *, tracks: bool) -> Json:
    return storage("CSIDriver", name, spec={"storageCapacity": tracks})


def capacity(size: str, **labels: str) -> Json:
    metadata = {"namespace": "default"}
    return storage(
        "CSIStorageCapacity",
        "room",
        metadata=metadata,
        storageClassName="slow",
        capacity=size,
        nodeTopology={"matchLabels": labels},
    )


def reachable_from(zone: str) -> Json:
    expression = {"key": "zone", "operator": "In", "values": [zone]}
    return {
        "csi": {"driver": "csi.example.com", "volumeHandle": "h"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
    }


def claim_of_devices(name: str, *, allocated: str = "") -> Json:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
    status: Json = {}
    if allocated:
        result = {"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": allocated}
        status = {"status": {"allocation": {"devices": {"results": [result]}}}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [request]}},
        **status,
    }


def slice_of(name: str, *devices: str) -> Json:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": "n1",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": one} for one in devices],
        },
    }


def taint_rule(name: str, device: str) -> Json:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name},
        "spec": {
            "deviceSelector": {"device": device},
            "taint": {"key": "example.com/broken", "effect": "NoSchedule"},
        },
    }


FEATURE = "UserNamespacesHostNetworkSupport"


def declaring(*features: str) -> Json:
    found = node("n1")
    found["status"]["declaredFeatures"] = list(features)
    return found
