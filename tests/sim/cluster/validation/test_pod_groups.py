"""Pod groups of the embedded API server: what is refused, what may change, and the priority."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.errors.cluster import ForbiddenError, InvalidError
from berth_host.model.clock import ManualClock
from berth_host.model.patch_type import PatchType
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod_group import PodGroup
from berth_sim.cluster.kinds import BY_KIND
from berth_sim.cluster.server import ApiServer
from berth_sim.cluster.validation import problems_of
from support.manifest_objects import pod_object

GANG = {"gang": {"minCount": 3}}
PODGROUPS = "scheduling.k8s.io/podgroups"
REF = ObjectRef(name="train", namespace="default")


def group(kind: str = "PodGroup", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": BY_KIND[kind].api_version,
        "kind": kind,
        "metadata": {"name": "train"},
        "spec": {"schedulingPolicy": GANG} | spec,
    }


def workload(**spec: Any) -> dict[str, Any]:
    return group("Workload") | {"spec": spec}


def template(name: str = "workers", **spec: Any) -> dict[str, Any]:
    return {"name": name, "schedulingPolicy": GANG} | spec


def nested(depth: int) -> dict[str, Any]:
    policy = {"gang": {"minGroupCount": 1}}
    if depth == 1:
        return {"podGroupTemplates": [template()]}
    inner = {"name": "level", "schedulingPolicy": policy} | nested(depth - 1)
    return {"compositePodGroupTemplates": [inner]}


@pytest.fixture
def server() -> ApiServer:
    return ApiServer(ManualClock(1_800_000_000))


@pytest.mark.parametrize(
    "obj",
    [
        group(),
        group(schedulingPolicy={"basic": {}}, disruptionMode={"all": {}}, preemptionPolicy="Never"),
        group(schedulingConstraints={"topology": [{"key": "topology.kubernetes.io/rack"}]}),
        group(
            resourceClaims=[{"name": "a", "resourceClaimName": "b"}],
            parentCompositePodGroupName="root",
            workloadRef={"workloadName": "w", "templateName": "t"},
        ),
        group("CompositePodGroup", schedulingPolicy={"gang": {"minGroupCount": 2}}),
        workload(podGroupTemplates=[template("a"), template("b")]),
        workload(**nested(4)),
    ],
    ids=["gang", "basic", "topology", "claims", "composite", "workload", "deep workload"],
)
def test_valid_object_is_accepted(obj: dict[str, Any]) -> None:
    assert problems_of(BY_KIND[obj["kind"]], obj) == []


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        (group(schedulingPolicy={}), "spec.schedulingPolicy: must have one of basic and gang"),
        (
            group(schedulingPolicy={"basic": {}, **GANG}),
            "spec.schedulingPolicy: must have one of basic and gang",
        ),
        (group(schedulingPolicy={"gang": {}}), "spec.schedulingPolicy.gang.minCount: is required"),
        (
            group(schedulingPolicy={"gang": {"minCount": 0}}),
            "spec.schedulingPolicy.gang.minCount: must be 1 to 2147483647, not 0",
        ),
        (
            group(schedulingConstraints={"topology": [{"key": "a"}, {"key": "b"}]}),
            "spec.schedulingConstraints.topology: must have one entry at most",
        ),
        (group(disruptionMode={}), "spec.disruptionMode: must have one of single and all"),
        (
            group(preemptionPolicy="Always"),
            "spec.preemptionPolicy: 'Always' is not supported: use PreemptLowerPriority, Never",
        ),
        (
            group(resourceClaims=[{"name": str(i), "resourceClaimName": "c"} for i in range(5)]),
            "spec.resourceClaims: must have 4 entries at most, and has 5",
        ),
        (
            group(parentCompositePodGroupName="root"),
            "spec.workloadRef: must be set when parentCompositePodGroupName is set",
        ),
        (
            group("CompositePodGroup"),
            "spec.schedulingPolicy.gang.minCount: unknown field 'minCount' of CompositeGangSchedulingPolicy:"
            " did you mean 'minGroupCount'?",
        ),
        (workload(), "spec: must have one of podGroupTemplates and compositePodGroupTemplates"),
        (
            workload(podGroupTemplates=[template(), template()]),
            "spec.podGroupTemplates[1].name: 'workers' appears twice: remove or rename one",
        ),
    ],
    ids=[
        "no policy",
        "two policies",
        "no minimum",
        "minimum of 0",
        "two topologies",
        "no mode",
        "policy of preemption",
        "five claims",
        "parent without workload",
        "field of the other kind",
        "no template",
        "equal templates",
    ],
)
def test_invalid_field_is_named_with_the_cure(obj: dict[str, Any], want: str) -> None:
    assert [str(problem) for problem in problems_of(BY_KIND[obj["kind"]], obj)] == [want]


def test_workload_of_five_levels_is_refused() -> None:
    (problem,) = problems_of(BY_KIND["Workload"], workload(**nested(5)))
    assert problem.path.endswith("podGroupTemplates")
    assert "deeper than 4 levels" in problem.problem


def test_pod_of_a_group_has_a_valid_name_and_no_eviction_responders() -> None:
    pod = pod_object("web", schedulingGroup={"podGroupName": "Train"}, evictionResponders=[{"name": "x"}])
    found = [str(problem) for problem in problems_of(BY_KIND["Pod"], pod)]
    assert any(
        text.startswith("spec.schedulingGroup.podGroupName: 'Train' is not a DNS name") for text in found
    )
    assert any("cannot have evictionResponders" in text for text in found)


def test_only_the_minimum_of_a_gang_may_change(server: ApiServer) -> None:
    server.create(group(disruptionMode={"all": {}}))
    changed = server.patch(
        PODGROUPS, REF, {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}, patch_type=PatchType.MERGE
    )
    assert (changed.get("spec.schedulingPolicy.gang.minCount"), changed.get("metadata.generation")) == (2, 2)
    refused: tuple[dict[str, Any], ...] = (
        {"schedulingPolicy": {"gang": None, "basic": {}}},
        {"disruptionMode": None},
        {"priority": 4},
        {"schedulingConstraints": {"topology": [{"key": "rack"}]}},
    )
    for spec in refused:
        with pytest.raises(InvalidError, match="cannot be changed"):
            server.patch(PODGROUPS, REF, {"spec": spec}, patch_type=PatchType.MERGE)


def test_group_gets_the_priority_of_its_class(server: ApiServer) -> None:
    server.create(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 1000,
        }
    )
    assert PodGroup.of(server.create(group(priorityClassName="high"))).priority == 1000
    with pytest.raises(ForbiddenError, match="no PriorityClass with name low was found"):
        server.create(group(priorityClassName="low") | {"metadata": {"name": "other"}})


def test_group_has_a_status_that_patches_merge_by_type(server: ApiServer) -> None:
    stored = server.create(group() | {"status": {"conditions": []}})
    assert stored.get("status") is None
    for kind, status in (("A", "True"), ("B", "False"), ("A", "False")):
        condition = {"type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": None}
        server.patch(
            PODGROUPS,
            REF,
            {"status": {"conditions": [condition]}},
            patch_type=PatchType.STRATEGIC,
            subresource="status",
        )
    found = server.get(PODGROUPS, REF)
    assert found is not None
    assert sorted((one["type"], one["status"]) for one in found.get("status.conditions")) == [
        ("A", "False"),
        ("B", "False"),
    ]
    assert found.get("metadata.generation") == 1
