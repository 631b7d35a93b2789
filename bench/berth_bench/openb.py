"""Make manifests, and a workload of them, from the openb GPU cluster trace.

The trace (2023, Alibaba; github.com/alibaba/clusterdata) has a line per node and a line per task. Its phases
and times tell the fate of the tasks in that cluster; here every task is a pending pod. The manifests have
CPU, memory, the GPUs with their model, and how much of each GPU a task wants:

    gpu-share.berth.io/gpu          whole GPUs: allocatable, requests
    gpu-share.berth.io/gpu-milli    1000 per GPU: allocatable; the sum over a task's GPUs: requests
    gpu-share.berth.io/model        a node's label
    gpu-share.berth.io/gpu-count, gpu-milli, gpu-model    a task's annotations: how many GPUs, how much of
                                    each (1..1000), and of which models (`A|B`), if the trace has them

NodeResourcesFit alone counts whole GPUs. With a plugin that shares GPUs, it must ignore `gpu`
(`ignoredResources`).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from berth_host.errors.manifests import ManifestError, ManifestProblem

from berth_bench.workload import CreateObjects, Step, Workload

NODES: Final = "openb_node_list_all_node.csv"
TASKS: Final = "openb_pod_list_default.csv"
DOMAIN: Final = "gpu-share.berth.io"
GPU: Final = f"{DOMAIN}/gpu"
GPU_MILLI: Final = f"{DOMAIN}/gpu-milli"
GPU_COUNT: Final = f"{DOMAIN}/gpu-count"
GPU_MODEL: Final = f"{DOMAIN}/gpu-model"
MODEL_LABEL: Final = f"{DOMAIN}/model"
MILLI_PER_GPU: Final = 1000
PODS_PER_NODE: Final = 256
NAMESPACE: Final = "openb"
_NODE_FIELDS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_TASK_FIELDS: Final = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos")
Row = Mapping[str, str]
Manifest = dict[str, Any]


def node_manifest(row: Row) -> Manifest:
    """Return the manifest for one line of the node list."""
    name, gpus = row["sn"], int(row["gpu"] or 0)
    labels = {"kubernetes.io/hostname": name}
    amounts = {"cpu": f"{row['cpu_milli']}m", "memory": f"{row['memory_mib']}Mi", "pods": str(PODS_PER_NODE)}
    if gpus:
        labels[MODEL_LABEL] = row["model"]
        amounts |= {GPU: str(gpus), GPU_MILLI: str(MILLI_PER_GPU * gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def pod_manifest(row: Row) -> Manifest:
    """Return a pending pod for one line of the task list."""
    count, milli = int(row["num_gpu"] or 0), int(row["gpu_milli"] or 0)
    metadata: Manifest = {"name": row["name"], "namespace": NAMESPACE}
    if row["qos"]:
        metadata["labels"] = {"qos": row["qos"]}
    gpus: dict[str, str] = {}
    models = [model for model in row["gpu_spec"].split("|") if model]
    if count:
        gpus = {GPU: str(count), GPU_MILLI: str(count * milli)}
        metadata["annotations"] = {GPU_COUNT: str(count), GPU_MILLI: str(milli)}
        if models:
            metadata["annotations"][GPU_MODEL] = "|".join(models)
    requests = {"cpu": f"{row['cpu_milli']}m", "memory": f"{row['memory_mib']}Mi"} | gpus
    # The limit of an extended resource must equal its request.
    spec: Manifest = {"containers": [{"name": "task", "resources": {"requests": requests, "limits": gpus}}]}
    if models:
        spec["affinity"] = _one_of(models)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _one_of(models: list[str]) -> Manifest:
    terms = [{"matchExpressions": [{"key": MODEL_LABEL, "operator": "In", "values": models}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


def nodes_of(data: Path, count: int | None = None) -> list[Manifest]:
    """Return the nodes of the trace. With `count`, return that many, at even distances in the list (which is
    sorted by kind), and repeat lines if it has fewer. Raises ManifestError.
    """
    rows = list(_rows(data / NODES, _NODE_FIELDS))
    if count is None:
        return [node_manifest(row) for row in rows]
    rounds, rest = divmod(count, len(rows))
    chosen = [(i * len(rows) // rest, rounds) for i in range(rest)]
    chosen = [(i, again) for again in range(rounds) for i in range(len(rows))] + chosen
    return [node_manifest(_copy(rows[i], again)) for i, again in chosen]


def tasks_of(data: Path) -> list[Manifest]:
    """Return the tasks, in the order of the file. Raises ManifestError."""
    return [pod_manifest(row) for row in _rows(data / TASKS, _TASK_FIELDS)]


def workload_of(data: Path, nodes: int | None = None) -> Workload:
    """Return the workload: the nodes, then the tasks, which are measured. Raises ManifestError."""
    return Workload(
        name="openb",
        steps=(
            Step(title="the nodes of the trace", op=CreateObjects(manifests=tuple(nodes_of(data, nodes)))),
            Step(title="the tasks of the trace", op=CreateObjects(manifests=tuple(tasks_of(data)))),
        ),
        gpu_resource=GPU_MILLI,
    )


def _copy(row: Row, again: int) -> Row:
    return {**row, "sn": f"{row['sn']}-{again}"} if again else row


def _rows(path: Path, wanted: tuple[str, ...]) -> Iterator[Row]:
    number = 1
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            lacking = [name for name in wanted if name not in (reader.fieldnames or ())]
            if lacking:
                raise _failed(path, 1, f"lacks the columns {', '.join(lacking)}: give the trace's own file")
            for number, row in enumerate(reader, start=2):
                _check(path, number, row, wanted)
                yield row
            if number == 1:
                raise _failed(path, 1, "holds no line below its header")
    except OSError as err:
        text = f"cannot be read: {err.strerror}; the folder must hold {NODES} and {TASKS}"
        raise _failed(path, 0, text) from err
    except csv.Error as err:
        raise _failed(path, number, f"is not CSV: {err}: give the trace's own file") from err
    except UnicodeDecodeError as err:
        raise _failed(path, 0, f"is not UTF-8 text (byte {err.start})") from err


def _check(path: Path, number: int, row: Row, wanted: tuple[str, ...]) -> None:
    cut = [name for name in wanted if row[name] is None]
    if cut:
        raise _failed(path, number, f"ends before {cut[0]}: is the file whole?")
    for name in ("cpu_milli", "memory_mib", "gpu", "num_gpu", "gpu_milli"):
        value = row.get(name, "0")
        if not (value or "0").isdigit():
            raise _failed(path, number, f"{name} must be a whole number, and is {value!r}")


def _failed(path: Path, line: int, problem: str) -> ManifestError:
    return ManifestError([ManifestProblem(file=str(path), line=line, problem=problem)])
