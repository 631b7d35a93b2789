"""`berth bench versus` on real servers, small: every contender binds every pod, and these decide alike."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from berth_bench.versus import contenders, extender, processes
from berth_bench.versus.api import ApiClient, ApiError
from berth_bench.versus.contenders import Beside, Contender
from berth_bench.versus.figures import Turn
from berth_bench.versus.label_rank import CLOSED, RANK
from berth_bench.versus.real_servers import ADMIN, RealServers, missing_programs
from berth_bench.versus.scheduler_process import SchedulerError
from berth_bench.versus.workloads import RUNNING, WORKLOADS, Versus, chosen, node_manifests
from berth_bench.versus.yard import Yard
from berth_host.cli.main import berth
from click.testing import CliRunner
from support.bindings import Bindings
from support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.long

NODES, PODS = 40, 12
MANY = 400
"""Enough pods to measure the servers' CPU time, which has a resolution of hundredths of a second."""
needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="Go is not on PATH")


def small(name: str) -> Versus:
    (workload,) = chosen([name])
    return workload.resized(NODES, PODS)


@pytest.fixture
async def yard(empty_servers: RealServers, tmp_path: Path) -> AsyncIterator[Yard]:
    ready = Yard(empty_servers, tmp_path)
    await ready.have_nodes(NODES)
    yield ready
    await ready.close()


@pytest.fixture
async def gang_yard(empty_pod_group_servers: RealServers, tmp_path: Path) -> AsyncIterator[Yard]:
    ready = Yard(empty_pod_group_servers, tmp_path)
    await ready.have_nodes(NODES)
    yield ready
    await ready.close()


async def test_a_restart_is_measured_beside_running_pods_that_stay(
    yard: Yard, empty_servers: RealServers
) -> None:
    workload = small("Restart/5000Nodes").resized(None, None, running=90)
    for _ in range(2):
        await yard.have_running(workload.running)
    for contender in workload.contenders:
        turn = await yard.turn(contender, workload)
        assert turn.startup_s > 0
    api = ApiClient(empty_servers.url, empty_servers.tokens[ADMIN])
    running, _ = await api.all_of("Pod", RUNNING)
    others, _ = await api.all_of("Pod", "default")
    await api.close()
    assert Counter(pod["spec"]["nodeName"] for pod in running) == {
        f"node-{number}": 3 if number < 90 % NODES else 2 for number in range(NODES)
    }
    assert others == []


@pytest.mark.long
async def test_both_bind_the_gangs_and_leave_no_group_behind(
    gang_yard: Yard, empty_pod_group_servers: RealServers
) -> None:
    workload = replace(small("PodGroups/5000Nodes"), gang=5)
    for contender in workload.contenders:
        assert (await gang_yard.turn(contender, workload)).pods_per_s > 1
        late = await gang_yard.latency(contender, workload, 3)
        assert 0 < late.p50_ms <= late.worst_ms
    path = "/apis/scheduling.k8s.io/v1beta1/podgroups"
    assert empty_pod_group_servers.request("GET", path)["items"] == []


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [one.name for one in WORKLOADS if not (one.contenders[0].beside.value or one.gang)]
)
async def test_both_bind_the_pods_of_every_workload(yard: Yard, name: str) -> None:
    workload = small(name)
    for contender in workload.contenders:
        turn = await yard.turn(contender, workload)
        assert turn.pods_per_s > 1
        assert turn.memory_mb > 10
        # So few pods may cost berth less than one tick of the clock, 10 ms.
        assert contender.is_berth or turn.loop_cpu_ms_per_pod == 0.0
        if contender.beside is Beside.SHADOW:
            assert_shadow_compared_all(turn)
        else:
            assert (turn.beside_cpu_ms_per_pod, turn.beside_memory_mb) == (0.0, 0.0)


def assert_shadow_compared_all(turn: Turn) -> None:
    """Check the figures of a shadow that had time for every pod."""
    assert turn.beside_cpu_ms_per_pod > 0
    assert turn.beside_memory_mb > 10
    assert turn.compared == 1.0
    assert 0 < turn.agreed <= 1.0


@pytest.mark.long
async def test_shadow_is_measured_beside_kube_scheduler_until_it_has_compared_every_pod(yard: Yard) -> None:
    workload = small("Shadow/5000Nodes")
    turn = await yard.turn(contenders.KUBE_SCHEDULER_SHADOWED, workload)
    assert_shadow_compared_all(turn)
    assert (turn.loop_cpu_ms_per_pod, turn.startup_s) == (0.0, 0.0)
    late = await yard.latency(contenders.KUBE_SCHEDULER_SHADOWED, workload, 3)
    assert 0 < late.p50_ms <= late.worst_ms


