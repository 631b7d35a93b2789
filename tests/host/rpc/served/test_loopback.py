"""One plugin class asked directly and through the whole contract without a socket: the same answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import numpy as np
from berth_host.attach.configure import accept
from berth_host.attach.configured_places import Place
from berth_host.attach.handshake import read_handshake
from berth_host.attach.routes import AttachedPlugin, Offer
from berth_host.attach.state_feed import InstanceFeed
from berth_host.attempt.cycle import Cycle
from berth_host.rpc.client import PluginClient
from berth_host.rpc.failure_record import FailureRecord
from berth_host.rpc.in_process import InProcessTransport
from berth_host.rpc.route import ClientSettings, LocalRoute
from berth_host.rpc.served.grpc_transport import GrpcTransport
from berth_host.rpc.served.outbox import Outbox
from berth_host.rpc.served.sender import LinkSender
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin, ScoreNormalization
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.pod import Pod
from berth_sdk.runtime.plugin_runtime import PluginRuntime
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.serve.instance import Instance
from berth_sdk.status import Code, Status, Verdicts
from berth_sdk.tables import NodeTable
from berth_sdk.testing.builders import make_node, make_pod
from numpy.typing import NDArray
from support.attached import PROFILE, ClusterState, Witness, wanted
from support.loopback import loopback_link
from support.patience import patient


class Roomy(Plugin):
    """Wants room for the pod, likes empty nodes."""

    needs: Sequence[Need] = (Need.nodes(), Need.pods())
    normalization = ScoreNormalization.HOST_MAX_REVERSED

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        free = nodes.allocatable("cpu") - nodes.requested("cpu")
        return Verdicts.reject_where(free < pod.requests.get("cpu", 0), Status.unschedulable("no room"))

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        if pod.labels.get("broken"):
            raise ValueError("cannot score")
        return nodes.requested("cpu")

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        state.token = f"{pod.name} on {node_name}".encode()
        return Status.success()


def cluster() -> ClusterState:
    state = ClusterState()
    state.add_nodes(make_node(f"n{i}", cpu=str(i + 1)) for i in range(5))
    state.put(make_pod("first", uid="first", cpu="1500m"), "n3")
    return state


@asynccontextmanager
async def both(state: ClusterState) -> AsyncIterator[tuple[PluginClient, PluginClient]]:
    """(in process, over the contract)."""
    runtime = PluginRuntime(Roomy({}, cast(Handle, None)), name="Roomy")  # it never calls back
    local = PluginClient("Roomy", PROFILE, LocalRoute(InProcessTransport(runtime)), state)
    instance = Instance({"Roomy": Roomy})
    place = Place(endpoint="loopback:", plugins=(wanted("Roomy"),))
    attached = AttachedPlugin(place.plugins[0], Outbox("Roomy"), Witness())
    introduction = read_handshake(
        instance.handshake(identity_pb2.HandshakeRequest(attachment_id="loopback")), place
    )
    instance.configure(accept("loopback", place, introduction))
    (descriptor,) = introduction.plugins
    link = loopback_link(instance, InstanceFeed(state, descriptor.needs))
    attached.offer(
        Offer(
            instance_id=introduction.instance_id,
            started_at_s=introduction.started_at_s,
            order=0,
            descriptor=descriptor,
            transports={PROFILE: GrpcTransport(link, descriptor, PROFILE, attached.outbox)},
            sender=LinkSender(link, "Roomy"),
            conduct=FailureRecord("Roomy", lambda: None),
            taken_up=lambda: None,
            judged=lambda: None,
        )
    )
    try:
        settings = ClientSettings(points=patient({}))
        yield local, PluginClient("Roomy", PROFILE, attached.routes[PROFILE], state, settings=settings)
    finally:
        await attached.outbox.close()
        instance.stop()


def cycle(state: ClusterState, **fields: Any) -> Cycle:
    return Cycle(
        "cycle-1",
        make_pod("web", uid="web", cpu="2", **fields),
        PROFILE,
        version=state.version,
        budget_s=30.0,
    )


async def test_filter_score_and_what_ifs_have_the_same_answers_in_process_and_served() -> None:
    state = cluster()
    async with both(state) as clients:
        answers = []
        for client in clients:
            context = cycle(state)
            verdicts = await client.filter(context, state.nodes)
            left = state.nodes.take(verdicts.passed)
            outcome = await client.score(context, left)
            gone = Scenario("n1"), Scenario("n3", removed=tuple(state.nodes.node(3).pods))
            what_if = await client.filter_scenarios(context, Scenarios(state.nodes, gone))
            answers.append(
                (
                    [status.reasons for status in verdicts.to_list()],
                    outcome.raw.tolist(),
                    outcome.normalized.tolist(),
                    [status.code for status in what_if.to_list()],
                )
            )
        assert answers[0] == answers[1]
        assert answers[0][0] == [("no room",), (), (), (), ()]
        assert answers[0][2] == [100, 100, 0, 100]


async def test_scores_come_with_the_verdicts_over_the_contract_alone() -> None:
    state = cluster()
    async with both(state) as (local, served):
        for client in (local, served):
            context = cycle(state)
            await client.filter(context, state.nodes)
            assert (context.part(client.name).early_scores is not None) is client.is_served


async def test_token_and_faults_cross_the_contract() -> None:
    state = cluster()
    async with both(state) as (local, served):
        for client in (local, served):
            context = cycle(state, labels={"broken": "yes"})
            assert (await client.reserve(context, "n4")).is_success
            assert context.state("Roomy").token == b"web on n4"
            outcome = await client.score(context, state.nodes)
            assert outcome.status.code is Code.ERROR
            assert "cannot score" in outcome.status.message
            assert client.stats.of("Score").failures == {"raised": 1}


async def test_a_delta_brings_the_copy_to_the_next_cycle() -> None:
    state = cluster()
    async with both(state) as (local, served):
        for i in range(3):
            state.put(make_pod(f"more-{i}", uid=f"more-{i}", cpu="1"), "n4")
            codes = []
            for client in (local, served):
                verdicts = await client.filter(cycle(state), state.nodes)
                codes.append([status.code for status in verdicts.to_list()])
            assert codes[0] == codes[1]
        assert codes[0][4] is Code.SUCCESS
