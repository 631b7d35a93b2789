"""`make demo`: its cluster, its configuration, and what it tells a newcomer."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from berth_host.config.loading import load_configuration
from berth_host.model.clock import ManualClock
from berth_sim.cluster.server import ApiServer
from berth_sim.manifests.loading import load
from support.examples import EXAMPLES
from support.places import ROOT

DEMO = EXAMPLES / "demo"
GPU = "gpu-share.berth.io/gpu"


@pytest.fixture(scope="module")
def server() -> ApiServer:
    server = ApiServer(ManualClock(1_800_000_000))
    loaded = load([str(DEMO / "cluster"), str(DEMO / "gangs.yaml")], server, lambda: "")
    assert loaded.warnings == ()
    return server


def test_demo_cluster_has_many_nodes_and_workloads(server: ApiServer) -> None:
    nodes = server.list("nodes")
    zones = {node.get("metadata.labels")["topology.kubernetes.io/zone"] for node in nodes}
    shapes = {tuple(sorted(node.get("status.allocatable").items())) for node in nodes}
    assert len(zones) == 3
    assert len(shapes) >= 3
    assert any(node.get("spec.taints") for node in nodes)
    pods = server.list("pods")
    assert len(pods) >= 200
    owners = Counter(pod.get("metadata.ownerReferences", [{}])[0].get("kind") for pod in pods)
    assert owners.keys() >= {"ReplicaSet", "StatefulSet", "Job", None}


def test_each_pod_group_of_the_demo_needs_more_than_half_of_the_gpus(server: ApiServer) -> None:
    gpus = sum(int(node.get("status.allocatable").get(GPU, 0)) for node in server.list("nodes"))
    members = Counter(pod.get("spec.schedulingGroup.podGroupName") for pod in server.list("pods"))
    groups = server.list("scheduling.k8s.io/podgroups")
    assert len(groups) == 2
    for group in groups:
        least = group.get("spec.schedulingPolicy.gang.minCount")
        assert least == members[group.ref.name] > gpus / 2


def test_host_starts_the_demo_plugins_as_processes() -> None:
    text = (DEMO / "scheduler.yaml").read_text()
    berth = load_configuration(text, source="scheduler.yaml").berth
    assert {plugin.name for plugin in berth.plugins} == {"BlinkingLightScorer", "GpuShare", "Maintenance"}
    assert all(plugin.command for plugin in berth.plugins)


@pytest.mark.long
@pytest.mark.slow
def test_demo_output_fits_the_terminal() -> None:
    """Only the commands to type and the header's styles may be longer than the terminal is wide."""
    host, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 90, 0, 0))
    left_out = ("COLUMNS", "NO_COLOR", "FORCE_COLOR")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with subprocess.Popen(
        [sys.executable, "examples/demo/demo.py"],
        cwd=ROOT,
        env=environment | {"PATH": path, "TERM": "xterm"},
        stdout=side,
        stderr=side,
    ) as process:
        os.close(side)
        said = b""
        # A terminal whose last writer has gone answers with an error.
        with suppress(OSError):
            while part := os.read(host, 65536):
                said += part
        assert process.wait(60) == 0, said.decode()
    os.close(host)
    text = said.decode().replace("\r\n", "\n")
    told, _, _ = text.partition("What now")
    assert "\x1b[1mWhy some pods are pending" in told
    assert "\x1b[33m  data/warehouse-rebuild\x1b[0m\n" in told
    assert max(len(line) for line in re.sub(r"\x1b\[\d+m", "", told).splitlines()) <= 90


@pytest.mark.slow
def test_demo_output_has_placements_reasons_and_costs() -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "examples/demo/demo.py"],
        cwd=ROOT,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    text = done.stdout
    assert text.startswith("berth: a Kubernetes scheduler whose plugins run in other processes\n")
    for part in (
        "Where the pods went",
        "Deployment/shop/web: 60 pods on ",
        "Maintenance kept every pod off general-b-3.",
        "GpuShare put 10 notebooks, each with a fifth of a GPU, on 2 GPUs: ",
        "minCount (5) cannot be satisfied: 1 scheduled, 3 remaining",
        "nearest fit: ",
        "gated: waiting for scheduling gates: example.com/release-approval",
        "What each plugin cost",
    ):
        assert part in text
    groups = [line.split() for line in text.splitlines() if line.startswith("    train-")]
    assert groups == [
        ["train-vision", "5", "-", "-"],
        ["train-language", "-", "5", "-"],
        ["train-vision", "-", "-", "5"],
        ["train-language", "5", "-", "-"],
    ]
    rows = [line.split() for line in text.splitlines() if " own process " in line]
    called = {(row[0], row[3]) for row in rows}
    assert called >= {("BlinkingLightScorer", "Score"), ("GpuShare", "Reserve"), ("Maintenance", "Filter")}
    assert {row[-1] for row in rows} == {"-"}, "a call of an example plugin failed"
