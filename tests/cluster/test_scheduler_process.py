"""`berth scheduler` as a real child process on a real API server: start, stop, signals, and bad input."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from berth_bench.versus.free_ports import free_port
from berth_bench.versus.real_servers import NOBODY, SCHEDULER, RealServers
from berth_bench.versus.scheduler_process import SchedulerProcess, SchedulerSetup
from berth_host.cli.scheduler.parsing import parse
from berth_host.cli.scheduler.settings import loaded, settings
from berth_host.errors.state import InvariantError
from berth_host.process.process import HostFailedError
from berth_host.process.process import SchedulerProcess as Process
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.serve.server import PluginServer
from support.limits_pods import REFUSED, Limits
from support.scripted_plugin import ScriptedPlugin, descriptor
from support.waiting import PATIENCE_S

LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
ELECTING: Final = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: true, leaseDuration: 30s, renewDeadline: 20s, retryPeriod: 500ms}
"""
"""With a Lease that a busy machine renews in time."""
LOSING: Final = ELECTING.replace("30s", "3s").replace("20s", "2s")
"""With one that a process soon gives up which somebody else holds."""
SLOW: Final = (
    LOSING + "profiles: [{plugins: {preBind: {enabled: [{name: SlowPreBind}]}}}]\n",
    "apiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
    "plugins: [{name: SlowPreBind, inProcess: 'support.slow_pre_bind:SlowPreBind'}]\n",
)
TWO_PROFILES: Final = ELECTING + "profiles: [{schedulerName: default-scheduler}, {schedulerName: second}]\n"
LIMITED: Final = (
    ELECTING + "profiles:\n- plugins: {multiPoint: {enabled: [{name: Limits}]}}\n"
    "  pluginConfig: [{name: Limits, args: {limit: %d}}]\n"
)

Start = Callable[..., Awaitable[SchedulerProcess]]


@pytest.fixture
async def start(empty_servers: RealServers, tmp_path: Path) -> AsyncIterator[Start]:
    """Start berth with a configuration, and wait until it is ready."""
    started: list[SchedulerProcess] = []

    async def begin(
        configuration: str = ELECTING, own: str = "", *, name: str = "scheduler"
    ) -> SchedulerProcess:
        setup = SchedulerSetup(
            program="berth",
            kubeconfig=empty_servers.kubeconfig(SCHEDULER),
            folder=tmp_path,
            configuration=configuration,
            more_documents=own,
            flags=["--logging-format=json", "-v=2"],
        )
        process = SchedulerProcess(setup, name)
        started.append(process)
        await process.start()
        await process.ready()
        return process

    _delete_lease(empty_servers)
    yield begin
    for process in started:
        await process.stop()
    _delete_lease(empty_servers)


def _delete_lease(servers: RealServers) -> None:
    items = servers.request("GET", LEASE.rpartition("/")[0])["items"]
    if any(item["metadata"]["name"] == "kube-scheduler" for item in items):
        servers.request("DELETE", LEASE)


def add_node(servers: RealServers, name: str = "n1") -> None:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"capacity": allocatable, "allocatable": allocatable},
    }
    servers.create("/api/v1/nodes", body)


def add_pod(servers: RealServers, name: str, **spec: Any) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "c", "image": "app", "resources": {"requests": {"cpu": "100m"}}}],
            **spec,
        },
    }
    servers.create("/api/v1/namespaces/default/pods", body)


def node_of(servers: RealServers, pod: str) -> str:
    node: str = servers.request("GET", f"/api/v1/namespaces/default/pods/{pod}")["spec"].get("nodeName", "")
    return node


def holder(servers: RealServers) -> str:
    named: str = servers.request("GET", LEASE)["spec"].get("holderIdentity", "")
    return named


def logged(process: SchedulerProcess, event: str) -> list[dict[str, Any]]:
    """Return the process's log lines of one name."""
    lines = [line for line in process.log.read_text().splitlines() if line.startswith("{")]
    return [entry for entry in map(json.loads, lines) if entry.get("event") == event]


async def until(condition: Callable[[], object], what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"not within {PATIENCE_S:.0f} s: {what}")


async def ended(process: SchedulerProcess) -> int:
    await until(lambda: process.ended_with is not None, "the process ends")
    code = process.ended_with
    assert code is not None
    return code


# --- life ----------------------------------------------------------------------------------------


