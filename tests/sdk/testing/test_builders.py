"""Builders write what an API server shows, and tables count what is on the nodes."""

from __future__ import annotations

import pytest
from berth_sdk.errors import ObjectError
from berth_sdk.node import NodeImage, Taint
from berth_sdk.pod import HostPort, Toleration
from berth_sdk.testing import make_node, make_pod, make_table, node_object, pod_object


def test_keyword_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match="a pod has no keyword 'nodeName': use affinity, annotations, "):
        make_pod("web", nodeName="a")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="a node has no keyword 'cpus': use allocatable, "):
        make_node("a", cpus="4")  # type: ignore[call-arg]


def test_make_pod_takes_every_keyword() -> None:
    pod = make_pod(
        "web",
        namespace="shop",
        uid="u1",
        labels={"app": "web"},
        cpu="500m",
        memory="1Gi",
        requests={"example.com/gpu": 2},
        images=["web:v1", "log:v2"],
        host_ports=[80, {"hostPort": 53, "hostIP": "10.0.0.1", "protocol": "UDP"}],
        priority=7,
        node="a",
        nominated="b",
        scheduler="other",
        gates=["g"],
        node_selector={"disk": "ssd"},
        tolerations=["t=x:NoSchedule", "u", {"operator": "Exists"}],
        spec={"preemptionPolicy": "Never"},
        status={"startTime": "1970-01-01T00:00:05Z"},
        meta={"resourceVersion": "9"},
    )
    assert (pod.key, pod.uid, pod.resource_version) == ("shop/web", "u1", "9")
    assert pod.requests == {"cpu": 500, "memory": 2**30, "example.com/gpu": 2}
    assert pod.images == ("web:v1", "log:v2")
    assert pod.host_ports == (HostPort("", "", 80), HostPort("10.0.0.1", "UDP", 53))
    assert (pod.priority, pod.node_name, pod.nominated_node) == (7, "a", "b")
    assert (pod.scheduler_name, pod.scheduling_gates) == ("other", ("g",))
    assert pod.tolerations == (
        Toleration("t", "Equal", "x", "NoSchedule"),
        Toleration("u", "Exists", "", ""),
        Toleration("", "Exists", "", ""),
    )
    assert pod.never_preempts
    assert pod.started_at_s == 5.0
    assert pod.object is not None
    assert pod.object.get("spec.nodeSelector.disk") == "ssd"


def test_uids_differ_by_name_and_namespace() -> None:
    assert len({make_pod("a").uid, make_pod("b").uid, make_pod("a", namespace="x").uid}) == 3


def test_make_node_takes_every_keyword() -> None:
    node = make_node(
        "a",
        labels={"disk": "ssd"},
        cpu="1500m",
        memory=7,
        pods=3,
        allocatable={"example.com/gpu": 2},
        taints=["t=x:NoSchedule", "u:NoExecute", {"key": "v", "effect": "PreferNoSchedule"}],
        unschedulable=True,
        images={"web:v1": 10},
        features=["F"],
    )
    assert node.labels == {"kubernetes.io/hostname": "a", "disk": "ssd"}
    assert node.allocatable == {"cpu": 1500, "memory": 7, "pods": 3, "example.com/gpu": 2}
    assert node.taints == (
        Taint("t", "x", "NoSchedule"),
        Taint("u", "", "NoExecute"),
        Taint("v", "", "PreferNoSchedule"),
    )
    assert node.unschedulable
    assert node.images == (NodeImage(("web:v1",), 10),)
    assert node.declared_features == ("F",)


def test_raw_fields_replace_keywords() -> None:
    assert node_object("a", status={"allocatable": {"cpu": 1}})["status"]["allocatable"] == {"cpu": 1}
    assert pod_object("web", node="a", spec={"nodeName": "b"})["spec"]["nodeName"] == "b"


def test_builders_refuse_what_the_host_refuses() -> None:
    with pytest.raises(ObjectError, match=r"spec\.containers\[0\]\.resources\.requests\.cpu"):
        make_pod("web", cpu="lots")


def test_table_counts_pods_on_their_nodes() -> None:
    table = make_table(
        [make_node(f"n{i}") for i in range(40)],
        [
            make_pod("p1", cpu=1, node="n39", host_ports=[80]),
            make_pod("p2", memory="1Gi", node="n39"),
            make_pod("p3", cpu=9, node="gone"),
        ],
    )
    assert len(table) == 40
    assert table.names[39] == "n39"
    assert table.requested("cpu").tolist() == [0] * 39 + [1000]
    assert table.non_zero_requested("cpu").tolist() == [0] * 39 + [1100]
    assert table.pod_count.tolist() == [0] * 39 + [2]
    assert table.port_taken(HostPort("", "TCP", 80)).tolist() == [False] * 39 + [True]
    assert [pod.name for pod in table.node(39).pods] == ["p1", "p2"]
    assert table.generation.min() == 1
