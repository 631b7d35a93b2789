"""One seed gives one set of placements, whatever the order of hashes and of tasks."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from berth_sim.commands.simulation import Request, prepare, run
from support.shuffling_loop import ShufflingLoop

NODES = 40


def tight_cluster() -> dict[str, Any]:
    """Return a full cluster, and pods that find room only where others leave."""
    items: list[dict[str, Any]] = []
    for i in range(NODES):
        amounts = {"cpu": "6400m", "memory": "32Gi", "pods": "110"}
        name = f"node-{i:04d}"
        items.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name},
                "status": {"allocatable": amounts},
            }
        )
        items += [_pod(f"old-{i}-{k}", "1000m", k % 3, nodeName=name) for k in range(6)]
    items += [_pod(f"vip-{i}", ("2500m", "1500m", "3500m")[i % 3], 50 + 50 * (i % 2)) for i in range(60)]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _pod(name: str, cpu: str, priority: int, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"priority": priority, "containers": [container], **spec},
    }


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "in.json"
    path.write_text(json.dumps(tight_cluster()))
    return path


def placed(report: dict[str, Any]) -> dict[str, Any]:
    """Return the decisions, without measured figures."""
    return {key: report[key] for key in ("placements", "pending")}


@pytest.mark.parametrize("shuffles", [(0, 1), pytest.param((0, 2, 3, 4, 5), marks=pytest.mark.long)])
def test_shuffled_tasks_of_the_event_loop_change_no_placement(
    manifest: Path, shuffles: tuple[int, ...]
) -> None:
    found = []
    for shuffle in shuffles:
        ready = prepare(Request(paths=[str(manifest)], config=None, seed=7, read_stdin=str))
        with asyncio.Runner(loop_factory=lambda: ShufflingLoop(shuffle)) as runner:  # noqa: B023 (runs at once)
            found.append(placed(runner.run(run(ready)).report.as_json()))
    assert any("preempted by" in pod["message"] for pod in found[0]["pending"])
    assert all(one == found[0] for one in found)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [("1", "2"), pytest.param(("1", "3", "4"), marks=pytest.mark.long)])
def test_another_order_of_hashes_changes_no_placement(manifest: Path, seeds: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "berth_host", "simulate", str(manifest), "--seed", "7", "-o", "json"]
    found = [
        placed(
            json.loads(
                subprocess.run(
                    command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
                ).stdout
            )
        )
        for seed in seeds
    ]
    assert all(one == found[0] for one in found)


def test_another_seed_gives_other_placements(manifest: Path) -> None:
    found = []
    for seed in (7, 8):
        ready = prepare(Request(paths=[str(manifest)], config=None, seed=seed, read_stdin=str))
        found.append(placed(asyncio.run(run(ready)).report.as_json()))
    assert found[0] != found[1]
