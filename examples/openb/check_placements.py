"""Checks `berth simulate -o json` from outside: no node over-committed, nothing pending that would fit.

    python examples/openb/check_placements.py --manifests DIR --result FILE

Reads the manifests and the result, and nothing of berth's own code but the parser of quantities. Exit 1
with one line per violation. It knows requests and allocatable, which is all that the openb trace has; of a
pending pod with node affinity or a node selector only the message is checked.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from berth_sdk.quantity import nano_value

Amounts = Mapping[str, int]


def objects(folder: Path) -> Iterator[dict[str, Any]]:
    """Every object of the manifests, lists unpacked."""
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text())
        yield from document["items"] if document["kind"].endswith("List") else [document]


def amounts(raw: Mapping[str, str]) -> Amounts:
    """Quantities as billionths."""
    return {name: nano_value(value) for name, value in raw.items()}


def request_of(pod: Mapping[str, Any]) -> Amounts:
    """What a pod takes of its node, its place among the pods included."""
    total: dict[str, int] = {"pods": nano_value(1)}
    for container in pod["spec"]["containers"]:
        for name, value in amounts(container.get("resources", {}).get("requests", {})).items():
            total[name] = total.get(name, 0) + value
    return total


def is_constrained(pod: Mapping[str, Any]) -> bool:
    """Whether more than resources decides where the pod may run."""
    return bool(pod["spec"].get("affinity") or pod["spec"].get("nodeSelector"))


def violations(folder: Path, result: Mapping[str, Any]) -> Iterator[str]:
    """One line per thing that is wrong."""
    nodes: dict[str, Amounts] = {}
    pods: dict[str, Mapping[str, Any]] = {}
    for item in objects(folder):
        name = item["metadata"]["name"]
        if item["kind"] == "Node":
            nodes[name] = amounts(item["status"]["allocatable"])
        elif item["kind"] == "Pod":
            pods[f"{item['metadata'].get('namespace', 'default')}/{name}"] = item
    used: dict[str, dict[str, int]] = {name: defaultdict(int) for name in nodes}
    for placement in result["placements"]:
        for name, value in request_of(pods[placement["pod"]]).items():
            used[placement["node"]][name] += value
    listed = [item["pod"] for item in (*result["placements"], *result["pending"])]
    if sorted(listed) != sorted(pods):
        yield f"{len(listed)} pods are listed, the manifests have {len(pods)}"
    for node, taken in used.items():
        for name, value in taken.items():
            if value > nodes[node].get(name, 0):
                yield f"node {node}: {name} over-committed, {value} of {nodes[node].get(name, 0)} billionths"
    free = {node: {name: nodes[node][name] - used[node][name] for name in nodes[node]} for node in nodes}
    for item in result["pending"]:
        if not item["message"]:
            yield f"pod {item['pod']} is pending without a reason"
        pod = pods[item["pod"]]
        wanted = request_of(pod)
        fits = [
            node
            for node, left in free.items()
            if all(left.get(name, 0) >= value for name, value in wanted.items())
        ]
        if fits and not is_constrained(pod):
            yield f"pod {item['pod']} is pending, and fits on {fits[0]}"


def main() -> int:
    """Check one result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--manifests", type=Path, required=True, help="folder of the input")
    parser.add_argument("--result", type=Path, required=True, help="what berth simulate -o json printed")
    arguments = parser.parse_args()
    result = json.loads(arguments.result.read_text())
    found = list(violations(arguments.manifests, result))
    for line in found:
        print(line)
    print(f"{len(result['placements'])} placed, {len(result['pending'])} pending, {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
