"""The secure port with a real API server behind it: its tokens, its RBAC, its CAs of clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from berth_bench.versus.free_ports import free_port
from berth_bench.versus.objects import node, pod
from berth_bench.versus.real_servers import ADMIN, NOBODY, SCHEDULER, RealServers
from berth_bench.versus.scheduler_process import SchedulerProcess, SchedulerSetup
from berth_host.config.loading import default_configuration
from berth_host.errors.endpoints import ReviewError
from berth_host.model.user import ANONYMOUS, User
from berth_host.process.late_reviewer import LateReviewer
from berth_kube.client import KubeClient
from berth_kube.connection import Connection
from berth_kube.reviews import KubeReviewer
from berth_sdk.query.v1 import query_pb2, query_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families
from support.serving import FakeProcess, recorded, served
from support.waiting import PATIENCE_S

pytestmark = pytest.mark.long

CREDENTIALS = {"clusterAdmin": ADMIN, "authenticatedWithoutRights": NOBODY, "schedulerItself": SCHEDULER}
CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


@asynccontextmanager
async def client_of(kubeconfig: Path) -> AsyncIterator[KubeClient]:
    client = await KubeClient.open(Connection(kubeconfig=str(kubeconfig)))
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture
async def reviewer(servers: RealServers) -> AsyncIterator[KubeReviewer]:
    """Make a reviewer that uses the scheduler's user with its stock roles."""
    async with client_of(servers.kubeconfig(SCHEDULER)) as client:
        yield KubeReviewer(client, client)