async def test_pod_is_bound_and_term_releases_the_lease_last(
    empty_servers: RealServers, start: Start
) -> None:
    add_node(empty_servers)
    add_pod(empty_servers, "p1")
    process = await start()
    await until(lambda: node_of(empty_servers, "p1") == "n1", "p1 is bound")
    identity = holder(empty_servers)
    assert identity.startswith(f"{socket.gethostname()}_")

    assert await process.stop() == 0

    assert holder(empty_servers) == ""
    assert empty_servers.request("GET", LEASE)["spec"]["leaseDurationSeconds"] == 1
    names = [json.loads(line)["event"] for line in process.log.read_text().splitlines() if line[:1] == "{"]
    order = ["configuration.loaded", "leader.changed", "host.started", "host.drained", "lease.released"]
    assert [names.index(name) for name in order] == sorted(names.index(name) for name in order)
    assert names.count("configuration.loaded") == 1
    merged = logged(process, "configuration.loaded")[0]["configuration"]
    assert merged["leaderElection"]["leaseDuration"] == "30s"
    assert merged["podMaxBackoffSeconds"] == 10
    events = empty_servers.request("GET", "/api/v1/namespaces/kube-system/events")["items"]
    (elected,) = [event for event in events if event["message"] == f"{identity} became leader"]
    assert (elected["reason"], elected["involvedObject"]["kind"]) == ("LeaderElection", "Lease")


@pytest.mark.long
async def test_term_waits_for_a_running_binding(empty_servers: RealServers, start: Start) -> None:
    add_node(empty_servers)
    process = await start(*SLOW)
    await until(lambda: logged(process, "host.started"), "it leads")
    add_pod(empty_servers, "p1")
    nominated = "/api/v1/namespaces/default/pods/p1"
    # Written before PreBind begins, because a PreBind plugin has work to do.
    await until(
        lambda: empty_servers.request("GET", nominated)["status"].get("nominatedNodeName"), "PreBind begins"
    )
    assert node_of(empty_servers, "p1") == ""

    assert await process.stop() == 0

    assert node_of(empty_servers, "p1") == "n1"
    names = [json.loads(line)["event"] for line in process.log.read_text().splitlines() if line[:1] == "{"]
    assert names.index("pod.bound") < names.index("lease.released")


