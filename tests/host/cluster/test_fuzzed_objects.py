"""Random and hostile objects on the embedded cluster: what it admits, the host counts and answers.

`tests/cluster/test_fuzz_objects.py` does the same with a real API server, which admits more of them.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest
from berth_bench.versus.objects import node
from berth_host.app import Host, HostOptions
from berth_host.config.loading import load_configuration
from berth_host.model.clock import RealClock
from berth_sim.cluster.server import ApiServer
from berth_sim.commands import simulation
from support.fuzzed.embedded import is_admitted
from support.fuzzed.objects import CLASS, NODES, WIDGET, Fuzz
from support.fuzzed.recount import MOST, by_node
from support.waiting import PATIENCE_S

STEPS = 200
MOST_BYTES = 20_000
WITHIN_S = PATIENCE_S
CONFIGURATION = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def cluster() -> ApiServer:
    server = ApiServer(RealClock())
    for number in range(NODES):
        made = node(f"node-{number}", zone=f"z{number % 2}")
        made["status"]["allocatable"] |= {WIDGET: "4", "ephemeral-storage": "100Gi"}
        server.create(made)
    for kind, version, more in (
        ("DeviceClass", "resource.k8s.io/v1", {"spec": {}}),
        ("PriorityClass", "scheduling.k8s.io/v1", {"value": 1000}),
    ):
        server.create({"apiVersion": version, "kind": kind, "metadata": {"name": CLASS}, **more})
    return server


def wrong(host: Host, server: ApiServer) -> list[str]:
    """Return where the host's accounts and answers differ from the objects of the cluster."""
    host.check()
    pods = [dict(pod.parsed) for pod in server.list("pods")]
    expected = by_node(pods)
    found = []
    for info in host.cache.node_infos():
        right = expected.get(info.name, Counter())
        for name in {*right, *info.requested} - {"pods"}:
            if right[name] < MOST and info.requested.get(name, 0) != right[name]:
                found.append(f"{info.name}: {info.requested.get(name, 0)} of {name}, not {right[name]}")
        if len(info.pods) != right["pods"]:
            found.append(f"{info.name}: {len(info.pods)} pods, not {right['pods']}")
    gated = {info.pod.uid for info in host.queue.pods() if info.gating_plugin}
    for pod in pods:
        status, metadata = pod["status"], pod["metadata"]
        waits = not pod["spec"].get("nodeName") and status.get("phase") == "Pending"
        waits = waits and not metadata.get("deletionTimestamp") and not status.get("conditions")
        # A pod waits for its group without a condition.
        if waits and metadata["uid"] not in gated and "schedulingGroup" not in pod["spec"]:
            found.append(f"{metadata['name']} has no condition, and no plugin gates it")
    return found


@pytest.mark.parametrize("seed", [1, 2])
async def test_what_the_embedded_cluster_admits_is_counted_and_answered(seed: int) -> None:
    server = cluster()
    configuration = load_configuration(CONFIGURATION, source="test", feature_gates={"GenericWorkload": True})
    host = simulation.embedded_host(configuration, server, HostOptions(clock=RealClock()))
    await host.start()
    try:
        admitted = 0
        for step in Fuzz(seed, MOST_BYTES).steps(STEPS):
            admitted += is_admitted(server, step)
            await asyncio.sleep(0)
        assert admitted > STEPS / 2
        ends_s = time.monotonic() + WITHIN_S
        while (problems := wrong(host, server)) and time.monotonic() < ends_s:
            await asyncio.sleep(0.05)
        assert problems == []
    finally:
        await host.stop()
