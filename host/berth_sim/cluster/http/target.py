"""Parses a path of the API server into kind, namespace, object and subresource.

Called by `serving`. Source: the Kubernetes API's paths, `/api/v1/...` and `/apis/GROUP/VERSION/...`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from berth_sdk.kube_object import ObjectRef

from berth_sim.cluster.kinds import BY_RESOURCE, Kind
from berth_sim.cluster.versions import as_version


@dataclass(frozen=True, slots=True)
class Target:
    """A resource, or one object of it. A part that the path does not name is an empty string.

    `api_version`: the one of the kind's versions in which the client reads and writes.
    """

    kind: Kind
    api_version: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def ref(self) -> ObjectRef:
        """The reference of the object."""
        return ObjectRef(name=self.name, namespace=self.namespace)

    def shown(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Return a stored object as the client reads it."""
        return dict(as_version(self.kind, obj, self.api_version))


def discovery_of(path: str) -> dict[str, Any] | None:
    """Return the list of resources that a path of an API version names, `/apis/apps/v1`; None for others."""
    match [part for part in path.split("/") if part]:
        case ["api", api_version]:
            pass
        case ["apis", group, version]:
            api_version = f"{group}/{version}"
        case _:
            return None
    found = [
        {"name": kind.plural, "kind": kind.kind, "namespaced": kind.namespaced}
        for kind in BY_RESOURCE.values()
        if kind.has_version(api_version)
    ]
    if not found:
        return None
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": found}


def target_of(path: str) -> Target | None:
    """Return the target of a path; None if the embedded cluster has no such resource and version."""
    match [part for part in path.split("/") if part]:
        case ["api", version, *rest]:
            group, api_version = "", version
        case ["apis", group, version, *rest]:
            api_version = f"{group}/{version}"
        case _:
            return None
    namespace = ""
    # `/api/v1/namespaces/x` is a namespace, `/api/v1/namespaces/x/pods` a resource in that namespace.
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    if not 1 <= len(rest) <= 3:
        return None
    plural, name, subresource = (*rest, "", "")[:3]
    kind = BY_RESOURCE.get(f"{group}/{plural}" if group else plural)
    if kind is None or not kind.has_version(api_version):
        return None
    return Target(kind, api_version, namespace, name, subresource)
