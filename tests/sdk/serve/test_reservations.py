"""Unreserve, PostBind and Reconcile: late, twice, and for cycles that this process never saw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import grpc
import pytest
from berth_sdk import CycleState, LiveReservation, Need, PermitResult, Plugin, Pod, Status
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from berth_sdk.plugin.v1 import state_pb2
from berth_sdk.serve.cycles import MEMORY_TOKEN
from berth_sdk.testing import make_node
from berth_sdk.wire import records as wire
from support.sdk_server import TIMEOUT_S, RawHost, full_state, node_state

from .conftest import Serve

POD = Pod(name="web", namespace="shop", uid="u1", labels={"app": "web"})


class Prober(Plugin):
    """Counts reservations by pod; `broken` makes unreserve raise."""

    held: ClassVar[dict[str, str]] = {}
    told: ClassVar[list[Any]] = []
    broken: ClassVar[bool] = False

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        if pod.labels.get("skip"):
            return Status.skip()
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
    Prober.held.clear()
    Prober.told.clear()
    Prober.broken = False
    host = serve(Prober).host
    host.attach()
    return host


def reserve(host: RawHost, cycle_id: str = "c1", pod: Pod = POD) -> pb.PluginStatus.Code.ValueType:
    request = spb.ReserveRequest(ctx=host.ctx("Prober", pod, cycle_id), node_name="n0")
    return host.scheduling.Reserve(request, timeout=TIMEOUT_S).ctx.status.code


def unreserve(host: RawHost, *cycle_ids: str, token: bytes = b"") -> list[str]:
    ref = pb.ObjectRef(namespace="shop", name="web", uid="u1")
    items = [
        spb.UnreserveItem(cycle_id=cycle_id, pod=ref, node_name="n0", plugin_token=token)
        for cycle_id in cycle_ids
    ]
    request = spb.UnreserveRequest(plugin="Prober", items=items)
    return list(host.scheduling.Unreserve(request, timeout=TIMEOUT_S).done_cycle_ids)


def reconcile(host: RawHost, *live: state_pb2.LiveReservation) -> list[str]:
    request = state_pb2.ReconcileRequest(plugin="Prober", host_epoch=7, live=live, last=True)
    return list(host.state.Reconcile(iter([request]), timeout=TIMEOUT_S).unknown_cycle_ids)


def test_unreserve_gets_the_state_of_its_cycle(host: RawHost) -> None:
    reserve(host)
    assert unreserve(host, "c1") == ["c1"]
    assert Prober.told == [("unreserve", "c1", "u1", "n0", None)]
    assert Prober.held == {}


def test_a_repeated_unreserve_is_done_without_asking_again(host: RawHost) -> None:
    reserve(host)
    for _ in range(10):
        assert unreserve(host, "c1") == ["c1"]
    assert len(Prober.told) == 1


def test_an_unknown_cycle_is_done_and_the_plugin_told_what_is_known(host: RawHost) -> None:
    assert unreserve(host, "c1", token=b"token") == ["c1"]
    assert unreserve(host, "c2", token=MEMORY_TOKEN) == ["c2"]
    assert Prober.told == [("unreserve", "c1", "u1", None, b"token"), ("unreserve", "c2", "u1", None, None)]


def test_a_reserve_that_arrives_after_its_unreserve_is_refused(host: RawHost) -> None:
    unreserve(host, "c1")
    assert reserve(host) == pb.PluginStatus.CODE_ERROR
    assert Prober.held == {}
    assert reserve(host, "c2") == pb.PluginStatus.CODE_SUCCESS


def test_reservation_that_could_not_be_undone_is_not_listed_and_asked_again(host: RawHost) -> None:
    reserve(host)
    Prober.broken = True
    with pytest.raises(grpc.RpcError, match=r"Prober.unreserve failed for each of 1 reservations"):
        unreserve(host, "c1")
    assert reserve(host) == pb.PluginStatus.CODE_ERROR
    Prober.broken = False
    assert unreserve(host, "c1") == ["c1"]
    assert Prober.held == {}


def test_post_bind_ends_the_cycle_and_a_fault_in_it_harms_nothing(serve: Serve, host: RawHost) -> None:
    reserve(host)
    Prober.broken = True
    item = spb.PostBindItem(cycle_id="c1", pod=pb.ObjectRef(name="web", uid="u1"), node_name="n0")
    host.scheduling.PostBind(spb.PostBindRequest(plugin="Prober", items=[item]))
    assert Prober.told == [("post_bind", "c1", "u1", "n0", None)]
    assert reconcile(host) == []
    assert len(Prober.told) == 1, "a bound pod is not given back"


def live(cycle_id: str, token: bytes = b"") -> state_pb2.LiveReservation:
    return state_pb2.LiveReservation(
        cycle_id=cycle_id, pod=pb.ObjectRef(name="web", uid="u1"), node_name="n0", plugin_token=token
    )


def test_reconcile_gives_back_what_is_not_listed(host: RawHost) -> None:
    reserve(host, "c1")
    reserve(host, "c2")
    assert reconcile(host, live("c2")) == []
    assert set(Prober.held) == {"c2"}
    assert reserve(host, "c1") == pb.PluginStatus.CODE_ERROR, "it was given back"


def test_reconcile_gives_back_nothing_of_a_cycle_that_skipped_reserve(host: RawHost) -> None:
    skipped = Pod(name="web", namespace="shop", uid="u1", labels={"skip": "yes"})
    for _ in range(2):  # a duplicate too
        assert reserve(host, "c1", skipped) == pb.PluginStatus.CODE_SKIP
    assert reconcile(host) == []
    assert Prober.told == []
    # A wait at Permit begins a reservation.
    host.scheduling.Permit(spb.PermitRequest(ctx=host.ctx("Prober", skipped, "c1"), node_name="n0"))
    reconcile(host)
    assert [told[:2] for told in Prober.told] == [("unreserve", "c1")]


def test_reconcile_gives_back_waits_as_well(host: RawHost) -> None:
    request = spb.PermitRequest(ctx=host.ctx("Prober", POD, "c1"), node_name="n0")
    host.scheduling.Permit(request)
    reconcile(host)
    assert [told[:2] for told in Prober.told] == [("unreserve", "c1")]


def test_reconcile_is_a_truth_that_may_be_repeated(host: RawHost) -> None:
    reserve(host)
    for _ in range(3):
        assert reconcile(host) == []
    assert len(Prober.told) == 1


def test_reconcile_goes_on_when_a_plugin_cannot_give_back(host: RawHost) -> None:
    reserve(host)
    Prober.broken = True
    assert reconcile(host) == []
    assert reconcile(host) == []
    assert len(Prober.told) == 1


def test_a_live_reservation_is_taken_up_by_its_token_alone(host: RawHost) -> None:
    assert reconcile(host, live("c1", b"token"), live("c2"), live("c3", MEMORY_TOKEN)) == ["c2", "c3"]
    assert unreserve(host, "c1") == ["c1"]
    assert Prober.told == [("unreserve", "c1", "u1", None, b"token")]


def test_a_reservation_outlives_the_attachment_and_the_plugin_that_made_it_gives_it_back(
    host: RawHost,
) -> None:
    reserve(host)
    host.attach({"changed": True})
    assert reconcile(host) == []
    assert Prober.held == {}


# --- a host that ended after the binding, before PostBind ---------------------------------------------------


class PodsKeeper(Prober):
    """Has the pods on nodes in its copy of the state."""

    needs = (Need.nodes(), Need.pods())


@pytest.fixture
def pods_host(serve: Serve) -> RawHost:
    Prober.held.clear()
    Prober.told.clear()
    Prober.broken = False
    host = serve(PodsKeeper).host
    host.attach()
    return host


def first_list_of(epoch: int, host: RawHost, plugin: str = "PodsKeeper") -> list[str]:
    request = state_pb2.ReconcileRequest(plugin=plugin, host_epoch=epoch, last=True)
    return list(host.state.Reconcile(iter([request]), timeout=TIMEOUT_S).unknown_cycle_ids)


def reserve_for(host: RawHost, cycle_id: str, node_name: str = "n0", *, tentative: bool = False) -> None:
    request = spb.ReserveRequest(ctx=host.ctx("PodsKeeper", POD, cycle_id), node_name=node_name)
    if tentative:
        request.trial.tentative = True
    reply = host.scheduling.Reserve(request, timeout=TIMEOUT_S)
    assert reply.ctx.status.code == pb.PluginStatus.CODE_SUCCESS


class NodesKeeper(Prober):
    """Has the nodes in its copy of the state, without their pods."""

    needs = (Need.nodes(),)


def test_new_host_is_answered_by_a_plugin_whose_copy_has_nodes_and_no_pods(serve: Serve) -> None:
    Prober.told.clear()
    host = serve(NodesKeeper).host
    host.attach()
    give_state(host, generation=1)
    first_list_of(7, host, "NodesKeeper")
    request = spb.ReserveRequest(ctx=host.ctx("NodesKeeper", POD, "c1"), node_name="n0")
    assert host.scheduling.Reserve(request).ctx.status.code == pb.PluginStatus.CODE_SUCCESS
    assert first_list_of(8, host, "NodesKeeper") == []
    assert [told[:2] for told in Prober.told] == [("unreserve", "c1")]


def give_state(host: RawHost, *pods: Pod, generation: int) -> None:
    """Give two nodes, and these pods on the first one."""
    nodes = [make_node(name) for name in ("n0", "n1")]
    states = [node_state(i, node) for i, node in enumerate(nodes)]
    for one in pods:
        states[0].pods.append(pb.PodState(pod=wire.encode_pod(one)))
    assert not host.sync(full_state(states, generation)).need_full


def test_new_host_ends_the_reservation_of_a_bound_pod_by_post_bind(pods_host: RawHost) -> None:
    give_state(pods_host, generation=1)
    first_list_of(7, pods_host)
    reserve_for(pods_host, "c1")
    give_state(pods_host, POD, generation=2)
    assert first_list_of(8, pods_host) == []
    assert Prober.told == [("post_bind", "c1", "u1", "n0", None)]
    assert first_list_of(8, pods_host) == []
    assert len(Prober.told) == 1


def test_new_host_gives_back_what_is_not_bound_on_the_node_of_the_reservation(pods_host: RawHost) -> None:
    give_state(pods_host, generation=1)
    first_list_of(7, pods_host)
    reserve_for(pods_host, "c1", "n1")
    give_state(pods_host, POD, generation=2)
    first_list_of(8, pods_host)
    assert [told[:2] for told in Prober.told] == [("unreserve", "c1")]


def test_new_host_gives_back_tentative_and_older_reservations_of_a_bound_pod(pods_host: RawHost) -> None:
    give_state(pods_host, generation=1)
    first_list_of(7, pods_host)
    reserve_for(pods_host, "c1")
    reserve_for(pods_host, "c2")
    reserve_for(pods_host, "c3", tentative=True)
    give_state(pods_host, POD, generation=2)
    first_list_of(8, pods_host)
    assert [told[:2] for told in Prober.told] == [
        ("unreserve", "c1"),
        ("post_bind", "c2"),
        ("unreserve", "c3"),
    ]


def test_same_host_gives_back_the_reservation_of_a_pod_that_is_only_assumed(pods_host: RawHost) -> None:
    give_state(pods_host, generation=1)
    first_list_of(7, pods_host)
    reserve_for(pods_host, "c1")
    give_state(pods_host, POD, generation=2)
    first_list_of(7, pods_host)
    assert [told[:2] for told in Prober.told] == [("unreserve", "c1")]


# --- a plugin that says itself what it takes up ------------------------------------------------------------


class Teller(Prober):
    """Keeps what `reconcile` is asked; refuses the pods of `refused`."""

    live: ClassVar[list[LiveReservation]] = []
    refused: ClassVar[set[str]] = set()

    def reconcile(self, live: Sequence[LiveReservation]) -> list[LiveReservation] | None:
        self.live[:] = live
        if self.broken:
            raise LookupError("no price list")
        return [item for item in live if item.state.cycle_id in self.refused] or None


class Gate(Plugin):
    """Permits alone."""

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult:
        return PermitResult.wait()


@pytest.fixture
def teller(serve: Serve) -> RawHost:
    Prober.held.clear()
    Prober.told.clear()
    Teller.live.clear()
    Teller.refused.clear()
    Teller.broken = False
    host = serve(Teller).host
    host.attach()
    return host


def ask_teller(host: RawHost, *items: state_pb2.LiveReservation, plugin: str = "Teller") -> list[str]:
    request = state_pb2.ReconcileRequest(plugin=plugin, host_epoch=7, live=items, last=True)
    return list(host.state.Reconcile(iter([request]), timeout=TIMEOUT_S).unknown_cycle_ids)


def test_a_plugin_gets_its_reservations_with_what_is_remembered_and_with_their_tokens(
    teller: RawHost,
) -> None:
    request = spb.ReserveRequest(ctx=teller.ctx("Teller", POD, "c1"), node_name="n0")
    teller.scheduling.Reserve(request, timeout=TIMEOUT_S)
    waiting = live("c2", b"token")
    waiting.waiting_on_permit = True
    waiting.permit_deadline.FromSeconds(1000)
    assert ask_teller(teller, live("c1"), waiting) == []
    first, second = Teller.live
    assert (first.state.read("node"), first.pod.labels, first.waiting_on_permit) == ("n0", POD.labels, False)
    assert (second.state.token, second.pod.uid, second.node_name) == (b"token", "u1", "n0")
    assert (second.waiting_on_permit, second.deadline_s) == (True, 1000.0)


def test_a_plugin_with_reconcile_names_the_cycles_that_it_cannot_take_up(teller: RawHost) -> None:
    Teller.refused |= {"c2"}
    assert ask_teller(teller, live("c1"), live("c2", b"token"), live("c3", MEMORY_TOKEN)) == ["c2"]
    assert ask_teller(teller) == []
    given_back = {told[1] for told in Prober.told}
    assert given_back == {"c1", "c3"}, "what it refused it does not have"


def test_a_plugin_that_breaks_while_it_reconciles_is_asked_again(teller: RawHost) -> None:
    Teller.broken = True
    with pytest.raises(grpc.RpcError) as caught:
        ask_teller(teller, live("c1", b"token"))
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "no price list" in (caught.value.details() or "")
    Teller.broken = False
    assert ask_teller(teller, live("c1", b"token")) == []


def test_a_wait_needs_no_memory_where_nothing_was_reserved(serve: Serve) -> None:
    host = serve(Gate).host
    host.attach()
    waiting = live("c1")
    waiting.waiting_on_permit = True
    assert ask_teller(host, waiting, live("c2"), plugin="Gate") == ["c2"]


@pytest.mark.parametrize(
    "answer", [True, ["c1"], [LiveReservation(state=CycleState("x"), pod=POD, node_name="n")]]
)
def test_a_nonsensical_answer_is_named(serve: Serve, answer: Any) -> None:
    class Odd(Gate):
        def reconcile(self, live: Sequence[LiveReservation]) -> Any:
            return answer

    host = serve(Odd).host
    host.attach()
    with pytest.raises(grpc.RpcError) as caught:
        ask_teller(host, live("c1"), plugin="Odd")
    assert "Odd.reconcile answered" in (caught.value.details() or "")
