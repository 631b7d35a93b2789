"""Files of scheduler_perf: reading them, choosing workloads, and errors in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from berth_bench import own
from berth_bench.scheduler_perf.cases import read_workloads
from berth_bench.workload import (
    AllocateClaims,
    Barrier,
    Churn,
    CreateAny,
    CreateNodes,
    CreatePods,
    CreateResourceDriver,
    DeletePods,
    Sleep,
    UpdateAny,
    Workload,
)
from berth_host.errors.manifests import ManifestError

from .conftest import POD, RESOURCE_CLAIM, Op, ReadCase, WriteCase, measured, nodes, pods


def problems(path: Path, *names: str, labels: str = "") -> str:
    with pytest.raises(ManifestError) as caught:
        read_workloads(path, names, labels)
    return str(caught.value)


def op_of(workload: Workload, index: int) -> Any:
    return workload.steps[index].op


def test_counts_come_from_parameters(case: ReadCase) -> None:
    workload = case({"opcode": "createNodes", "countParam": "$nodes"}, measured(2), params={"nodes": 7})
    first = op_of(workload, 0)
    assert isinstance(first, CreateNodes)
    assert (first.count, first.is_resizable, op_of(workload, 1).count) == (7, True, 2)


def test_namespaces_are_named_after_the_op(case: ReadCase) -> None:
    workload = case(nodes(1), pods(1), pods(1, namespace="own"), measured(1))
    found = [step.op.namespace for step in workload.steps if isinstance(step.op, CreatePods)]
    assert found == ["namespace-1", "own", "namespace-3"]


def test_every_field_of_the_other_ops_is_read(case: ReadCase) -> None:
    churn = {"opcode": "churn", "mode": "recreate", "number": 2, "templatePaths": ["pod.yaml"]}
    workload = case(
        churn,
        {
            "opcode": "deletePods",
            "namespace": "a",
            "labelSelector": {"x": "z"},
            "deletePodsPerSecond": 5,
            "skipWaitToCompletion": True,
        },
        {
            "opcode": "barrier",
            "namespaces": ["a"],
            "labelSelector": {"x": "z"},
            "stageRequirement": "Attempted",
        },
        {"opcode": "sleep", "duration": "1m2.5s"},
        {"opcode": "updateAny", "namespace": "a", "templatePath": "pod.yaml", "subresources": ["status"]},
        measured(1),
    )
    first = op_of(workload, 0)
    assert isinstance(first, Churn)
    assert (first.recreates, first.number, first.interval_s, first.namespace) == (True, 2, 0.5, "namespace-0")
    assert op_of(workload, 1) == DeletePods(namespace="a", labels={"x": "z"}, per_second=5, waits=False)
    assert op_of(workload, 2) == Barrier(namespaces=("a",), labels={"x": "z"}, stage="Attempted")
    assert op_of(workload, 3) == Sleep(duration_s=62.5)
    assert isinstance(op_of(workload, 4), UpdateAny)


def test_pods_without_any_template_are_the_default_ones(case: ReadCase) -> None:
    workload = case(nodes(1), measured(1), case={"defaultPodTemplatePath": ""})
    made = op_of(workload, 1).template.object_at(0, 1)
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "100m", "memory": "500Mi"}


@pytest.mark.parametrize(
    ("op", "problem"),
    [
        pytest.param(
            {"opcode": "createPod"}, "'createPod' is not known here: did you mean createPods", id="op"
        ),
        pytest.param({"count": 1}, "opcode: is required", id="no op"),
        pytest.param(pods(1, colectMetrics=True), "did you mean collectMetrics", id="field"),
        pytest.param(pods(-1), "must not be negative", id="negative"),
        pytest.param(pods("3"), "count: must be a whole number, and is '3'", id="text"),  # type: ignore[arg-type]
        pytest.param({"opcode": "createPods"}, "count: is required, or countParam", id="no count"),
        pytest.param(
            {"opcode": "createPods", "countParam": "$initPod"}, "did you mean $initPods", id="parameter"
        ),
        pytest.param({"opcode": "createPods", "countParam": "initPods"}, "must begin with $", id="no dollar"),
        pytest.param(
            measured(1, skipWaitToCompletion=True), "and skipWaitToCompletion cannot both", id="both"
        ),
        pytest.param(pods(1, podTemplatePath="none.yaml"), "none.yaml cannot be read", id="no template"),
        pytest.param(pods(1, steadyState=True), "duration: must be above 0", id="steady"),
        pytest.param(
            pods(1, persistentVolumeTemplatePath="pod.yaml"),
            "must be a PersistentVolume, and is a Pod (used by case C, op 1 (createPods))",
            id="kind",
        ),
        pytest.param(
            nodes(1, uniqueNodeLabelStrategy={"labelKey": "a"}, nodeAllocatableStrategy={}),
            "at most one of",
            id="two strategies",
        ),
        pytest.param(
            nodes(1, labelNodePrepareStrategy={"labelKey": "a"}), "labelValues: is required", id="no values"
        ),
        pytest.param(
            {"opcode": "createPods", "count": 1, "bound": True, "collectMetrics": True},
            "bound: and collectMetrics",
            id="bound and measured",
        ),
        pytest.param({"opcode": "churn", "mode": "x"}, "mode: must be create or recreate", id="mode"),
        pytest.param(
            {"opcode": "churn", "mode": "recreate", "templatePaths": ["pod.yaml"]},
            "number: must be above 0",
            id="recreate without a number",
        ),
        pytest.param({"opcode": "barrier", "stageRequirement": "Bound"}, "must be Scheduled or", id="stage"),
        pytest.param({"opcode": "sleep", "duration": "3 s"}, "unknown unit", id="duration"),
        pytest.param(
            {"opcode": "createAny", "templatePath": "pod.yaml"}, "a Pod is in a namespace", id="scope"
        ),
        pytest.param({"opcode": "startCollectingMetrics"}, "namespaces: is required", id="namespaces"),
        pytest.param(
            {"opcode": "updateAny", "namespace": "a", "templatePath": "pod.yaml", "subresources": ["scale"]},
            "subresources: must be absent, or a list of one: status or resize",
            id="subresource",
        ),
        pytest.param(
            {
                "opcode": "updateAny",
                "namespace": "a",
                "templatePath": "pod.yaml",
                "subresources": ["resize", "status"],
            },
            "must be absent, or a list of one",
            id="subresources",
        ),
        pytest.param(
            {"opcode": "createResourceDriver", "nodes": "*", "maxClaimsPerNode": 1},
            "driverName: is required",
            id="driver",
        ),
        pytest.param(
            {"opcode": "createResourceDriver", "driverName": "d", "nodes": "*"},
            "maxClaimsPerNode: is required, or maxClaimsPerNodeParam",
            id="devices",
        ),
        pytest.param(
            {"opcode": "createResourceClaims", "namespace": "a", "count": 1, "templatePath": "pod.yaml"},
            "must be a ResourceClaim, and is a Pod",
            id="no claim",
        ),
        pytest.param(
            {"opcode": "createPodSets", "count": 1, "namespacePrefix": "a"}, "createPodsOp: is req", id="set"
        ),
    ],
)
def test_a_bad_op_is_named_with_file_line_case_and_number(
    write_case: WriteCase, op: Op, problem: str
) -> None:
    path = write_case(nodes(1), op, pods(1, namespace="n", countParam="$initPods"), params={"initPods": 1})
    text = problems(path)
    assert problem in text
    assert "case C, op 1" in text
    assert ".yaml:" in text


def test_all_problems_of_a_file_are_reported_at_once_with_their_lines(write_case: WriteCase) -> None:
    path = write_case({"opcode": "x"}, {"opcode": "z"}, threshold="high")
    lines = problems(path).splitlines()
    assert len(lines) == 3
    numbers = [line.split(":")[1] for line in lines]
    text = path.read_text().splitlines()
    assert ["x" in text[int(numbers[0]) - 1], "z" in text[int(numbers[1]) - 1]] == [True, True]
    assert any("threshold: must be a number" in line for line in lines)


def test_template_that_the_cluster_would_refuse_is_named(
    write_case: WriteCase, template: Callable[..., str]
) -> None:
    bad = POD | {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "much"}}}]}}
    text = problems(write_case(nodes(1), measured(1, podTemplatePath=template(bad))))
    assert "other.yaml" in text
    assert "spec.containers[0].resources.requests.cpu" in text


@pytest.fixture
def several(tmp_path: Path, write_case: WriteCase) -> Path:
    """Write a file with two cases, names with slashes, and labels."""
    path = write_case(nodes(1), measured(1))
    (one,) = yaml.safe_load(path.read_text())
    workloads = [
        {"name": "5Nodes/1Init", "labels": ["short"]},
        {"name": "5kNodes", "labels": ["performance"]},
    ]
    other = one | {"name": "Other", "labels": ["short"], "workloads": [{"name": "5Nodes"}]}
    broken = {"name": "Broken", "workloadTemplate": [{"opcode": "x"}], "workloads": [{"name": "w"}]}
    path.write_text(yaml.safe_dump([one | {"workloads": workloads}, other, broken]))
    return path


def test_chosen_workloads_come_in_the_order_given_and_others_may_be_broken(several: Path) -> None:
    found = read_workloads(several, ["Other/5Nodes", "C/5Nodes/1Init"])
    assert [workload.name for workload in found] == ["Other/5Nodes", "C/5Nodes/1Init"]
    assert "'x' is not known here" in problems(several)


def test_labels_choose_and_exclude(several: Path) -> None:
    def names(labels: str) -> list[str]:
        chosen = ["C/5Nodes/1Init", "C/5kNodes", "Other/5Nodes"]
        return [workload.name for workload in read_workloads(several, chosen, labels)]

    assert names("short") == ["C/5Nodes/1Init", "Other/5Nodes"]
    assert names("-short") == ["C/5kNodes"]
    assert "no workload has the labels long" in problems(several, "C/5kNodes", labels="long")


def test_unknown_workload_lists_the_close_names(several: Path) -> None:
    assert "there is no workload C/5Node: did you mean C/5kNodes" in problems(several, "C/5Node")
    assert "(CASE/WORKLOAD is wanted)" in problems(several, "Othr")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(None, "cannot be read: No such file", id="absent"),
        pytest.param("a: b", "must be a list of test cases", id="a map"),
        pytest.param("", "must be a list of test cases", id="empty"),
        pytest.param("- [", ":1: is not YAML", id="no YAML"),
        pytest.param("- name: x\n  workloads: [{}]", "name: is required", id="no name"),
        pytest.param("- 7", "must be a map", id="a number"),
        pytest.param(
            "- name: C\n  workloads: [{name: w}, {name: w}]", "name: appears twice: rename one", id="twice"
        ),
    ],
)
def test_file_of_another_kind_is_refused(tmp_path: Path, text: str | None, problem: str) -> None:
    path = tmp_path / "cases.yaml"
    if text is not None:
        path.write_text(text)
    assert problem in problems(path)


def test_gates_of_a_workload_are_those_of_its_case_unless_it_sets_them(case: ReadCase) -> None:
    gates = {"case": {"featureGates": {"A": True, "B": True}}, "featureGates": {"B": False}}
    workload = case(nodes(1), measured(1), **gates)
    assert workload.feature_gates == {"A": True, "B": False}


def test_served_plugins_of_a_workload_are_those_of_its_case_and_its_own(case: ReadCase) -> None:
    served = {"case": {"remotePlugins": ["NodeName"]}, "remotePlugins": ["module:Class"]}
    assert case(nodes(1), measured(1), **served).remote == ("NodeName", "module:Class")
    assert case(nodes(1), measured(1)).remote == ()


def test_thresholds_and_selectors_without_effect_become_notes(case: ReadCase) -> None:
    workload = case(nodes(1), measured(1), threshold=300)
    assert (workload.threshold, workload.notes) == (300.0, ())
    selector = {"name": "scheduler_x", "dataBucket": "Perc99", "expectLower": True}
    other = case(nodes(1), measured(1), threshold=3, thresholdMetricSelector=selector)
    assert other.threshold is None
    assert other.notes == ("its threshold is for scheduler_x Perc99, not for pods per second",)
    unused = case(nodes(1), measured(1), params={"b": 1, "a": 2})
    assert unused.notes == ("parameters that no op uses: a, b",)
    nothing = case(nodes(1), pods(1))
    assert nothing.notes == ("no op collects metrics: nothing is measured",)


def test_pods_of_templates_share_a_label_as_often_as_the_op_says(write_case: WriteCase) -> None:
    batch = pods(2, signatureBatchSizeParam="$batch")
    path = write_case(nodes(1), batch, measured(1), params={"batch": 5})
    (marked,) = read_workloads(path, signatures=True)
    (plain,) = read_workloads(path)
    batches = [[op_of(workload, index).signature_batch for index in (1, 2)] for workload in (marked, plain)]
    assert batches == [[5, 1], [5, 0]]


def test_parameter_of_a_template_may_have_a_default(case: ReadCase) -> None:
    given = {"a": "$known|3", "b": "$missing|[1, x]", "c": "$missing|", "d": "text"}
    op = {"opcode": "createPods", "count": 1, "templateParams": given, "collectMetrics": True}
    workload = case(nodes(1), op, params={"known": 7})
    assert op_of(workload, 1).template.params == {"a": 7, "b": [1, "x"], "c": None, "d": "text"}


def test_threshold_may_be_one_of_several_topics(tmp_path: Path, write_case: WriteCase) -> None:
    path = write_case(nodes(1), measured(1), threshold={"eventhandling": 3, "other": 7})
    (tmp_path / "event_handling").mkdir()
    own = path.rename(tmp_path / "event_handling" / "performance-config.yaml")
    (tmp_path / "pod.yaml").rename(tmp_path / "event_handling" / "pod.yaml")
    (workload,) = read_workloads(own)
    assert (workload.threshold, workload.notes) == (3.0, ())
    (tmp_path / "event_handling").rename(tmp_path / "dra")
    (workload,) = read_workloads(tmp_path / "dra" / "performance-config.yaml")
    assert workload.threshold is None
    assert workload.notes == ("its threshold is for eventhandling, other, and not for dra",)


def test_declared_features_are_a_parameter_of_the_workload_where_the_gate_is_on(case: ReadCase) -> None:
    given: Any = {"params": {"numNodeDeclaredFeatures": 3}}
    workload = case(nodes(1), measured(1), featureGates={"NodeDeclaredFeatures": True}, **given)
    assert workload.declared_features == ("Feature1", "Feature2", "Feature3")
    without = case(nodes(1), measured(1), **given)
    assert without.declared_features == ()
    assert without.notes == ("parameters that no op uses: numNodeDeclaredFeatures",)


def test_number_of_features_must_be_one(write_case: WriteCase) -> None:
    gates, params = {"NodeDeclaredFeatures": True}, {"numNodeDeclaredFeatures": "many"}
    text = problems(write_case(nodes(1), measured(1), featureGates=gates, params=params))
    assert "numNodeDeclaredFeatures must be a whole number, and is 'many'" in text


def test_ops_about_devices_are_read(case: ReadCase, template: Callable[..., str]) -> None:
    claim = template(RESOURCE_CLAIM, "claim.yaml")
    driver = {"opcode": "createResourceDriver", "driverName": "d", "nodes": "n-*"}
    workload = case(
        nodes(1),
        driver | {"maxClaimsPerNodeParam": "$max"},
        {"opcode": "createResourceClaims", "templatePath": claim, "namespace": "a", "count": 4},
        {"opcode": "allocResourceClaims", "namespace": "a"},
        {"opcode": "allocResourceClaims"},
        measured(1),
        params={"max": 7},
    )
    assert op_of(workload, 1) == CreateResourceDriver(driver="d", nodes="n-*", devices_per_node=7)
    made = op_of(workload, 2)
    assert isinstance(made, CreateAny)
    assert (made.count, made.namespace) == (4, "a")
    assert [op_of(workload, i) for i in (3, 4)] == [AllocateClaims(namespace="a"), AllocateClaims()]


def test_workloads_of_several_files_are_chosen_together(
    tmp_path: Path, write_case: WriteCase, several: Path
) -> None:
    other = several.rename(tmp_path / "others.yaml")
    paths = [write_case(nodes(1), measured(1)), other]
    found = read_workloads(paths, ["Other/5Nodes", "C/w"])
    assert [(workload.name, Path(workload.source).name) for workload in found] == [
        ("Other/5Nodes", "others.yaml"),
        ("C/w", "cases.yaml"),
    ]
    with pytest.raises(ManifestError, match=r"C/x: did you mean C/w"):
        read_workloads(paths, ["C/x"])
    wanted = [workload.name for workload in read_workloads(paths, ["C/w", "Other/5Nodes"], "short")]
    assert wanted == ["Other/5Nodes"]


def test_own_workloads_have_no_errors() -> None:
    names = [workload.name for workload in read_workloads(own.FILE)]
    assert len(names) == len(set(names)) >= 5


def test_workload_without_a_parameter_of_its_case_is_left_out_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(POD))
    ops = [nodes(1), {"opcode": "createPods", "countParam": "$pods", "podTemplatePath": "pod.yaml"}]
    workloads: list[dict[str, Any]] = [{"name": "whole", "params": {"pods": 1}}, {"name": "lacks"}]
    path = tmp_path / "performance-config.yaml"

    def read(*names: str) -> tuple[list[str], list[str]]:
        path.write_text(yaml.safe_dump([{"name": "C", "workloadTemplate": ops, "workloads": workloads}]))
        sentences: list[str] = []
        return [one.name for one in read_workloads(path, names, left_out=sentences)], sentences

    assert read() == (["C/whole"], ["C/lacks is left out: its file gives it no $pods"])
    assert read("C/whole") == (["C/whole"], [])
    with pytest.raises(ManifestError, match="C/lacks has no parameter"):
        read("C/lacks")
    assert "C/lacks has no parameter" in problems(path)
    # No workload has it: the op is misspelt.
    workloads[0] = {"name": "whole", "params": {"pod": 1}}
    with pytest.raises(ManifestError, match="C/whole has no parameter"):
        read()


def test_stage_of_a_barrier_may_be_a_parameter_with_a_default(case: ReadCase) -> None:
    barrier = {"opcode": "barrier", "stageRequirement": "$stage|Scheduled"}
    assert op_of(case(nodes(1), measured(1), barrier), 2).stage == "Scheduled"
    assert op_of(case(nodes(1), measured(1), barrier, params={"stage": "Attempted"}), 2).stage == "Attempted"


TREE = """\
apiVersion: scheduling.k8s.io/v1beta1
kind: CompositePodGroup
metadata: {name: "l{{.Level}}-{{.Index}}"}
spec:
  {{- if gt .Level 1}}
  parentCompositePodGroupName: l{{.ParentLevel}}-{{.ParentIndex}}
  {{- end}}
  workloadRef: {workloadName: w, templateName: t}
  schedulingPolicy: {gang: {minGroupCount: {{.ChildrenCount}}}}