@pytest.fixture
def metrics_reader(servers: RealServers) -> Iterator[str]:
    """Make a user who may get /metrics, as an administrator would for a Prometheus."""
    role = {
        "metadata": {"name": "test-metrics-reader"},
        "rules": [{"nonResourceURLs": ["/metrics", "/berth/v1/*"], "verbs": ["get"]}],
    }
    binding = {
        "metadata": {"name": "test-metrics-reader"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "test-metrics-reader",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "prometheus"}],
    }
    servers.create(ROLES, {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", **role})
    servers.create(
        BINDINGS, {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", **binding}
    )
    yield "prometheus"
    servers.request("DELETE", f"{BINDINGS}/test-metrics-reader")
    servers.request("DELETE", f"{ROLES}/test-metrics-reader")


async def test_tokens_are_reviewed(servers: RealServers, reviewer: KubeReviewer) -> None:
    admin = await reviewer.user_of(servers.tokens[ADMIN])
    assert admin is not None
    assert (admin.name, admin.uid, set(admin.groups)) == (
        ADMIN,
        ADMIN,
        {"system:masters", "system:authenticated"},
    )
    assert await reviewer.user_of("a token that nobody has") is None


async def test_rights_are_reviewed(servers: RealServers, reviewer: KubeReviewer, metrics_reader: str) -> None:
    assert await reviewer.may(ANONYMOUS, "get", "/healthz")
    assert await reviewer.may(ANONYMOUS, "get", "/version")
    assert not await reviewer.may(ANONYMOUS, "get", "/metrics")
    reader = User(name=metrics_reader, groups=("system:authenticated",))
    assert await reviewer.may(reader, "get", "/metrics")
    assert await reviewer.may(reader, "get", "/berth/v1/pods/default/p")
    assert not await reviewer.may(reader, "delete", "/metrics")


async def test_user_without_a_right_gets_its_name_in_the_error(servers: RealServers, tmp_path: Path) -> None:
    async with client_of(servers.kubeconfig(NOBODY)) as client:
        reviewer = KubeReviewer(client, client)
        with pytest.raises(ReviewError, match="tokenreviews"):
            await reviewer.user_of("a token")
        with pytest.raises(ReviewError, match="subjectaccessreviews"):
            await reviewer.may(ANONYMOUS, "get", "/metrics")
        with pytest.raises(ReviewError, match="extension-apiserver-authentication"):
            await reviewer.trust()


async def test_the_clusters_cas_are_read(servers: RealServers, reviewer: KubeReviewer) -> None:
    """The API server itself publishes the CA of clients; the test adds that of a front proxy."""
    ca = servers.ca_file.read_text()
    data = {
        "requestheader-client-ca-file": ca,
        "requestheader-allowed-names": json.dumps(["front"]),
        "requestheader-username-headers": json.dumps(["X-Remote-User"]),
        "requestheader-extra-headers-prefix": json.dumps(["X-Remote-Extra-"]),
    }
    published = (await reviewer.trust()).client_ca
    assert published.strip() == (servers.folder / "clients.crt").read_text().strip()
    patch_as = "application/merge-patch+json"
    servers.request("PATCH", CONFIG_MAP, {"data": data}, content_type=patch_as)
    try:
        trust = await reviewer.trust()
    finally:
        taken_back = dict.fromkeys(data, None)
        servers.request("PATCH", CONFIG_MAP, {"data": taken_back}, content_type=patch_as)
    assert (trust.client_ca, trust.proxy_ca) == (published, ca)
    assert (trust.proxy_names, trust.user_headers) == (("front",), ("X-Remote-User",))
    assert trust.extra_prefixes == ("X-Remote-Extra-",)
    assert trust.group_headers == ("x-remote-group",)


async def test_users_of_a_real_cluster_get_the_recorded_answers(servers: RealServers) -> None:
    """Every path with each of the recorded credentials, compared with kube-scheduler's status codes."""
    found: dict[str, int] = {}
    wanted: dict[str, int] = {}
    async with client_of(servers.kubeconfig(SCHEDULER)) as client:
        late = LateReviewer(client)
        await late.open()
        process = FakeProcess(default_configuration())
        async with served(process, late) as port:
            for path, answers in recorded("endpoints")["endpoints"].items():
                wrong = await port.ask("GET", path, token="a token that nobody has")
                assert wrong.status == 401, path
                for group in answers["answers"]:
                    for credentials in group["credentials"]:
                        user = CREDENTIALS.get(credentials)
                        token = servers.tokens[user] if user else ""
                        key = f"{path} {credentials}"
                        found[key] = (await port.ask("GET", path, token=token)).status
                        wanted[key] = group["answer"]["status"]
    assert found == wanted


async def test_running_scheduler_has_metrics_of_requests_leadership_and_process(
    empty_servers: RealServers, metrics_reader: str, tmp_path: Path
) -> None:
    configuration = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "leaderElection: {leaderElect: true, resourceName: endpoints-test}\n"
    )
    setup = SchedulerSetup(
        program="berth",
        kubeconfig=empty_servers.kubeconfig(ADMIN),
        folder=tmp_path,
        configuration=configuration,
    )
    process = SchedulerProcess(setup)
    await process.start()
    try:
        await process.ready()
        headers = {"Authorization": f"Bearer {empty_servers.tokens[ADMIN]}"}
        connector = aiohttp.TCPConnector(ssl=False)
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

            async def page(path: str) -> str:
                async with session.get(f"https://127.0.0.1:{process.port}{path}") as answer:
                    assert answer.status == 200, path
                    return await answer.text()

            metrics = await page("/metrics")
            async with asyncio.timeout(PATIENCE_S):
                while _value(metrics) != 1:
                    await asyncio.sleep(0.1)
                    metrics = await page("/metrics")
            flagz = await page("/flagz")
            configz = json.loads(await page("/configz"))["componentconfig"]
            ready = await page("/readyz?verbose")
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
            session.get(f"https://127.0.0.1:{process.port}/metrics") as answer,
        ):
            assert answer.status == 403
    finally:
        await process.stop()
    requests = _samples(metrics, "rest_client_requests_total")
    assert {(labels["code"], labels["method"]) for labels in requests} >= {("200", "GET"), ("201", "POST")}
    assert {labels["host"] for labels in requests} == {f"127.0.0.1:{empty_servers.port}"}
    assert _samples(metrics, "rest_client_request_duration_seconds_count")
    assert ready.splitlines()[-1] == "readyz check passed"
    assert configz["leaderElection"]["resourceName"] == "endpoints-test"
    assert f"secure-port: {process.port}\n" in flagz


async def test_running_scheduler_answers_programs_over_grpc_to_users_with_the_right(
    empty_servers: RealServers, tmp_path: Path
) -> None:
    """With the reviews of a real API server, and the certificate that the scheduler makes for both ports."""
    port = free_port()
    setup = SchedulerSetup(
        program="berth",
        kubeconfig=empty_servers.kubeconfig(ADMIN),
        folder=tmp_path,
        flags=(f"--query-secure-port={port}", f"--cert-dir={tmp_path / 'certificates'}"),
    )
    empty_servers.create("/api/v1/nodes", node("small", cpu="1"))
    process = SchedulerProcess(setup)
    await process.start()
    try:
        await process.ready()
        authority = (tmp_path / "certificates" / "kube-scheduler.crt").read_bytes()
        large = json.dumps(node("large", cpu="4")).encode()
        request = query_pb2.SimulateRequest(
            pods=[json.dumps(pod("web", cpu="2")).encode()],
            templates=[query_pb2.NodeTemplate(name="large", node=large, count=2)],
        )
        credentials = grpc.ssl_channel_credentials(authority)
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
            stub: Any = query_pb2_grpc.QueryServiceStub(channel)

            async def ask(token: str) -> list[Any]:
                metadata = (("authorization", f"Bearer {token}"),)
                return [message async for message in stub.Simulate(request, metadata=metadata, timeout=30)]

            async with asyncio.timeout(PATIENCE_S):
                while True:
                    try:
                        answers = await ask(empty_servers.tokens[ADMIN])
                        break
                    except grpc.aio.AioRpcError as err:
                        # It has not listed the cluster yet, or does not lead yet.
                        assert err.code() in (
                            grpc.StatusCode.UNAVAILABLE,
                            grpc.StatusCode.FAILED_PRECONDITION,
                        )
                        await asyncio.sleep(0.1)
            for token, code in (
                (empty_servers.tokens[NOBODY], grpc.StatusCode.PERMISSION_DENIED),
                ("a token that nobody has", grpc.StatusCode.UNAUTHENTICATED),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await ask(token)
                assert caught.value.code() is code
    finally:
        await process.stop()
    assert [(answer.template, answer.ordinal) for answer in answers[0].pods] == [("large", 0)]
    assert answers[-1].summary.templates[0].used_count == 1


def _samples(text: str, name: str) -> list[dict[str, Any]]:
    return [
        dict(sample.labels)
        for metric in text_string_to_metric_families(text)
        for sample in metric.samples
        if sample.name == name
    ]


def _value(text: str) -> float:
    """Return the value of the metric that tells whether this replica leads."""
    return next(
        sample.value
        for metric in text_string_to_metric_families(text)
        for sample in metric.samples
        if sample.name == "leader_election_master_status"
    )
