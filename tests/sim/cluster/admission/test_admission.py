"""What a new object gets: the defaults that scheduling reads, and its priority."""

from __future__ import annotations

import re
from typing import Any

import pytest
from berth_host.errors.cluster import ForbiddenError, InvalidError
from berth_host.model.clock import ManualClock
from berth_sim.cluster.admission.gatekeeping import Gatekeeping
from berth_sim.cluster.server import ApiServer
from support.manifest_objects import node_object, pod_object


@pytest.fixture
def server() -> ApiServer:
    return ApiServer(ManualClock(1_800_000_000))


def priority_class(name: str, value: int, **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        **more,
    }


def test_pod_gets_scheduler_priority_and_preemption_policy(server: ApiServer) -> None:
    pod = server.create(pod_object("web"))
    assert pod.get("spec.schedulerName") == "default-scheduler"
    assert (pod.get("spec.priority"), pod.get("spec.preemptionPolicy")) == (0, "PreemptLowerPriority")


def test_missing_requests_are_the_limits(server: ApiServer) -> None:
    resources = {"limits": {"cpu": "2", "example.com/gpu": 1}, "requests": {"cpu": "1"}}
    pod = server.create(
        pod_object(
            "web",
            containers=[{"name": "a", "resources": resources}],
            initContainers=[{"name": "i", "resources": {"limits": {"memory": "1Gi"}}}],
        )
    )
    assert pod.get("spec.containers")[0]["resources"]["requests"] == {"cpu": "1", "example.com/gpu": 1}
    assert pod.get("spec.initContainers")[0]["resources"]["requests"] == {"memory": "1Gi"}


@pytest.mark.parametrize(
    ("requests", "limits", "want"),
    [
        pytest.param({}, {"cpu": "2", "memory": "1Gi"}, {"cpu": "300m", "memory": "1Gi"}, id="from both"),
        pytest.param({"cpu": "1"}, {"cpu": "2"}, {"cpu": "1"}, id="what is said stays"),
        pytest.param({}, {}, None, id="no pod-level resources at all"),
    ],
)
def test_pod_level_requests_are_what_containers_request_or_the_limit(
    server: ApiServer, requests: Any, limits: Any, want: Any
) -> None:
    containers = [{"name": name, "resources": {"requests": {"cpu": "150m"}}} for name in ("a", "b")]
    resources = {"requests": requests, "limits": limits} if limits else {}
    pod = server.create(pod_object("web", containers=containers, resources=resources))
    assert pod.get("spec.resources.requests") == want


def test_ports_get_a_protocol_and_on_the_host_network_a_host_port(server: ApiServer) -> None:
    ports = [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}]
    containers = [{"name": "a", "ports": ports}]
    plain = server.create(pod_object("plain", containers=containers))
    host = server.create(pod_object("host", containers=containers, hostNetwork=True))
    assert plain.get("spec.containers")[0]["ports"] == [
        {"containerPort": 80, "protocol": "TCP"},
        {"containerPort": 53, "protocol": "UDP"},
    ]
    assert [port["hostPort"] for port in host.get("spec.containers")[0]["ports"]] == [80, 53]


def test_gated_pod_says_so_in_its_condition(server: ApiServer) -> None:
    pod = server.create(pod_object("web", schedulingGates=[{"name": "example.com/wait"}]))
    (condition,) = pod.get("status.conditions")
    assert (condition["status"], condition["reason"]) == ("False", "SchedulingGated")


def test_input_is_not_changed(server: ApiServer) -> None:
    said = pod_object("web", containers=[{"name": "a", "ports": [{"containerPort": 80}]}])
    copy = pod_object("web", containers=[{"name": "a", "ports": [{"containerPort": 80}]}])
    server.create(said)
    assert said == copy


def test_priority_class_gives_priority_and_policy(server: ApiServer) -> None:
    server.create(priority_class("batch", 10, preemptionPolicy="Never"))
    pod = server.create(pod_object("web", priorityClassName="batch"))
    assert (pod.get("spec.priority"), pod.get("spec.preemptionPolicy")) == (10, "Never")


