"""`kubectl berth` and `berth scheduler` on a real API server: rights, leader, and a pod that cannot fit."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import pytest_asyncio
from berth_bench.versus.real_servers import ADMIN, NOBODY, RealServers, programs_folder
from berth_bench.versus.scheduler_process import SchedulerProcess, SchedulerSetup
from support import fake_kubectl
from support.deployed import ACCOUNT, Deployed, drop
from support.fake_kubelet import fake_kubelet
from support.waiting import PATIENCE_S

pytestmark = pytest.mark.long

LEASE: Final = "berth-why"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
CONFIGURATION: Final = f"""\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: true, resourceName: {LEASE}}}
"""
READER: Final[dict[str, Any]] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "berth-reader"},
    "rules": [{"nonResourceURLs": ["/berth/v1/*"], "verbs": ["get"]}],
}


def manifest(kind: str, name: str, **content: Any) -> dict[str, Any]:
    """Return an object of the core API."""
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **content}


def pod(name: str, cpu: str) -> dict[str, Any]:
    """Return a pod with this CPU request."""
    container = {"name": "c", "image": "app", "resources": {"requests": {"cpu": cpu}}}
    return manifest("Pod", name, spec={"containers": [container]})


@pytest_asyncio.fixture
async def scheduler(empty_servers: RealServers, tmp_path: Path) -> AsyncIterator[SchedulerProcess]:
    """Run berth as the leader, with one node of 2 CPU."""
    empty_servers.create(
        "/api/v1/nodes",
        manifest("Node", "n1", status={"allocatable": {"cpu": "2", "memory": "8Gi", "pods": "110"}}),
    )
    setup = SchedulerSetup(
        program="berth",
        # As an administrator: the Lease has a name of its own.
        kubeconfig=empty_servers.kubeconfig(ADMIN),
        folder=tmp_path,
        configuration=CONFIGURATION,
        flags=["--logging-format=json"],
    )
    process = SchedulerProcess(setup)
    await process.start()
    try:
        await process.ready()
        yield process
    finally:
        await process.stop()


@pytest.fixture
def reader(empty_servers: RealServers) -> Iterator[None]:
    """Make a role that allows only to read the scheduler's pages."""
    path = "/apis/rbac.authorization.k8s.io/v1"
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "berth-reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "berth-reader"},
        "subjects": [{"kind": "User", "name": NOBODY, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    empty_servers.create(f"{path}/clusterroles", READER)
    empty_servers.create(f"{path}/clusterrolebindings", binding)
    yield
    empty_servers.request("DELETE", f"{path}/clusterrolebindings/berth-reader")
    empty_servers.request("DELETE", f"{path}/clusterroles/berth-reader")


async def kubectl_berth(*arguments: str, environment: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Run kubectl berth; return (exit code, standard output, standard error)."""
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "kubectl-berth"),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(environment or {})},
    )
    stdout, stderr = await process.communicate()
    return await process.wait(), stdout.decode(), stderr.decode()


async def until_answered(wanted: int, *arguments: str) -> str:
    """Repeat the command until it has the wanted exit code; return its output."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            code, stdout, stderr = await kubectl_berth(*arguments)
            if code == wanted:
                return stdout or stderr
            await asyncio.sleep(0.2)


async def test_pod_that_cannot_fit_is_explained_to_users_that_may_read_it(
    empty_servers: RealServers, scheduler: SchedulerProcess
) -> None:
    servers = empty_servers
    servers.create("/api/v1/namespaces/default/pods", pod("web", "1"))
    servers.create("/api/v1/namespaces/default/pods", pod("huge", "6"))
    server = ("--server", f"https://127.0.0.1:{scheduler.port}", "--insecure-skip-tls-verify")
    admin = (*server, "--kubeconfig", str(servers.kubeconfig(ADMIN)))
    text = await until_answered(3, "why", "huge", *admin, "--node", "n1")
    assert text.startswith("default/huge: pending, ")
    assert "0/1 nodes are available: 1 Insufficient cpu." in text
    assert "WHY NOT ON n1\n  NodeResourcesFit rejected n1: Insufficient cpu; node n1 lacks " in text
    assert "MAY BE REQUEUED BY" in text
    assert (await until_answered(0, "why", "web", *admin)).startswith("default/web: on node n1\n")
    code, _, said = await kubectl_berth("why", "none", *admin)
    assert (code, "no pod default/none is known here" in said) == (4, True)

    code, _, said = await kubectl_berth("why", "huge", *server)
    assert (code, 'User "system:anonymous" cannot get path "/berth/v1/pods/default/huge"' in said) == (
        1,
        True,
    )
    assert "a ClusterRole must allow the verb get on the nonResourceURL /berth/v1/*" in said


async def test_classes_gates_and_budgets_of_the_cluster_are_in_the_answers(
    empty_servers: RealServers, scheduler: SchedulerProcess, tmp_path: Path
) -> None:
    servers = empty_servers
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
    servers.create("/apis/scheduling.k8s.io/v1/priorityclasses", high | {"value": 7})
    web = pod("web", "2")
    web["metadata"]["labels"] = {"app": "web"}
    servers.create("/api/v1/namespaces/default/pods", web)
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}}
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    servers.create("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget | {"spec": spec})
    server = ("--server", f"https://127.0.0.1:{scheduler.port}", "--insecure-skip-tls-verify")
    admin = (*server, "--kubeconfig", str(servers.kubeconfig(ADMIN)))
    await until_answered(0, "why", "web", *admin)

    asked = pod("new", "1")
    asked["spec"] |= {"priorityClassName": "high", "schedulingGates": [{"name": "example.com/a"}]}
    path = tmp_path / "new.json"
    path.write_text(json.dumps(asked))
    code, stdout, stderr = await kubectl_berth("fit", "-f", str(path), *admin)
    assert code == 3, stderr
    assert stdout.startswith("default/new: kept out of the queue; after that it fits on no node\n")
    assert "waiting for scheduling gates: [example.com/a]" in stdout
    # Of priority 7: a pod of priority 0 would evict nobody.
    assert "WOULD PREEMPT ON n1\n  default/web\n" in stdout
    assert "note: " not in stdout

    # No disruption controller runs: the API server lets no pod of such a budget go.
    text = await until_answered(3, "drain", "n1", *admin)
    assert "default/web   never   PodDisruptionBudget default/web has changed" in text


async def test_a_role_for_the_path_is_enough(
    empty_servers: RealServers, scheduler: SchedulerProcess, reader: None
) -> None:
    config = str(empty_servers.kubeconfig(NOBODY))
    server = ("--server", f"https://127.0.0.1:{scheduler.port}", "--insecure-skip-tls-verify")
    code, stdout, stderr = await kubectl_berth("plugins", *server, "--kubeconfig", config)
    assert code == 0, stderr
    assert stdout.startswith("NAME ")


async def with_kubectl(servers: RealServers, lease: str, port: int, folder: Path) -> dict[str, str]:
    """Return an environment with a kubectl that leads to the port of the process that holds the Lease.

    The process runs outside the cluster: a pod with its host's name stands in for it.
    """
    await _place_leader(servers, lease)
    programs = folder / "bin"
    programs.mkdir()
    fake_kubectl.install(programs)
    return {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "FAKE_KUBECTL_TARGET": str(port),
        "FAKE_KUBECTL_NOTES": str(folder / "notes"),
    }


async def _place_leader(servers: RealServers, lease: str, **spec: Any) -> str:
    """Make a running pod with the host name of the process that holds the Lease; return its name."""
    async with asyncio.timeout(PATIENCE_S):
        while not (holder := _lease(servers, lease)["spec"].get("holderIdentity")):
            await asyncio.sleep(0.1)
    own = pod(holder.rpartition("_")[0].lower(), "1m")
    own["spec"] |= {"hostNetwork": True, **spec}
    servers.create("/api/v1/namespaces/kube-system/pods", own)
    name: str = own["metadata"]["name"]
    path, running = f"/api/v1/namespaces/kube-system/pods/{name}/status", {"status": {"phase": "Running"}}
    servers.request("PATCH", path, running, content_type="application/merge-patch+json")
    return name


async def test_leader_is_found_by_its_lease(
    empty_servers: RealServers, scheduler: SchedulerProcess, tmp_path: Path
) -> None:
    servers = empty_servers
    environment = await with_kubectl(servers, LEASE, scheduler.port, tmp_path)
    config = str(servers.kubeconfig(ADMIN))
    code, stdout, stderr = await kubectl_berth(
        "plugins",
        "--kubeconfig",
        config,
        "--lease",
        f"kube-system/{LEASE}",
        "-o",
        "json",
        environment=environment,
    )
    assert code == 0, stderr
    assert "NodeResourcesFit" in {item["name"] for item in json.loads(stdout)["plugins"]}
    said = (tmp_path / "notes").read_text().splitlines()
    assert said[:3] == [f"--kubeconfig={config}", "--namespace", "kube-system"]
    assert said[-1] == "ended"


async def test_page_is_served_through_a_port_forward_of_kubectl(
    empty_servers: RealServers, scheduler: SchedulerProcess, tmp_path: Path
) -> None:
    """The kubelet is a stand-in; kubectl, the API server's proxy and the scheduler are real."""
    servers = empty_servers
    async with fake_kubelet(tmp_path) as kubelet, asyncio.timeout(PATIENCE_S):
        servers.create("/api/v1/nodes", kubelet.node("kubelet-0"))
        pod_name = await _place_leader(servers, LEASE, nodeName="kubelet-0")
        page = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).parent / "kubectl-berth"),
            *(
                "ui",
                "--port",
                "0",
                "--scheduler-port",
                str(scheduler.port),
                "--lease",
                f"kube-system/{LEASE}",
            ),
            *("--kubeconfig", str(servers.kubeconfig(ADMIN))),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PATH": f"{programs_folder()}{os.pathsep}{os.environ['PATH']}"},
        )
        try:
            assert page.stdout is not None
            url = (await page.stdout.readline()).decode().split(" at ")[1].split()[0]
            base = url.removesuffix("/ui/")
            async with aiohttp.ClientSession() as session:
                async with session.get(url) as answer:
                    assert "<html" in (await answer.text()).lower()
                # Both at once, as in a browser: a stream that stays open, and a question beside it.
                async with session.get(f"{base}/berth/v1/queue?watch=true") as stream:
                    assert (await stream.content.readuntil(b"\n\n")).startswith(b"retry: ")
                    servers.create("/api/v1/namespaces/default/pods", pod("huge", "6"))
                    async with session.get(f"{base}/berth/v1/plugins") as answer:
                        names = {item["name"] for item in (await answer.json())["plugins"]}
                    said = b""
                    while b'"default/huge"' not in said:
                        said = await stream.content.readuntil(b"\n\n")
            assert "NodeResourcesFit" in names
            assert kubelet.asked == [f"/portForward/kube-system/{pod_name}"]
            assert set(kubelet.ports) == {scheduler.port}
        finally:
            page.send_signal(signal.SIGINT)
            await page.communicate()
        assert page.returncode == 0
        while kubelet.open_count:  # kubectl has ended, too
            await asyncio.sleep(0.05)


