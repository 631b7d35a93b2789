"""`berth fit` and `berth drain`: questions to a simulated cluster, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from berth_host.cli.pod_file import pod_in
from berth_host.errors.manifests import ManifestError
from support.manifest_objects import node_object, pod_object, workload_object

from .conftest import Run, Write


def file_of(folder: Path, *objects: object) -> str:
    path = folder / "asked.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def test_pod_is_asked_about_after_the_pods_of_the_cluster_have_found_their_nodes(
    run: Run, write: Write, tmp_path: Path
) -> None:
    cluster = write(
        node_object("a", cpu="3"), node_object("b", cpu="2"), workload_object("Deployment", "web")
    )
    asked = file_of(tmp_path, pod_object("new", cpu="2950m"))
    result = run("fit", "-f", asked, "-f", cluster)
    assert result.exit_code == 3, result.output
    assert result.stdout.startswith(
        "default/new: fits on no node\n  0/2 nodes are available: 2 Insufficient cpu."
    )
    assert "NEAREST FIT\n  node a lacks 50m CPU\n" in result.stdout
    value = json.loads(
        run("fit", file_of(tmp_path, pod_object("new", cpu="2500m")), cluster, "-o", "json").stdout
    )
    assert (value["node"], value["feasible"], value["nodes"]) == ("a", 1, 2)
    text = run("fit", file_of(tmp_path, pod_object("new", cpu="2500m")), cluster).stdout
    assert "a is the only node that fits, and is not scored" in text


def test_drain_names_the_pods_that_could_not_move(run: Run, write: Write) -> None:
    cluster = write(
        node_object("a"),
        node_object("b", cpu="1"),
        pod_object("small", cpu="1", nodeName="a"),
        pod_object("large", cpu="2", nodeName="a"),
    )
    result = run("drain", "a", "-f", cluster)
    assert result.exit_code == 3, result.output
    assert result.stdout == (
        "a: 1 of 2 pods could move elsewhere\n\n"
        "COULD NOT MOVE\n  POD             PLUGIN             NODES   REASON\n"
        "  default/large   NodeResourcesFit       1   Insufficient cpu\n\n"
        "WOULD MOVE\n  POD             TO\n  default/small   b\n"
    )
    assert run("drain", "b", "-f", cluster).exit_code == 0
    unknown = run("drain", "c", "-f", cluster)
    assert (unknown.exit_code, unknown.stderr) == (2, "there is no node c\n")


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        ([node_object("a")], "has no pod and no workload"),
        ([pod_object("a"), pod_object("b")], "has 2 pods and workloads"),
        ([{"kind": "Pod"}], "apiVersion"),
    ],
    ids=["none", "two", "broken"],
)
def test_file_without_exactly_one_pod_is_bad_input(
    run: Run, write: Write, tmp_path: Path, objects: list[object], said: str
) -> None:
    result = run("fit", "-f", file_of(tmp_path, *objects), "-f", write(node_object("n")))
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_fit_needs_the_pod_and_the_cluster(run: Run, write: Write) -> None:
    result = run("fit", "-f", write(node_object("n")))
    assert (result.exit_code, "give -f POD -f MANIFESTS" in result.stderr) == (2, True)
    assert run("fit", "-f", "-", "-f", "-").exit_code == 2


def test_template_of_a_workload_gives_a_pod_with_the_labels_of_its_pods(tmp_path: Path) -> None:
    found = pod_in(file_of(tmp_path, workload_object("StatefulSet", "db")), lambda: "")
    assert (found["kind"], found["metadata"]["name"], found["metadata"]["labels"]) == (
        "Pod",
        "db",
        {"app": "db"},
    )
    text = yaml.safe_dump(pod_object("web"))
    assert pod_in("-", lambda: text)["metadata"]["name"] == "web"
    with pytest.raises(ManifestError, match="standard input"):
        pod_in("-", lambda: "")
