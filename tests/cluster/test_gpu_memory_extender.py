"""The example's extender under the real kube-scheduler and under berth, and its plugin under berth: the same
placements on a real API server, pod by pod.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import measure
import pytest
import yaml
from berth_bench.versus.api import ApiClient
from berth_bench.versus.real_servers import ADMIN, SCHEDULER, RealServers, program
from berth_bench.versus.scheduler_process import SchedulerProcess, SchedulerSetup
from gpu_memory import GPU, GPUS, MEMORY
from support.examples import EXAMPLES
from support.observed.stage import api_of
from support.waiting import PATIENCE_S

pytestmark = pytest.mark.long

EXAMPLE = EXAMPLES / "gpu_memory_extender"
NODES = {"a": (1, 10), "b": (1, 20), "c": (1, 40), "plain": (0, 0)}
"""Of each node: GPUs, and GiB of each. No pod finds two nodes equally good."""
WANTED = {"p0": 10, "p1": 10, "p2": 10, "p3": 20, "p4": 20, "p5": 10}
PLACED = {"p0": ("a", "0"), "p1": ("b", "0"), "p2": ("b", "0"), "p3": ("c", "0"), "p4": ("c", "0")}
REFUSED = (
    "0/4 nodes are available: 1 node has no GPU as large as that, "
    "3 no GPU of the node has enough memory left."
)
WITHIN_S = PATIENCE_S


@asynccontextmanager
async def open_api(servers: RealServers) -> AsyncIterator[str]:
    """Run `kubectl proxy`, which answers without credentials; yield its address."""
    process = await asyncio.create_subprocess_exec(
        *(program("kubectl"), "proxy", "--port=0", f"--kubeconfig={servers.kubeconfig(ADMIN)}"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
        yield f"http://{line.removeprefix('Starting to serve on ').strip()}"
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def scheduling(servers: RealServers, scheduler: str, step: str, folder: Path) -> AsyncIterator[None]:
    """Run a scheduler with the file of one step, and the extender that the file names."""
    documents = list(yaml.safe_load_all((EXAMPLE / f"{step}.yaml").read_text(encoding="utf-8")))
    documents[0]["leaderElection"] = {"leaderElect": False}
    async with open_api(servers) as api_url, measure.extender_process(api_url) as extender_url:
        for extender in documents[0].get("extenders", ()):
            extender["urlPrefix"] = extender_url
        setup = SchedulerSetup(
            program=scheduler if scheduler == "berth" else str(program(scheduler)),
            # The plugin lets its host write to pods, which kube-scheduler's user may not.
            kubeconfig=servers.kubeconfig(SCHEDULER if documents[0].get("extenders") else ADMIN),
            folder=folder,
            configuration=yaml.safe_dump(documents[0]),
            more_documents=yaml.safe_dump_all(documents[1:]) if documents[1:] else "",
        )
        process = SchedulerProcess(setup)
        try:
            await process.start()
            await process.ready()
            yield
        finally:
            await process.stop()


def node(name: str, gpus: int, gib: int) -> dict[str, Any]:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"} | ({MEMORY: str(gpus * gib)} if gpus else {})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {GPUS: str(gpus)} if gpus else {}},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str, gib: int) -> dict[str, Any]:
    amounts = {MEMORY: str(gib)}
    resources = {"requests": {"cpu": "100m", **amounts}, "limits": amounts}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "inference", "resources": resources}]},
    }


async def outcome(api: ApiClient, name: str) -> tuple[str, str] | str | None:
    """Return the pod's node and GPU, or why it is pending; None: it was not tried yet."""
    found = await api.get("Pod", name)
    assert found is not None
    if node_name := found["spec"].get("nodeName"):
        return node_name, (found["metadata"].get("annotations") or {}).get(GPU, "")
    conditions = {item["type"]: item for item in found["status"].get("conditions") or ()}
    said = conditions.get("PodScheduled", {}).get("message")
    return None if said is None else f"{said.partition('.')[0]}."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheduler", "step"),
    [
        ("kube-scheduler", "step-0"),
        pytest.param("kube-scheduler", "step-1", marks=pytest.mark.long),
        pytest.param("berth", "step-0", marks=pytest.mark.long),
        ("berth", "step-2"),
    ],
)
async def test_pods_are_placed_alike(
    empty_servers: RealServers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scheduler: str,
    step: str,
) -> None:
    # Children of the scheduler find the plugin's module, and the command that serves it.
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLE))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    async with api_of(empty_servers) as api:
        for name, (gpus, gib) in NODES.items():
            await api.create(node(name, gpus, gib))
        async with scheduling(empty_servers, scheduler, step, tmp_path):
            outcomes: dict[str, tuple[str, str] | str | None] = {}
            async with asyncio.timeout(WITHIN_S):
                for name, gib in WANTED.items():
                    await api.create(pod(name, gib))
                    while outcomes.get(name) is None:
                        outcomes[name] = await outcome(api, name)
    assert outcomes == {**PLACED, "p5": REFUSED}