@pytest.mark.parametrize("name", ["system-cluster-critical", "system-node-critical"])
def test_classes_of_every_cluster_are_there(server: ApiServer, name: str) -> None:
    assert server.create(pod_object("web", priorityClassName=name)).get("spec.priority") >= 2_000_000_000


def test_lowest_global_default_counts_for_pods_that_say_nothing(server: ApiServer) -> None:
    server.create(priority_class("high", 50, globalDefault=True))
    server.create(priority_class("low", 5, globalDefault=True))
    pod = server.create(pod_object("web"))
    assert (pod.get("spec.priorityClassName"), pod.get("spec.priority")) == ("low", 5)
    said = server.create(pod_object("said", priority=7))
    assert (said.get("spec.priorityClassName"), said.get("spec.priority")) == (None, 7)


def test_deleted_global_default_counts_no_more(server: ApiServer) -> None:
    default = server.create(priority_class("low", 5, globalDefault=True))
    server.delete("scheduling.k8s.io/priorityclasses", default.ref)
    assert server.create(pod_object("web")).get("spec.priority") == 0


def test_unknown_class_is_refused_unless_the_pod_says_its_priority(server: ApiServer) -> None:
    with pytest.raises(ForbiddenError, match='pods "web" is forbidden: no PriorityClass with name gone was'):
        server.create(pod_object("web", priorityClassName="gone"))
    assert server.create(pod_object("dump", priorityClassName="gone", priority=9)).get("spec.priority") == 9


def test_priority_that_contradicts_its_class_is_refused(server: ApiServer) -> None:
    server.create(priority_class("batch", 10))
    server.create(pod_object("same", priorityClassName="batch", priority=10))
    with pytest.raises(
        InvalidError, match=r"the integer value of priority \(11\) must not be provided .* computed 10 from"
    ):
        server.create(pod_object("web", priorityClassName="batch", priority=11))


def test_node_without_allocatable_offers_its_capacity(server: ApiServer) -> None:
    assert server.create(node_object("a", cpu="8")).get("status.allocatable.cpu") == "8"
    node = node_object("b", cpu="8")
    node["status"]["allocatable"] = {"cpu": "7"}
    assert server.create(node).get("status.allocatable") == {"cpu": "7"}


def test_claim_gets_the_default_storage_class_unless_it_says_none(server: ApiServer) -> None:
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    fast = server.create(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "fast", "annotations": default},
            "provisioner": "example.com/disk",
        }
    )
    assert fast.get("volumeBindingMode") == "Immediate"

    def claim(name: str, **spec: Any) -> Any:
        size = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        obj = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}}
        return server.create(obj | {"spec": size | spec}).get("spec.storageClassName")

    assert claim("a") == "fast"
    assert claim("b", storageClassName="") == ""
    server.delete("storage.k8s.io/storageclasses", fast.ref)
    assert claim("c") is None


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"priority": 8}, "the integer value of priority (8) must not be provided in pod spec; priority"),
        ({"preemptionPolicy": "Never"}, "the string value of PreemptionPolicy (Never) must not be provided"),
        ({"priority": 0}, ""),
    ],
)
def test_pod_that_is_new_for_certain_has_no_priority_of_its_own(spec: dict[str, Any], problem: str) -> None:
    """A pod without namespace and creationTimestamp cannot come from a cluster."""
    strict = ApiServer(ManualClock(1_800_000_000), Gatekeeping())
    pod = pod_object("web", **spec)
    del pod["metadata"]["namespace"]
    if problem:
        with pytest.raises(InvalidError, match=re.escape(problem)):
            strict.create(pod)
    else:
        assert strict.create(pod).get("spec.priority") == 0
    dumped = pod_object("dumped", metadata={"creationTimestamp": "2026-01-01T00:00:00Z"}, **spec)
    assert strict.create(dumped, restore=True).get("spec.priority") == spec.get("priority", 0)
