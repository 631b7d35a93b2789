"""Names in certificates: the hosts that are named are answered, and no other one, whatever it calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from berth_sdk.plugin.v1 import identity_pb2, state_pb2
from berth_sdk.plugin.v1.identity_pb2_grpc import IdentityServiceStub
from berth_sdk.plugin.v1.state_pb2_grpc import StateServiceStub
from berth_sdk.serve.client_names import ClientNames
from berth_sdk.serve.server import PluginServer
from berth_sdk.serve.tls import TlsServing
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from support.certificates import Authority, Pair, pair_files
from support.echo_plugin import Echo
from support.waiting import PATIENCE_S

NAMED = ("host.example", "other host")
TIMEOUT_S = PATIENCE_S


def ask(address: str, authority: Authority, pair: Pair) -> dict[str, grpc.StatusCode]:
    """Return the code of a call of each kind: unary, a stream of requests, a stream both ways."""
    credentials = grpc.ssl_channel_credentials(authority.pem, pair.key, pair.certificate)
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(address, credentials, options=options) as channel:
        reflect = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        calls: dict[str, Any] = {
            "unary": lambda: IdentityServiceStub(channel).Handshake(
                identity_pb2.HandshakeRequest(attachment_id="a"), timeout=TIMEOUT_S
            ),
            "requests": lambda: StateServiceStub(channel).SyncState(
                iter([state_pb2.SyncStateRequest(attachment_id="a")]), timeout=TIMEOUT_S
            ),
            "both": lambda: next(
                reflect(iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=TIMEOUT_S)
            ),
        }
        return {name: code_of(call) for name, call in calls.items()}


def code_of(call: Any) -> grpc.StatusCode:
    try:
        call()
    except grpc.RpcError as err:
        failed: Any = err
        code: grpc.StatusCode = failed.code()
        return code
    return grpc.StatusCode.OK


@pytest.mark.parametrize(
    ("name", "dns", "gets_in"),
    [
        pytest.param("x", "host.example", True, id="alternative name"),
        pytest.param("other host", "x.example", True, id="common name"),
        pytest.param("x", "stranger.example", False, id="another"),
        pytest.param("host", "example", False, id="parts of a name"),
    ],
)
def test_every_kind_of_call_is_checked(tmp_path: Path, name: str, dns: str, gets_in: bool) -> None:
    authority = Authority()
    files = pair_files(tmp_path, "plugin", authority.issue("plugin"), authority)
    tls = TlsServing(
        cert_file=str(files.certificate),
        key_file=str(files.key),
        client_ca_file=str(files.authority),
        client_names=NAMED,
    )
    with PluginServer({"Echo": Echo}, tls=tls) as server:
        found = ask(server.listen("127.0.0.1:0"), authority, authority.issue(name, dns=dns))
        refused = grpc.StatusCode.PERMISSION_DENIED
        if gets_in:
            # The second is refused as one that is not attached, by the instance itself.
            ok = grpc.StatusCode.OK
            assert found == {"unary": ok, "requests": grpc.StatusCode.UNAVAILABLE, "both": ok}
        else:
            assert found == dict.fromkeys(("unary", "requests", "both"), refused)
            assert list(server.instance.introduced) == []


def test_a_method_that_is_not_served_stays_so() -> None:
    details: Any = None
    assert ClientNames(NAMED).intercept_service(lambda _: None, details) is None
