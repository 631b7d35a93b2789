"""Pods that are equal in the chosen fields get equal signatures; a difference in one of them changes it."""

from __future__ import annotations

from typing import Any

import pytest
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.pod import Pod
from berth_sdk.pod_fields import ALL_FIELDS, PodField, are_of_spec, signing
from berth_sdk.signature import wishes

CONTAINER = {"name": "main", "image": "web:1", "resources": {"requests": {"cpu": "500m"}}}
SCRATCH = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}


def a_pod(name: str = "web-0", spec: dict[str, Any] | None = None, **metadata: Any) -> Pod:
    """`status` among the metadata goes beside it."""
    status = metadata.pop("status", {})
    return Pod.from_object(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "uid": name, "labels": {"app": "web"}} | metadata,
            "spec": {"containers": [CONTAINER]} | (spec or {}),
            "status": status,
        }
    )


PLAIN = a_pod()
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
MADE = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "web-0-gpu"}]}
F = PodField
DIFFERENT: list[tuple[Pod, set[PodField]]] = [
    (a_pod(namespace="other"), {F.NAMESPACE}),
    (a_pod(labels={"app": "db"}), {F.LABELS}),
    (a_pod(annotations={"a": "1"}), {F.ANNOTATIONS}),
    (a_pod(ownerReferences=[OWNER]), {F.OWNER}),
    (a_pod(spec={"priority": 7}), {F.PRIORITY, F.SPEC}),
    (a_pod(spec={"preemptionPolicy": "Never"}), {F.PRIORITY, F.SPEC}),
    (a_pod(spec={"overhead": {"cpu": "1"}}), {F.REQUESTS, F.SPEC}),
    (a_pod(spec={"nodeSelector": {"zone": "a"}}), {F.NODE_SELECTOR, F.SPEC}),
    (a_pod(spec={"nodeSelector": {}}), {F.NODE_SELECTOR, F.SPEC}),
    (a_pod(spec={"affinity": {"nodeAffinity": {}}}), {F.AFFINITY, F.SPEC}),
    (a_pod(spec={"affinity": {}}), {F.AFFINITY, F.SPEC}),
    (a_pod(spec={"topologySpreadConstraints": [{"maxSkew": 1}]}), {F.TOPOLOGY_SPREAD, F.SPEC}),
    (a_pod(spec={"tolerations": [{"operator": "Exists"}]}), {F.TOLERATIONS, F.SPEC}),
    (a_pod(spec={"nodeName": "n1"}), {F.NODE_NAME}),
    (a_pod(status={"nominatedNodeName": "n1"}), {F.NOMINATED_NODE}),
    (a_pod(spec={"schedulingGates": [{"name": "wait"}]}), {F.SCHEDULING_GATES, F.SPEC}),
    (
        a_pod(spec={"containers": [CONTAINER | {"ports": [{"containerPort": 80, "hostPort": 80}]}]}),
        {F.HOST_PORTS, F.SPEC},
    ),
    (a_pod(spec={"containers": [CONTAINER | {"image": "web:2"}]}), {F.IMAGES, F.SPEC}),
    (a_pod(spec={"volumes": [{"name": "data", "emptyDir": {}}]}), {F.VOLUMES, F.SPEC}),
    (a_pod(spec={"resourceClaims": [{"name": "gpu"}]}), {F.RESOURCE_CLAIMS, F.SPEC}),
    (a_pod(spec={"schedulerName": "other"}), {F.SCHEDULER_NAME, F.SPEC}),
    (a_pod(spec={"runtimeClassName": "vm"}), {F.SPEC}),
]


@pytest.mark.parametrize(("other", "shows"), DIFFERENT)
def test_a_difference_changes_the_signature_of_its_fields_only(other: Pod, shows: set[PodField]) -> None:
    found = {field for field in PodField if signing([field])(other) != signing([field])(PLAIN)}
    assert found == shows
    assert signing(ALL_FIELDS)(other) != signing(ALL_FIELDS)(PLAIN)
    two = signing([PodField.LABELS, *shows])
    assert two(other) != two(PLAIN)


def test_every_field_is_covered_by_some_difference() -> None:
    assert set().union(*(shows for _, shows in DIFFERENT)) == set(PodField)


def test_generated_claims_change_the_signature() -> None:
    scratch = [a_pod(name, {"volumes": [SCRATCH]}) for name in ("web-0", "web-1")]
    assert signing([PodField.VOLUMES])(scratch[0]) != signing([PodField.VOLUMES])(scratch[1])
    assert signing([PodField.SPEC])(scratch[0]) == signing([PodField.SPEC])(scratch[1])
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]}
    sign = signing([PodField.RESOURCE_CLAIMS])
    assert sign(a_pod(spec=claims, status=MADE)) != sign(a_pod(spec=claims))


def test_service_account_token_volumes_do_not_change_the_signature() -> None:
    tokens = [a_pod(spec={"volumes": [{"name": f"kube-api-access-{n}", "projected": {}}]}) for n in "ab"]
    for field in PodField:
        assert signing([field])(tokens[0]) == signing([field])(tokens[1])


def test_no_fields_give_all_pods_equal_signatures() -> None:
    assert len({signing(())(pod) for pod, _ in DIFFERENT}) == 1


def test_all_fields_give_the_signature_of_all_wishes() -> None:
    assert all(signing(ALL_FIELDS)(pod) == wishes(pod) for pod, _ in DIFFERENT)
    assert signing(reversed(ALL_FIELDS)) is signing(ALL_FIELDS)


def test_fields_of_the_spec_are_those_that_equal_specs_share() -> None:
    sibling = a_pod(
        "web-1",
        {"nodeName": "n1"},
        namespace="other",
        labels={"app": "db"},
        annotations={"a": "1"},
        ownerReferences=[OWNER],
        status={"nominatedNodeName": "n1"} | MADE,
    )
    for field in PodField:
        if are_of_spec([field]):
            assert signing([field])(sibling) == signing([field])(PLAIN)
    assert not are_of_spec([PodField.REQUESTS, PodField.VOLUMES])
    assert not are_of_spec([PodField.RESOURCE_CLAIMS])
    assert are_of_spec([PodField.REQUESTS, PodField.SPEC])


def test_a_summary_is_signed_by_its_fields() -> None:
    bare = Pod(name="a", requests={"cpu": 5, "memory": 1})
    for field in PodField:
        hash(signing([field])(bare))
    sign = signing([PodField.REQUESTS])
    assert sign(bare) == sign(Pod(name="b", requests={"memory": 1, "cpu": 5}))
    assert signing([PodField.SPEC])(bare) != signing([PodField.SPEC])(Pod(name="a"))


def test_pod_fields_are_those_of_the_contract() -> None:
    contract = {
        name.removeprefix("POD_FIELD_"): number for name, number in identity_pb2.PodField.items() if number
    }
    assert contract == {field.name: field.value for field in PodField}
