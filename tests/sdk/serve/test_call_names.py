"""The server refuses a call whose metadata disagrees with its message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from berth_sdk import CycleState, Need, Plugin, Pod, Status
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2, state_pb2
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from berth_sdk.testing import make_node
from berth_sdk.wire.call_names import metadata_of
from support.sdk_server import TIMEOUT_S, RawHost, full_state, node_state

from .conftest import Serve

POD = Pod(name="web", namespace="shop", uid="u1")


class Holds(Plugin):
    """Reserves for every pod."""

    needs = (Need.nodes(),)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return Status.success()


@pytest.fixture
def host(serve: Serve) -> RawHost:
    host = serve(Holds).host
    host.attach()
    host.give_nodes(make_node("n0"))
    return host


def reserve(host: RawHost, **more: Any) -> Any:
    request = spb.ReserveRequest(ctx=host.ctx("Holds", POD, "c1"), node_name="n0")
    return host.scheduling.Reserve(request, timeout=TIMEOUT_S, **more)


def unreserve(host: RawHost, **more: Any) -> Any:
    items = [spb.UnreserveItem(cycle_id="c1", pod=pb.ObjectRef(name="web", uid="u1"), node_name="n0")]
    return host.scheduling.Unreserve(spb.UnreserveRequest(plugin="Holds", items=items), **more)


def probe(host: RawHost, **more: Any) -> Any:
    return host.identity.Probe(identity_pb2.ProbeRequest(attachment_id=host.attachment_id), **more)


def sync(host: RawHost, **more: Any) -> Any:
    chunk = full_state([node_state(0, make_node("n0"))], generation=2)
    return host.state.SyncState(iter([state_pb2.SyncStateRequest(chunk=chunk, last=True)]), **more)


def reconcile(host: RawHost, **more: Any) -> Any:
    return host.state.Reconcile(
        iter([state_pb2.ReconcileRequest(plugin="Holds", host_epoch=7, last=True)]), **more
    )


@pytest.mark.parametrize(
    ("call", "plugin"),
    [(reserve, "Holds"), (unreserve, "Holds"), (probe, ""), (sync, ""), (reconcile, "Holds")],
    ids=["reserve", "unreserve", "probe", "sync", "reconcile"],
)
def test_metadata_must_agree_with_the_message(host: RawHost, call: Callable[..., Any], plugin: str) -> None:
    for wrong in (
        metadata_of("another", plugin),
        metadata_of(host.attachment_id, "Another") if plugin else (),
    ):
        if not wrong:
            continue
        with pytest.raises(grpc.RpcError) as caught:
            call(host, metadata=wrong)
        failed: Any = caught.value
        assert failed.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "nother', and " in failed.details()
    call(host, metadata=metadata_of(host.attachment_id, plugin))
    call(host)
