"""Names that cannot be a resource, and the name that was probably meant."""

from __future__ import annotations

import pytest
from berth_host.model.known_resources import misspelt


@pytest.mark.parametrize(
    "name",
    [
        "persistentvolumeclaims",
        "storage.k8s.io/csinodes",
        "example.com/widgets",
        "x.k8s.io/odds",
        "batch/jobs",
    ],
)
def test_possible_resource_is_not_misspelt(name: str) -> None:
    assert misspelt(name) is None


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("persistentvolumeclaim", "persistentvolumeclaims"),
        ("PersistentVolumeClaims", "persistentvolumeclaims"),
        ("persistentvolumeclams", "persistentvolumeclaims"),
        ("csinodes", "storage.k8s.io/csinodes"),
        ("storage/csinodes", "storage.k8s.io/csinodes"),
        ("storage.k8s.io/csinode", "storage.k8s.io/csinodes"),
        ("apps/v1/replicasets", "apps/replicasets"),
        ("", ""),
        ("zzz", ""),
    ],
)
def test_impossible_resource_gets_the_similar_name(name: str, meant: str) -> None:
    assert misspelt(name) == meant
