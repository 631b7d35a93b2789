"""Checks placements independently: no node or GPU is over-committed, and no pending pod would fit.

    python examples/openb/check_placements.py --manifests DIR --result FILE
    python examples/openb/check_placements.py --manifests DIR --placements FILE

`--result`: the output of `berth simulate -o json`. `--placements`: the file of `berth bench
--dump-placements`. The program reads the manifests and the result, and uses none of berth's own code except
the parser of quantities. Exit 1 with one line per violation. It compares requests with allocatable, which is
all that the openb trace has. For a pending pod with node affinity or a node selector it checks only the
result's message.

`--shared-gpus`: GPUs were shared, so each GPU is checked by itself. A placed pod must name its GPUs
(`gpu-share.berth.io/gpu-index`): as many as it requests, all different and of a model that it names. The
requests on one GPU may not exceed 1000 milli. A pending pod would fit on a node where enough GPUs of such a
model have the requested amount left.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from berth_sdk.quantity import nano_value

Amounts = Mapping[str, int]
_DOMAIN: Final = "gpu-share.berth.io"
GPU: Final = f"{_DOMAIN}/gpu"
COUNT: Final = f"{_DOMAIN}/gpu-count"
MILLI: Final = f"{_DOMAIN}/gpu-milli"
INDEX: Final = f"{_DOMAIN}/gpu-index"
MODEL: Final = f"{_DOMAIN}/gpu-model"
MODEL_LABEL: Final = f"{_DOMAIN}/model"
WHOLE_MILLI: Final = 1000
_NANO: Final = 10**9


def objects(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield every object of the manifests, with lists unpacked."""
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text())
        yield from document["items"] if document["kind"].endswith("List") else [document]


def amounts(raw: Mapping[str, str]) -> Amounts:
    """Return quantities as billionths."""
    return {name: nano_value(value) for name, value in raw.items()}


def request_of(pod: Mapping[str, Any]) -> Amounts:
    """Return a pod's usage of its node, one of the node's pods included."""
    total: dict[str, int] = {"pods": nano_value(1)}
    for container in pod["spec"]["containers"]:
        for name, value in amounts(container.get("resources", {}).get("requests", {})).items():
            total[name] = total.get(name, 0) + value
    return total


def is_constrained(pod: Mapping[str, Any]) -> bool:
    """Return True if more than resources decides on which nodes the pod may run."""
    return bool(pod["spec"].get("affinity") or pod["spec"].get("nodeSelector"))


def read_placements(path: Path) -> dict[str, Any]:
    """Read `pod,node` lines into the form of a simulation's result. Further columns are
    `annotation=value`.
    """
    placements: list[dict[str, Any]] = []
    pending: list[dict[str, str]] = []
    with path.open(newline="", encoding="utf-8") as file:
        for number, line in enumerate(csv.reader(file), start=1):
            if len(line) < 2 or not all("=" in item for item in line[2:]):
                raise ValueError(f"{path}:{number}: must be pod,node and then annotation=value columns")
            pod, node, *annotations = line
            if node:
                own = dict(item.split("=", 1) for item in annotations)
                placements.append({"pod": pod, "node": node, "annotations": own})
            else:
                pending.append({"pod": pod, "message": "not told"})
    return {"placements": placements, "pending": pending}


def wanted_gpus(pod: Mapping[str, Any]) -> tuple[int, int]:
    """Return (how many GPUs, how much of each in milli) a pod requests."""
    annotations = pod["metadata"].get("annotations") or {}
    requested = request_of(pod).get(GPU, 0) // _NANO
    count = int(annotations.get(COUNT, requested or int(MILLI in annotations)))
    return count, int(annotations.get(MILLI, WHOLE_MILLI))


def suits(pod: Mapping[str, Any], model: str) -> bool:
    """Return True if the pod may have GPUs of this model."""
    wanted = (pod["metadata"].get("annotations") or {}).get(MODEL, "")
    return not wanted or model in wanted.split("|")


