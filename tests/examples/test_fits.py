"""The example `fits`, which tells whether a pod would fit on a node of a given shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from berth_sdk.pod import COSCHEDULING_LABEL
from support.coscheduling import their_group
from support.examples import example
from support.manifest_objects import node_object, pod_object

fits: Any = example("fits/fits.py")


def written(folder: Path, name: str, obj: Any) -> str:
    path = folder / name
    path.write_text(yaml.safe_dump(obj))
    return str(path)


def template(name: str, cpu: str) -> dict[str, Any]:
    node = node_object(name, cpu=cpu)
    node["status"]["allocatable"] = node["status"]["capacity"]
    return node


@pytest.mark.parametrize(("cpu", "code"), [("2", 0), ("16", 1)])
def test_exit_code_is_0_when_the_pod_fits_on_a_node_and_1_when_on_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cpu: str, code: int
) -> None:
    pod = written(tmp_path, "pod.yaml", pod_object("web", cpu=cpu))
    small = written(tmp_path, "small.yaml", template("small", "1"))
    large = written(tmp_path, "large.yaml", template("large", "8"))
    assert fits.main([pod, small, large]) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "small: Insufficient cpu (NodeResourcesFit)"
    assert lines[1] == ("large: fits" if code == 0 else "large: Insufficient cpu (NodeResourcesFit)")


def test_command_without_arguments_prints_its_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert fits.main([]) == 2
    assert "fits.py POD.yaml NODE.yaml" in capsys.readouterr().err


def test_files_may_have_several_documents_and_lists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = {"apiVersion": "v1", "kind": "List", "items": [template("small", "1"), template("large", "8")]}
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump_all([pod_object("a", cpu="2"), nodes, pod_object("b", cpu="16")]))
    assert fits.main([str(path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "default/a on small: Insufficient cpu (NodeResourcesFit)",
        "default/a on large: fits",
        "default/b on small: Insufficient cpu (NodeResourcesFit)",
        "default/b on large: Insufficient cpu (NodeResourcesFit)",
    ]


# --- groups ------------------------------------------------------------------------------------------


def group(name: str = "train", least: int = 3, **spec: Any) -> dict[str, Any]:
    policy = {"schedulingPolicy": {"gang": {"minCount": least}}}
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {**policy, **spec},
    }


def member(name: str, cpu: str = "2", of: str = "train", **spec: Any) -> dict[str, Any]:
    pod = pod_object(name, cpu=cpu)
    pod["spec"] |= {"schedulingGroup": {"podGroupName": of}, **spec}
    return pod


def asked(folder: Path, *objects: dict[str, Any]) -> int:
    path = folder / "all.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return int(fits.main([str(path)]))


def test_group_fits_when_its_minimum_fits_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    members = [member(f"train-{i}") for i in range(3)]
    assert asked(tmp_path, group(), *members, template("n1", "4")) == 1
    assert capsys.readouterr().out.splitlines() == [
        "PodGroup default/train: does not fit: minCount (3) cannot be satisfied: 2 scheduled, 0 remaining",
        "  default/train-0 on n1",
        "  default/train-1 on n1",
        "  default/train-2: 0/1 nodes are available: 1 Insufficient cpu.",
    ]
    assert asked(tmp_path, group(), *members, template("n1", "4"), template("new", "4")) == 0
    assert capsys.readouterr().out.splitlines()[0] == "PodGroup default/train: fits"


def test_pods_that_run_use_their_node_and_count_for_their_group(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = [
        member("train-0", nodeName="n1"),
        pod_object("ended", cpu="2") | {"status": {"phase": "Succeeded"}},
    ]
    there[1]["spec"]["nodeName"] = "n1"
    members = [member(f"train-{i}") for i in (1, 2)]
    assert asked(tmp_path, group(), *there, *members, template("n1", "6")) == 0
    assert capsys.readouterr().out.splitlines() == [
        "PodGroup default/train: fits",
        "  default/train-1 on n1",
        "  default/train-2 on n1",
    ]
    assert asked(tmp_path, group(), *there, *members, template("n1", "5")) == 1


def test_topology_constraint_names_the_domain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [template(f"n{i}", "4") for i in range(3)]
    for i, node in enumerate(nodes):
        node["metadata"]["labels"] = {"rack": "a" if i == 0 else "b"}
    wanted = group(schedulingConstraints={"topology": [{"key": "rack"}]})
    assert asked(tmp_path, wanted, *(member(f"train-{i}") for i in range(4)), *nodes) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "PodGroup default/train: fits in b"
    assert lines[-2] == "  b (2 nodes): 4 pods placed, fits"
    assert lines[-1].startswith("  a (1 nodes): 2 pods placed, minCount (3) cannot be satisfied")


def test_group_of_coscheduling_is_tried_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods = [pod_object(f"p{i}", cpu="2") for i in range(2)]
    for pod in pods:
        pod["metadata"]["labels"] = {COSCHEDULING_LABEL: "train"}
    wanted = their_group("train", minMember=2, minResources={"cpu": "8"})
    assert asked(tmp_path, wanted, *pods, template("n1", "4")) == 1
    assert "resource gap: cpu 4000m" in capsys.readouterr().out
    assert asked(tmp_path, wanted, *pods, template("n1", "4"), template("n2", "4")) == 0


@pytest.mark.parametrize(
    ("objects", "text"),
    [
        ([member("a")], "belongs to podgroup/default/train, which no file has: name the file that has it"),
        ([group(), pod_object("a")], "podgroup/default/train has no pods: name the file that has its pods"),
        (
            [group(least=1), member("a", priority=5)],
            "same priority as the pod group's priority, got 5 and 0: give the group and its pods the same",
        ),
        ([group(), member("a", nodeName="n1")], "the files have no pod without a node: name one that has"),
    ],
    ids=["unknown group", "no pods", "priorities", "all run"],
)
def test_files_that_cannot_be_used_are_refused_with_the_cure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], objects: list[dict[str, Any]], text: str
) -> None:
    assert asked(tmp_path, *objects, template("n1", "4")) == 2
    assert text in capsys.readouterr().err


def test_copy_of_a_cluster_is_read_as_kubectl_prints_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = [template("n1", "4"), group(least=2), member("train-0", nodeName="n1"), member("train-1")]
    for number, item in enumerate(objects):
        item["metadata"] |= {
            "uid": f"uid-{number}",
            "resourceVersion": str(number),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {}}}],
        }
    objects[2]["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    objects[3]["status"] = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]}
    listed = {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": objects}
    assert asked(tmp_path, listed) == 0
    assert capsys.readouterr().out.splitlines() == ["PodGroup default/train: fits", "  default/train-1 on n1"]
