"""The expander for cluster-autoscaler: the autoscaler's call over TLS, with a real berth; the choice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import expander
import grpc
import pytest
import yaml
from berth_sdk.query.v1 import query_pb2, query_pb2_grpc
from expander_berth import Access, Berth
from support.autoscaler import messages_of, node, pod, question
from support.certificates import Authority
from support.examples import EXAMPLES

BEST_OPTIONS: Final = "/grpcplugin.Expander/BestOptions"


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return messages_of(tmp_path_factory.mktemp("proto"))


@contextmanager
def berth_query(folder: Path, *arguments: str) -> Iterator[str]:
    """Run `berth query` over one full node; yield its address."""
    full = {"apiVersion": "v1", "kind": "Node", **node("full", cpu="0")}
    (folder / "cluster.yaml").write_text(yaml.safe_dump(full))
    paths = [str(EXAMPLES / "gpu_share"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    command = [sys.executable, "-m", "berth_host", "query", "-f", str(folder / "cluster.yaml"), "--port=0"]
    with subprocess.Popen(
        [*command, *arguments], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("serving berth.query.v1 at "), line
            yield line.split()[3]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


@pytest.fixture(scope="module")
def plain_berth(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a berth with the plugins of kube-scheduler alone."""
    with berth_query(tmp_path_factory.mktemp("plain")) as address:
        yield address


