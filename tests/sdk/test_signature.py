"""Pods with the same wishes share a signature; any difference in wishes changes the signature."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from berth_sdk.pod import HostPort, OwnerRef, Pod, Toleration
from berth_sdk.signature import signature

SUMMARY = Pod(name="web-0", uid="1", labels={"app": "web"}, requests={"cpu": 500, "memory": 1 << 20})


def from_manifest(name: str = "web-0", labels: dict[str, str] | None = None, **spec: Any) -> Pod:
    containers = [{"name": "main", "image": "web:1", "resources": {"requests": {"cpu": "500m"}}}]
    return Pod.from_object(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "uid": name, "labels": labels or {"app": "web"}},
            "spec": {"containers": containers} | spec,
        }
    )


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(SUMMARY, namespace="other"), id="namespace"),
        pytest.param(replace(SUMMARY, labels={"app": "db"}), id="labels"),
        pytest.param(replace(SUMMARY, priority=7), id="priority"),
        pytest.param(replace(SUMMARY, requests={"cpu": 500}), id="requests"),
        pytest.param(replace(SUMMARY, tolerations=(Toleration("gpu", "Exists"),)), id="tolerations"),
        pytest.param(replace(SUMMARY, host_ports=(HostPort("", "TCP", 80),)), id="host ports"),
        pytest.param(replace(SUMMARY, owner=OwnerRef("apps/v1", "ReplicaSet", "web", "u")), id="owner"),
        pytest.param(replace(SUMMARY, node_selector={"zone": "a"}), id="node selector"),
        pytest.param(replace(SUMMARY, claims=("data",)), id="claims"),
    ],
)
def test_difference_in_the_summary_changes_the_signature(other: Pod) -> None:
    assert signature(other) != signature(SUMMARY)


def test_name_uid_and_node_do_not_change_the_signature() -> None:
    other = replace(SUMMARY, name="web-1", uid="2", resource_version="9", node_name="n1", nominated_node="n2")
    assert signature(other) == signature(SUMMARY)


def test_order_of_labels_does_not_change_the_signature() -> None:
    first = replace(SUMMARY, labels={"a": "1", "b": "2"})
    assert signature(first) == signature(replace(SUMMARY, labels={"b": "2", "a": "1"}))


def test_siblings_of_one_workload_share_a_signature_despite_their_token_volumes() -> None:
    def sibling(suffix: str) -> Pod:
        token = f"kube-api-access-{suffix}"
        mount = {"name": token, "mountPath": "/var/run/secrets"}
        container = {"name": "main", "image": "web:1", "volumeMounts": [mount]}
        return from_manifest(
            f"web-{suffix}",
            containers=[container],
            volumes=[{"name": token, "projected": {}}],
            nodeName=f"n-{suffix}",
        )

    assert signature(sibling("x7k2p")) == signature(sibling("9q1ze"))


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"affinity": {"nodeAffinity": {}}}, id="affinity"),
        pytest.param({"volumes": [{"name": "data", "emptyDir": {}}]}, id="volumes"),
        pytest.param({"containers": [{"name": "main", "image": "web:2"}]}, id="containers"),
        pytest.param({"schedulingGates": [{"name": "wait"}]}, id="a field that no summary knows by name"),
    ],
)
def test_difference_in_the_spec_changes_the_signature(spec: dict[str, Any]) -> None:
    assert signature(from_manifest(**spec)) != signature(from_manifest())


def test_generated_claims_change_the_signature() -> None:
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    first, second = (from_manifest(name, volumes=[scratch]) for name in ("web-0", "web-1"))
    assert (first.claims, second.claims) == (("web-0-scratch",), ("web-1-scratch",))
    assert signature(first) != signature(second)


def test_generated_resource_claims_change_the_signature() -> None:
    def sibling(name: str) -> Pod:
        made = [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]
        claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
        pod = from_manifest(name, resourceClaims=claims)
        assert pod.object is not None
        return Pod.from_object(dict(pod.object.parsed) | {"status": {"resourceClaimStatuses": made}})

    assert signature(sibling("web-0")) != signature(sibling("web-1"))


def test_signatures_of_an_object_and_its_summary_differ() -> None:
    known = from_manifest()
    assert signature(known) != signature(replace(known, object=None))


def test_owners_without_a_uid_are_told_apart_by_name_and_kind() -> None:
    owners = [OwnerRef("apps/v1", "ReplicaSet", "a", ""), OwnerRef("apps/v1", "ReplicaSet", "b", "")]
    owners.append(OwnerRef("apps/v1", "StatefulSet", "a", ""))
    assert len({signature(Pod(name="web", owner=owner)) for owner in owners}) == 3
