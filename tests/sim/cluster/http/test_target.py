"""Paths of the Kubernetes API."""

from __future__ import annotations

import pytest
from berth_sim.cluster.http.target import discovery_of, target_of


@pytest.mark.parametrize(
    ("path", "resource", "namespace", "name", "subresource"),
    [
        ("/api/v1/nodes", "nodes", "", "", ""),
        ("/api/v1/nodes/n1/status", "nodes", "", "n1", "status"),
        ("/api/v1/pods", "pods", "", "", ""),
        ("/api/v1/namespaces/a/pods", "pods", "a", "", ""),
        ("/api/v1/namespaces/a/pods/p/binding", "pods", "a", "p", "binding"),
        ("/api/v1/namespaces/a", "namespaces", "", "a", ""),
        ("/apis/apps/v1/namespaces/a/replicasets/r", "apps/replicasets", "a", "r", ""),
        ("/apis/storage.k8s.io/v1/csinodes/n1", "storage.k8s.io/csinodes", "", "n1", ""),
    ],
)
def test_path_names_a_resource_or_an_object(
    path: str, resource: str, namespace: str, name: str, subresource: str
) -> None:
    target = target_of(path)
    assert target is not None
    assert (target.kind.resource, target.namespace, target.name, target.subresource) == (
        resource,
        namespace,
        name,
        subresource,
    )


@pytest.mark.parametrize(
    "path", ["/", "/version", "/api/v2/pods", "/apis/apps/v1/pods", "/api/v1", "/api/v1/pods/a/b/c/d"]
)
def test_path_of_an_unknown_resource_has_no_target(path: str) -> None:
    assert target_of(path) is None


def test_path_of_an_api_version_lists_its_resources() -> None:
    found = discovery_of("/apis/scheduling.k8s.io/v1beta1")
    assert found is not None
    assert {"name": "compositepodgroups", "kind": "CompositePodGroup", "namespaced": True} in found[
        "resources"
    ]
    older = discovery_of("/apis/scheduling.k8s.io/v1alpha3")
    assert older is not None
    assert [item["kind"] for item in older["resources"]] == ["CompositePodGroup"]
    assert discovery_of("/apis/scheduling.k8s.io/v1alpha2") is None
    assert discovery_of("/api/v1/pods") is None
