"""Resources as `Need.resource` spells them: the kinds as the watch names them, and those of pod groups.

Source: kube-scheduler `eventhandlers.go` (which kinds are watched), v1.36.
"""

from __future__ import annotations

from typing import Final

KIND_OF_RESOURCE: Final = {
    "namespaces": "Namespace",
    "persistentvolumes": "PersistentVolume",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "services": "Service",
    "replicationcontrollers": "ReplicationController",
    "apps/replicasets": "ReplicaSet",
    "apps/statefulsets": "StatefulSet",
    "policy/poddisruptionbudgets": "PodDisruptionBudget",
    "scheduling.k8s.io/priorityclasses": "PriorityClass",
    "scheduling.k8s.io/podgroups": "PodGroup",
    "scheduling.k8s.io/compositepodgroups": "CompositePodGroup",
    "storage.k8s.io/storageclasses": "StorageClass",
    "storage.k8s.io/csinodes": "CSINode",
    "storage.k8s.io/csidrivers": "CSIDriver",
    "storage.k8s.io/csistoragecapacities": "CSIStorageCapacity",
    "storage.k8s.io/volumeattachments": "VolumeAttachment",
    "resource.k8s.io/resourceclaims": "ResourceClaim",
    "resource.k8s.io/resourceslices": "ResourceSlice",
    "resource.k8s.io/deviceclasses": "DeviceClass",
    "resource.k8s.io/devicetaintrules": "DeviceTaintRule",
}

COSCHEDULING_GROUPS: Final = "scheduling.x-k8s.io/podgroups"
"""Coscheduling's PodGroups, which is also the kind of their watch events."""
POD_GROUPS: Final = "GenericWorkload"
COMPOSITE_POD_GROUPS: Final = "CompositePodGroup"
RESOURCE_OF_GATE: Final = {
    POD_GROUPS: "scheduling.k8s.io/podgroups",
    COMPOSITE_POD_GROUPS: "scheduling.k8s.io/compositepodgroups",
}
"""The resources of pod groups, by the feature gate that makes the host read them."""


def kind_of(resource: str) -> str:
    """Return the kind under which objects of `resource` are stored.

    A custom resource (`example.com/widgets`) is watched and stored under its resource name.
    """
    return KIND_OF_RESOURCE.get(resource, resource)
