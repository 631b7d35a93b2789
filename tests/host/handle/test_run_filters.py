"""`Handle.run_filters` under the whole host: a plugin in it, or in another process, gets the same answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.hosts import World, node, pod
from support.plugin_processes import plugin_process

Json = dict[str, Any]
MODULE = "support.asks_for_filters:AsksForFilters"


def configuration(where: str, folder: Path) -> str:
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins: {multiPoint: {enabled: [{name: AsksForFilters}]}}\n"
        f"  pluginConfig: [{{name: AsksForFilters, args: {{folder: {folder}}}}}]\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\n"
        f"plugins:\n- name: AsksForFilters\n  {where}\n  required: true\n"
        "  points: {filter: {deadline: 10s}, postFilter: {deadline: 10s}}\n"
    )


@pytest.fixture(params=["in process", "served"])
async def configured(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Yield a configuration with the plugin, in process or served."""
    if request.param == "in process":
        yield configuration(f"inProcess: '{MODULE}'", tmp_path)
        return
    async with plugin_process(tmp_path / "p.sock", MODULE) as process:
        yield configuration(f"endpoint: '{process.endpoint}'", tmp_path)


def running(name: str, node_name: str, cpu: str) -> Json:
    made = pod(name, cpu=cpu, nodeName=node_name)
    made["metadata"] |= {"labels": {"app": "web"}}
    return made


async def test_filters_judge_changed_nodes_and_new_ones(configured: str, tmp_path: Path) -> None:
    # Zone a has one pod more than zone b: a further one may go to zone b alone, or where it is the first.
    nodes = [node(f"n{i}", cpu="4", labels={"zone": zone}) for i, zone in enumerate("ab")]
    pods = [running("old", "n0", "3"), running("other", "n0", "0"), running("third", "n1", "3")]
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    web = pod("web", cpu="2", topologySpreadConstraints=[spread])
    web["metadata"]["labels"] = {"app": "web"}
    async with World([*nodes, *pods, web], configuration=configured) as world:
        await world.settle()
    text = await asyncio.to_thread((tmp_path / "log").read_text)
    answers, nothing, *refusals, again = json.loads(text)
    assert answers == [
        ["UNSCHEDULABLE", "Insufficient cpu"],
        ["SUCCESS", ""],
        ["SUCCESS", ""],
        ["UNSCHEDULABLE_AND_UNRESOLVABLE", "Insufficient cpu"],
        ["UNSCHEDULABLE", "node(s) didn't match pod topology spread constraints"],
        ["UNSCHEDULABLE_AND_UNRESOLVABLE", "node(s) had untolerated taint(s)"],
        ["UNSCHEDULABLE", "Insufficient cpu"],
        ["UNSCHEDULABLE", "Insufficient cpu"],
    ]
    assert nothing == []
    assert again == answers[:2]
    assert refusals == [
        "node 'nowhere' is not in the snapshot",
        "pod default/daemon (uid-daemon) is not on node 'n0'",
        "node 'n0' is in the snapshot: name it, or rename the new node",
        "pod default/old, which comes to the new node 'new', is on a node already: give it a uid of its own",
        "pod default/daemon, which comes to the new node 'new', comes twice: give it a uid of its own",
        "a scenario of node 'n0' lists pod default/old twice: list it once",
        "a scenario of node 'n0' lists pod default/daemon twice: list it once",
    ]
