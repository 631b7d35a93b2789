"""`berth compare`: which pods differ between two configurations, why, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from support.manifest_objects import node_object, pod_object

from .conftest import Run, Write

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
NO_TAINTS = f"{HEAD}profiles:\n- plugins: {{multiPoint: {{disabled: [{{name: TaintToleration}}]}}}}\n"
PACKED = (
    f"{HEAD}profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args:\n"
    "      scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}\n"
    "  plugins: {multiPoint: {disabled: [{name: NodeResourcesBalancedAllocation}]}}\n"
)
TAINT = {"key": "team", "value": "ml", "effect": "NoSchedule"}


def config(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def found(result: Result, code: int) -> dict[str, Any]:
    assert result.exit_code == code, result.output
    value: dict[str, Any] = json.loads(result.stdout)
    return value


def test_equal_configurations_differ_in_no_pod(run: Run, write: Write, tmp_path: Path) -> None:
    path = write(*(node_object(f"n{i}") for i in range(4)), *(pod_object(f"p{i}") for i in range(9)))
    same = config(tmp_path, "same.yaml", HEAD)
    value = found(run("compare", "--config", same, "--config", same, "-f", path, "-o", "json"), 0)
    assert value == {
        "cluster": None,
        "configurations": [{"config": same, "placed": 9, "pending": 0}] * 2,
        "moved": [],
        "becomePending": [],
        "getPlaced": [],
        "same": 9,
        "seed": 0,
    }


@pytest.mark.parametrize("swapped", [False, True], ids=["before-after", "after-before"])
def test_pod_that_fits_with_one_configuration_names_the_plugin_of_the_other(
    run: Run, write: Write, tmp_path: Path, swapped: bool
) -> None:
    path = write(
        {**node_object("tainted"), "spec": {"taints": [TAINT]}},
        pod_object("web"),
        pod_object("huge", cpu="64"),
    )
    configs = [config(tmp_path, "strict.yaml", HEAD), config(tmp_path, "free.yaml", NO_TAINTS)]
    before, after = reversed(configs) if swapped else configs
    value = found(run("compare", "--config", before, "--config", after, "-f", path, "-o", "json"), 1)
    full, empty = ("becomePending", "getPlaced") if swapped else ("getPlaced", "becomePending")
    assert (value["moved"], value[empty], value["same"]) == ([], [], 1)
    (change,) = value[full]
    assert (change["pod"], change["node"]) == ("default/web", "tainted")
    assert change["message"].startswith("0/1 nodes are available: 1 node(s) had untolerated taint(s)")
    assert change["rejections"] == [
        {"plugin": "TaintToleration", "reason": "node(s) had untolerated taint(s)", "nodes": ["tainted"]}
    ]


def test_pod_that_moves_shows_the_scores_that_moved_it(run: Run, write: Write, tmp_path: Path) -> None:
    used = pod_object("used", cpu="2", nodeName="full")
    path = write(node_object("full"), node_object("empty"), used, pod_object("web", cpu="1"))
    packed = config(tmp_path, "packed.yaml", PACKED)
    result = run("compare", "--config", packed, "-f", path)
    assert result.exit_code == 1, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split(":")[0] == "the default configuration"
    row = next(line for line in lines if line.lstrip().startswith("default/web"))
    assert row.split()[:3] == ["default/web", "empty", "full"]
    assert "NodeResourcesFit +" in row
    assert lines[-1] == "1 moved, 0 become pending, 0 get placed; 1 as before; seed 0"
    shown = yaml.safe_load(run("compare", "--config", packed, "-f", path, "-o", "yaml").stdout)
    assert shown["moved"][0]["scoreDifference"]["NodeResourcesFit"] > 0


def controlled(name: str, kind: str = "ReplicaSet", **more: Any) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "1", "controller": True}
    metadata = {"ownerReferences": [owner], **more.pop("metadata", {})}
    return pod_object(name, cpu="1", nodeName="empty", metadata=metadata, **more)


def test_pods_that_can_move_are_placed_again_by_both_configurations(
    run: Run, write: Write, tmp_path: Path
) -> None:
    used = pod_object("used", cpu="4", nodeName="full")
    stay = (
        controlled("agent", "DaemonSet"),
        controlled("going", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        pod_object("alone", nodeName="empty"),
    )
    nodes = (node_object("full", cpu="8"), node_object("empty", cpu="8"))
    path = write(*nodes, used, *stay, controlled("web") | {"status": {"phase": "Running"}})
    packed = config(tmp_path, "packed.yaml", PACKED)
    assert found(run("compare", "--config", packed, "-f", path, "-o", "json"), 0)["same"] == 5
    value = found(run("compare", "--config", packed, "-f", path, "--move-pods", "-o", "json"), 1)
    assert [(one["pod"], one["to"]) for one in value["moved"]] == [("default/web", "full")]
    assert value["same"] == 4


def test_manifests_from_standard_input_are_read_for_both_runs(run: Run, write: Write, tmp_path: Path) -> None:
    text = yaml.safe_dump_all([node_object("a"), pod_object("web")])
    first, second = (config(tmp_path, name, HEAD) for name in ("a.yaml", "b.yaml"))
    result = run("compare", "--config", first, "--config", second, "-f", "-", stdin=text.encode())
    assert (result.exit_code, "1 as before" in result.stdout) == (0, True), result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--config is given 0 times: give it twice"),
        (("--config", "a.yaml", "--config", "b.yaml", "--config", "c.yaml"), "--config is given 3 times"),
        (("--config", "-", "--config", "-"), "standard input can be read once"),
        (("--config", "none.yaml"), "none.yaml"),
        (("--config", "a.yaml", "--context", "x"), "--kubeconfig and --context go with --cluster"),
        (
            ("--config", "a.yaml", "--cluster", "--kubeconfig", "/none/x"),
            "there is no kubeconfig /none/x: give",
        ),
    ],
    ids=["none", "three", "input-twice", "missing", "context", "no-kubeconfig"],
)
def test_bad_input_exits_with_2(run: Run, write: Write, arguments: tuple[str, ...], said: str) -> None:
    result = run("compare", *arguments, "-f", write(node_object("a"), pod_object("web")))
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_warning_about_the_manifests_is_printed_once(run: Run, write: Write, tmp_path: Path) -> None:
    daemon = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"}}
    path = write(node_object("a"), pod_object("web"), daemon)
    result = run("compare", "--config", config(tmp_path, "b.yaml", HEAD), "-f", path)
    assert result.stderr.count("left out DaemonSet agent") == 1
