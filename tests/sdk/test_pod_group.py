"""PodGroup and CompositePodGroup objects as records, and the group that a pod names."""

from __future__ import annotations

from typing import Any

import pytest
from berth_sdk.errors import ObjectError
from berth_sdk.pod import Pod
from berth_sdk.pod_group import COMPOSITE_POD_GROUP, INITIALLY_SCHEDULED, PodGroup


def group_object(kind: str = "PodGroup", status: Any = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": kind,
        "metadata": {
            "name": "train",
            "namespace": "ml",
            "uid": "u1",
            "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"gangs.berth.io/timeout": "5m"},
        },
        "spec": {"schedulingPolicy": {"basic": {}}} | spec,
        "status": status or {},
    }


def test_basic_group_has_a_minimum_of_one_and_the_defaults_of_the_api() -> None:
    group = PodGroup.of(group_object())
    assert group.key == "podgroup/ml/train"
    assert (group.is_gang, group.min_count, group.priority) == (False, 1, 0)
    assert (group.preemption_policy, group.never_preempts) == ("PreemptLowerPriority", False)
    assert (group.disrupts_all, group.topology_key, group.parent_key, group.claims) == (False, "", "", ())
    assert (group.generation, group.created_s, group.ref.uid) == (3, 1767225600.0, "u1")
    assert group.annotations == {"gangs.berth.io/timeout": "5m"}
    assert group.condition(INITIALLY_SCHEDULED) is None


def test_gang_with_every_field_is_read() -> None:
    group = PodGroup.of(
        group_object(
            schedulingPolicy={"gang": {"minCount": 4}},
            schedulingConstraints={"topology": [{"key": "rack"}]},
            disruptionMode={"all": {}},
            priority=7,
            preemptionPolicy="Never",
            parentCompositePodGroupName="root",
            resourceClaims=[
                {"name": "a", "resourceClaimName": "shared"},
                {"name": "b", "resourceClaimTemplateName": "t"},
                {"name": "c", "resourceClaimTemplateName": "t"},
            ],
            status={
                "conditions": [
                    {
                        "type": INITIALLY_SCHEDULED,
                        "status": "True",
                        "reason": "Scheduled",
                        "observedGeneration": 2,
                    }
                ],
                "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "train-b-x"}],
            },
        )
    )
    assert (group.is_gang, group.min_count, group.priority, group.never_preempts) == (True, 4, 7, True)
    assert (group.disrupts_all, group.topology_key) == (True, "rack")
    assert group.parent_key == "compositepodgroup/ml/root"
    assert group.claims == (("a", "shared"), ("b", "train-b-x"), ("c", ""))
    condition = group.condition(INITIALLY_SCHEDULED)
    assert condition is not None
    assert (condition.status, condition.reason, condition.observed_generation) == ("True", "Scheduled", 2)


def test_composite_group_counts_groups() -> None:
    group = PodGroup.of(group_object(COMPOSITE_POD_GROUP, schedulingPolicy={"gang": {"minGroupCount": 2}}))
    assert (group.key, group.is_composite, group.min_count) == ("compositepodgroup/ml/train", True, 2)


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"priority": "high"}, "spec.priority"),
        ({"schedulingPolicy": {"gang": {"minCount": "3"}}}, "spec.schedulingPolicy.gang.minCount"),
        ({"schedulingPolicy": []}, "schedulingPolicy"),
        ({"schedulingConstraints": {"topology": [{"key": 1}]}}, "topology[0].key"),
        ({"preemptionPolicy": {}}, "spec.preemptionPolicy"),
    ],
    ids=["priority", "minCount", "policy", "topology", "preemptionPolicy"],
)
def test_malformed_field_is_named(spec: dict[str, Any], path: str) -> None:
    with pytest.raises(ObjectError, match=path.replace("[", r"\[").replace("]", r"\]")):
        PodGroup.of(group_object(**spec))


def test_object_of_another_kind_is_refused() -> None:
    with pytest.raises(ObjectError, match="neither PodGroup nor CompositePodGroup"):
        PodGroup.of(group_object("Workload"))


def test_pod_names_its_group_only_for_a_host_that_schedules_groups() -> None:
    raw = {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ml"},
        "spec": {"schedulingGroup": {"podGroupName": "train"}},
    }
    assert Pod.from_object(raw).group_key == ""
    assert Pod.from_object(raw, groups=True).group_key == "podgroup/ml/train"
    assert Pod.from_object(raw | {"spec": {}}, groups=True).group_key == ""
    raw["spec"] = {"schedulingGroup": {"podGroupName": 7}}
    with pytest.raises(ObjectError, match=r"spec.schedulingGroup.podGroupName.*must be a string"):
        Pod.from_object(raw, groups=True)


def coscheduling(**spec: Any) -> dict[str, Any]:
    """Return a PodGroup as the examples of coscheduling have it."""
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "nginx", "namespace": "web", "uid": "u", "generation": 2},
        "spec": spec,
    }


def test_pod_group_of_coscheduling_is_read() -> None:
    made = coscheduling(
        scheduleTimeoutSeconds=10, minMember=3, minResources={"cpu": "1500m", "memory": "1Gi"}
    )
    group = PodGroup.of(made)
    assert group.key == "podgroup.scheduling.x-k8s.io/web/nginx"
    assert group.is_coscheduling
    assert (group.is_gang, group.min_count, group.wait_s) == (True, 3, 10.0)
    assert group.min_resources == {"cpu": 1500, "memory": 2**30}


def test_pod_group_of_coscheduling_without_a_minimum_is_no_gang() -> None:
    group = PodGroup.of(coscheduling())
    assert (group.is_gang, group.min_count, group.min_resources, group.wait_s) == (False, 1, None, None)


def test_malformed_pod_group_of_coscheduling_names_the_field() -> None:
    with pytest.raises(ObjectError, match=r"spec\.minResources\.cpu"):
        PodGroup.of(coscheduling(minMember=1, minResources={"cpu": "many"}))


@pytest.mark.parametrize(
    ("reads", "key"),
    [
        ((False, False), ""),
        ((False, True), "podgroup.scheduling.x-k8s.io/web/nginx"),
        ((True, False), "podgroup/web/train"),
        ((True, True), "podgroup/web/train"),
    ],
    ids=["neither", "label", "field", "the field comes first"],
)
def test_group_of_a_pod_by_label_and_by_field(reads: tuple[bool, bool], key: str) -> None:
    pod = {
        "metadata": {"name": "p", "namespace": "web", "labels": {"scheduling.x-k8s.io/pod-group": "nginx"}},
        "spec": {"schedulingGroup": {"podGroupName": "train"}},
    }
    groups, coscheduling_labels = reads
    assert Pod.from_object(pod, groups=groups, coscheduling=coscheduling_labels).group_key == key