async def test_error_of_the_creation_of_arriving_pods_is_reported(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = replace(small("Shadow/5000Nodes"), spec=lambda number: {"priority": "high"} if number else {})
    with pytest.raises(ApiError, match="400"):
        await yard.turn(contenders.KUBE_SCHEDULER, broken)


@needs_go
@pytest.mark.long
@pytest.mark.parametrize(
    "contender",
    [contenders.BERTH_PLUGIN, contenders.KUBE_SCHEDULER_CACHING, contenders.KUBE_SCHEDULER_EXTENDER],
    ids=lambda one: one.name,
)
async def test_plugin_and_extender_do_the_same_work_and_are_counted_apart(
    yard: Yard, empty_servers: RealServers, contender: Contender
) -> None:
    """The pods go to the open nodes of the best rank, which the default plugins do not consider."""
    extender.build()
    best = {
        node["metadata"]["name"]
        for node in node_manifests(NODES)
        if node["metadata"]["labels"][RANK] == "10" and CLOSED not in node["metadata"]["labels"]
    }
    async with ApiClient(empty_servers.url, empty_servers.tokens[ADMIN]) as api, Bindings(api) as seen:
        turn = await yard.turn(contender, small("RemotePlugin/5000Nodes"))
        await seen.all_bound(PODS)
    # Not each of them, because ties are broken at random.
    assert len(seen.node_of) == PODS
    assert set(seen.node_of.values()) <= best
    assert turn.beside_memory_mb > 1


async def test_scheduler_that_ends_is_an_error_with_its_output(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Contender, "configuration", lambda *_: "kind: Nonsense\n")
    with pytest.raises(SchedulerError, match="the scheduler ended with 1"):
        await yard.turn(contenders.KUBE_SCHEDULER, small("Plain/1000Nodes"))


async def test_latency_is_that_of_single_pods(yard: Yard) -> None:
    late = await yard.latency(contenders.KUBE_SCHEDULER, small("Plain/1000Nodes"), 5)
    assert 0 < late.p50_ms <= late.p99_ms <= late.worst_ms


@pytest.mark.cluster
@pytest.mark.skipif(bool(missing_programs()), reason=missing_programs())
def test_command_that_is_terminated_leaves_no_server_behind() -> None:
    command = [sys.executable, "-m", "berth_host", "bench", "versus", "Plain/1000Nodes"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as bench:
        wait_until(lambda: len(processes.children(bench.pid)) >= 2, "etcd and the API server are there")
        servers = processes.children(bench.pid)
        bench.terminate()
        assert bench.wait(PATIENCE_S) != 0
    assert [pid for pid in servers if Path(f"/proc/{pid}").exists()] == []


@pytest.mark.cluster
@pytest.mark.skipif(bool(missing_programs()), reason=missing_programs())
def test_command_prints_one_line_of_json_per_workload() -> None:
    arguments = ["bench", "versus", "Plain/1000Nodes", "--runs=1", f"--nodes={NODES}", f"--pods={MANY}"]
    done = CliRunner().invoke(berth, [*arguments, "-o", "json"])
    assert done.exit_code == 0, done.output
    (line,) = done.stdout.splitlines()
    said = json.loads(line)
    assert (said["workload"], said["nodes"], said["pods"]) == ("Plain/1000Nodes", NODES, MANY)
    assert [one["contender"] for one in said["contenders"]] == ["berth", "kube-scheduler"]
    assert [len(one["turns"]) for one in said["contenders"]] == [1, 1]
    (ratio,) = said["ratios"]
    assert ratio["pods_per_s"] > 0
    assert all(one["median"]["servers_cpu_ms_per_pod"] > 0.1 for one in said["contenders"])
    assert said["command"] == (f"berth bench versus Plain/1000Nodes --runs 1 --nodes {NODES} --pods {MANY}")


@pytest.mark.long
async def test_other_berth_takes_turns_with_its_own_python(yard: Yard, tmp_path: Path) -> None:
    """As that of an earlier version: the program that was named is started, and measured like berth."""
    started = tmp_path / "started"
    python = tmp_path / "python"
    path = processes.environment()["PYTHONPATH"]
    python.write_text(f'#!/bin/sh\necho $$ >>{started}\nPYTHONPATH={path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    own, other, kube_scheduler = small("Plain/1000Nodes").with_other_berth(str(python)).contenders
    assert [one.name for one in (own, other, kube_scheduler)] == [
        "berth",
        f"berth, {python}",
        "kube-scheduler",
    ]
    turn = await yard.turn(other, replace(small("Plain/1000Nodes"), pods=MANY))
    assert len(started.read_text().splitlines()) == 1
    assert turn.loop_cpu_ms_per_pod > 0
