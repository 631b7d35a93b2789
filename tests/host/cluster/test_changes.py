"""The events for the differences between two versions of an object."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.cluster.changes import event_resource, node_changes, nomination_changed, pod_changes
from berth_host.config.host_rules import RULES_1_36, RULES_1_37
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.testing.builders import NodeFields, PodFields, make_node, make_pod


def pod(**fields: Any) -> Pod:
    return make_pod("a", **fields)


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param({}, {}, ["Update"], id="nothing of interest"),
        pytest.param({"labels": {"a": "1"}}, {"labels": {"a": "2"}}, ["UpdatePodLabel"], id="label"),
        pytest.param({"cpu": "2"}, {"cpu": "1"}, ["UpdatePodScaleDown"], id="request shrinks"),
        pytest.param({"cpu": "1"}, {"cpu": "2"}, ["UpdatePodScaleUp"], id="request grows"),
        pytest.param({}, {"memory": "1Gi"}, ["UpdatePodScaleUp"], id="request appears"),
        pytest.param(
            {"cpu": "1", "memory": "2Gi"},
            {"cpu": "2", "memory": "1Gi"},
            ["UpdatePodScaleDown", "UpdatePodScaleUp"],
            id="one request shrinks, one grows",
        ),
        pytest.param({"memory": "1Gi"}, {}, ["UpdatePodScaleDown"], id="request vanishes"),
        pytest.param({"gates": ["a", "b"]}, {}, ["UpdatePodSchedulingGatesEliminated"], id="last gate goes"),
        pytest.param({"gates": ["a", "b"]}, {"gates": ["a"]}, ["Update"], id="one gate of two goes"),
        pytest.param({}, {"tolerations": ["k"]}, ["UpdatePodToleration"], id="toleration comes"),
        pytest.param({"tolerations": ["k"]}, {"tolerations": ["l"]}, ["Update"], id="same number of them"),
        pytest.param(
            {"status": {"resourceClaimStatuses": [{"name": "gpu"}]}},
            {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "gpu-x"}]}},
            ["UpdatePodGeneratedResourceClaim"],
            id="claim generated",
        ),
        pytest.param(
            {"gates": ["a"], "cpu": "2"},
            {"cpu": "1", "labels": {"x": "1"}, "tolerations": ["k"]},
            [
                "UpdatePodLabel",
                "UpdatePodScaleDown",
                "UpdatePodSchedulingGatesEliminated",
                "UpdatePodToleration",
            ],
            id="several, in their order",
        ),
    ],
)
@pytest.mark.parametrize(
    ("node", "resource"),
    [pytest.param("", "TargetPod", id="pending"), pytest.param("n1", "AssignedPod", id="bound")],
)
def test_pod_update_says_what_changed(
    before: PodFields, after: PodFields, want: list[str], node: str, resource: str
) -> None:
    place: PodFields = {"node": node} if node else {}
    events = pod_changes(make_pod("a", **before | place), make_pod("a", **after | place), RULES_1_37)
    assert [event.label for event in events] == [f"{resource}{action}" for action in want]
    assert {event.resource for event in events} == {resource}


@pytest.mark.parametrize(("node", "name"), [("", "UnschedulablePod"), ("n1", "AssignedPod")])
def test_pod_update_has_the_names_of_1_36_where_that_version_is_emulated(node: str, name: str) -> None:
    place = {"node": node} if node else {}
    grown = pod_changes(pod(cpu="1", **place), pod(cpu="2", **place), RULES_1_36)
    assert [event.label for event in grown] == [f"{name}Update"]
    relabelled = pod_changes(pod(**place), pod(labels={"a": "1"}, **place), RULES_1_36)
    assert [event.label for event in relabelled] == [f"{name}UpdatePodLabel"]


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param({}, {}, [], id="nothing"),
        pytest.param({"unschedulable": True}, {}, ["UpdateNodeTaint"], id="uncordoned"),
        pytest.param({}, {"unschedulable": True}, [], id="cordoned"),
        pytest.param({"cpu": 4}, {"cpu": 8}, ["UpdateNodeAllocatable"], id="allocatable"),
        pytest.param({"cpu": "4"}, {"cpu": "4000m"}, [], id="same allocatable, written otherwise"),
        pytest.param({}, {"labels": {"zone": "a"}}, ["UpdateNodeLabel"], id="label"),
        pytest.param({}, {"taints": ["k:NoSchedule"]}, ["UpdateNodeTaint"], id="taint"),
        pytest.param(
            {"taints": [{"key": "k", "effect": "NoExecute"}]},
            {"taints": [{"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]},
            ["UpdateNodeTaint"],
            id="taint renewed",
        ),
        pytest.param(
            {"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "1"}]}},
            {"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2"}]}},
            [],
            id="heartbeat",
        ),
        pytest.param(
            {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
            {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
            ["UpdateNodeCondition"],
            id="condition",
        ),
        pytest.param({}, {"annotations": {"a": "1"}}, ["UpdateNodeAnnotation"], id="annotation"),
        pytest.param({}, {"features": ["Foo"]}, ["UpdateNodeDeclaredFeature"], id="declared feature"),
        pytest.param(
            {"unschedulable": True},
            {"cpu": 9, "labels": {"x": "1"}, "taints": ["k:NoSchedule"], "annotations": {"a": "1"}},
            [
                "UpdateNodeTaint",
                "UpdateNodeAllocatable",
                "UpdateNodeLabel",
                "UpdateNodeTaint",
                "UpdateNodeAnnotation",
            ],
            id="several, in their order",
        ),
    ],
)
def test_node_update_says_what_changed(before: NodeFields, after: NodeFields, want: list[str]) -> None:
    events = node_changes(make_node("n1", **before), make_node("n1", **after))
    assert [event.label for event in events] == [f"Node{action}" for action in want]


def test_pod_changes_are_found_after_its_parsed_form_was_released() -> None:
    old = pod(node="n1", status={"resourceClaimStatuses": [{"name": "gpu"}]})
    assert old.object is not None
    old.object.release()
    assert [event.label for event in pod_changes(old, pod(node="n1"), RULES_1_37)] == [
        "AssignedPodUpdatePodGeneratedResourceClaim"
    ]


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param("", "n1", False, id="set"),
        pytest.param("n1", "n1", False, id="same"),
        pytest.param("n1", "n2", True, id="moved"),
        pytest.param("n1", "", True, id="cleared"),
    ],
)
def test_nomination_changes_only_where_there_was_one(before: str, after: str, want: bool) -> None:
    assert nomination_changed(pod(nominated=before), pod(nominated=after)) is want


@pytest.mark.parametrize(
    ("kind", "api_version", "want"),
    [
        pytest.param("PersistentVolume", "v1", "PersistentVolume", id="core"),
        pytest.param("CSINode", "storage.k8s.io/v1", "storage.k8s.io/CSINode", id="group"),
        pytest.param(
            "example.com/widgets", "example.com/v1beta1", "widgets.v1beta1.example.com", id="custom"
        ),
    ],
)
def test_event_names_the_resource_as_plugins_register_it(kind: str, api_version: str, want: str) -> None:
    item = KubeObject(api_version, kind, parsed={"metadata": {"name": "x"}})
    assert event_resource(kind, item) == want
