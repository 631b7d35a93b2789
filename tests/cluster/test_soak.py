"""`berth bench soak` on a real API server, which is stopped and cut: nothing is lost, and nothing is left.

BERTH_REAL_SOAK_S is the duration in seconds (`make soak`: two minutes).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from berth_bench.soak.clusters import CUT, STOPPED
from berth_bench.soak.real_cluster import RUN
from berth_bench.soak.world import Plan, soak
from berth_bench.versus.objects import node, pod
from berth_bench.versus.real_servers import RealServers
from berth_host.cli.main import berth
from click.testing import CliRunner

pytestmark = pytest.mark.long

LASTS_S = float(os.environ.get("BERTH_REAL_SOAK_S", "12"))
SHORT = {"rest_s": 1.0, "warm_up_s": 2.0, "leaks_after_s": 10.0} if LASTS_S < 60 else {}
NOT_SEEN = ("leaked_tasks", "leaked_fds") if SHORT else ()
"""Idle connections to the server are closed after half a minute; without a rest they look like leaks."""
SEED = 5


def items(servers: RealServers, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = servers.request("GET", path)["items"]
    return found


@pytest.mark.long
async def test_soak_on_a_real_server_has_no_problems_and_deletes_its_objects(
    empty_servers: RealServers, tmp_path: Path
) -> None:
    empty_servers.create("/api/v1/namespaces/default/pods", pod("theirs"))
    said: list[str] = []
    plan = Plan(
        minutes=LASTS_S / 60,
        seed=SEED,
        nodes=20,
        folder=tmp_path,
        say=said.append,
        kubeconfig=empty_servers.kubeconfig(),
        server_pid=empty_servers.api_server_pid,
        **SHORT,
    )
    result = await soak(plan)
    problems = [problem for problem in result.problems() if not problem.startswith(NOT_SEEN)]
    assert problems == [], said
    assert result.bound > 20
    assert result.pending == 0
    assert all(result.kills[kind] for kind in (CUT, STOPPED, "host_killed")), result.kills
    # The pod of another user is unchanged, and no object of the soak is left.
    (left,) = items(empty_servers, "/api/v1/pods")
    assert (left["metadata"]["name"], left["spec"].get("nodeName")) == ("theirs", None)
    assert items(empty_servers, "/api/v1/nodes") == []
    # No controller runs here that would end the namespace.
    ours = [
        one for one in items(empty_servers, "/api/v1/namespaces") if RUN in one["metadata"].get("labels", {})
    ]
    assert all(one["metadata"].get("deletionTimestamp") for one in ours)
    assert not (tmp_path / "kubeconfig.json").exists()


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ({}, "the cluster has 1 nodes already (theirs)"),
        (
            {RUN: "0123"},
            f"once that has ended, kubectl delete nodes,namespaces -l {RUN} deletes what it left",
        ),
    ],
    ids=["of-others", "of-another-soak"],
)
def test_cluster_with_nodes_is_refused_and_left_alone(
    empty_servers: RealServers, labels: dict[str, str], problem: str
) -> None:
    empty_servers.create("/api/v1/nodes", node("theirs", **labels))
    command = ["bench", "soak", "--minutes", "1", "--kubeconfig", str(empty_servers.kubeconfig())]
    result = CliRunner().invoke(berth, command)
    assert result.exit_code == 2, result.output
    assert problem in result.output
    left = [one["metadata"]["name"] for one in items(empty_servers, "/api/v1/nodes")]
    assert left == ["theirs"]
    names = [one["metadata"]["name"] for one in items(empty_servers, "/api/v1/namespaces")]
    assert not [name for name in names if name.startswith("berth-soak-")]


def test_process_of_another_server_is_refused(empty_servers: RealServers) -> None:
    etcd = next(pid for pid in empty_servers.pids if pid != empty_servers.api_server_pid)
    kubeconfig = ["--kubeconfig", str(empty_servers.kubeconfig())]
    result = CliRunner().invoke(berth, ["bench", "soak", *kubeconfig, "--api-server-pid", str(etcd)])
    assert result.exit_code == 2, result.output
    assert f"--api-server-pid {etcd}: is etcd, not kube-apiserver" in result.output
