"""Claims, volumes, classes and their like as manifests, and a pod that uses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from berth_sdk.pod import Pod

Json = dict[str, Any]
CLAIMS = "persistentvolumeclaims"
VOLUMES = "persistentvolumes"
CLASSES = "storage.k8s.io/storageclasses"
CSI_NODES = "storage.k8s.io/csinodes"
CSI_DRIVERS = "storage.k8s.io/csidrivers"
CSI_CAPACITIES = "storage.k8s.io/csistoragecapacities"
ATTACHMENTS = "storage.k8s.io/volumeattachments"
DELAYED = "WaitForFirstConsumer"
GB = "1Gi"


def _object(kind: str, name: str, namespace: str = "", **metadata: Any) -> Json:
    version = "storage.k8s.io/v1" if kind not in ("PersistentVolume", "PersistentVolumeClaim") else "v1"
    known = {"name": name, "uid": f"uid-{kind.lower()}-{name}", "resourceVersion": "1"}
    if namespace:
        known["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": {**known, **metadata}}


def claim(
    name: str, *, cls: str | None = "slow", size: str | None = GB, bound_to: str = "", **more: Any
) -> Json:
    """Return a claim; with `bound_to` fully bound. `more`: fields of its spec, and `annotations`, `owner`,
    `phase`, `deleted`.
    """
    annotations = dict(more.pop("annotations", {}))
    if bound_to:
        annotations |= {"pv.kubernetes.io/bind-completed": "yes"}
    metadata: Json = {"annotations": annotations} if annotations else {}
    owner = more.pop("owner", "")
    if owner:
        metadata["ownerReferences"] = [{"kind": "Pod", "name": "p", "uid": owner, "controller": True}]
    if more.pop("deleted", False):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    phase = more.pop("phase", "Bound" if bound_to else "Pending")
    spec: Json = {"accessModes": ["ReadWriteOnce"], **more}
    if size is not None:
        spec["resources"] = {"requests": {"storage": size}}
    if cls is not None:
        spec["storageClassName"] = cls
    if bound_to:
        spec["volumeName"] = bound_to
    namespace = spec.pop("namespace", "default")
    return {
        **_object("PersistentVolumeClaim", name, namespace, **metadata),
        "spec": spec,
        "status": {"phase": phase},
    }


def volume(name: str, *, cls: str = "slow", size: str = GB, zones: Sequence[str] = (), **more: Any) -> Json:
    """Return a free volume. `zones`: of its node affinity; `more`: fields of its spec, and `labels`, `phase`,
    `bound_to` (a claim of the default namespace).
    """
    labels = more.pop("labels", {})
    phase = more.pop("phase", "Available")
    bound_to = more.pop("bound_to", "")
    spec: Json = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": size},
        "storageClassName": cls,
        **more,
    }
    if bound_to:
        spec["claimRef"] = {"namespace": "default", "name": bound_to}
    if zones:
        spec["nodeAffinity"] = {"required": on_label("zone", *zones)}
    return {**_object("PersistentVolume", name, labels=labels), "spec": spec, "status": {"phase": phase}}


def on_label(key: str, *values: str) -> Json:
    """Return a node selector."""
    return {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}]
    }


def storage_class(name: str = "slow", *, mode: str | None = DELAYED, **more: Any) -> Json:
    """Class whose volumes a driver makes. `more`: other fields; `zones`: of its allowed topologies."""
    zones = more.pop("zones", ())
    found: Json = {**_object("StorageClass", name), "provisioner": "csi.example.com", **more}
    if mode is not None:
        found["volumeBindingMode"] = mode
    if zones:
        found["allowedTopologies"] = [{"matchLabelExpressions": [{"key": "zone", "values": list(zones)}]}]
    return found


def csi_node(name: str, limits: Mapping[str, int | None], *, migrated: str = "") -> Json:
    """Return the CSINode of a node, with its drivers and how many volumes each can attach."""
    drivers = [
        {"name": driver, "nodeID": name, **({} if count is None else {"allocatable": {"count": count}})}
        for driver, count in limits.items()
    ]
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": migrated} if migrated else {}
    return {**_object("CSINode", name, annotations=annotations), "spec": {"drivers": drivers}}


def csi_driver(name: str = "csi.example.com", **spec: Any) -> Json:
    """Return a CSIDriver."""
    return {**_object("CSIDriver", name), "spec": spec}


def capacity(name: str, size: str | None, *, cls: str = "slow", zone: str | None = None, **more: Any) -> Json:
    """Return a CSIStorageCapacity for the nodes of a zone; None: for every node."""
    found = {**_object("CSIStorageCapacity", name, "default"), "storageClassName": cls, **more}
    found.setdefault("nodeTopology", {} if zone is None else {"matchLabels": {"zone": zone}})
    if size is not None:
        found["capacity"] = size
    return found


def attachment(name: str, node: str, volume_name: str, attacher: str = "csi.example.com") -> Json:
    """Return a VolumeAttachment."""
    spec = {"attacher": attacher, "nodeName": node, "source": {"persistentVolumeName": volume_name}}
    return {**_object("VolumeAttachment", name), "spec": spec}


def csi(handle: str, driver: str = "csi.example.com") -> Json:
    """Return a volume's source."""
    return {"driver": driver, "volumeHandle": handle}


def pod_using(
    name: str, *volumes: str | Mapping[str, Any], node: str = "", namespace: str = "default"
) -> Pod:
    """Return a pod with claims, by name, and volumes, by their source."""
    listed: list[Json] = []
    for i, source in enumerate(volumes):
        given = {"persistentVolumeClaim": {"claimName": source}} if isinstance(source, str) else dict(source)
        listed.append({"name": f"v{i}", **given})
    return Pod.from_object(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
            "spec": {
                "containers": [{"name": "c"}],
                "volumes": listed,
                **({"nodeName": node} if node else {}),
            },
        }
    )
