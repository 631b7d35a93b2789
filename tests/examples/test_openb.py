"""The openb trace as manifests, and a small piece in its form through the scheduler with a served plugin."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from berth_bench.openb import NODES as NODE_FILE
from berth_bench.openb import TASKS as TASK_FILE
from berth_bench.openb import nodes_of
from berth_host.cli.main import berth
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from click.testing import CliRunner
from support.commands import answer
from support.examples import EXAMPLES, example

openb: Any = example("openb/openb_manifests.py")
NODES = """\
sn,cpu_milli,memory_mib,gpu,model
openb-node-0000,32000,262144,0,
openb-node-0001,64000,262144,2,P100
openb-node-0002,64000,262144,4,T4
"""
TASKS_HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
    "scheduled_time"
)
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
---
apiVersion: config.berth.io/v1alpha1
kind: BerthConfiguration
cycleBudget: 60s
plugins:
- name: NodeResourcesFit
  command: [{python}, -m, berth_sdk, serve, NodeResourcesFit]
  required: true
  points: {{preFilter: {{deadline: 10s}}, filter: {{deadline: 10s}}, score: {{deadline: 10s}}}}
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """12 tasks of 9 GPUs in all, where 6 are: two of them only on a P100."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / NODE_FILE).write_text(NODES)
    tasks = [TASKS_HEADER]
    tasks += [f"openb-pod-{i:04},12000,16384,1,460,,LS,Running,{i},99,{i}" for i in range(7)]
    tasks += [f"openb-pod-{i:04},4000,8192,1,1000,P100|V100M16,BE,Pending,{i},99," for i in range(7, 9)]
    tasks += [f"openb-pod-{i:04},6000,1024,0,0,,,Succeeded,{i},99,{i}" for i in range(9, 12)]
    (folder / TASK_FILE).write_text("\n".join(tasks) + "\n")
    return folder


def test_node_manifest_has_cpu_memory_gpus_and_model(data: Path, tmp_path: Path) -> None:
    assert openb.convert(data, tmp_path / "out") == (3, 12)
    nodes = [
        Node.from_object(item) for item in json.loads((tmp_path / "out/nodes.json").read_text())["items"]
    ]
    assert [node.allocatable.get("gpu-share.berth.io/gpu", 0) for node in nodes] == [0, 2, 4]
    assert nodes[1].allocatable["cpu"] == 64000
    assert nodes[1].allocatable["memory"] == 262144 * 2**20
    assert nodes[1].labels["gpu-share.berth.io/model"] == "P100"


def test_nodes_option_makes_the_nodes_of_the_benchmark(data: Path, tmp_path: Path) -> None:
    assert openb.convert(data, tmp_path / "out", 2) == (2, 12)
    names = [
        item["metadata"]["name"] for item in json.loads((tmp_path / "out/nodes.json").read_text())["items"]
    ]
    assert names == [item["metadata"]["name"] for item in nodes_of(data, 2)]


def test_every_task_is_a_pending_pod_with_its_requests(data: Path, tmp_path: Path) -> None:
    openb.convert(data, tmp_path / "out")
    items = json.loads((tmp_path / "out/pods.json").read_text())["items"]
    pods = [Pod.from_object(item) for item in items]
    assert {pod.node_name for pod in pods} == {""}
    assert all("status" not in item for item in items)
    gpus = {"gpu-share.berth.io/gpu": 1, "gpu-share.berth.io/gpu-milli": 460}
    first = {"cpu": 12000, "memory": 16384 * 2**20} | gpus
    assert (pods[0].requests, pods[11].requests) == (first, {"cpu": 6000, "memory": 2**30})


def test_gpu_spec_becomes_required_node_affinity(data: Path, tmp_path: Path) -> None:
    openb.convert(data, tmp_path / "out")
    items = json.loads((tmp_path / "out/pods.json").read_text())["items"]
    assert "affinity" not in items[0]["spec"]
    required = items[7]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {"key": "gpu-share.berth.io/model", "operator": "In", "values": ["P100", "V100M16"]}
    ]


@pytest.mark.slow
def test_nothing_is_over_committed_and_every_pending_pod_is_explained(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    openb.convert(data, out)
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.format(python=json.dumps(sys.executable)))
    arguments = ["simulate", "-f", str(out), "--config", str(config), "-o", "json"]
    got = answer(CliRunner().invoke(berth, arguments, catch_exceptions=False))
    nodes = {node.name: node for node in _records(Node, out / "nodes.json")}
    pods = {pod.key: pod for pod in _records(Pod, out / "pods.json")}
    used: dict[str, Counter[str]] = {}
    for item in got["placements"]:
        used.setdefault(item["node"], Counter()).update(pods[item["pod"]].requests)
    for name, total in used.items():
        assert all(amount <= nodes[name].allocatable.get(what, 0) for what, amount in total.items())
    assert got["summary"]["placed"] + len(got["pending"]) == 12
    assert sum(used[name]["gpu-share.berth.io/gpu"] for name in used) == 6
    assert all(item["message"].startswith("0/3 nodes are available: ") for item in got["pending"])


def _records(record: Any, path: Path) -> list[Any]:
    return [record.from_object(item) for item in json.loads(path.read_text())["items"]]


def test_missing_data_is_named(tmp_path: Path) -> None:
    script = str(EXAMPLES / "openb" / "openb_manifests.py")
    done = subprocess.run(
        [sys.executable, script, "--data", str(tmp_path), "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "openb_node_list_all_node.csv: cannot be read: No such file" in done.stderr


def test_manifests_are_plain_kubernetes_objects(data: Path, tmp_path: Path) -> None:
    openb.convert(data, tmp_path / "out")
    for path in sorted((tmp_path / "out").iterdir()):
        listed = yaml.safe_load(path.read_text())
        assert (listed["apiVersion"], listed["kind"]) == ("v1", "List")
