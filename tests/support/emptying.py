"""Takes everything out of an API server that a test may have put in, and waits until it is gone."""

from __future__ import annotations

import time
import urllib.error
from typing import Any, Final

from berth_bench.versus.real_servers import RealServers, ServerError

_NAMESPACED: Final = (
    "/api/v1/{ns}/pods",
    "/api/v1/{ns}/persistentvolumeclaims",
    "/api/v1/{ns}/services",
    "/api/v1/{ns}/replicationcontrollers",
    "/apis/apps/v1/{ns}/replicasets",
    "/apis/apps/v1/{ns}/statefulsets",
    "/apis/policy/v1/{ns}/poddisruptionbudgets",
    "/apis/resource.k8s.io/v1/{ns}/resourceclaims",
    "/apis/storage.k8s.io/v1/{ns}/csistoragecapacities",
    "/apis/events.k8s.io/v1/{ns}/events",
    "/apis/coordination.k8s.io/v1/{ns}/leases",
    # Served by a server with pod groups alone.
    "/apis/scheduling.k8s.io/v1beta1/{ns}/workloads",
    "/apis/scheduling.k8s.io/v1beta1/{ns}/podgroups",
    "/apis/scheduling.k8s.io/v1beta1/{ns}/compositepodgroups",
    "/apis/scheduling.k8s.io/v1alpha3/{ns}/compositepodgroups",
    "/apis/scheduling.x-k8s.io/v1alpha1/{ns}/podgroups",
)
_GLOBAL: Final = (
    "/api/v1/nodes",
    "/api/v1/persistentvolumes",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/storage.k8s.io/v1/csinodes",
    "/apis/storage.k8s.io/v1/csidrivers",
    "/apis/storage.k8s.io/v1/volumeattachments",
    "/apis/resource.k8s.io/v1/resourceslices",
    "/apis/resource.k8s.io/v1/deviceclasses",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
)
_KEPT: Final = frozenset({"system-node-critical", "system-cluster-critical"})
_KEPT_NAMESPACES: Final = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
_MANY: Final = ("/pods", "/events")
"""Collections that may have thousands of objects: all but those with finalizers go with one request."""
_AT_ONCE: Final[dict[str, Any]] = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
_WITHIN_S: Final = 30.0


def empty(servers: RealServers) -> None:
    """Delete it all. Raises ServerError when something stays."""
    namespaces = [item["metadata"]["name"] for item in _items(servers, "/api/v1/namespaces")]
    paths = [path.format(ns=f"namespaces/{name}") for path in _NAMESPACED for name in namespaces]
    for path in (*paths, *_GLOBAL):
        _empty(servers, path)
    for name in namespaces:
        if name not in _KEPT_NAMESPACES:
            _drop_namespace(servers, name)


def _empty(servers: RealServers, path: str) -> None:
    ends_s = time.monotonic() + _WITHIN_S
    if path.endswith(_MANY):
        _try(servers, "DELETE", path, _AT_ONCE)
    while items := [item for item in _items(servers, path) if not _stays(path, item)]:
        if time.monotonic() > ends_s:
            raise ServerError(f"{path} could not be emptied: {items[0]['metadata']}")
        for item in items:
            one = f"{path}/{item['metadata']['name']}"
            _try(servers, "DELETE", one, _AT_ONCE)
            if item["metadata"].get("finalizers"):
                _try(servers, "PATCH", one, {"metadata": {"finalizers": None}})


def _stays(path: str, item: dict[str, Any]) -> bool:
    name = item["metadata"]["name"]
    return name in _KEPT or (path.endswith("/services") and name == "kubernetes")


def _drop_namespace(servers: RealServers, name: str) -> None:
    """No namespace controller runs: take the finalizer of the spec away by hand."""
    path = f"/api/v1/namespaces/{name}"
    _try(servers, "DELETE", path, None)
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []}}
    _try(servers, "PUT", f"{path}/finalize", body)


def _items(servers: RealServers, path: str) -> list[dict[str, Any]]:
    """Return the objects of a collection; none where the server does not serve the collection."""
    try:
        found: list[dict[str, Any]] = servers.request("GET", path).get("items") or []
    except urllib.error.HTTPError as err:
        if err.code != 404:
            raise
        return []
    return found


def _try(servers: RealServers, method: str, path: str, body: dict[str, Any] | None) -> None:
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    try:
        servers.request(method, path, body, content_type=content_type)
    except urllib.error.HTTPError as err:
        if err.code not in (404, 409):
            raise
