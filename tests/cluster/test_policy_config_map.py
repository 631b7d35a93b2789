"""A policy in a ConfigMap of a real API server: `berth scheduler` reads it at its start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from berth_bench.versus.real_servers import ADMIN, SCHEDULER, RealServers
from berth_host.cli.main import berth
from click.testing import CliRunner, Result
from support.observed.stage import api_of

pytestmark = pytest.mark.long

TEXT = """\
apiVersion: kubescheduler.config.k8s.io/v1alpha1
kind: KubeSchedulerConfiguration
clientConnection: {{kubeconfig: {kubeconfig}}}
algorithmSource: {{policy: {{configMap: {{namespace: kube-system, name: {name}}}}}}}
"""
POLICY = (
    '{"kind": "Policy", "apiVersion": "v1", "priorities": [{"name": "MostRequestedPriority", "weight": 5}]}'
)


@pytest.fixture
async def cluster(empty_servers: RealServers) -> AsyncIterator[RealServers]:
    """Return a cluster with a policy."""
    content = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "policy", "namespace": "kube-system"},
        "data": {"policy.cfg": POLICY},
    }
    async with api_of(empty_servers) as api:
        path = "api/v1/namespaces/kube-system/configmaps"
        await api.request("POST", path, content)
        yield empty_servers
        await api.request("DELETE", f"{path}/policy")


def converted(servers: RealServers, folder: Path, name: str, user: str) -> Result:
    """Run a scheduler that writes its whole configuration and ends."""
    file = folder / "config.yaml"
    file.write_text(TEXT.format(kubeconfig=servers.kubeconfig(user), name=name))
    arguments = ["scheduler", "--config", str(file), "--write-config-to", str(folder / "out.yaml")]
    return CliRunner().invoke(berth, arguments)


async def test_policy_is_read_from_the_cluster(cluster: RealServers, tmp_path: Path) -> None:
    result = converted(cluster, tmp_path, "policy", ADMIN)
    assert result.exit_code == 0, result.stderr
    assert "MostAllocated" in (tmp_path / "out.yaml").read_text()
    assert "ConfigMap kube-system/policy: line 1: priorities[0]" in result.stderr


@pytest.mark.parametrize(
    ("name", "user", "problem"),
    [
        ("gone", ADMIN, 'configmaps "gone" not found'),
        ("policy", SCHEDULER, 'configmaps "policy" is forbidden'),
    ],
)
async def test_policy_that_cannot_be_read_ends_the_start_in_the_servers_words(
    cluster: RealServers, tmp_path: Path, name: str, user: str, problem: str
) -> None:
    result = converted(cluster, tmp_path, name, user)
    assert result.exit_code == 1
    assert f"cannot read the policy from ConfigMap kube-system/{name}: " in result.stderr
    assert problem in result.stderr
