"""Maps a resource as `Need` spells it to its API version, kind and path.

Used by `cluster`, `informer`, `calls` and `events`. Built-in resources are in a table. Custom resources, and
those that versions of Kubernetes serve in different versions, are looked up at the server once (discovery).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from berth_host.errors.cluster import NotFoundError
from berth_host.model.resources import kind_of

from berth_kube.client import KubeClient, path_of, segment

PENDING_OR_RUNNING: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""The field selector for pods: finished pods use no resources, so they are not watched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResource:
    """One resource. `name`: `storage.k8s.io/csinodes`. `watch_kind`: the kind of its WatchEvents.
    `field_selector`: of its lists and watches, empty for all objects. `older_versions`: the API versions in
    which older API servers serve it, newest first; without them, every server has `api_version`.
    """

    name: str
    api_version: str
    kind: str
    watch_kind: str
    namespaced: bool
    field_selector: str = ""
    older_versions: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def plural(self) -> str:
        """The name without the group."""
        return self.name.rpartition("/")[2]

    @property
    def prefix(self) -> str:
        """The path of the resource's group and version."""
        return f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of all objects or of one; a cluster-scoped resource ignores `namespace`."""
        return path_of(self.prefix, self.plural, namespace if self.namespaced else "", name, subresource)


def _built_in(
    api_version: str,
    kind: str,
    plural: str,
    *,
    namespaced: bool = False,
    older_versions: tuple[str, ...] = (),
) -> ApiResource:
    group = api_version.rpartition("/")[0]
    name = f"{group}/{plural}" if group else plural
    return ApiResource(
        name=name,
        api_version=api_version,
        kind=kind,
        watch_kind=kind if plural in ("pods", "nodes") else kind_of(name),
        namespaced=namespaced,
        field_selector=PENDING_OR_RUNNING if name == "pods" else "",
        older_versions=older_versions,
    )


_BUILT_IN: Final = {
    found.name: found
    for found in (
        _built_in("v1", "Namespace", "namespaces"),
        _built_in("v1", "Node", "nodes"),
        _built_in("v1", "Pod", "pods", namespaced=True),
        _built_in("v1", "Service", "services", namespaced=True),
        _built_in("v1", "PersistentVolume", "persistentvolumes"),
        _built_in("v1", "PersistentVolumeClaim", "persistentvolumeclaims", namespaced=True),
        _built_in("v1", "ReplicationController", "replicationcontrollers", namespaced=True),
        _built_in("apps/v1", "ReplicaSet", "replicasets", namespaced=True),
        _built_in("apps/v1", "StatefulSet", "statefulsets", namespaced=True),
        _built_in("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", namespaced=True),
        _built_in("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses"),
        _built_in("scheduling.k8s.io/v1beta1", "PodGroup", "podgroups", namespaced=True),
        _built_in(
            "scheduling.k8s.io/v1beta1",
            "CompositePodGroup",
            "compositepodgroups",
            namespaced=True,
            older_versions=("scheduling.k8s.io/v1alpha3",),
        ),
        _built_in("storage.k8s.io/v1", "StorageClass", "storageclasses"),
        _built_in("storage.k8s.io/v1", "CSINode", "csinodes"),
        _built_in("storage.k8s.io/v1", "CSIDriver", "csidrivers"),
        _built_in("storage.k8s.io/v1", "CSIStorageCapacity", "csistoragecapacities", namespaced=True),
        _built_in("storage.k8s.io/v1", "VolumeAttachment", "volumeattachments"),
        _built_in("resource.k8s.io/v1", "ResourceClaim", "resourceclaims", namespaced=True),
        _built_in("resource.k8s.io/v1", "ResourceSlice", "resourceslices"),
        _built_in("resource.k8s.io/v1", "DeviceClass", "deviceclasses"),
        _built_in(
            "resource.k8s.io/v1",
            "DeviceTaintRule",
            "devicetaintrules",
            # Kubernetes 1.36 serves none by default: without a look-up, RBAC would refuse what is not there.
            older_versions=("resource.k8s.io/v1beta2", "resource.k8s.io/v1alpha3"),
        ),
    )
}
_NAME_OF_KIND: Final = {found.kind: found.name for found in _BUILT_IN.values()}


def built_in() -> list[ApiResource]:
    """Return the built-in resources, in the newest API versions."""
    return list(_BUILT_IN.values())


class Resources:
    """The built-in resources, and those found by discovery."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._known = {name: found for name, found in _BUILT_IN.items() if not found.older_versions}

    def known(self, name: str) -> ApiResource | None:
        """Return a resource that needs no look-up, or was looked up before; else None."""
        return self._known.get(name)

    def described(self, name: str) -> ApiResource | None:
        """Return a known resource, or a built-in one in its newest API version, for texts; else None."""
        return self._known.get(name) or _BUILT_IN.get(name)

    def api_version_of(self, kind: str) -> str:
        """Return the API version of a built-in kind, the newest one before a look-up; "v1" for others."""
        found = self.described(_NAME_OF_KIND.get(kind, ""))
        return "v1" if found is None else found.api_version

    def forget(self, name: str) -> bool:
        """Look a resource up anew at its next use, as the API server may serve another version of it now.

        Return False for a resource that has one version everywhere, and for a custom one.
        """
        if name not in _BUILT_IN or not _BUILT_IN[name].older_versions:
            return False
        self._known.pop(name, None)
        return True

    async def resolve(self, name: str) -> ApiResource:
        """Return the resource, if needed by discovery: a built-in one in the newest version that the server
        serves, a custom one in the version that the server prefers.

        Raises NotFoundError if the server does not serve the resource, and other ClusterErrors.
        """
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = await self._discover(name)
        return found

    async def _discover(self, name: str) -> ApiResource:
        group, _, plural = name.rpartition("/")
        newest = _BUILT_IN.get(name)
        if newest is not None:
            for api_version in (newest.api_version, *newest.older_versions):
                found = replace(newest, api_version=api_version)
                if await self._serves(found):
                    return found
            raise NotFoundError(name, "", "the API server does not serve this resource")
        for api_version in await self._versions(group):
            prefix = f"/apis/{api_version}" if group else f"/api/{api_version}"
            served = await self._client.request("GET", prefix, resource=name)
            for item in served.get("resources") or ():
                if isinstance(item, dict) and item.get("name") == plural:
                    return ApiResource(
                        name=name,
                        api_version=api_version,
                        kind=str(item.get("kind") or ""),
                        watch_kind=kind_of(name),
                        namespaced=bool(item.get("namespaced")),
                    )
        raise NotFoundError(name, "", "the API server does not serve this resource; is its CRD installed?")

    async def _serves(self, resource: ApiResource) -> bool:
        """Return True if the server serves the resource in its API version."""
        try:
            served = await self._client.request("GET", resource.prefix, resource=resource.name)
        except NotFoundError:
            return False
        return any(
            isinstance(item, dict) and item.get("name") == resource.plural
            for item in served.get("resources") or ()
        )

    async def _versions(self, group: str) -> list[str]:
        """Return all versions of a group, the preferred one first."""
        if not group:
            return ["v1"]
        try:
            answer = await self._client.request("GET", f"/apis/{segment(group)}", resource=group)
        except NotFoundError as err:
            text = f"the API server does not serve the group {group!r}; is its CRD installed?"
            raise NotFoundError(group, "", text) from err
        preferred = _group_version(answer.get("preferredVersion"))
        others = [_group_version(item) for item in answer.get("versions") or ()]
        return [found for found in dict.fromkeys([preferred, *others]) if found]


def _group_version(item: Any) -> str:
    return str(item.get("groupVersion") or "") if isinstance(item, dict) else ""
