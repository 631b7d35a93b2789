"""One plugin class in process and over gRPC: it gets the same calls, and the pods end up the same."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from berth_sdk.kube_object import ObjectRef
from berth_sdk.plugin.v1 import identity_pb2
from support.hosts import World, node, pod
from support.plugin_processes import plugin_process

POINTS = (
    "preEnqueue",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "postBind",
)
WAITS = "p-waits"
POINTS_OF_GROUPS = {
    "PLACEMENT_GENERATE",
    "PLACEMENT_SCORE",
    "NORMALIZE_PLACEMENT_SCORE",
    "PLACEMENT_FEASIBLE",
    "POD_GROUP_POST_FILTER",
}
"""The points that only groups pass: `tests/host/rpc/test_group_client.py` asks them both ways."""
CALLS_OF_POINT = {
    "PRE_ENQUEUE": {"pre_enqueue"},
    "QUEUE_SORT": {"sort_key"},
    "PRE_FILTER": {"pre_filter"},
    "FILTER": {"filter"},
    "POST_FILTER": {"post_filter"},
    "PRE_SCORE": {"pre_score"},
    "SCORE": {"score"},
    "NORMALIZE_SCORE": {"normalize"},
    "RESERVE": {"reserve", "unreserve"},
    "PERMIT": {"permit"},
    "PRE_BIND": {"pre_bind", "pre_bind_pre_flight"},
    "BIND": {"bind"},
    "POST_BIND": {"post_bind"},
}


def configuration(log: Path, where: str) -> str:
    """Everything at every point, before all others."""
    enabled = "".join(f"    {point}: {{enabled: [{{name: Everything}}]}}\n" for point in POINTS)
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles:\n- plugins:\n{enabled}"
        "    queueSort: {enabled: [{name: Everything}], disabled: [{name: PrioritySort}]}\n"
        "    bind: {enabled: [{name: Everything}, {name: DefaultBinder}], disabled: [{name: '*'}]}\n"
        f"  pluginConfig:\n  - name: Everything\n    args: {{log: {log}}}\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        f"cycleBudget: 30s\nplugins:\n- name: Everything\n  {where}\n  required: true\n  points:\n"
        + "".join(f"    {point}: {{deadline: 10s}}\n" for point in POINTS)
    )


def wishes(**labels: str) -> dict[str, str]:
    return {f"everything/{key}": value for key, value in labels.items()}


def workload() -> list[dict[str, Any]]:
    """Pods that bring the plugin to say everything that it can say."""
    wanted = {
        "a-plain": {},
        "b-gated": wishes(pre_enqueue="unschedulable"),
        "c-pre-filter": wishes(pre_filter="unresolvable"),
        "d-skipped": wishes(pre_filter="skip"),
        "e-only": wishes(only="n1"),
        "f-filter": wishes(filter="unresolvable"),
        "g-no-score": wishes(pre_score="skip"),
        "h-reserve": wishes(reserve="unschedulable"),
        "i-denied": wishes(permit="unschedulable"),
        "j-no-flight": wishes(pre_flight="skip"),
        "k-patched": wishes(patch="yes"),
        "l-passed-on": wishes(bind="skip"),
        "m-nothing": wishes(filter="unschedulable", hint="skip"),
        "n-pre-bind": wishes(pre_bind="unschedulable"),
        "o-bind": wishes(bind="unschedulable"),
        WAITS: wishes(permit="wait"),
        "q-releases": wishes(permit="release"),
    }
    return [pod(name, labels=labels) for name, labels in wanted.items()]


async def run(text: str, log: Path) -> tuple[dict[str, Any], Counter[str]]:
    """Return the outcome of every pod, and the calls of the plugin."""
    nodes = [node(f"n{i}") for i in range(3)] + [node("n9", labels={"bad": "yes"})]
    async with World(nodes, configuration=text) as world:
        # Which pod comes first shows in all that follows, and outside it depends on whose answers of the
        # queue's questions are back first: one pod after the other.
        for manifest in workload():
            world.server.create(manifest)
            if manifest["metadata"]["name"] == WAITS:
                await world.until_waiting(1)
            else:
                await world.settle()
        await world.cluster.patch("nodes", ObjectRef(name="n9"), {"metadata": {"labels": {"x": "y"}}})
        await world.settle()
        outcome: dict[str, Any] = {}
        for item in world.server.list("pods"):
            name = item.ref.name
            outcome[name] = (
                world.node_of(name),
                world.message_of(name),
                item.get("metadata.annotations", {}),
            )
        assert world.host.plugin_stats()["Everything"].violations == 0
    return outcome, read_log(log)


def read_log(log: Path) -> Counter[str]:
    """Return the number of each call.

    Calls of the queue count once. For a served plugin they are deferred, and repeated for a pod that changes
    meanwhile: the host writes the pod's status after each failure.
    """
    asked = Counter(log.read_text().splitlines())
    return Counter(
        {line: 1 if json.loads(line)[0] in ("sort_key", "pre_enqueue") else n for line, n in asked.items()}
    )


@pytest.fixture
async def both(tmp_path: Path) -> Any:
    """(outcome, log) in process, and over a socket."""
    inside, outside = tmp_path / "inside.log", tmp_path / "outside.log"
    local = await run(configuration(inside, "inProcess: support.everything:Everything"), inside)
    async with plugin_process(tmp_path / "p.sock", "support.everything:Everything") as process:
        served = await run(configuration(outside, f"endpoint: {process.endpoint}"), outside)
    return local, served


@pytest.mark.slow
async def test_every_point_gets_and_decides_the_same_in_process_and_served(both: Any) -> None:
    (local_outcome, local_asked), (served_outcome, served_asked) = both
    assert served_outcome == local_outcome
    assert served_asked - local_asked == Counter()
    assert local_asked - served_asked == Counter()
    called = {json.loads(line)[0] for line in local_asked}
    for value in identity_pb2.ExtensionPoint.DESCRIPTOR.values:
        point = value.name.removeprefix("EXTENSION_POINT_")
        if value.number and point not in POINTS_OF_GROUPS:
            assert CALLS_OF_POINT[point] <= called, f"{point} was never asked"
    assert called - {"release", "queueing_hint"} == set().union(*CALLS_OF_POINT.values())
    assert "queueing_hint" in called


@pytest.mark.slow
async def test_pods_end_as_their_labels_demand(both: Any) -> None:
    (outcome, _), _ = both
    bound = {name for name, (node_name, _, _) in outcome.items() if node_name}
    assert bound == {
        "a-plain",
        "d-skipped",
        "e-only",
        "g-no-score",
        "j-no-flight",
        "k-patched",
        "l-passed-on",
        "p-waits",
        "q-releases",
    }
    assert outcome["e-only"][0] == "n1"
    assert outcome["k-patched"][2] == {"patched": "yes"}
    assert outcome["h-reserve"][1] == "0/1 nodes are available: 1 reserve says no."
    assert outcome["f-filter"][1].startswith("0/4 nodes are available: 4 filter says never.")