@pytest.mark.long
async def test_lost_lease_stops_a_running_binding(empty_servers: RealServers, start: Start) -> None:
    add_node(empty_servers)
    process = await start(*SLOW)
    await until(lambda: logged(process, "host.started"), "it leads")
    add_pod(empty_servers, "p1")
    nominated = "/api/v1/namespaces/default/pods/p1"
    await until(
        lambda: empty_servers.request("GET", nominated)["status"].get("nominatedNodeName"), "PreBind begins"
    )
    patch = {"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 60}}
    empty_servers.request("PATCH", LEASE, patch, content_type="application/merge-patch+json")

    assert await ended(process) == 1
    before = empty_servers.request("GET", nominated)
    await asyncio.sleep(1.0)

    # There is no Binding, and no condition or nomination is removed: the new leader does that.
    assert node_of(empty_servers, "p1") == ""
    assert before["status"]["nominatedNodeName"] == "n1"
    assert empty_servers.request("GET", nominated) == before


async def test_internal_error_ends_the_process_and_releases_the_lease(empty_servers: RealServers) -> None:
    """In this process, because no action from outside can cause an internal error."""
    line = ["--secure-port=0", f"--kubeconfig={empty_servers.kubeconfig(SCHEDULER)}"]
    flags = parse(line)
    process = Process(settings(flags, loaded(flags, {}), {}))
    running = asyncio.ensure_future(process.run())
    await until(lambda: process.is_leading or running.done(), "it leads")
    assert process.host is not None

    process.host.internal_error.fail(InvariantError("two things contradict each other"))

    with pytest.raises(HostFailedError, match="two things contradict each other"):
        await running
    assert holder(empty_servers) == ""


async def test_a_standby_schedules_once_the_leader_has_left(empty_servers: RealServers, start: Start) -> None:
    add_node(empty_servers)
    first = await start(name="first")
    await until(lambda: logged(first, "host.started"), "the first leads")
    second = await start(name="second")
    await asyncio.sleep(1.0)
    assert not logged(second, "host.started")

    assert await first.stop() == 0
    await until(lambda: logged(second, "host.started"), "the second leads")
    add_pod(empty_servers, "p1")
    await until(lambda: node_of(empty_servers, "p1") == "n1", "p1 is bound")
    assert empty_servers.request("GET", LEASE)["spec"]["leaseTransitions"] == 1


@pytest.mark.long
async def test_a_leader_whose_lease_is_taken_ends_with_1_and_posts_nothing_more(
    empty_servers: RealServers, start: Start
) -> None:
    add_node(empty_servers)
    process = await start(LOSING)
    await until(lambda: logged(process, "host.started"), "it leads")
    patch = {"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 60}}
    empty_servers.request("PATCH", LEASE, patch, content_type="application/merge-patch+json")

    assert await ended(process) == 1
    add_pod(empty_servers, "late")

    assert "berth: leaderelection lost: somebody holds the Lease kube-system/kube-scheduler" in (
        process.last_lines()
    )
    assert holder(empty_servers) == "somebody"
    assert node_of(empty_servers, "late") == ""


@pytest.mark.long
async def test_scheduler_binds_without_election_and_endpoints(
    empty_servers: RealServers, tmp_path: Path
) -> None:
    """The command line of a user who tries the scheduler."""
    add_node(empty_servers)
    add_pod(empty_servers, "p1")
    process = await asyncio.create_subprocess_exec(
        *_berth("--leader-elect=false", "--secure-port=0", f"--kubeconfig={empty_servers.kubeconfig()}"),
        stderr=asyncio.subprocess.DEVNULL,
    )
    await until(lambda: node_of(empty_servers, "p1") == "n1", "p1 is bound")
    process.send_signal(signal.SIGINT)
    assert await process.wait() == 0


# --- USR2 and others -----------------------------------------------------------------------------


@pytest.mark.long
async def test_usr2_dumps_cache_and_queue_and_usr1_does_nothing(
    empty_servers: RealServers, start: Start
) -> None:
    add_node(empty_servers)
    process = await start()
    add_pod(empty_servers, "p1")
    await until(lambda: node_of(empty_servers, "p1") == "n1", "p1 is bound")
    for number in (signal.SIGUSR1, signal.SIGALRM, signal.SIGPIPE, signal.SIGUSR2):
        os.kill(process.pid, number)
    await until(lambda: logged(process, "queue.dumped"), "cache and queue are dumped")
    (shown,) = logged(process, "cache.node_dumped")
    assert (shown["message"], shown["node"]) == ("Dump of cached NodeInfo", "n1")
    assert [text.split(",")[0] for text in shown["scheduled_pods"]] == ["name: p1"]
    assert logged(process, "cache.mismatched") == []
    add_pod(empty_servers, "p2")
    await until(lambda: node_of(empty_servers, "p2") == "n1", "p2 is bound")
    assert await process.stop() == 0


# --- HUP -----------------------------------------------------------------------------------------


async def test_hup_applies_profiles_while_scheduling_continues(
    empty_servers: RealServers, start: Start, tmp_path: Path
) -> None:
    add_node(empty_servers)
    process = await start()
    add_pod(empty_servers, "p1")
    add_pod(empty_servers, "p2", schedulerName="second")
    await until(lambda: node_of(empty_servers, "p1") == "n1", "p1 is bound")
    assert node_of(empty_servers, "p2") == ""

    _configure(process, tmp_path, TWO_PROFILES)
    os.kill(process.pid, signal.SIGHUP)

    await until(lambda: node_of(empty_servers, "p2") == "n1", "p2 is bound by the new profile")
    add_pod(empty_servers, "p3")
    await until(lambda: node_of(empty_servers, "p3") == "n1", "p3 is bound by the old profile")
    assert len(logged(process, "configuration.loaded")) == 2
    assert await process.stop() == 0
    assert holder(empty_servers) == ""


@pytest.mark.long
@pytest.mark.parametrize(
    ("configuration", "reason"),
    [
        (ELECTING + "podMaxBackoffSecond: 9\n", 'unknown field "podMaxBackoffSecond"'),
        (ELECTING + "podMaxBackoffSeconds: -1\n", "podMaxBackoffSeconds: Invalid value"),
        (ELECTING + "profiles: [{schedulerName: a}, {schedulerName: a}]\n", "Duplicate value"),
        ("{", "yaml"),
        (TWO_PROFILES.replace("30s", "40s"), "leaderElection cannot change while berth runs: restart it"),
    ],
)
async def test_a_bad_file_changes_nothing_and_says_why(
    empty_servers: RealServers, start: Start, tmp_path: Path, configuration: str, reason: str
) -> None:
    add_node(empty_servers)
    process = await start()

    _configure(process, tmp_path, configuration)
    os.kill(process.pid, signal.SIGHUP)

    await until(lambda: logged(process, "configuration.refused"), "it is refused")
    assert reason in logged(process, "configuration.refused")[0]["error"]
    add_pod(empty_servers, "p1")
    await until(lambda: node_of(empty_servers, "p1") == "n1", "p1 is bound")
    assert len(logged(process, "configuration.loaded")) == 1


@pytest.mark.long
@pytest.mark.parametrize("where", ["in the host", "served"])
async def test_arguments_that_a_plugin_refuses_are_a_bad_file(
    empty_servers: RealServers, start: Start, tmp_path: Path, where: str
) -> None:
    add_node(empty_servers)
    with PluginServer({"Limits": Limits}) as server:
        server.listen(f"unix:{tmp_path / 'p.sock'}")
        place = "inProcess: 'support.limits_pods:Limits'"
        if where == "served":
            place = f"endpoint: 'unix://{tmp_path / 'p.sock'}'"
        own = "apiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        process = await start(LIMITED % 2, f"{own}plugins: [{{name: Limits, {place}}}]\n")
        path = tmp_path / "scheduler.yaml"
        path.write_text(path.read_text().replace("limit: 2", "limit: 0"))
        os.kill(process.pid, signal.SIGHUP)

        await until(lambda: logged(process, "configuration.refused"), "it is refused")
        (said,) = logged(process, "configuration.refused")
        assert said["error"].startswith("plugin Limits (")
        assert said["error"].endswith(REFUSED)
        add_pod(empty_servers, "p1")
        add_pod(empty_servers, "p2")
        await until(lambda: node_of(empty_servers, "p1") == "n1", "p1 is bound")
        await until(lambda: node_of(empty_servers, "p2") == "n1", "p2 is bound")
        assert len(logged(process, "configuration.loaded")) == 1
        assert await process.stop() == 0


@pytest.mark.long
async def test_the_client_connection_needs_a_restart(
    empty_servers: RealServers, start: Start, tmp_path: Path
) -> None:
    process = await start()
    path = tmp_path / "scheduler.yaml"
    path.write_text(path.read_text() + "  qps: 7\n")
    os.kill(process.pid, signal.SIGHUP)
    await until(lambda: logged(process, "configuration.refused"), "it is refused")
    assert logged(process, "configuration.refused")[0]["error"].startswith("clientConnection cannot change")


def _configure(process: SchedulerProcess, folder: Path, text: str) -> None:
    """Write the file anew, with the connection that the process was started with."""
    connection = f"clientConnection: {{kubeconfig: {process.setup.kubeconfig}}}\n"
    (folder / "scheduler.yaml").write_text(text + connection)


# --- bad input -----------------------------------------------------------------------------------


def _berth(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "berth_host", "scheduler", *arguments]


async def refused(*arguments: str) -> str:
    """Return berth's last line before exit code 1."""
    process = await asyncio.create_subprocess_exec(
        *_berth(*arguments), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            _, errors = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    text = errors.decode()
    assert process.returncode == 1, text
    assert "Traceback" not in text
    lines = [line for line in text.splitlines() if line.startswith("berth: ")]
    assert len(lines) == 1, text
    return lines[0]


async def test_refused_credentials_end_the_start_with_the_remedy(servers: RealServers) -> None:
    kubeconfig = servers.kubeconfig(token="no-longer-known")
    assert await refused(f"--kubeconfig={kubeconfig}", "--secure-port=0") == (
        f"berth: {servers.url} does not accept the credentials (Unauthorized): they are wrong or expired; "
        "renew the token or the client certificate of the kubeconfig"
    )


async def test_missing_rights_are_all_named(servers: RealServers) -> None:
    said = await refused(f"--kubeconfig={servers.kubeconfig(NOBODY)}", "--secure-port=0")
    assert said.startswith("berth: missing RBAC rights: ")
    for right in (
        "list, watch, delete pods;",
        "list, watch nodes;",
        "list, watch csinodes.storage.k8s.io;",
        "create pods/binding;",
        "patch pods/status;",
        "create, patch events.events.k8s.io;",
        "create, get, update leases.coordination.k8s.io in namespace kube-system",
        'User "nobody" cannot list resource',
    ):
        assert right in said


@pytest.mark.long
async def test_missing_rights_to_the_lease_are_named(servers: RealServers) -> None:
    """All rights of a scheduler except for the Lease."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    groups = ["", "apps", "policy", "storage.k8s.io", "resource.k8s.io", "events.k8s.io"]
    role = {"rules": [{"apiGroups": groups, "resources": ["*"], "verbs": ["*"]}]}
    binding = {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "no-lease"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": NOBODY}],
    }
    for kind, more in (("clusterrole", role), ("clusterrolebinding", binding)):
        servers.create(f"{rbac}/{kind}s", {"metadata": {"name": "no-lease"}, **more})
    try:
        said = await refused(f"--kubeconfig={servers.kubeconfig(NOBODY)}", "--secure-port=0")
    finally:
        for kind in ("clusterrole", "clusterrolebinding"):
            servers.request("DELETE", f"{rbac}/{kind}s/no-lease")
    assert said.startswith(
        "berth: missing RBAC rights: create, get, update leases.coordination.k8s.io in namespace kube-system "
        '(leases.coordination.k8s.io "kube-scheduler" is forbidden: User "nobody" cannot get'
    )


@pytest.mark.long
async def test_lease_that_the_api_server_refuses_ends_the_process(servers: RealServers) -> None:
    """More seconds than the field can hold."""
    said = await refused(
        f"--kubeconfig={servers.kubeconfig()}",
        "--secure-port=0",
        "--leader-elect-lease-duration=900000h",
        "--leader-elect-resource-name=of-nobody",
    )
    assert said.startswith("berth: the API server does not take the Lease kube-system/of-nobody: ")
    assert "correct --leader-elect-lease-duration, --leader-elect-resource-name" in said


@pytest.mark.long
@pytest.mark.parametrize("elects", [True, False])
async def test_arguments_that_a_served_plugin_refuses_end_the_start(
    servers: RealServers, tmp_path: Path, *, elects: bool
) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    plugin.on("Configure", lambda _: identity_pb2.ConfigureResponse(error="limit must be positive"))
    path, config = tmp_path / "p.sock", tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"clientConnection: {{kubeconfig: {servers.kubeconfig(SCHEDULER)}}}\n"
        f"leaderElection: {{leaderElect: {str(elects).lower()}}}\n"
        "profiles: [{plugins: {filter: {enabled: [{name: Demo}]}}}]\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        f"plugins: [{{name: Demo, endpoint: 'unix://{path}'}}]\n"
    )
    async with plugin.serving(path):
        said = await refused(f"--config={config}", "--secure-port=0")
    assert said == (
        f"berth: plugin Demo (unix://{path}) cannot be loaded: it refuses its arguments:"
        " limit must be positive"
    )
    if elects:
        assert not holder(servers)


@pytest.mark.long
async def test_rights_are_those_of_the_user_that_is_acted_as(servers: RealServers, tmp_path: Path) -> None:
    content = json.loads(servers.kubeconfig().read_text())
    content["users"][0]["user"]["as"] = NOBODY
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(content))
    said = await refused(f"--kubeconfig={kubeconfig}", "--secure-port=0")
    assert said.startswith("berth: missing RBAC rights: ")
    assert 'User "nobody" cannot list resource' in said


async def test_wrong_ca_ends_the_start_with_the_remedy(servers: RealServers, tmp_path: Path) -> None:
    content = json.loads(servers.kubeconfig().read_text())
    del content["clusters"][0]["cluster"]["certificate-authority"]
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(content))
    said = await refused(f"--kubeconfig={kubeconfig}", "--secure-port=0")
    assert said.startswith(f"berth: the certificate of {servers.url} is not trusted: ")
    assert "set certificate-authority in the kubeconfig" in said


@pytest.mark.long
async def test_port_in_use_ends_the_start_with_the_remedy(servers: RealServers) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = await refused(
            f"--kubeconfig={servers.kubeconfig()}", "--bind-address=127.0.0.1", f"--secure-port={port}"
        )
    assert said.startswith(f"berth: cannot listen on 127.0.0.1:{port}: the port is in use; ")


@pytest.mark.long
async def test_wrong_kubeconfig_ends_the_start_with_the_remedy(servers: RealServers, tmp_path: Path) -> None:
    said = await refused(f"--kubeconfig={tmp_path}/none", "--secure-port=0")
    assert said == f"berth: kubeconfig '{tmp_path}/none': no such file; give the path of an existing one"
    said = await refused(
        f"--kubeconfig={servers.kubeconfig(url=servers.url.replace('https', 'http'))}", "--secure-port=0"
    )
    assert said.endswith("is this the address of an API server?")


async def test_an_api_server_that_is_not_there_yet_is_waited_for(
    empty_servers: RealServers, tmp_path: Path
) -> None:
    """As kube-scheduler does, because both start together on a control plane node."""
    kubeconfig = empty_servers.kubeconfig(url=f"https://127.0.0.1:{free_port()}")
    process = await asyncio.create_subprocess_exec(
        *_berth(f"--kubeconfig={kubeconfig}", "--secure-port=0", "--logging-format=json"),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    async with asyncio.timeout(PATIENCE_S):
        while b"cluster.unreachable" not in (line := await process.stderr.readline()):
            assert line
    assert b"is the API server running" in line
    process.terminate()
    assert await process.wait() == 0
