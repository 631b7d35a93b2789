"""Unreserve, PostBind and Reconcile: late, twice, and for cycles that this process never saw."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from berth_sdk import CycleState, PermitResult, Plugin, Pod, Status
from berth_sdk._cycles import MEMORY_TOKEN
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from berth_sdk.plugin.v1 import state_pb2
from support.sdk_server import TIMEOUT_S, RawHost

from .conftest import Serve

POD = Pod(name="web", namespace="shop", uid="u1", labels={"app": "web"})


class Keeper(Plugin):
    """Counts reservations by pod; `broken` makes unreserve raise."""

    held: ClassVar[dict[str, str]] = {}
    told: ClassVar[list[Any]] = []
    broken: ClassVar[bool] = False

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self.held[state.cycle_id] = node_name
        state.write("node", node_name)
        state.token = b"token" if pod.labels.get("token") else None
        return Status.success()

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.told.append(("unreserve", state.cycle_id, pod.uid, state.get("node"), state.token))
        if self.broken:
            raise LookupError("no price list")
        self.held.pop(state.cycle_id, None)

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult:
        return PermitResult.wait()

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.told.append(("post_bind", state.cycle_id, pod.uid, state.get("node"), state.token))
        if self.broken:
            raise LookupError("no price list")


@pytest.fixture
def host(serve: Serve) -> RawHost:
    Keeper.held.clear()
    Keeper.told.clear()
    Keeper.broken = False
    host = serve(Keeper).host
    host.attach()
    return host


def reserve(host: RawHost, cycle_id: str = "c1", pod: Pod = POD) -> pb.Status.Code.ValueType:
    request = spb.ReserveRequest(ctx=host.ctx("Keeper", pod, cycle_id), node_name="n0")
    return host.scheduling.Reserve(request, timeout=TIMEOUT_S).ctx.status.code


def unreserve(host: RawHost, *cycle_ids: str, token: bytes = b"") -> list[str]:
    ref = pb.ObjectRef(namespace="shop", name="web", uid="u1")
    items = [
        spb.UnreserveItem(cycle_id=cycle_id, pod=ref, node_name="n0", plugin_token=token)
        for cycle_id in cycle_ids
    ]
    request = spb.UnreserveRequest(plugin="Keeper", items=items)
    return list(host.scheduling.Unreserve(request, timeout=TIMEOUT_S).done_cycle_ids)


def reconcile(host: RawHost, *live: state_pb2.LiveReservation) -> list[str]:
    request = state_pb2.ReconcileRequest(plugin="Keeper", host_epoch=7, live=live)
    return list(host.state.Reconcile(request, timeout=TIMEOUT_S).unknown_cycle_ids)


def test_unreserve_gets_the_state_of_its_cycle(host: RawHost) -> None:
    reserve(host)
    assert unreserve(host, "c1") == ["c1"]
    assert Keeper.told == [("unreserve", "c1", "u1", "n0", None)]
    assert Keeper.held == {}


def test_a_repeated_unreserve_is_done_without_asking_again(host: RawHost) -> None:
    reserve(host)
    for _ in range(10):
        assert unreserve(host, "c1") == ["c1"]
    assert len(Keeper.told) == 1


def test_an_unknown_cycle_is_done_and_the_plugin_told_what_is_known(host: RawHost) -> None:
    assert unreserve(host, "c1", token=b"token") == ["c1"]
    assert unreserve(host, "c2", token=MEMORY_TOKEN) == ["c2"]
    assert Keeper.told == [("unreserve", "c1", "u1", None, b"token"), ("unreserve", "c2", "u1", None, None)]


def test_a_reserve_that_arrives_after_its_unreserve_is_refused(host: RawHost) -> None:
    unreserve(host, "c1")
    assert reserve(host) == pb.Status.CODE_ERROR
    assert Keeper.held == {}
    assert reserve(host, "c2") == pb.Status.CODE_SUCCESS


def test_what_could_not_be_undone_is_not_listed_and_asked_again(host: RawHost) -> None:
    reserve(host)
    Keeper.broken = True
    assert unreserve(host, "c1") == []
    assert reserve(host) == pb.Status.CODE_ERROR
    Keeper.broken = False
    assert unreserve(host, "c1") == ["c1"]
    assert Keeper.held == {}


def test_post_bind_ends_the_cycle_and_a_fault_in_it_harms_nothing(serve: Serve, host: RawHost) -> None:
    reserve(host)
    Keeper.broken = True
    item = spb.PostBindItem(cycle_id="c1", pod=pb.ObjectRef(name="web", uid="u1"), node_name="n0")
    host.scheduling.PostBind(spb.PostBindRequest(plugin="Keeper", items=[item]))
    assert Keeper.told == [("post_bind", "c1", "u1", "n0", None)]
    assert reconcile(host) == []
    assert len(Keeper.told) == 1, "a bound pod is not given back"


def live(cycle_id: str, token: bytes = b"") -> state_pb2.LiveReservation:
    return state_pb2.LiveReservation(
        cycle_id=cycle_id, pod=pb.ObjectRef(name="web", uid="u1"), node_name="n0", plugin_token=token
    )


def test_reconcile_gives_back_what_is_not_listed(host: RawHost) -> None:
    reserve(host, "c1")
    reserve(host, "c2")
    assert reconcile(host, live("c2")) == []
    assert set(Keeper.held) == {"c2"}
    assert reserve(host, "c1") == pb.Status.CODE_ERROR, "it was given back"


def test_reconcile_gives_back_waits_as_well(host: RawHost) -> None:
    request = spb.PermitRequest(ctx=host.ctx("Keeper", POD, "c1"), node_name="n0")
    host.scheduling.Permit(request)
    reconcile(host)
    assert [told[:2] for told in Keeper.told] == [("unreserve", "c1")]


def test_reconcile_is_a_truth_that_may_be_repeated(host: RawHost) -> None:
    reserve(host)
    for _ in range(3):
        assert reconcile(host) == []
    assert len(Keeper.told) == 1


def test_reconcile_goes_on_when_a_plugin_cannot_give_back(host: RawHost) -> None:
    reserve(host)
    Keeper.broken = True
    assert reconcile(host) == []
    assert reconcile(host) == []
    assert len(Keeper.told) == 1


def test_a_live_reservation_is_taken_up_by_its_token_alone(host: RawHost) -> None:
    assert reconcile(host, live("c1", b"token"), live("c2"), live("c3", MEMORY_TOKEN)) == ["c2", "c3"]
    assert unreserve(host, "c1") == ["c1"]
    assert Keeper.told == [("unreserve", "c1", "u1", None, b"token")]


def test_a_reservation_outlives_the_attachment_and_the_plugin_that_made_it_gives_it_back(
    host: RawHost,
) -> None:
    reserve(host)
    host.attach({"changed": True})
    assert reconcile(host) == []
    assert Keeper.held == {}
