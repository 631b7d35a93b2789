"""`berth why`: rejections per plugin and reason, the nearest fit, the best nodes' scores."""

from __future__ import annotations

from support.commands import answer
from support.manifest_objects import node_object, pod_object

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


def test_pod_that_was_there_before_says_so(run: Run, write: Write) -> None:
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
