"""Nothing of the contract is forgotten: every point and every call has its place on both sides."""

from __future__ import annotations

import re
from typing import Any

import pytest
from berth_host.rpc.call import Lane
from berth_host.rpc.calls import CALLS
from berth_host.rpc.client import PluginClient
from berth_host.rpc.in_process import InProcessTransport
from berth_host.rpc.served.codec import CODECS
from berth_host.rpc.served.grpc_transport import GrpcTransport
from berth_host.rpc.served.sender import LinkSender
from berth_host.rpc.transport import Transport
from berth_sdk.extension_points import METHODS, ExtensionPoint
from berth_sdk.plugin.v1 import (
    identity_pb2,
    identity_pb2_grpc,
    queue_pb2,
    queue_pb2_grpc,
    scheduling_pb2,
    scheduling_pb2_grpc,
    state_pb2,
    state_pb2_grpc,
)
from berth_sdk.serve.scheduling_servicer import SchedulingServicer
from berth_sdk.serve.servicers import IdentityServicer, QueueServicer, StateServicer

SCHEDULING = scheduling_pb2.DESCRIPTOR.services_by_name["SchedulingService"]
QUEUE = queue_pb2.DESCRIPTOR.services_by_name["QueueService"]
ASKED = [method.name for service in (SCHEDULING, QUEUE) for method in service.methods]
# Where the client's word differs from the RPC's.
CLIENT_NAMES = {"SimulateFilter": "filter_scenarios", "NormalizeScore": "score", "EndCycles": "end_cycle"}
# These go out in batches, from the outbox.
SENT_LATER = {"Unreserve": "send_unreserve", "PostBind": "send_post_bind", "EndCycles": "send_end_cycles"}
SERVICERS: list[tuple[Any, type, type]] = [
    (SCHEDULING, SchedulingServicer, scheduling_pb2_grpc.SchedulingServiceServicer),
    (QUEUE, QueueServicer, queue_pb2_grpc.QueueServiceServicer),
    (
        state_pb2.DESCRIPTOR.services_by_name["StateService"],
        StateServicer,
        state_pb2_grpc.StateServiceServicer,
    ),
    (
        identity_pb2.DESCRIPTOR.services_by_name["IdentityService"],
        IdentityServicer,
        identity_pb2_grpc.IdentityServiceServicer,
    ),
]


def snake(rpc: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", rpc).lower()


@pytest.mark.parametrize("rpc", ASKED)
def test_every_call_has_a_client_method_a_row_and_both_transports(rpc: str) -> None:
    assert callable(getattr(PluginClient, CLIENT_NAMES.get(rpc, snake(rpc))))
    (call,) = [call for call in CALLS if call.rpc == rpc]
    told = rpc in SENT_LATER
    assert (call.lane is Lane.OUTBOX) == told
    for way in (InProcessTransport, GrpcTransport):
        assert callable(vars(way)["ask"]) and callable(vars(way)["end_cycle"])
    assert callable(call.local) and callable(call.check)
    assert CODECS[rpc].call is call
    if rpc in SENT_LATER:
        assert callable(vars(LinkSender).get(SENT_LATER[rpc]))


@pytest.mark.parametrize("way", [InProcessTransport, GrpcTransport], ids=lambda way: way.__name__)
def test_transports_offer_nothing_beyond_the_protocol(way: type) -> None:
    own = {name for name, value in vars(way).items() if callable(value) and not name.startswith("_")}
    # The relay itself calls an in-process plugin; these read the plugin's answers and exceptions.
    local = {"awaits", "going_on", "stands_for"} if way is InProcessTransport else set()
    assert own - {"close"} - local <= {name for name in vars(Transport) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("service", "servicer", "base"), SERVICERS, ids=[service.name for service, _, _ in SERVICERS]
)
def test_every_service_is_served_whole(service: Any, servicer: type, base: type) -> None:
    for method in service.methods:
        assert getattr(servicer, method.name) is not getattr(base, method.name), method.name


def test_every_point_of_the_contract_has_a_method_for_authors_and_a_call() -> None:
    values = identity_pb2.DESCRIPTOR.enum_types_by_name["ExtensionPoint"].values
    declared = {value.name.removeprefix("EXTENSION_POINT_"): value.number for value in values if value.number}
    assert {point.name: point.value for point in ExtensionPoint} == declared
    assert set(METHODS) == set(ExtensionPoint)
    assert {call.point for call in CALLS} == set(ExtensionPoint)
