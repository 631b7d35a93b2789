"""The table of the kinds that the embedded cluster stores.

Read by the server, its admission and the manifest loader. `resource` is spelled as in a plugin's Need: the
plural, after the API group and a slash if there is a group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind.

    `namespaced`: its objects are in namespaces. `keeps_status`: the status of a new object is kept, as a
    kubelet registers its node with a status; for other kinds it is removed. `is_custom`: it is not one of
    Kubernetes' own; its CustomResourceDefinition is not kept. `older_versions`: the API versions in which
    older Kubernetes has the kind; objects of these versions are kept as objects of `api_version`
    (`versions` converts them).
    """

    api_version: str
    kind: str
    resource: str
    namespaced: bool = True
    keeps_status: bool = False
    is_custom: bool = False
    older_versions: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The kind's name, unlike that of every other kind: `Pod`, `PodGroup.scheduling.x-k8s.io`."""
        return self.qualified_kind if self.is_custom else self.kind

    @property
    def watch_kind(self) -> str:
        """The kind of its watch events, as for `berth_kube`: a custom one has the resource's name."""
        return self.resource if self.is_custom else self.kind

    def has_version(self, api_version: str) -> bool:
        """Return True if objects of this API version are kept."""
        return api_version == self.api_version or api_version in self.older_versions

    def key(self, namespace: str, name: str) -> str:
        """Return `namespace/name`, or `name` for a cluster-scoped kind."""
        return f"{namespace}/{name}" if self.namespaced else name

    @property
    def plural(self) -> str:
        """The resource's name without its group."""
        return self.resource.rpartition("/")[2]

    @property
    def qualified(self) -> str:
        """The resource's name in the API server's messages: `csinodes.storage.k8s.io`."""
        group, _, plural = self.resource.rpartition("/")
        return f"{plural}.{group}" if group else plural

    @property
    def qualified_kind(self) -> str:
        """The kind's name in the API server's messages: `CSINode.storage.k8s.io`."""
        group = self.resource.rpartition("/")[0]
        return f"{self.kind}.{group}" if group else self.kind


def _device_kind(kind: str, plural: str, *, namespaced: bool = True) -> Kind:
    """Return a kind of devices that two older versions of its group have too."""
    group = "resource.k8s.io"
    older = (f"{group}/v1beta2", f"{group}/v1beta1")
    return Kind(f"{group}/v1", kind, f"{group}/{plural}", namespaced, older_versions=older)


_ALL: Final = (
    Kind("v1", "Namespace", "namespaces", namespaced=False),
    Kind("v1", "Node", "nodes", namespaced=False, keeps_status=True),
    Kind("v1", "Pod", "pods"),
    Kind("v1", "Service", "services"),
    Kind("v1", "PersistentVolume", "persistentvolumes", namespaced=False),
    Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    Kind("v1", "LimitRange", "limitranges"),
    Kind("v1", "ResourceQuota", "resourcequotas"),
    Kind("v1", "ReplicationController", "replicationcontrollers"),
    Kind("coordination.k8s.io/v1", "Lease", "coordination.k8s.io/leases"),
    Kind("apps/v1", "Deployment", "apps/deployments"),
    Kind("apps/v1", "ReplicaSet", "apps/replicasets"),
    Kind("apps/v1", "StatefulSet", "apps/statefulsets"),
    Kind("batch/v1", "Job", "batch/jobs"),
    Kind("policy/v1", "PodDisruptionBudget", "policy/poddisruptionbudgets"),
    Kind("scheduling.k8s.io/v1", "PriorityClass", "scheduling.k8s.io/priorityclasses", namespaced=False),
    Kind("scheduling.k8s.io/v1beta1", "Workload", "scheduling.k8s.io/workloads"),
    Kind("scheduling.k8s.io/v1beta1", "PodGroup", "scheduling.k8s.io/podgroups"),
    Kind(
        "scheduling.k8s.io/v1beta1",
        "CompositePodGroup",
        "scheduling.k8s.io/compositepodgroups",
        older_versions=("scheduling.k8s.io/v1alpha3",),
    ),
    Kind("scheduling.x-k8s.io/v1alpha1", "PodGroup", "scheduling.x-k8s.io/podgroups", is_custom=True),
    Kind("node.k8s.io/v1", "RuntimeClass", "node.k8s.io/runtimeclasses", namespaced=False),
    Kind("storage.k8s.io/v1", "StorageClass", "storage.k8s.io/storageclasses", namespaced=False),
    Kind("storage.k8s.io/v1", "CSINode", "storage.k8s.io/csinodes", namespaced=False),
    Kind("storage.k8s.io/v1", "CSIDriver", "storage.k8s.io/csidrivers", namespaced=False),
    Kind("storage.k8s.io/v1", "CSIStorageCapacity", "storage.k8s.io/csistoragecapacities"),
    Kind("storage.k8s.io/v1", "VolumeAttachment", "storage.k8s.io/volumeattachments", namespaced=False),
    _device_kind("ResourceClaim", "resourceclaims"),
    _device_kind("ResourceClaimTemplate", "resourceclaimtemplates"),
    _device_kind("ResourceSlice", "resourceslices", namespaced=False),
    _device_kind("DeviceClass", "deviceclasses", namespaced=False),
    Kind("resource.k8s.io/v1", "DeviceTaintRule", "resource.k8s.io/devicetaintrules", namespaced=False),
)
BY_KIND: Final[Mapping[str, Kind]] = {kind.title: kind for kind in _ALL}
"""The kinds by their titles."""
BY_WATCH_KIND: Final[Mapping[str, Kind]] = {kind.watch_kind: kind for kind in _ALL}
BY_RESOURCE: Final[Mapping[str, Kind]] = {kind.resource: kind for kind in _ALL}
POD: Final = BY_KIND["Pod"]
NODE: Final = BY_KIND["Node"]
NAMESPACE: Final = BY_KIND["Namespace"]
_CUSTOM: Final[Mapping[tuple[str, str], Kind]] = {
    (kind.api_version, kind.kind): kind for kind in _ALL if kind.is_custom
}


def kind_of(obj: Mapping[str, Any]) -> Kind | None:
    """Return the kind that an object names; of a kind of Kubernetes the version may be another one."""
    api_version, name = str(obj.get("apiVersion")), str(obj.get("kind"))
    return _CUSTOM.get((api_version, name)) or BY_KIND.get(name)


def known_kind(obj: Mapping[str, Any]) -> Kind:
    """Return the kind of an object that `kind_of` knows. Raises KeyError for any other object."""
    found = kind_of(obj)
    if found is None:
        raise KeyError(obj.get("kind"))
    return found
