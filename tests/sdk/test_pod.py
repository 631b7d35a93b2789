"""Pods and nodes as records: fields, defaults, and errors that name the path."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from berth_sdk.errors import ObjectError
from berth_sdk.kube_object import KubeObject
from berth_sdk.node import Node, Taint
from berth_sdk.pod import HostPort, OwnerRef, Pod, timestamp
from berth_sdk.testing import make_pod, pod_object


def test_empty_object_has_the_defaults() -> None:
    pod = Pod.from_object({"metadata": {"name": "web"}})
    assert (pod.key, pod.scheduler_name, pod.priority) == ("default/web", "default-scheduler", 0)
    assert (pod.requests, pod.host_ports, pod.images, pod.claims) == ({}, (), (), ())
    assert (pod.created_at_s, pod.started_at_s, pod.owner) == (None, None, None)
    assert not pod.terminating
    assert not pod.never_preempts


def test_images_come_from_init_containers_containers_and_volumes_in_order() -> None:
    pod = make_pod(
        "web",
        images=["web", "web"],
        init_containers=[{"name": "i", "image": "init"}],
        spec={"volumes": [{"name": "v", "image": {"reference": "data"}}, {"name": "e", "emptyDir": {}}]},
    )
    assert pod.images == ("init", "web", "web", "data")


def test_claims_include_those_of_ephemeral_volumes() -> None:
    volumes = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "disk"}},
        {"name": "b", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "c", "configMap": {"name": "x"}},
    ]
    assert make_pod("web", spec={"volumes": volumes}).claims == ("disk", "web-b")


def test_owner_is_the_controller_only() -> None:
    owners = [
        {"apiVersion": "v1", "kind": "X", "name": "x", "uid": "1"},
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "2", "controller": True},
    ]
    pod = make_pod("web", meta={"ownerReferences": owners})
    assert pod.owner == OwnerRef("apps/v1", "ReplicaSet", "rs", "2")


def test_host_ports_keep_their_spelling_and_normalize_to_defaults() -> None:
    pod = make_pod("web", host_ports=[80])
    assert pod.host_ports == (HostPort("", "", 80),)
    assert pod.host_ports[0].normalized == HostPort("0.0.0.0", "TCP", 80)


def test_status_counts_only_for_a_pod_on_a_node() -> None:
    status = {"containerStatuses": [{"name": "c0", "resources": {"requests": {"cpu": 4}}}]}
    assert make_pod("web", cpu=1, status=status).requests["cpu"] == 1000
    assert make_pod("web", cpu=1, status=status, node="a").requests["cpu"] == 4000


def test_times_are_unix_seconds() -> None:
    assert timestamp("1970-01-01T00:00:01Z") == 1.0
    assert timestamp("1970-01-01T01:00:01.5+01:00") == 1.5
    assert timestamp(None) is None
    with pytest.raises(ObjectError, match="RFC 3339"):
        timestamp("yesterday")
    with pytest.raises(ObjectError, match="RFC 3339"):
        timestamp("1970-01-01T00:00:02")  # without a zone
    meta = {"creationTimestamp": "1970-01-01T00:00:03Z", "deletionTimestamp": "1970-01-01T00:00:04Z"}
    pod = make_pod("web", meta=meta)
    assert pod.created_at_s == 3.0
    assert pod.terminating


def test_on_node_changes_only_the_node() -> None:
    pod = make_pod("web", cpu=1)
    bound = pod.on_node("a")
    assert (bound.node_name, pod.node_name) == ("a", "")
    assert bound.on_node("") == pod
    assert all(getattr(bound, name) is getattr(pod, name) for name in Pod.__slots__ if name != "node_name")


@pytest.mark.parametrize("pod", [make_pod("web"), make_pod("web").on_node("a")])
def test_pod_record_is_frozen_and_has_every_field(pod: Pod) -> None:
    assert type(pod) is Pod
    assert all(hasattr(pod, name) for name in Pod.__slots__)
    with pytest.raises(FrozenInstanceError):
        pod.name = "other"  # type: ignore[misc]  # which is what is tested


def test_spec_is_empty_where_only_the_summary_is_known() -> None:
    assert Pod(name="web").spec == {}
    assert make_pod("web", priority=3).spec["priority"] == 3


def test_pod_reads_the_same_from_bytes_and_from_a_parsed_object() -> None:
    raw = pod_object("web", cpu=1, labels={"a": "b"})
    from_bytes = KubeObject("v1", "Pod", raw=KubeObject.of(raw).raw)
    got, want = Pod.from_object(from_bytes), Pod.from_object(raw)
    assert (got.ref, got.labels, got.requests) == (want.ref, want.labels, want.requests)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({"metadata": []}, "metadata: must be a map, not list"),
        ({"spec": {"tolerations": {}}}, "tolerations: must be a list, not dict"),
        ({"spec": {"tolerations": ["x"]}}, "tolerations[0]: must be a map, not str"),
        (
            {"spec": {"nodeSelector": {"a": 1}}},
            "spec.nodeSelector.a: must be a string, not int: put it in quotes",
        ),
        ({"metadata": {"labels": {"a": True}}}, "metadata.labels.a: must be a string, not bool"),
        ({"spec": {"priority": "high"}}, "spec.priority: must be an integer, not 'high'"),
        ({"spec": {"containers": [{"resources": {"requests": {"cpu": "x"}}}]}}, "requests.cpu"),
        ({"spec": {"containers": ["x"]}}, "not a Pod"),
    ],
)
def test_malformed_pod_is_refused_with_its_path(raw: dict[str, Any], problem: str) -> None:
    with pytest.raises(ObjectError) as caught:
        Pod.from_object({"metadata": {"name": "web"}, **raw})
    assert problem in str(caught.value)


def test_taint_without_fields_is_read() -> None:
    node = Node.from_object({"metadata": {"name": "a"}, "spec": {"taints": [{"effect": "NoSchedule"}]}})
    assert node.taints == (Taint("", "", "NoSchedule"),)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({"status": {"allocatable": {"cpu": "four"}}}, "status.allocatable.cpu"),
        ({"spec": {"taints": ["x"]}}, "taints[0]: must be a map, not str"),
        ({"status": {"images": [{"names": ["a"], "sizeBytes": "big"}]}}, "not a Node"),
    ],
)
def test_malformed_node_is_refused_with_its_path(raw: dict[str, Any], problem: str) -> None:
    with pytest.raises(ObjectError) as caught:
        Node.from_object({"metadata": {"name": "a"}, **raw})
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("statuses", "claims"),
    [
        (None, ()),
        (
            [{"name": "gpu", "resourceClaimName": "web-gpu-1"}, {"name": "nic"}],
            (("gpu", "web-gpu-1"), ("nic", "")),
        ),
        (["x", None, {"name": "gpu", "resourceClaimName": None}], (("gpu", ""),)),
        ({"name": "gpu"}, ()),
        (7, ()),
    ],
)
def test_claims_created_for_a_pod_are_read_and_bad_entries_left_out(statuses: Any, claims: Any) -> None:
    pod = Pod.from_object({"metadata": {"name": "web"}, "status": {"resourceClaimStatuses": statuses}})
    assert pod.generated_claims == claims