def violations(folder: Path, result: Mapping[str, Any], *, shared_gpus: bool = False) -> Iterator[str]:
    """Yield one line per violation."""
    nodes: dict[str, Amounts] = {}
    models: dict[str, str] = {}
    pods: dict[str, Mapping[str, Any]] = {}
    for item in objects(folder):
        name = item["metadata"]["name"]
        if item["kind"] == "Node":
            nodes[name] = amounts(item["status"]["allocatable"])
            models[name] = (item["metadata"].get("labels") or {}).get(MODEL_LABEL, "")
        elif item["kind"] == "Pod":
            pods[f"{item['metadata'].get('namespace', 'default')}/{name}"] = item
    yield from _wrongly_listed(result, pods, nodes)
    placements = [item for item in result["placements"] if item["pod"] in pods and item["node"] in nodes]
    ignored = {GPU} if shared_gpus else set()
    used: dict[str, dict[str, int]] = {name: defaultdict(int) for name in nodes}
    for placement in placements:
        for name, value in request_of(pods[placement["pod"]]).items():
            used[placement["node"]][name] += value
    for node, taken in used.items():
        for name, value in taken.items():
            if name not in ignored and value > nodes[node].get(name, 0):
                yield f"node {node}: {name} over-committed, {value} of {nodes[node].get(name, 0)} billionths"
    gpus = {node: [WHOLE_MILLI] * (held.get(GPU, 0) // _NANO) for node, held in nodes.items()}
    if shared_gpus:
        for placement in placements:
            pod = pods[placement["pod"]]
            yield from _take_gpus(placement, pod, gpus)
            if not suits(pod, models[placement["node"]]):
                yield f"pod {placement['pod']} got GPUs of model {models[placement['node']] or '(none)'}"
        for node, left in gpus.items():
            for index, milli in enumerate(left):
                if milli < 0:
                    yield f"node {node}: GPU {index} over-committed by {-milli} milli"
    free = {node: {name: nodes[node][name] - used[node][name] for name in nodes[node]} for node in nodes}
    for item in result["pending"]:
        if not item["message"]:
            yield f"pod {item['pod']} is pending without a reason"
        if item["pod"] not in pods:
            continue
        pod = pods[item["pod"]]
        wanted = {name: value for name, value in request_of(pod).items() if name not in ignored}
        fits = [
            node
            for node, left in free.items()
            if all(left.get(name, 0) >= value for name, value in wanted.items())
            and suits(pod, models[node])
            and (not shared_gpus or _has_gpus(pod, gpus[node]))
        ]
        if fits and not is_constrained(pod):
            yield f"pod {item['pod']} is pending, and fits on {fits[0]}"


def _wrongly_listed(
    result: Mapping[str, Any], pods: Mapping[str, Any], nodes: Mapping[str, Any]
) -> Iterator[str]:
    """Yield a line for each pod of the manifests that is not reported exactly once, and for each pod or node
    that is in no manifest.
    """
    listed = Counter(item["pod"] for item in (*result["placements"], *result["pending"]))
    if set(listed) != set(pods):
        yield f"{len(listed)} pods are listed, the manifests have {len(pods)}"
    for pod, count in listed.items():
        if pod not in pods:
            yield f"pod {pod} is in no manifest"
        if count > 1:
            yield f"pod {pod} is listed {count} times"
    for item in result["placements"]:
        if item["node"] not in nodes:
            yield f"pod {item['pod']} is on node {item['node']}, which is in no manifest"


def _take_gpus(
    placement: Mapping[str, Any], pod: Mapping[str, Any], gpus: dict[str, list[int]]
) -> Iterator[str]:
    """Take the pod's GPUs from its node, and yield a line for wrong GPU numbers."""
    count, milli = wanted_gpus(pod)
    text = (placement.get("annotations") or {}).get(INDEX, "")
    parts = [part for part in text.split(",") if part]
    if not all(part.isdecimal() for part in parts):
        yield f"pod {placement['pod']} got {text}, which are no GPU indices"
        return
    indices = [int(part) for part in parts]
    left = gpus[placement["node"]]
    if len(set(indices)) != count or len(indices) != count:
        yield f"pod {placement['pod']} wants {count} GPUs and got {text or 'none'}"
    for index in indices:
        if index < len(left):
            left[index] -= milli
        else:
            yield f"pod {placement['pod']}: node {placement['node']} has no GPU {index}"


def _has_gpus(pod: Mapping[str, Any], left: list[int]) -> bool:
    count, milli = wanted_gpus(pod)
    return sum(one >= milli for one in left) >= count


def main() -> int:
    """Check one result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--manifests", type=Path, required=True, help="folder of the input")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--result", type=Path, help="the output of berth simulate -o json")
    what.add_argument("--placements", type=Path, help="the file of berth bench --dump-placements")
    parser.add_argument("--shared-gpus", action="store_true", help="check each GPU, not the count of them")
    arguments = parser.parse_args()
    try:
        if arguments.placements is not None:
            result = read_placements(arguments.placements)
        else:
            result = json.loads(arguments.result.read_text())
        found = list(violations(arguments.manifests, result, shared_gpus=arguments.shared_gpus))
        counts = f"{len(result['placements'])} placed, {len(result['pending'])} pending"
    except (OSError, ValueError) as err:
        print(err, file=sys.stderr)
        return 2
    except (LookupError, TypeError, AttributeError) as err:
        print(f"the files are not what berth wrote ({type(err).__name__}: {err})", file=sys.stderr)
        return 2
    for line in found:
        print(line)
    print(f"{counts}, {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
