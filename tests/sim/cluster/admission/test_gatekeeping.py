"""Manifests are completed and refused as an API server's admission plugins do it."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.errors.cluster import ForbiddenError
from berth_host.model.clock import ManualClock
from berth_sdk.kube_object import ObjectRef
from berth_sim.cluster.admission.gatekeeping import Gatekeeping
from berth_sim.cluster.server import ApiServer


@pytest.fixture
def server() -> ApiServer:
    return ApiServer(ManualClock(1_800_000_000), Gatekeeping())


def pod(name: str = "p", resources: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": resources or {}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], **spec},
    }


def runtime_class(**more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "boxed"},
        "handler": "box",
        **more,
    }


def limits(*items: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "lr", "namespace": "default"},
        "spec": {"limits": list(items)},
    }


def quota(hard: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"hard": hard, **spec},
    }


def refusal(server: ApiServer, obj: dict[str, Any]) -> str:
    with pytest.raises(ForbiddenError) as refused:
        server.create(obj, restore=True)
    return str(refused.value)


def test_pod_gets_overhead_selector_and_tolerations_of_its_runtime_class(server: ApiServer) -> None:
    toleration = {"key": "box", "operator": "Exists"}
    scheduling = {"nodeSelector": {"box": "yes"}, "tolerations": [toleration]}
    server.create(runtime_class(overhead={"podFixed": {"cpu": "500m"}}, scheduling=scheduling))
    made = server.create(pod(runtimeClassName="boxed", nodeSelector={"disk": "ssd"}), restore=True)
    assert made.get("spec.overhead") == {"cpu": "500m"}
    assert made.get("spec.nodeSelector") == {"disk": "ssd", "box": "yes"}
    assert toleration in made.get("spec.tolerations")


def test_pod_is_refused_where_it_contradicts_its_runtime_class(server: ApiServer) -> None:
    server.create(
        runtime_class(overhead={"podFixed": {"cpu": "1"}}, scheduling={"nodeSelector": {"box": "yes"}})
    )
    assert refusal(server, pod(runtimeClassName="none")) == (
        'pods "p" is forbidden: pod rejected: RuntimeClass "none" not found'
    )
    assert "conflict: runtimeClass.scheduling.nodeSelector[box] = yes; pod.spec.nodeSelector[box] = no" in (
        refusal(server, pod(runtimeClassName="boxed", nodeSelector={"box": "no"}))
    )
    text = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
    assert text in refusal(server, pod(runtimeClassName="boxed", overhead={"cpu": "2"}))
    server.create(pod(runtimeClassName="boxed", overhead={"cpu": "1000m"}), restore=True)
    text = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
    assert text in refusal(server, pod("q", overhead={"cpu": "2"}))


def test_pod_is_refused_where_a_default_limit_is_below_its_request(server: ApiServer) -> None:
    server.create(limits({"type": "Container", "default": {"cpu": "1"}}))
    assert refusal(server, pod("p", {"requests": {"cpu": "2"}})) == (
        'Pod "p" is invalid: spec.containers[0].resources.requests: Invalid value: "2": '
        "must be less than or equal to cpu limit of 1"
    )
    # A pod of a cluster was there before the LimitRange.
    old = pod("old", {"requests": {"cpu": "2"}})
    old["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    server.create(old, restore=True)


def test_amounts_of_the_pod_as_a_whole_count_for_a_limit_range(server: ApiServer) -> None:
    server.create(limits({"type": "Pod", "max": {"cpu": "3"}}))

    def whole(name: str, limit: str) -> dict[str, Any]:
        made = pod(name)
        made["spec"]["resources"] = {"requests": {"cpu": "2"}, "limits": {"cpu": limit}}
        return made

    server.create(whole("fits", "2"), restore=True)
    text = "maximum cpu usage per Pod is 3, but limit is 4"
    assert text in refusal(server, whole("large", "4"))


def test_limits_of_a_container_that_goes_on_running_are_added(server: ApiServer) -> None:
    server.create(limits({"type": "Pod", "max": {"cpu": "1"}}))
    amounts = {"requests": {"cpu": "100m"}, "limits": {"cpu": "600m"}}
    sidecar = {"name": "side", "image": "i", "restartPolicy": "Always", "resources": amounts}
    text = "maximum cpu usage per Pod is 1, but limit is 1200m"
    assert text in refusal(server, pod("p", amounts, initContainers=[sidecar]))


def test_claim_with_the_old_annotation_of_a_class_gets_no_default_class(server: ApiServer) -> None:
    server.create(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {
                "name": "usual",
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "provisioner": "example.com/disks",
        }
    )
    claim: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "new", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    assert server.create(claim, restore=True).get("spec.storageClassName") == "usual"
    annotations = {"volume.beta.kubernetes.io/storage-class": "slow"}
    old = {**claim, "metadata": {**claim["metadata"], "name": "old", "annotations": annotations}}
    assert server.create(old, restore=True).get("spec.storageClassName") is None


def test_containers_get_the_defaults_of_a_limit_range(server: ApiServer) -> None:
    server.create(
        limits(
            {
                "type": "Container",
                "default": {"cpu": "2"},
                "defaultRequest": {"cpu": "1"},
                "max": {"memory": "1Gi"},
            }
        )
    )
    made = server.create(pod(), restore=True)
    resources = made.get("spec.containers")[0]["resources"]
    assert resources == {
        "limits": {"cpu": "2", "memory": "1Gi"},
        "requests": {"cpu": "1", "memory": "1Gi"},
    }
    own = server.create(pod("own", {"limits": {"cpu": "500m"}}), restore=True)
    assert own.get("spec.containers")[0]["resources"]["requests"]["cpu"] == "500m"


@pytest.mark.parametrize(
    ("item", "resources", "text"),
    [
        (
            {"type": "Container", "max": {"cpu": "1"}},
            {"limits": {"cpu": "2"}},
            "maximum cpu usage per Container is 1, but limit is 2",
        ),
        (
            {"type": "Container", "min": {"cpu": "1"}},
            {"requests": {"cpu": "100m"}},
            "minimum cpu usage per Container is 1, but request is 100m",
        ),
        (
            {"type": "Pod", "max": {"cpu": "1"}},
            {},
            "maximum cpu usage per Pod is 1.  No limit is specified",
        ),
        (
            {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}},
            {"limits": {"cpu": "3"}, "requests": {"cpu": "1"}},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
        ),
    ],
)
def test_pod_that_breaks_a_limit_is_refused(
    server: ApiServer, item: dict[str, Any], resources: dict[str, Any], text: str
) -> None:
    server.create(limits(item))
    assert refusal(server, pod("p", resources)) == f'pods "p" is forbidden: {text}'


def test_pods_are_refused_when_the_quota_is_used_up_and_admitted_when_a_pod_has_gone(
    server: ApiServer,
) -> None:
    server.create(quota({"requests.cpu": "1", "pods": "9"}))
    amounts = {"requests": {"cpu": "600m"}}
    server.create(pod("first", amounts), restore=True)
    assert refusal(server, pod("second", amounts)) == (
        'pods "second" is forbidden: exceeded quota: q, requested: requests.cpu=600m, '
        "used: requests.cpu=600m, limited: requests.cpu=1"
    )
    assert refusal(server, pod("silent")) == (
        'pods "silent" is forbidden: failed quota: q: must specify requests.cpu for: c'
    )
    server.delete("pods", ObjectRef(namespace="default", name="first"))
    server.create(pod("second", amounts), restore=True)


def test_pods_of_a_deleted_quota_do_not_lower_the_usage_of_the_next_one(server: ApiServer) -> None:
    server.create(quota({"pods": "1"}))
    server.create(pod("before"))
    server.delete("resourcequotas", ObjectRef(name="q", namespace="default"))
    server.create(quota({"pods": "1"}))
    server.create(pod("after"))
    server.delete("pods", ObjectRef(name="before", namespace="default"))
    assert "used: pods=1, limited: pods=1" in refusal(server, pod("too-many"))


def test_quota_counts_only_pods_in_its_scopes(server: ApiServer) -> None:
    server.create(quota({"pods": "0"}, scopes=["BestEffort"]))
    server.create(pod("burstable", {"requests": {"cpu": "1"}}), restore=True)
    assert "exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0" in refusal(
        server, pod("best")
    )


def test_new_pod_tolerates_for_five_minutes_a_node_that_is_lost(server: ApiServer) -> None:
    own = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    made = server.create(pod(tolerations=[own]), restore=True)
    assert made.get("spec.tolerations") == [
        own,
        {
            "key": "node.kubernetes.io/unreachable",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        },
    ]


def test_pod_of_a_dump_has_passed_admission_and_counts_for_its_quota(server: ApiServer) -> None:
    server.create(limits({"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "1"}}))
    server.create(quota({"pods": "1"}))
    old = pod("old", {"limits": {"cpu": "8"}})
    old["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    assert server.create(old, restore=True).get("spec.tolerations") is None
    assert "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1" in refusal(
        server, pod("new")
    )


def test_newest_of_several_default_storage_classes_counts(server: ApiServer) -> None:
    for name, created in (
        ("b", "2026-01-02T00:00:00Z"),
        ("a", "2026-01-01T00:00:00Z"),
        ("c", "2026-01-02T00:00:00Z"),
    ):
        annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
        server.create(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": name, "annotations": annotations, "creationTimestamp": created},
                "provisioner": "x.example.dev",
            },
            restore=True,
        )
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    assert server.create(claim, restore=True).get("spec.storageClassName") == "b"
