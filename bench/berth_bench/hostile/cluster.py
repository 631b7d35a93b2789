"""The cluster of every case, the plain pod that follows a hostile one, and how a pod's answer is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from berth_bench.hostile.cases import APP, HIGH, SCARCE, ZONE, Json
from berth_bench.hostile.figures import Answer
from berth_bench.versus.objects import node, pod

_ZONES: Final = 3


def objects(nodes: int) -> Iterator[Json]:
    """Yield nodes in three zones, each with one piece of SCARCE, and the PriorityClass HIGH."""
    for number in range(nodes):
        made = node(f"node-{number}", **{ZONE: f"zone-{number % _ZONES}"})
        for amounts in made["status"].values():
            amounts[SCARCE] = "1"
        yield made
    api_version = "scheduling.k8s.io/v1"
    yield {"apiVersion": api_version, "kind": "PriorityClass", "metadata": {"name": HIGH}, "value": 1000}


def following_pod() -> Json:
    """Return a plain pod with the labels of the hostile one."""
    made = pod("following")
    made["metadata"]["labels"] = dict(APP)
    return made


def answer_of(found: Json) -> Answer:
    """Return the answer that a pod's object shows; {}: there is no such pod."""
    if found.get("spec", {}).get("nodeName"):
        return Answer.BOUND
    conditions: list[dict[str, Any]] = found.get("status", {}).get("conditions") or []
    for condition in conditions:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return Answer.GATED if condition.get("reason") == "SchedulingGated" else Answer.UNSCHEDULABLE
    return Answer.NONE
