"""`berth why`: rejections per plugin and reason, the nearest fit, the best nodes' scores."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from support.commands import answer
from support.gpu_memory import MEMORY
from support.manifest_objects import node_object, pod_object
from support.places import TESTS

from .conftest import Run, Write


def cluster(write: Write) -> str:
    tainted = node_object("tainted") | {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    return write(
        node_object("small", cpu="2"),
        node_object("medium", cpu="4"),
        node_object("other", cpu="4"),
        tainted,
        pod_object("there", cpu="1", nodeName="medium"),
        pod_object("web", cpu="500m"),
        pod_object("huge", cpu="5"),
    )


def test_pending_pod_shows_which_plugin_rejected_which_nodes(run: Run, write: Write) -> None:
    got = answer(run("why", "huge", "-f", cluster(write), "-o", "json"))
    assert got["pod"] == "default/huge"
    assert got["node"] is None
    assert got["message"].startswith("0/4 nodes are available: ")
    assert (got["nodes"], got["feasible"]) == (4, 0)
    rejected = {item["plugin"]: set(item["nodes"]) for item in got["rejections"]}
    assert rejected["TaintToleration"] == {"tainted"}
    assert rejected["NodeResourcesFit"] == {"small", "medium", "other"}


def test_nearest_fit_names_the_resources_that_the_nodes_lack(run: Run, write: Write) -> None:
    path = write(
        node_object("a", cpu="4"),
        node_object("b", cpu="4"),
        node_object("c", cpu="2"),
        pod_object("there", cpu="500m", nodeName="c"),
        pod_object("huge", cpu="6"),
    )
    got = answer(run("why", "default/huge", "-f", path, "-o", "json"))
    assert [item["text"] for item in got["nearestFit"]] == ["2 nodes lack 2 CPU", "node c lacks 4500m CPU"]


def test_placed_pod_shows_the_scores_of_the_best_nodes(run: Run, write: Write) -> None:
    got = answer(run("why", "web", "-f", cluster(write), "-o", "json"))
    assert got["message"] == f"placed on {got['node']}"
    best = got["scores"][0]
    assert best["node"] == got["node"]
    assert best["total"] == max(item["total"] for item in got["scores"])
    fit = best["plugins"]["NodeResourcesFit"]
    assert 0 <= fit["normalized"] <= 100
    assert sum(item["normalized"] * item["weight"] for item in best["plugins"].values()) == best["total"]


def test_explanation_of_a_pod_placed_in_the_input_names_that(run: Run, write: Write) -> None:
    got = answer(run("why", "there", "-f", cluster(write), "-o", "json"))
    assert got["message"] == "was on medium in the input already"
    assert (got["rejections"], got["scores"]) == ([], [])


def test_readable_form_has_all_parts(run: Run, write: Write) -> None:
    result = run("why", "huge", "-f", cluster(write))
    assert result.exit_code == 0
    text = result.stdout
    assert text.startswith("default/huge: pending\n  0/4 nodes are available: ")
    assert "REJECTED BY" in text
    assert "NEAREST FIT\n  node other lacks 1500m CPU\n" in text
    placed = run("why", "web", "-f", cluster(write)).stdout
    assert "BEST NODES" in placed
    assert "NodeResourcesFit" in placed


def test_unknown_pod_exits_with_2_and_names_the_nearest(run: Run, write: Write) -> None:
    result = run("why", "hugh", "-f", cluster(write))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1] == "no pod default/hugh: did you mean default/huge?"
    elsewhere = run("why", "shop/web", "-f", cluster(write))
    assert elsewhere.stderr.splitlines()[-1] == "no pod shop/web: did you mean default/web?"


def test_bad_input_exits_with_2(run: Run, write: Write) -> None:
    result = run("why", "web", "-f", write({"kind": "Pod"}))
    assert result.exit_code == 2
    assert "apiVersion: is required" in result.stderr


def named_node(name: str) -> dict[str, Any]:
    """Return an affinity to the node of that name, as a DaemonSet's controller writes it."""
    here = [{"key": "metadata.name", "operator": "In", "values": [name]}]
    terms = {"nodeSelectorTerms": [{"matchFields": here}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def rejected_by(got: dict[str, Any]) -> dict[str, set[str]]:
    return {item["plugin"]: set(item["nodes"]) for item in got["rejections"]}


def test_nodes_that_pre_filter_left_out_have_a_row_with_their_plugin(run: Run, write: Write) -> None:
    """kubernetes 124930, 93934."""
    nodes = [node_object("quay-a", cpu="8"), node_object("quay-b", cpu="1"), node_object("quay-c", cpu="8")]
    lost = pod_object("lost", affinity=named_node("quay-z"))
    agent = pod_object("agent-b", cpu="2", affinity=named_node("quay-b"))
    path = write(*nodes, lost, agent)
    got = answer(run("why", "lost", "-f", path, "-o", "json"))
    assert got["attempts"] == 1, "it was tried again although nothing changed"
    assert rejected_by(got) == {"NodeAffinity": {"quay-a", "quay-b", "quay-c"}}
    got = answer(run("why", "agent-b", "-f", path, "-o", "json"))
    assert rejected_by(got) == {"NodeAffinity": {"quay-a", "quay-c"}, "NodeResourcesFit": {"quay-b"}}


@pytest.mark.parametrize("transport", ["in_process", "served"])
def test_plugin_that_rejects_the_pod_in_pre_filter_has_a_row(
    run: Run, write: Write, tmp_path: Path, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kubernetes 119767."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    served = f"command: ['{sys.executable}', -m, berth_sdk, serve, 'support.narrows:Left']"
    where = served if transport == "served" else "inProcess: 'support.narrows:Left'"
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{plugins: {preFilter: {enabled: [{name: Left}]}}}]\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\n"
        f"plugins: [{{name: Left, {where}, points: {{preFilter: {{deadline: 10s}}}}}}]\n"
    )
    web = pod_object("web", metadata={"labels": {"Left": "no"}})
    path = write(node_object("a"), node_object("b"), web)
    got = answer(run("why", "web", "-f", path, "-o", "json", "--config", str(config)))
    assert rejected_by(got) == {"Left": {"a", "b"}}
    assert "Left says no" in got["message"]


def test_nearest_fit_does_not_name_a_resource_that_is_left_to_a_plugin(
    run: Run, write: Write, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{plugins: {filter: {enabled: [{name: GpuMemory}]}}}]\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        "plugins: [{name: GpuMemory, inProcess: 'support.gpu_memory:GpuMemory',"
        f" managedResources: [{{name: {MEMORY}, ignoredByScheduler: true}}]}}]\n"
    )
    limits = {"requests": {"cpu": "6"}, "limits": {MEMORY: "6"}}
    huge = pod_object("huge", containers=[{"name": "c", "image": "app", "resources": limits}])
    gpus = {"gpus": "1", "gpu-memory": "10"}
    path = write(node_object("a", cpu="4", labels=gpus), node_object("b", cpu="4", labels=gpus), huge)
    got = answer(run("why", "huge", "-f", path, "-o", "json", "--config", str(config)))
    assert [item["text"] for item in got["nearestFit"]] == ["2 nodes lack 2 CPU"]