async def test_reader_of_the_chart_asks_a_release_of_any_name(
    empty_servers: RealServers, tmp_path: Path
) -> None:
    """The Lease is there already, without berth's label: the scheduler adds it."""
    servers = empty_servers
    name = "team-a"
    unlabelled = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "labels": {"team": "a"}},
        "spec": {},
    }
    servers.create(LEASES, unlabelled)
    # The name of the service account is that of `Deployed`.
    values: dict[str, Any] = {"fullnameOverride": name, "serviceAccount": {"name": ACCOUNT}}
    reader = {"kind": "User", "name": NOBODY}
    with Deployed(servers, tmp_path, {**values, "answers": {"readers": [reader]}}) as berth:
        running = await asyncio.to_thread(berth.lead)
        environment = await with_kubectl(servers, name, running.port, tmp_path)
        lease = _lease(servers, name)
        unique = lease["spec"]["holderIdentity"].rpartition("_")[2]
        assert lease["metadata"]["labels"] == {"team": "a", "berth.io/scheduler": unique}
        config = ("--kubeconfig", str(servers.kubeconfig(NOBODY)))
        code, stdout, stderr = await kubectl_berth("plugins", *config, environment=environment)
        assert code == 0, stderr
        assert stdout.startswith("NAME ")

        of_readers = [one for one in berth.manifests if one["metadata"]["name"].endswith("answers-reader")]
        assert len(of_readers) == 4
        for manifest in of_readers:
            drop(servers, manifest)
        async with asyncio.timeout(PATIENCE_S):
            while code != 1:  # RBAC applies a removed rule a little later
                code, _, stderr = await kubectl_berth("plugins", *config, environment=environment)
        assert "the scheduler's pod cannot be looked up: " in stderr


def _lease(servers: RealServers, name: str) -> dict[str, Any]:
    """Return the Lease, or an empty one if there is none yet."""
    leases = servers.request("GET", LEASES)["items"]
    return next((item for item in leases if item["metadata"]["name"] == name), {"spec": {}})