"""
LEAF = """\
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: "g-{{.Index}}"}
spec:
  parentCompositePodGroupName: l{{.parentLevel}}-{{DivideInt .Index .perTree}}
  workloadRef: {workloadName: w, templateName: t}
  schedulingPolicy: {basic: {}}
"""


def trees(template: Callable[..., str], depth: int) -> tuple[Op, Op]:
    """Return an op that creates trees of groups, and one that creates the groups of pods below them."""
    of_trees = {
        "opcode": "createCompositePodGroups",
        "rootCountParam": "$roots",
        "depth": depth,
        "childrenCompositePodGroupsPerCPG": 2,
        "childrenPodGroupsPerCPGParam": "$leaves",
        "namespace": "trees",
        "templatePath": template(TREE, "tree.yaml"),
    }
    of_leaves = {
        "opcode": "createPodGroups",
        "countParam": "$podGroupsCount",
        "namespace": "trees",
        "templatePath": template(LEAF, "leaf.yaml"),
        "templateParams": {"parentLevel": "$parentLevel", "perTree": "$leaves"},
    }
    return of_trees, of_leaves


def test_trees_of_groups_are_created_level_by_level_and_counted(
    case: ReadCase, template: Callable[..., str]
) -> None:
    workload = case(*trees(template, 3), measured(1), params={"roots": 2, "leaves": 3})
    roots, inner, leaves = (op_of(workload, index) for index in range(3))
    assert (roots.count, inner.count, leaves.count) == (2, 4, 12)
    assert workload.notes == ()
    made = [one.template.object_at(one.count - 1, one.count) for one in (roots, inner, leaves)]
    assert [one["metadata"]["name"] for one in made] == ["l1-1", "l2-3", "g-11"]
    assert [one["spec"].get("parentCompositePodGroupName") for one in made] == [None, "l1-1", "l2-3"]
    gangs = [one["spec"]["schedulingPolicy"]["gang"]["minGroupCount"] for one in made[:2]]
    assert gangs == [2, 3]


def test_tree_of_groups_without_a_root_is_refused(
    write_case: WriteCase, template: Callable[..., str]
) -> None:
    path = write_case(*trees(template, 1), measured(1), params={"roots": 2, "leaves": 3})
    assert "depth: must be at least 2, a root and its pod groups, and is 1" in problems(path)