@pytest.fixture(scope="module")
def gpu_berth(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a berth that shares GPUs by a served plugin."""
    config = EXAMPLES / "gpu_share" / "scheduler.yaml"
    with berth_query(tmp_path_factory.mktemp("gpu"), "--config", str(config)) as address:
        yield address


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@asynccontextmanager
async def served(folder: Path, berth: Berth) -> AsyncIterator[int]:
    """Serve the expander with the certificate in the folder; yield the port."""
    credentials = expander.credentials_of(folder / "tls.crt", folder / "tls.key")
    try:
        async with expander.serving(berth, "127.0.0.1:0", credentials) as port:
            yield port
    finally:
        await berth.close()


@asynccontextmanager
async def expanding(folder: Path, authority: Authority, berth: Berth) -> AsyncIterator[grpc.aio.Channel]:
    """Serve the expander with a certificate; yield the channel of an autoscaler that trusts it."""
    write_certificate(folder, authority)
    async with served(folder, berth) as port, trusting(authority, port) as channel:
        yield channel


def write_certificate(folder: Path, authority: Authority) -> None:
    pair = authority.issue("expander")
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)


def trusting(authority: Authority, port: int) -> grpc.aio.Channel:
    return grpc.aio.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials(authority.pem))


async def best(channel: grpc.aio.Channel, messages: dict[str, Any], request: bytes) -> list[Any]:
    """Call BestOptions as the autoscaler does; return the options of the answer."""
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(BEST_OPTIONS)
    raw = await call(request, timeout=60)
    return list(messages["BestOptionsResponse"].FromString(raw).options)


THREE: Final = [pod(f"p{i}", cpu="3", gpus=2) for i in range(3)]
GROUPS: Final = {"small": node("small", cpu="4", gpus=1), "large": node("large", cpu="4", gpus=2)}


@pytest.mark.parametrize("form", ["bytes", "messages"])
async def test_group_whose_nodes_a_plugin_rejects_is_not_chosen(
    tmp_path: Path,
    messages: dict[str, Any],
    authority: Authority,
    plain_berth: str,
    gpu_berth: str,
    form: str,
) -> None:
    """Each pod takes 1000 thousandths of GPUs, as one GPU has; but half of two GPUs, as the plugin knows."""
    request = question(messages, [("small", 3, THREE), ("large", 3, THREE)], GROUPS, form=form)
    async with expanding(tmp_path, authority, Berth(Access(addresses=[plain_berth]))) as channel:
        (chosen,) = await best(channel, messages, request)
        assert (chosen.node_group_id, chosen.node_count) == ("small", 3)
    async with expanding(tmp_path, authority, Berth(Access(addresses=[gpu_berth]))) as channel:
        (chosen,) = await best(channel, messages, request)
        assert (chosen.node_group_id, chosen.node_count) == ("large", 3)
        assert chosen.debug.startswith("berth: 3 of 3 pods fit")


async def test_group_that_places_most_pods_is_chosen_and_the_reason_is_logged(
    tmp_path: Path,
    messages: dict[str, Any],
    authority: Authority,
    gpu_berth: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    mixed = [pod("plain"), *THREE]
    request = question(messages, [("small", 3, mixed), ("large", 2, mixed)], GROUPS)
    async with expanding(tmp_path, authority, Berth(Access(addresses=[gpu_berth]))) as channel:
        (chosen,) = await best(channel, messages, request)
    assert chosen.node_group_id == "large"
    assert "berth: 3 of 4 pods fit" in chosen.debug
    assert "node group small, 3 nodes: 1 of 4 pods fit" in caplog.text
    assert "GpuShare: node has fewer than 2 GPUs" in caplog.text


async def test_equal_groups_are_all_answered_and_no_group_if_nothing_fits(
    tmp_path: Path, messages: dict[str, Any], authority: Authority, gpu_berth: str
) -> None:
    nodes = {f"zone-{zone}": node(zone, gpus=4, zone=zone) for zone in "abc"}
    wanted = [pod(f"p{i}", cpu="5", gpus=4) for i in range(2)]
    async with expanding(tmp_path, authority, Berth(Access(addresses=[gpu_berth]))) as channel:
        options = [(group, 2, wanted) for group in nodes]
        answered = await best(channel, messages, question(messages, options, nodes))
        assert sorted(one.node_group_id for one in answered) == ["zone-a", "zone-b", "zone-c"]
        picky = [pod("p", gpus=1, nodeSelector={"zone": "b"})]
        options = [(group, 1, picky) for group in nodes]
        answered = await best(channel, messages, question(messages, options, nodes))
        assert [one.node_group_id for one in answered] == ["zone-b"]
        options = [(group, 1, [pod("p", cpu="9")]) for group in nodes]
        assert await best(channel, messages, question(messages, options, nodes)) == []


async def test_pods_of_daemon_sets_take_room_on_each_new_node(
    tmp_path: Path, messages: dict[str, Any], authority: Authority, plain_berth: str
) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": True}
    agent = pod("agent-x", cpu="1")
    agent["metadata"]["ownerReferences"] = [owner]
    agent["spec"]["priorityClassName"] = "of-the-cluster"
    listed = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [{**agent, "kind": "Pod"}, {**pod("web"), "kind": "Pod"}],
    }
    path = tmp_path / "pods.json"
    path.write_text(json.dumps(listed))
    nodes = {"exact": node("exact", cpu="8"), "roomy": node("roomy", cpu="10")}
    wanted = [pod(f"p{i}", cpu="4") for i in range(4)]
    request = question(messages, [(group, 2, wanted) for group in nodes], nodes)
    for node_pods, expected in (((), "exact"), (expander.node_pods_of(path), "roomy")):
        berth = Berth(Access(addresses=[plain_berth]), node_pods=node_pods)
        async with expanding(tmp_path, authority, berth) as channel:
            (chosen,) = await best(channel, messages, request)
            assert chosen.node_group_id == expected


async def test_pods_of_another_scheduler_are_an_error_unless_a_profile_is_named(
    tmp_path: Path, messages: dict[str, Any], authority: Authority, plain_berth: str
) -> None:
    nodes = {"a": node("a")}
    request = question(messages, [("a", 1, [pod("p", schedulerName="theirs")])], nodes)
    async with expanding(tmp_path, authority, Berth(Access(addresses=[plain_berth]))) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as found:
            await best(channel, messages, request)
        assert found.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "pod default/p has the schedulerName 'theirs'" in str(found.value.details())
    berth = Berth(Access(addresses=[plain_berth]), scheduler_name="default-scheduler")
    async with expanding(tmp_path, authority, berth) as channel:
        (chosen,) = await best(channel, messages, request)
        assert chosen.node_group_id == "a"


async def test_renewed_certificate_is_used_without_a_restart_and_a_missing_one_is_not(
    tmp_path: Path, messages: dict[str, Any], authority: Authority
) -> None:
    newer = Authority("newer")
    write_certificate(tmp_path, authority)
    request = question(messages, [], {})
    async with served(tmp_path, Berth(Access(addresses=["127.0.0.1:1"]))) as port:
        write_certificate(tmp_path, newer)
        async with trusting(newer, port) as channel:
            assert await best(channel, messages, request) == []
        async with trusting(authority, port) as channel:
            with pytest.raises(grpc.aio.AioRpcError, match="UNAVAILABLE"):
                await best(channel, messages, request)
        (tmp_path / "tls.key").unlink()
        async with trusting(newer, port) as channel:
            assert await best(channel, messages, request) == []


# --- berth is away, or refuses ---------------------------------------------------------------------------


class OneAnswer(query_pb2_grpc.QueryServiceServicer):
    """A berth that places every pod, for the bearer of `token`. "": it is on standby."""

    def __init__(self, token: str, *, hangs: bool = False) -> None:
        self.token = token
        self.hangs = hangs

    async def Simulate(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        if not self.token:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "on standby: ask the leader")
        if ("authorization", f"Bearer {self.token}") not in tuple(context.invocation_metadata()):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the bearer token is not valid")
        if self.hangs:
            await asyncio.Event().wait()
        yield query_pb2.SimulateResponse(
            pods=[query_pb2.PodAnswer(index=at, template="new") for at in range(len(request.pods))]
        )
        yield query_pb2.SimulateResponse(summary=query_pb2.Summary(placed_count=len(request.pods)))


@asynccontextmanager
async def replica(authority: Authority, token: str, *, hangs: bool = False) -> AsyncIterator[str]:
    """Serve a replica of berth over TLS; yield its address."""
    pair = authority.issue("berth")
    server = grpc.aio.server()
    query_pb2_grpc.add_QueryServiceServicer_to_server(OneAnswer(token, hangs=hangs), server)
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(pair.key, pair.certificate)]))
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


@pytest.mark.parametrize("is_one_name", [False, True], ids=["two names", "one name"])
async def test_leading_replica_is_found_and_gets_the_token_of_the_file(
    tmp_path: Path, messages: dict[str, Any], authority: Authority, is_one_name: bool
) -> None:
    token_file = tmp_path / "token"
    request = question(messages, [("a", 1, [pod("p")])], {"a": node("a")})
    async with replica(authority, "") as standby, replica(authority, "good") as leader:
        # A name of the DNS with the addresses of both, as that of the chart's Service.
        addresses = [f"ipv4:{standby},{leader}"] if is_one_name else [standby, leader]
        access = Access(addresses=addresses, ca=authority.pem, token_file=token_file, name="127.0.0.1")
        async with expanding(tmp_path, authority, Berth(access)) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as found:
                await best(channel, messages, request)
            assert f"--berth-token-file {token_file}: No such file" in str(found.value.details())
            token_file.write_text("bad\n")
            with pytest.raises(grpc.aio.AioRpcError) as found:
                await best(channel, messages, request)
            assert found.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert "check --berth-token-file; cluster-autoscaler goes on" in str(found.value.details())
            token_file.write_text("good\n")
            (chosen,) = await best(channel, messages, request)
            assert chosen.node_group_id == "a"


async def test_berth_that_hangs_is_an_error_before_the_autoscaler_gives_up(
    tmp_path: Path, messages: dict[str, Any], authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expander, "ANSWERING_S", 59.5)  # of the 60 s that `best` waits
    token_file = tmp_path / "token"
    token_file.write_text("good")
    request = question(messages, [("a", 1, [pod("p")])], {"a": node("a")})
    async with replica(authority, "good", hangs=True) as address:
        access = Access(addresses=[address], ca=authority.pem, token_file=token_file)
        async with expanding(tmp_path, authority, Berth(access)) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as found:
                await best(channel, messages, request)
    assert found.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert "fewer node groups or pods take less time" in str(found.value.details())


async def test_berth_that_cannot_be_reached_is_an_error_that_says_what_to_do(
    tmp_path: Path, messages: dict[str, Any], authority: Authority
) -> None:
    with_port = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = with_port.sockets[0].getsockname()[1]
    with_port.close()
    await with_port.wait_closed()
    access = Access(addresses=[f"127.0.0.1:{port}"], ca=authority.pem)
    request = question(messages, [("a", 1, [pod("p")])], {"a": node("a")})
    async with expanding(tmp_path, authority, Berth(access)) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as found:
            await best(channel, messages, request)
    assert found.value.code() is grpc.StatusCode.UNAVAILABLE
    said = str(found.value.details())
    assert f"no berth answers (127.0.0.1:{port}: UNAVAILABLE" in said
    assert "check --berth, --berth-ca and that a berth scheduler with --query-secure-port leads" in said


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\x0a\x05\x0a\x03abc", "node group 'abc': the question has no node of it"),
        (b"\x0a\x05\x0a\x03ab", "field 1 ends after the message"),
        (b"\x0a\x80", "the message ends within a number"),
        (b"\x0b", "field 1 is encoded in the unknown way 3"),
        (b"\x0a\x03\x0a\x01\xff", "a text is not UTF-8"),
        (b"\x0a\x03\x12\x01a", "a number is encoded as bytes"),
        (b"\x08\x01", "a message is encoded as a number"),
    ],
    ids=["no node", "cut", "cut number", "group", "text", "bytes", "number"],
)
async def test_question_that_cannot_be_read_is_an_error(
    tmp_path: Path, messages: dict[str, Any], authority: Authority, raw: bytes, text: str
) -> None:
    async with expanding(tmp_path, authority, Berth(Access(addresses=["127.0.0.1:1"]))) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as found:
            await best(channel, messages, raw)
    assert found.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert text in str(found.value.details())


# --- the command -----------------------------------------------------------------------------------------


def test_command_serves_over_tls_until_it_is_terminated(
    tmp_path: Path, messages: dict[str, Any], authority: Authority, plain_berth: str
) -> None:
    write_certificate(tmp_path, authority)
    command = [sys.executable, str(EXAMPLES / "cluster_autoscaler_expander" / "expander.py")]
    command += ["--berth", plain_berth, "--berth-plaintext", "--listen", "127.0.0.1:0"]
    command += ["--tls-cert", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "tls.key")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("serving grpcplugin.Expander at 127.0.0.1:")
        request = question(messages, [("a", 1, [pod("p")])], {"a": node("a")})
        credentials = grpc.ssl_channel_credentials(authority.pem)
        with grpc.secure_channel(line.split()[-1], credentials) as channel:
            call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(BEST_OPTIONS)
            raw = call(request, timeout=60)
        (chosen,) = messages["BestOptionsResponse"].FromString(raw).options
        assert chosen.node_group_id == "a"
        process.terminate()
        _, said = process.communicate()
    assert process.returncode == 0, said
    assert "node group a, 1 nodes: 1 of 1 pods fit" in said


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "--berth"),
        (["--berth=h:1", "--plaintext"], "give --berth-ca FILE, or --berth-plaintext"),
        (["--berth=h:1", "--berth-plaintext"], "give --tls-cert FILE and --tls-key FILE, or --plaintext"),
        (["--berth=h:1", "--berth-plaintext", "--tls-cert=c"], "give --tls-cert FILE and --tls-key FILE"),
        (["--berth=h:1", "--berth-plaintext", "--plaintext", "--berth-token-file=t"], "needs --berth-ca"),
        (["--berth=h:1", "--berth-ca=/none", "--plaintext"], "No such file or directory: '/none'"),
        (["--berth=h:1", "--berth-plaintext", "--plaintext", "--listen=nonsense"], "--listen nonsense"),
    ],
    ids=["no berth", "no ca", "no certificate", "no key", "token", "no file", "address"],
)
def test_options_that_cannot_be_used_are_refused_with_the_cure(
    capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    try:
        code = expander.main(arguments)
    except SystemExit as err:
        code = int(str(err.code))
    assert code == 2
    assert text in capsys.readouterr().err


def test_file_without_a_pod_of_a_daemon_set_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pods.json"
    path.write_text(json.dumps({"kind": "PodList", "items": [pod("web")]}))
    with pytest.raises(ValueError, match="no pod in it belongs to a DaemonSet"):
        expander.node_pods_of(path)
