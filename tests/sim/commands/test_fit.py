"""`berth fit` and `berth drain`: questions to a simulated cluster, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from berth_host.errors.manifests import ManifestError
from berth_sim.manifests.pod_file import pod_in
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


def test_cluster_of_nodes_alone_is_no_bad_input_where_ci_reads_strictly(
    run: Run, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    asked = file_of(tmp_path, pod_object("new", cpu="1"))
    result = run("fit", asked, write(node_object("a")))
    assert (result.exit_code, result.stderr) == (0, "")
    empty = run("fit", asked, write())
    assert (empty.exit_code, "neither a pod nor a node" in empty.stderr) == (2, True)
    drained = run("drain", "a", write(node_object("a")))
    assert (drained.exit_code, "the input has no pod" in drained.stderr) == (2, True)


def test_drain_names_the_pods_that_could_not_move(run: Run, write: Write) -> None:
    cluster = write(
        node_object("a"),
        node_object("b", cpu="1"),
        replica("small", "web", "a", cpu="1"),
        replica("large", "web", "a", cpu="2"),
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


def test_drain_names_the_pods_that_no_controller_makes_anew(run: Run, write: Write) -> None:
    cluster = write(
        node_object("a"),
        node_object("b", cpu="1"),
        replica("web", "web", "a"),
        pod_object("alone", cpu="100m", nodeName="a"),
    )
    result = run("drain", "a", "-f", cluster)
    assert result.exit_code == 3, result.output
    assert result.stdout == (
        "a: 1 of 2 pods could move elsewhere, 1 without a controller would be lost\n\n"
        "WOULD MOVE\n  POD           TO\n  default/web   b\n\n"
        "WOULD BE LOST (no controller makes them anew: kubectl drain refuses them without --force)\n"
        "  POD             FITS ON\n  default/alone   b\n"
    )
    forced = run("drain", "a", "-f", cluster, "--force", "-o", "json")
    assert forced.exit_code == 0
    value = json.loads(forced.stdout)
    assert {move["pod"]: move["hasController"] for move in value["moves"]} == {
        "default/web": True,
        "default/alone": False,
    }
    assert (value["unmanaged"], value["stuck"]) == (1, 0)


def replica(name: str, app: str, node: str, **more: Any) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": True}
    metadata = {"labels": {"app": app}, "ownerReferences": [owner]}
    return pod_object(name, metadata=metadata, nodeName=node, **more)


def budget(app: str, **spec: object) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app},
        "spec": {"selector": {"matchLabels": {"app": app}}, **spec},
    }


def test_drain_waits_for_budgets_and_names_the_pods_that_none_lets_go(run: Run, write: Write) -> None:
    cluster = write(
        node_object("a"),
        node_object("b"),
        *(replica(f"db-{i}", "db", "b" if i == 2 else "a") for i in range(3)),
        budget("db", minAvailable=2),
    )
    result = run("drain", "a", "-f", cluster)
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        "a: 2 of 2 pods could move elsewhere, budgets let 1 go at once\n\n"
        "WOULD MOVE\n  POD            TO\n  default/db-0   b\n  default/db-1   b\n\n"
        "WAIT FOR A BUDGET\n  POD            ROUND   WHY\n"
        "  default/db-1   2       PodDisruptionBudget default/db waits for the replacement of default/db-0\n"
    )
    held = write(
        node_object("a"), node_object("b"), replica("web", "web", "a"), budget("web", maxUnavailable=0)
    )
    result = run("drain", "a", "-f", held)
    assert result.exit_code == 3
    assert (
        "  default/web   never   PodDisruptionBudget default/web needs 1 healthy pods and has 1"
        in result.stdout
    )


def test_pod_with_scheduling_gates_does_not_fit_now_and_classes_of_the_manifests_count(
    run: Run, write: Write, tmp_path: Path
) -> None:
    gold = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "gold"},
        "value": 9,
    }
    cluster = write(node_object("a", cpu="1"), pod_object("low", cpu="1", nodeName="a"), gold)
    asked = file_of(tmp_path, pod_object("new", schedulingGates=[{"name": "x"}], priorityClassName="gold"))
    result = run("fit", asked, cluster)
    assert result.exit_code == 3
    assert result.stdout.startswith("default/new: kept out of the queue; after that it fits on no node\n")
    assert "  SchedulingGates   waiting for scheduling gates: [x]\n" in result.stdout
    assert "WOULD PREEMPT ON a\n  default/low\n" in result.stdout


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
