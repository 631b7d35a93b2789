"""A shadow beside kube-scheduler on a real API server, with the rights that the chart gives it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from berth_bench.versus.real_servers import ADMIN, NOBODY, SCHEDULER, RealServers, program
from berth_bench.versus.scheduler_process import SchedulerProcess, SchedulerSetup
from support.chart import of_kind, rendered, the
from support.emptying import empty
from support.observed.audit import AuditLog
from support.waiting import PATIENCE_S

pytestmark = pytest.mark.long

RBAC: Final = "rbac.authorization.k8s.io"
REVIEWS: Final = [{"group": "authentication.k8s.io"}, {"group": "authorization.k8s.io"}]
POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "resources": REVIEWS},
        {
            "level": "Metadata",
            "users": [NOBODY],
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
        },
        {"level": "None"},
    ],
}
NO_LEASE: Final = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
"""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServers]:
    """Start a server that logs every write of the shadow's user, also a refused one."""
    with RealServers(tmp_path_factory.mktemp("servers"), audit_policy=POLICY) as running:
        yield running


def allow_reads(servers: RealServers) -> None:
    """Give the shadow's user the rights that the chart gives a shadow, and no other."""
    granted = rendered(values={"shadow": True})
    (role,) = of_kind(granted, "ClusterRole")
    servers.create(f"/apis/{RBAC}/v1/clusterroles", role)
    user = {"apiGroup": RBAC, "kind": "User", "name": NOBODY}
    for kind, path in (
        ("ClusterRoleBinding", "clusterrolebindings"),
        ("RoleBinding", "namespaces/kube-system/rolebindings"),
    ):
        servers.create(f"/apis/{RBAC}/v1/{path}", {**the(granted, kind), "subjects": [user]})


def add(servers: RealServers, pod: str, cpu: str) -> None:
    container = {"name": "c", "image": "app", "resources": {"requests": {"cpu": cpu}}}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod},
        "spec": {"containers": [container]},
    }
    servers.create("/api/v1/namespaces/default/pods", body)


async def test_shadow_beside_kube_scheduler_needs_no_right_to_write(
    servers: RealServers, tmp_path: Path
) -> None:
    empty(servers)
    allow_reads(servers)
    for name in ("n1", "n2"):
        room = {"cpu": "4", "memory": "8Gi", "pods": "110"}
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "status": {"allocatable": room},
        }
        servers.create("/api/v1/nodes", body)
    audit = AuditLog(servers.audit_log)
    real = SchedulerProcess(
        SchedulerSetup(
            program=str(program("kube-scheduler")),
            kubeconfig=servers.kubeconfig(SCHEDULER),
            folder=tmp_path,
            configuration=NO_LEASE,
        ),
        "real",
    )
    shadow = SchedulerProcess(
        SchedulerSetup(
            program="berth",
            kubeconfig=servers.kubeconfig(NOBODY),
            folder=tmp_path,
            # The Lease of the file is left alone.
            configuration=NO_LEASE.replace("false", "true"),
            flags=["--shadow", "--logging-format=json"],
        ),
        "shadow",
    )
    try:
        for process in (shadow, real):
            await process.start()
        for process in (shadow, real):
            await process.ready()
        for i in range(10):
            add(servers, f"p{i}", "500m")
        add(servers, "large", "40")
        found: dict[str, Any] = {}

        async with asyncio.timeout(PATIENCE_S):
            while found.get("compared", 0) < 11:
                found = await shadow.ask("/berth/v1/shadow", servers.tokens[ADMIN])
        outcomes = found["outcomes"]
        assert outcomes["unschedulable"] == 1
        # kube-scheduler breaks ties at random.
        assert outcomes["same"] + outcomes["tie"] == 10, found
        assert found["realMs"]["pods"] == 10
    finally:
        codes = [await process.stop() for process in (shadow, real)]
    assert codes[0] == 0
    assert audit.read() == []
    said = shadow.log.read_text()
    assert "forbidden" not in said.lower()
    assert "11 decisions compared" in said
    assert "100.0 % agree" in said
