"""`berth compare --cluster` on a real API server: with the rights of its page, and nothing is written."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from berth_bench.versus.real_servers import ADMIN, NOBODY, RealServers
from support.places import ROOT
from support.waiting import PATIENCE_S

pytestmark = pytest.mark.long

PAGE: Final = ROOT / "docs/how-to/compare-configurations.md"
HEAD: Final = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
NO_TAINTS: Final = f"{HEAD}profiles:\n- plugins: {{multiPoint: {{disabled: [{{name: TaintToleration}}]}}}}\n"
TAINT: Final = {"key": "team", "value": "ml", "effect": "NoSchedule"}
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
PODS: Final = "/api/v1/namespaces/default/pods"


def role_of_the_page() -> dict[str, Any]:
    """Return the ClusterRole that the page shows."""
    blocks = PAGE.read_text().split("```yaml\n")[1:]
    found = [yaml.safe_load(block.split("```")[0]) for block in blocks if "kind: ClusterRole" in block]
    (role,) = found
    assert isinstance(role, dict)
    return role


def make(servers: RealServers, path: str, kind: str, name: str, **content: Any) -> dict[str, Any]:
    group = "/".join(path.split("/")[2:4]) if path.startswith("/apis/") else "v1"
    metadata = {"name": name} | content.pop("metadata", {})
    made: dict[str, Any] = servers.create(
        path, {"apiVersion": group, "kind": kind, "metadata": metadata, **content}
    )
    return made


def add_node(servers: RealServers, name: str, *taints: dict[str, str]) -> None:
    allocatable = {"cpu": "2", "memory": "8Gi", "pods": "110"}
    status = {"allocatable": allocatable, "capacity": allocatable}
    make(servers, "/api/v1/nodes", "Node", name, spec={"taints": taints}, status=status)


def add_pod(servers: RealServers, name: str, **content: Any) -> None:
    container = {"name": "c", "image": "app", "resources": {"requests": {"cpu": "1500m"}}}
    spec = {"containers": [container], **content.pop("spec", {})}
    make(servers, PODS, "Pod", name, spec=spec, **content)


@pytest.fixture
def cluster(empty_servers: RealServers) -> RealServers:
    """Fill a cluster: a free node with a pod of a ReplicaSet, a tainted one, and a pod that waits."""
    servers = empty_servers
    add_node(servers, "free")
    add_node(servers, "tainted", TAINT)
    make(servers, "/apis/scheduling.k8s.io/v1/priorityclasses", "PriorityClass", "low", value=-1)
    selector = {"matchLabels": {"app": "web"}}
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "app"}]},
    }
    owner = make(
        servers,
        "/apis/apps/v1/namespaces/default/replicasets",
        "ReplicaSet",
        "web",
        spec={"replicas": 5, "selector": selector, "template": template},
    )
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": True}
    reference["uid"] = owner["metadata"]["uid"]
    add_pod(
        servers,
        "web-0",
        metadata={"labels": {"app": "web"}, "ownerReferences": [reference]},
        spec={"nodeName": "free"},
    )
    add_pod(servers, "waits", spec={"priorityClassName": "low"})
    return servers


@pytest.fixture
def reader(cluster: RealServers) -> Iterator[str]:
    """Grant a user the role of the page alone; return the kubeconfig."""
    role = role_of_the_page()
    name = role["metadata"]["name"]
    cluster.create(f"{RBAC}/clusterroles", role)
    subject = {"kind": "User", "name": NOBODY, "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    make(
        cluster,
        f"{RBAC}/clusterrolebindings",
        "ClusterRoleBinding",
        name,
        roleRef=reference,
        subjects=[subject],
    )
    yield str(cluster.kubeconfig(NOBODY))
    cluster.request("DELETE", f"{RBAC}/clusterrolebindings/{name}")
    cluster.request("DELETE", f"{RBAC}/clusterroles/{name}")


async def compare(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Compare the default configuration with one without TaintToleration; return exit code and output."""
    config = folder / "free.yaml"
    config.write_text(NO_TAINTS)
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "berth"),
        *("compare", "--cluster", "--config", str(config)),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await process.communicate()
    return await process.wait(), stdout.decode(), stderr.decode()


async def until_granted(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Repeat the command while RBAC has not taken up the role yet."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            code, stdout, stderr = await compare(folder, *arguments)
            if "cannot be listed" not in stderr:
                return code, stdout, stderr
            await asyncio.sleep(0.2)


async def test_pods_of_a_cluster_are_compared_with_the_rights_of_the_page(
    cluster: RealServers, reader: str, tmp_path: Path
) -> None:
    before = cluster.request("GET", PODS)["items"]
    code, stdout, stderr = await until_granted(tmp_path, "--kubeconfig", reader)
    assert code == 1, stderr
    lines = stdout.splitlines()
    assert lines[0] == f"cluster {cluster.url}, as it was read"
    # ReplicaSets make no pods here: the cluster's controllers have made those that there are.
    assert lines[-1] == "0 moved, 0 become pending, 1 get placed; 1 as before; seed 0"
    (row,) = [line.split() for line in lines if "default/waits" in line]
    assert row[:2] == ["default/waits", "tainted"]
    assert cluster.request("GET", PODS)["items"] == before


async def test_movable_pods_are_placed_by_both_configurations(cluster: RealServers, tmp_path: Path) -> None:
    add_pod(cluster, "alone", spec={"nodeName": "tainted"})
    more = tmp_path / "more.yaml"
    allocatable = {"cpu": "2", "memory": "8Gi", "pods": "110"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "new"},
        "status": {"allocatable": allocatable},
    }
    more.write_text(yaml.safe_dump(node))
    admin = ("--kubeconfig", str(cluster.kubeconfig(ADMIN)), "-f", str(more))
    code, stdout, stderr = await compare(tmp_path, *admin, "--move-pods", "-o", "json")
    value = json.loads(stdout)
    assert (value["cluster"], [one["placed"] for one in value["configurations"]]) == (cluster.url, [3, 3]), (
        stderr
    )
    # `alone` has no controller and stays; the other two share the free node and the one of the file.
    assert value["same"] + len(value["moved"]) == 3
    assert code == (1 if value["moved"] else 0)


async def test_user_without_the_rights_gets_the_list_of_them(cluster: RealServers, tmp_path: Path) -> None:
    code, stdout, stderr = await compare(tmp_path, "--kubeconfig", str(cluster.kubeconfig(NOBODY)))
    assert (code, stdout) == (2, "")
    assert "storage.k8s.io/csinodes, " in stderr
    assert "a ClusterRole must allow the verb list on these resources" in stderr
    granted = {
        resource if not group else f"{group}/{resource}"
        for rule in role_of_the_page()["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    named = stderr.split(": ", 1)[1].split(" cannot be listed")[0].removeprefix(f"{cluster.url}: ")
    assert set(named.split(", ")) <= granted


async def test_cluster_that_cannot_be_reached_is_bad_input(tmp_path: Path, servers: RealServers) -> None:
    away = servers.kubeconfig(ADMIN, url="https://127.0.0.1:9")
    code, stdout, stderr = await compare(tmp_path, "--kubeconfig", str(away))
    assert (code, stdout) == (2, "")
    assert "127.0.0.1:9" in stderr
