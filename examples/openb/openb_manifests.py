"""The openb GPU cluster trace -> plain manifests, for `berth simulate`.

    python examples/openb/openb_manifests.py --data DIR --out DIR

The folder of `--data` holds `openb_node_list_all_node.csv` and `openb_pod_list_default.csv` of the trace
(2023, Alibaba; github.com/alibaba/clusterdata). Phases and times in it are what became of the tasks there:
here every task is a pending pod. CPU, memory and the number of GPUs are kept (`example.com/gpu`, an extended
resource); a share of a GPU counts as one GPU, because extended resources are whole. `gpu_spec`, where it is
set, becomes a required node affinity on the model.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

NODES: Final = "openb_node_list_all_node.csv"
TASKS: Final = "openb_pod_list_default.csv"
GPU: Final = "example.com/gpu"
MODEL: Final = "example.com/gpu-model"
PODS_PER_NODE: Final = 256
Row = Mapping[str, str]
Manifest = dict[str, Any]


def node_manifest(row: Row) -> Manifest:
    """One line of the node list."""
    name, gpus = row["sn"], int(row["gpu"] or 0)
    labels = {"kubernetes.io/hostname": name}
    if row["model"]:
        labels[MODEL] = row["model"]
    amounts = {"cpu": f"{row['cpu_milli']}m", "memory": f"{row['memory_mib']}Mi", "pods": str(PODS_PER_NODE)}
    if gpus:
        amounts[GPU] = str(gpus)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def pod_manifest(row: Row) -> Manifest:
    """One line of the task list, as a pod that nobody has placed yet."""
    amounts = {"cpu": f"{row['cpu_milli']}m", "memory": f"{row['memory_mib']}Mi"}
    gpus = int(row["num_gpu"] or 0)
    if gpus:
        amounts[GPU] = str(gpus)
    spec: Manifest = {
        "containers": [{"name": "task", "resources": {"requests": amounts, "limits": _limits(gpus)}}]
    }
    models = [model for model in row["gpu_spec"].split("|") if model]
    if models:
        spec["affinity"] = _one_of(models)
    labels = {"qos": row["qos"]} if row["qos"] else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": row["name"], "namespace": "openb", "labels": labels},
        "spec": spec,
    }


def _limits(gpus: int) -> dict[str, str]:
    # An extended resource must be limited to what is requested.
    return {GPU: str(gpus)} if gpus else {}


def _one_of(models: list[str]) -> Manifest:
    terms = [{"matchExpressions": [{"key": MODEL, "operator": "In", "values": models}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


def _rows(path: Path) -> Iterator[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def _write(path: Path, manifests: Iterable[Manifest]) -> int:
    items = list(manifests)
    listed = {"apiVersion": "v1", "kind": "List", "items": items}
    path.write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    return len(items)


def convert(data: Path, out: Path) -> tuple[int, int]:
    """Write `nodes.json` and `pods.json` into `out`; how many there are of each."""
    out.mkdir(parents=True, exist_ok=True)
    nodes = _write(out / "nodes.json", map(node_manifest, _rows(data / NODES)))
    pods = _write(out / "pods.json", map(pod_manifest, _rows(data / TASKS)))
    return nodes, pods


def main() -> None:
    """Read the arguments, convert, say what came out."""
    parser = argparse.ArgumentParser(description="openb trace -> manifests")
    parser.add_argument("--data", type=Path, required=True, help="folder with the trace's two CSV files")
    parser.add_argument("--out", type=Path, required=True, help="folder to write nodes.json and pods.json to")
    arguments = parser.parse_args()
    for name in (NODES, TASKS):
        if not (arguments.data / name).is_file():
            parser.error(f"{arguments.data / name} is missing: --data must be the folder of the trace")
    nodes, pods = convert(arguments.data, arguments.out)
    print(f"{nodes} nodes and {pods} pods in {arguments.out}; next: berth simulate -f {arguments.out}")


if __name__ == "__main__":
    main()
