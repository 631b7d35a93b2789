"""Which hosts a server answers: those that know the secret, and only the last one that attached."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import ExtensionPoint, Plugin
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2, queue_pb2, scheduling_pb2, state_pb2
from berth_sdk.pod import Pod
from berth_sdk.results import QueuedPod
from berth_sdk.serve.server import PluginServer
from berth_sdk.status import Status
from berth_sdk.wire.credential import CREDENTIAL, CredentialError, read_credential, take_credential
from google.protobuf.message_factory import GetMessageClass
from support.sdk_server import TIMEOUT_S, RawHost, plugin_args, refused

from .conftest import Serve

SECRET = "open sesame"
POD = Pod(name="web", uid="u1")
SERVICES: tuple[Any, ...] = (
    identity_pb2.DESCRIPTOR.services_by_name["IdentityService"],
    state_pb2.DESCRIPTOR.services_by_name["StateService"],
    queue_pb2.DESCRIPTOR.services_by_name["QueueService"],
    scheduling_pb2.DESCRIPTOR.services_by_name["SchedulingService"],
)
METHODS = {
    method.name: (f"/{service.full_name}/{method.name}", method)
    for service in SERVICES
    for method in service.methods
}
BEFORE_AN_ATTACHMENT = {"Handshake", "Configure"}


class Demo(Plugin):
    """Takes part in the queue, in cycles and in reservations."""

    def pre_enqueue(self, pod: QueuedPod) -> Status:
        return Status.success()

    def filter(self, state: CycleState, pod: Pod, node: Any) -> Status:
        return Status.success()

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return Status.success()


def request_of(rpc: str, attachment_id: str) -> Any:
    """Return the emptiest request that names an attachment."""
    request: Any = GetMessageClass(METHODS[rpc][1].input_type)()
    if "ctx" in request.DESCRIPTOR.fields_by_name:
        request.ctx.attachment_id = attachment_id
    else:
        request.attachment_id = attachment_id
    return request


def call(host: RawHost, rpc: str, attachment_id: str) -> Any:
    path, method = METHODS[rpc]
    make = host.channel.stream_unary if method.client_streaming else host.channel.unary_unary
    request = request_of(rpc, attachment_id)
    send: Any = make(
        path,
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    return send(iter([request]) if method.client_streaming else request, timeout=TIMEOUT_S)


# --- which host is attached ----------------------------------------------------------------------------


@pytest.mark.parametrize("rpc", sorted(METHODS.keys() - BEFORE_AN_ATTACHMENT))
def test_every_call_of_another_attachment_is_refused(serve: Serve, rpc: str) -> None:
    host = serve(Demo).host
    host.attach()
    error = refused(lambda: call(host, rpc, "somebody"))
    assert error.code() is grpc.StatusCode.PERMISSION_DENIED
    assert host.attachment_id not in str(error.details())


def test_whoever_attaches_ends_the_attachment_before(serve: Serve) -> None:
    serving = serve(Demo)
    first, second = serving.host, RawHost(serving.address)
    try:
        first.attach()
        assert call(first, "Probe", first.attachment_id).ready
        second.handshake("b1")
        assert call(first, "Probe", "a1").ready, "a handshake alone changes nothing"
        second.configure([plugin_args("Demo", [ExtensionPoint.FILTER])], "b1")
        assert refused(lambda: call(first, "Probe", "a1")).code() is grpc.StatusCode.PERMISSION_DENIED
        assert call(second, "Probe", "b1").ready
    finally:
        second.close()


def test_a_refusal_ends_no_attachment_but_its_own(serve: Serve) -> None:
    host = serve(Demo).host
    host.attach()
    stranger = identity_pb2.ConfigureRequest(attachment_id="b1", reason="too old")
    assert refused(lambda: host.identity.Configure(stranger)).code() is grpc.StatusCode.PERMISSION_DENIED
    host.handshake("b1")
    host.identity.Configure(stranger)
    assert call(host, "Probe", host.attachment_id).ready


# --- the secret ----------------------------------------------------------------------------------------


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[RawHost]:
    with PluginServer({"Demo": Demo}, SECRET) as server:
        host = RawHost(server.listen(f"unix:{tmp_path}/p.sock"))
        yield host
        host.close()


def shake(host: RawHost, credential: str) -> identity_pb2.HandshakeResponse:
    request = identity_pb2.HandshakeRequest(attachment_id="a1", credential=credential)
    return host.identity.Handshake(request, timeout=TIMEOUT_S)


@pytest.mark.parametrize("credential", ["", "open", "open sesame ", "OPEN SESAME", "ö"])
def test_host_without_the_secret_is_refused(
    guarded: RawHost, credential: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        error = refused(lambda: shake(guarded, credential))
    assert error.code() is grpc.StatusCode.UNAUTHENTICATED
    configure = identity_pb2.ConfigureRequest(attachment_id="a1", accepted=True)
    assert refused(lambda: guarded.identity.Configure(configure)).code() is grpc.StatusCode.PERMISSION_DENIED
    assert SECRET not in f"{error.details()}{caplog.text}"
    assert "refused a host" in caplog.text


def test_host_with_the_secret_is_accepted(guarded: RawHost) -> None:
    assert [item.name for item in shake(guarded, SECRET).plugins] == ["Demo"]


def test_server_without_a_secret_accepts_any_host(serve: Serve) -> None:
    assert shake(serve(Demo).host, SECRET).instance_id


def test_a_file_holds_it_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "credential"
    path.write_text(f"{SECRET}\n")
    assert read_credential(str(path)) == SECRET


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        (b"\n", "holds no credential"),
        (b"x" * 5000, "more than a credential"),
        (b"\xff", "text"),
    ],
)
def test_a_file_that_holds_none_is_named(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "credential"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CredentialError, match=words) as caught:
        read_credential(str(path))
    assert str(path) in str(caught.value)


def test_credential_given_to_a_child_is_not_inherited() -> None:
    environment = {CREDENTIAL: SECRET, "HOME": "/"}
    assert take_credential(environment) == SECRET
    assert environment == {"HOME": "/"}
    assert take_credential(environment) == ""


# --- which cycle is answered ---------------------------------------------------------------------------


def test_answers_name_their_cycle_also_those_that_lack_something(serve: Serve) -> None:
    host = serve(Demo).host
    host.attach()
    host.version = pb.StateVersion(epoch=1, generation=5)
    lacks = host.filter("Demo", POD, "c1")
    assert (lacks.ctx.cycle_id, list(lacks.ctx.missing)) == ("c1", [pb.MISSING_STATE])
    request = scheduling_pb2.ReserveRequest(ctx=host.ctx("Demo", POD, "c2"), node_name="n0")
    request.ctx.ClearField("version")
    for _ in range(2):  # a duplicate gets the first answer
        assert host.scheduling.Reserve(request, timeout=TIMEOUT_S).ctx.cycle_id == "c2"


# --- the list of what is alive, in pages ---------------------------------------------------------------


def page(
    sequence: int, *cycle_ids: str, host_epoch: int = 7, last: bool = False
) -> state_pb2.ReconcileRequest:
    live = [state_pb2.LiveReservation(cycle_id=name, node_name="n0", plugin_token=b"t") for name in cycle_ids]
    return state_pb2.ReconcileRequest(
        plugin="Demo", host_epoch=host_epoch, sequence=sequence, live=live, last=last
    )


def test_pages_are_one_list(serve: Serve) -> None:
    host = serve(Demo).host
    host.attach()
    pages = [page(0, "c1"), page(1), page(2, "c2", last=True)]
    assert not host.state.Reconcile(iter(pages), timeout=TIMEOUT_S).unknown_cycle_ids
    assert call(host, "Drain", host.attachment_id).open_cycles == 2


@pytest.mark.parametrize(
    ("pages", "words"),
    [
        pytest.param([], "ended before", id="none"),
        pytest.param([page(0, "c1")], "ended before", id="no last"),
        pytest.param([page(0), page(2, last=True)], "page 2 came where 1", id="gap"),
        pytest.param([page(0, last=True), page(1)], "follows the last", id="after the last"),
        pytest.param([page(0), page(1, host_epoch=8, last=True)], "several plugins or epochs", id="epochs"),
    ],
)
def test_a_list_that_is_not_whole_releases_nothing(
    serve: Serve, pages: list[state_pb2.ReconcileRequest], words: str
) -> None:
    host = serve(Demo).host
    host.attach()
    host.state.Reconcile(iter([page(0, "c0", last=True)]), timeout=TIMEOUT_S)
    error = refused(lambda: host.state.Reconcile(iter(pages), timeout=TIMEOUT_S))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert words in str(error.details())
    assert call(host, "Drain", host.attachment_id).open_cycles == 1
