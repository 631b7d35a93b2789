"""The result of a run: progress, costs, and plugins that could not be asked."""

from __future__ import annotations

import sys
from typing import Any

import yaml
from berth_sim.commands.simulation import Finished, Request, prepare, run
from support.commands import in_process
from support.device_objects import device, device_class, exactly, resource_slice
from support.manifest_objects import node_object, pod_object

from .conftest import Write


async def simulated(*objects: Any, config: str | None = None) -> tuple[Finished, list[int]]:
    text = yaml.safe_dump_all(objects)
    bound: list[int] = []
    request = Request(paths=["-"], config=config, seed=0, read_stdin=lambda: text)
    return await run(prepare(request), bound.append), bound


async def test_each_binding_is_reported_when_it_happens() -> None:
    there = pod_object("there", nodeName="a")
    _, bound = await simulated(node_object("a"), there, *(pod_object(f"p{i}") for i in range(3)))
    assert bound == [1, 2, 3]


async def test_speed_counts_what_this_run_has_bound() -> None:
    there = pod_object("there", nodeName="a")
    done, _ = await simulated(node_object("a"), there, pod_object("web"))
    summary = done.report.summary
    assert (summary.placed, summary.newly_placed) == (2, 1)
    assert summary.pods_per_s == summary.newly_placed / summary.seconds


async def test_pods_get_the_claims_of_their_templates() -> None:
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpu", "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [exactly()]}}},
    }
    entry = {"name": "g", "resourceClaimTemplateName": "gpu"}
    pods = [pod_object(name, resourceClaims=[entry]) for name in ("a", "b")]
    devices = resource_slice("node", [device("d0")])
    done, bound = await simulated(node_object("node"), devices, device_class(), template, *pods)
    assert bound == [1]  # there is one device
    claims = done.server.list("resource.k8s.io/resourceclaims")
    assert len(claims) == 2
    assert sum(claim.get("status.allocation") is not None for claim in claims) == 1


async def test_costs_name_in_process_and_served_plugins(write: Write) -> None:
    scheduler, own = in_process(NodeName="unused:Unused")
    scheduler["profiles"][0]["plugins"] = {}
    command = [sys.executable, "-m", "berth_sdk", "serve", "NodeName"]
    own["plugins"] = [{"name": "NodeName", "command": command, "points": {"preFilter": {"deadline": "10s"}}}]
    own["cycleBudget"] = "60s"
    config = write(scheduler, own, name="config.yaml")
    done, _ = await simulated(node_object("a"), pod_object("web"), config=config)
    rows = {(cost.plugin, cost.call): cost for cost in done.costs}
    assert rows[("NodeName", "PreFilter")].served
    assert rows[("NodeName", "PreFilter")].calls == 1
    assert rows[("NodeName", "PreFilter")].mean_ms > 0
    assert not rows[("NodeResourcesFit", "Filter")].served
    assert done.lapses == []


async def test_plugin_that_does_not_start_is_named_with_its_reason(write: Write) -> None:
    scheduler, own = in_process(Mine="unused:Unused")
    scheduler["profiles"][0]["plugins"] = {"filter": {"enabled": [{"name": "Mine"}]}}
    own["plugins"] = [{"name": "Mine", "command": [sys.executable, "-c", "raise SystemExit('no licence')"]}]
    config = write(scheduler, own, name="config.yaml")
    done, _ = await simulated(node_object("a"), pod_object("web"), config=config)
    warning, failed = done.lapses
    assert failed == (
        "plugin Mine failed in 5 of 5 calls of Filter: it was absent; no pod was placed without its answer"
    )
    assert warning.startswith("plugin Mine (")
    assert "is not attached: " in warning
    assert "no licence" in warning
    assert done.report.placements == ()
