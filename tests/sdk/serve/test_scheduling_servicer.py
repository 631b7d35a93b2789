"""The calls of a cycle over a real socket: requests, answers, missing state, and memory."""

from __future__ import annotations

from typing import Any, ClassVar

import grpc
import numpy as np
import pytest
from berth_sdk import (
    BindResult,
    CycleState,
    ExtensionPoint,
    FilterResult,
    Need,
    NodeMode,
    ObjectPatch,
    ObjectRef,
    PatchOutcome,
    PermitResult,
    Plugin,
    Pod,
    PostFilterResult,
    PreBindResult,
    PreFilterResult,
    PreFlightResult,
    ReserveResult,
    ScoreNormalization,
    Status,
    Verdicts,
)
from berth_sdk.node import Node
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from berth_sdk.tables import NodeUsage
from berth_sdk.wire import records as wire
from support.sdk_server import ALL, TIMEOUT_S, RawHost, full_state, node_state, refused

from .conftest import Serve

POD = Pod(name="web", uid="u1", labels={"app": "web"})
NODES = [Node(name=f"n{i}", labels={"pool": "spot" if i % 2 else "steady"}) for i in range(4)]
SPOT = Status.unschedulable("node is a spot node")


class Everything(Plugin):
    """Takes part in every point; what it was asked stands in `asked`."""

    normalization = ScoreNormalization.RPC
    asked: ClassVar[list[Any]] = []

    def pre_filter(self, state: CycleState, pod: Pod, nodes: Any) -> PreFilterResult:
        state.write("names", nodes.names)
        return PreFilterResult(
            eligible=frozenset(["n0", "gone"]), early_filter=self.filter_nodes(state, pod, nodes)
        )

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: Any) -> Verdicts:
        codes, values = nodes.label("pool")
        return Verdicts.reject_where(np.equal(codes, values.find("spot")), SPOT)

    def post_filter(self, state: CycleState, pod: Pod, rejections: Any) -> PostFilterResult:
        self.asked.append((rejections.by_node, rejections.status("absent").code))
        return PostFilterResult(Status.success(), "n1", victims=(ObjectRef(name="victim", uid="v1"),))

    def pre_score(self, state: CycleState, pod: Pod, nodes: Any) -> Status:
        state.write("scored", nodes.names)
        return Status.success()

    def score_nodes(self, state: CycleState, pod: Pod, nodes: Any) -> Any:
        return np.arange(len(nodes)) - 5

    def normalize(self, state: CycleState, pod: Pod, scores: Any, nodes: Any) -> Any:
        return scores + len(state.read("scored"))

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self.asked.append((pod.labels, node_name))
        return Status.success()

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult:
        self.asked.append(node_name)
        return PermitResult.wait(2.5, "for the gang")

    def pre_bind_pre_flight(self, state: CycleState, pod: Pod, node_name: str) -> PreFlightResult:
        return PreFlightResult(Status.success(), allow_parallel=True)

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str, patched: Any) -> PreBindResult:
        self.asked.append(patched)
        if patched:
            return PreBindResult(Status.success(), ask_again_after_s=1.5)
        patch = ObjectPatch(
            resource="pods",
            ref=pod.ref,
            merge_patch={"metadata": {"annotations": {"gpu": "0"}}},
            subresource="",
        )
        return PreBindResult(Status.success(), (patch,))

    def bind(self, state: CycleState, pod: Pod, node_name: str) -> BindResult:
        return BindResult(Status.success(), host_binds=True)


class Named(Everything):
    """The same without a snapshot."""

    node_mode = NodeMode.NAMES

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: Any) -> Verdicts:
        return Verdicts.of([SPOT if name in ("n1", "n3") else Status.success() for name in nodes.names])


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Everything.asked.clear()


@pytest.fixture(params=["snapshot", "names"])
def asked_host(request: pytest.FixtureRequest, serve: Serve) -> tuple[RawHost, str, pb.NodeSet]:
    """Return a host that asks in each mode: itself, the plugin's name, all candidates."""
    cls = Everything if request.param == "snapshot" else Named
    host = serve(cls).host
    host.attach()
    if request.param == "names":
        return host, "Named", pb.NodeSet(names=[node.name for node in NODES])
    host.give_nodes(*NODES)
    return host, "Everything", ALL


def rejected_names(verdicts: spb.NodeVerdicts) -> list[str]:
    (group,) = verdicts.rejected
    assert (group.status.code, list(group.status.reasons)) == (
        pb.PluginStatus.CODE_UNSCHEDULABLE,
        [SPOT.message],
    )
    listed = [f"n{slot}" for slot in wire.decode_bitmap(group.nodes.bitmap)]
    return sorted([*listed, *group.nodes.names])


# --- each call, in both modes ----------------------------------------------------------------------

AskedHost = tuple[RawHost, str, pb.NodeSet]


def test_pre_filter_narrows_and_answers_filter_at_once(asked_host: AskedHost) -> None:
    host, plugin, candidates = asked_host
    reply = host.scheduling.PreFilter(
        spb.PreFilterRequest(ctx=host.ctx(plugin, POD), candidates=candidates), timeout=TIMEOUT_S
    )
    assert reply.ctx.status.code == pb.PluginStatus.CODE_SUCCESS
    assert list(reply.eligible.names) == ["gone", "n0"]
    assert rejected_names(reply.early_filter) == ["n1", "n3"]


def test_filter_groups_rejections_by_reason(asked_host: AskedHost) -> None:
    host, plugin, candidates = asked_host
    reply = host.scheduling.Filter(spb.FilterRequest(ctx=host.ctx(plugin, POD), candidates=candidates))
    assert rejected_names(reply.verdicts) == ["n1", "n3"]
    assert not reply.HasField("early_scores")


def test_scores_are_dense_in_the_order_of_the_candidates(asked_host: AskedHost) -> None:
    host, plugin, candidates = asked_host
    host.scheduling.PreScore(spb.PreScoreRequest(ctx=host.ctx(plugin, POD), candidates=candidates))
    raw = host.scheduling.Score(spb.ScoreRequest(ctx=host.ctx(plugin, POD), candidates=candidates))
    assert list(raw.scores.dense) == [-5, -4, -3, -2]
    final = host.scheduling.NormalizeScore(
        spb.NormalizeScoreRequest(ctx=host.ctx(plugin, POD), candidates=candidates, scores=raw.scores)
    )
    assert list(final.scores.dense) == [-1, 0, 1, 2]


def test_post_filter_sees_which_plugin_rejected_which_node(asked_host: AskedHost) -> None:
    host, plugin, _ = asked_host
    nodes = pb.NodeSet(names=["n1"]) if plugin == "Named" else pb.NodeSet(bitmap=b"\x02")
    group = spb.NodeGroup(
        status=pb.PluginStatus(code=pb.PluginStatus.CODE_UNSCHEDULABLE, reasons=["full"]), nodes=nodes
    )
    reply = host.scheduling.PostFilter(
        spb.PostFilterRequest(ctx=host.ctx(plugin, POD), rejected=[group], rejected_by=["Fit"])
    )
    want = Status(Status.unschedulable().code, ("full",), "Fit")
    assert Everything.asked == [({"n1": want}, Status.unresolvable().code)]
    assert (reply.nominated_node, [victim.uid for victim in reply.victims]) == ("n1", ["v1"])


def test_reserve_and_permit_answer_a_duplicate_as_the_first_time(asked_host: AskedHost) -> None:
    host, plugin, _ = asked_host
    replies = [
        (
            host.scheduling.Reserve(spb.ReserveRequest(ctx=host.ctx(plugin, POD), node_name="n0")),
            host.scheduling.Permit(spb.PermitRequest(ctx=host.ctx(plugin, POD), node_name="n0")),
        )
        for _ in range(2)
    ]
    assert Everything.asked == [({"app": "web"}, "n0"), "n0"]
    assert replies[0] == replies[1]
    permit = replies[0][1]
    assert (permit.ctx.status.code, permit.wait_timeout.seconds, permit.wait_timeout.nanos) == (
        pb.PluginStatus.CODE_WAIT,
        2,
        500_000_000,
    )


class Always(Plugin):
    """Acts in every PreBind: it has no method that says otherwise."""

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return Status.success() if pod.name == "web" else Status.unschedulable("no")

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str, patched: Any) -> Status:
        return Status.success()


class Sometimes(Always):
    """Says itself whether it acts."""

    def pre_bind_pre_flight(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return Status.skip()


@pytest.mark.parametrize(
    ("plugin", "pod", "early"), [(Always, "web", True), (Always, "other", False), (Sometimes, "web", False)]
)
def test_reserve_answers_pre_flight_where_it_has_one_answer(
    serve: Serve, plugin: type, pod: str, early: bool
) -> None:
    host = serve(plugin).host
    host.attach()
    ctx = host.ctx(plugin.__name__, Pod(name=pod, uid=pod))
    reply = host.scheduling.Reserve(spb.ReserveRequest(ctx=ctx, node_name="n0"), timeout=TIMEOUT_S)
    assert reply.HasField("early_pre_flight") is early
    if early:
        assert reply.early_pre_flight.ctx.status.code == pb.PluginStatus.CODE_SUCCESS


class Knows(Plugin):
    """Knows at Reserve what PreBind will answer, by the pod's name."""

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> ReserveResult:
        change = {"at": object()} if pod.name == "odd" else {"metadata": {"annotations": {"gpu": "0"}}}
        patch = ObjectPatch(resource="pods", ref=pod.ref, merge_patch=change)
        early = PreBindResult(Status.success(), (patch,), ask_again_after_s=1.5, done_when_applied=True)
        status = Status.unschedulable("full") if pod.name == "full" else Status.success()
        flight = PreFlightResult(Status.skip(), allow_parallel=True) if pod.name == "idle" else None
        return ReserveResult(status, early, flight)

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str, patched: Any) -> Status:
        return Status.success()


class KnowsTooMuch(Knows):
    """Answers a point that it does not have."""

    pre_bind = None  # type: ignore[assignment]  # the point of the parent class is not wanted


def reserved(serve: Serve, plugin: type, name: str) -> spb.ReserveResponse:
    host = serve(plugin).host
    host.attach()
    ctx = host.ctx(plugin.__name__, Pod(name=name, uid=name))
    return host.scheduling.Reserve(spb.ReserveRequest(ctx=ctx, node_name="n0"), timeout=TIMEOUT_S)


def test_reserve_answers_pre_bind_where_the_plugin_knows_it(serve: Serve) -> None:
    reply = reserved(serve, Knows, "web")
    early = reply.early_pre_bind
    assert early.ctx.status.code == pb.PluginStatus.CODE_SUCCESS
    assert early.patches[0].merge_patch_json == b'{"metadata":{"annotations":{"gpu":"0"}}}'
    assert (early.ask_again_after.ToMilliseconds(), early.done_when_applied) == (1500, True)
    assert reply.early_pre_flight.ctx.status.code == pb.PluginStatus.CODE_SUCCESS


def test_reserve_answers_pre_flight_as_the_plugin_says(serve: Serve) -> None:
    flight = reserved(serve, Knows, "idle").early_pre_flight
    assert (flight.ctx.status.code, flight.allow_parallel) == (pb.PluginStatus.CODE_SKIP, True)


@pytest.mark.parametrize("name", ["full", "odd"])
def test_reserve_answers_no_pre_bind_that_is_of_no_use(serve: Serve, name: str) -> None:
    reply = reserved(serve, Knows, name)
    assert reply.ctx.status.code != pb.PluginStatus.CODE_UNSPECIFIED
    assert not reply.HasField("early_pre_bind")


def test_a_plugin_without_pre_bind_may_not_answer_it_at_reserve(serve: Serve) -> None:
    error = refused(lambda: reserved(serve, KnowsTooMuch, "web"))
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "KnowsTooMuch.reserve answered PreBind as well and has no method `pre_bind`" in (
        error.details() or ""
    )


def test_pre_bind_goes_in_rounds(asked_host: AskedHost) -> None:
    host, plugin, _ = asked_host
    first = host.scheduling.PreBind(spb.PreBindRequest(ctx=host.ctx(plugin, POD), node_name="n0"))
    assert first.patches[0].merge_patch_json == b'{"metadata":{"annotations":{"gpu":"0"}}}'
    unknown = spb.PatchResult(ref=wire.encode_ref(POD.ref), message="from a newer host")
    second = host.scheduling.PreBind(
        spb.PreBindRequest(ctx=host.ctx(plugin, POD), node_name="n0", round=1, patched=[unknown])
    )
    assert (second.ask_again_after.seconds, len(second.patches)) == (1, 0)
    assert Everything.asked[1][0].outcome is PatchOutcome.REFUSED


def test_pre_flight_and_bind_answer_their_flags(asked_host: AskedHost) -> None:
    host, plugin, _ = asked_host
    flight = host.scheduling.PreBindPreFlight(
        spb.PreBindPreFlightRequest(ctx=host.ctx(plugin, POD), node_name="n0")
    )
    bind = host.scheduling.Bind(spb.BindRequest(ctx=host.ctx(plugin, POD), node_name="n0"))
    assert (flight.allow_parallel, bind.host_binds) == (True, True)


# --- candidates ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("candidates", "want"),
    [
        pytest.param(pb.NodeSet(bitmap=b"\x0a"), ["n1", "n3"], id="some"),
        pytest.param(pb.NodeSet(bitmap=b"\x03", complement=True), ["n3"], id="all but some"),
        pytest.param(pb.NodeSet(), None, id="none"),
    ],
)
def test_only_the_candidates_are_judged(serve: Serve, candidates: pb.NodeSet, want: list[str] | None) -> None:
    host = serve(Everything).host
    host.attach()
    host.give_nodes(*NODES)
    reply = host.scheduling.Filter(spb.FilterRequest(ctx=host.ctx("Everything", POD), candidates=candidates))
    assert (rejected_names(reply.verdicts) if want else list(reply.verdicts.rejected)) == (want or [])


def test_a_candidate_that_the_copy_lacks_is_the_hosts_fault(serve: Serve) -> None:
    host = serve(Everything).host
    host.attach()
    host.give_nodes(*NODES)
    request = spb.FilterRequest(ctx=host.ctx("Everything", POD), candidates=pb.NodeSet(bitmap=b"\x10"))
    error = refused(lambda: host.scheduling.Filter(request))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == "node index 4 is not in the snapshot"


# --- what a plugin may do wrong --------------------------------------------------------------------


class Faulty(Plugin):
    """Does at each point what the pod's label says."""

    normalization = ScoreNormalization.PLUGIN

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: Any) -> Any:
        fault = pod.labels["fault"]
        if fault == "raise":
            raise LookupError("no price list")
        if fault == "exit":
            raise SystemExit(3)
        if fault == "length":
            return Verdicts.feasible(1)
        if fault == "early":
            return FilterResult(Verdicts.feasible(len(nodes)), np.zeros(len(nodes), dtype=np.int64))
        state.token = bytes(5000) if fault == "token" else None
        return None

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Any:
        return None

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Any:
        return None

    def bind(self, state: CycleState, pod: Pod, node_name: str) -> Any:
        return None

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str, patched: Any) -> Any:
        if pod.labels["fault"] == "patch":
            patch = ObjectPatch(resource="pods", ref=pod.ref, merge_patch={"at": object()})
            return PreBindResult(Status.success(), (patch,))
        return None


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("raise", "Faulty.filter raised LookupError: no price list"),
        ("exit", "Faulty.filter raised SystemExit: 3"),
        ("length", "Faulty.filter_nodes answered for 1 nodes and was asked about 4"),
        ("early", "Faulty.filter_nodes answered early scores with normalization PLUGIN"),
        ("token", "Faulty set a token of 5000 bytes"),
    ],
)
def test_a_plugin_that_breaks_is_an_internal_error_with_its_name(serve: Serve, fault: str, text: str) -> None:
    host = serve(Faulty).host
    host.attach()
    host.give_nodes(*NODES)
    error = refused(lambda: host.filter("Faulty", Pod(name="p", uid="u", labels={"fault": fault})))
    assert error.code() is grpc.StatusCode.INTERNAL
    assert text in (error.details() or "")


def test_a_patch_that_is_no_json_is_an_internal_error(serve: Serve) -> None:
    host = serve(Faulty).host
    host.attach()
    host.give_nodes(*NODES)
    context = host.ctx("Faulty", Pod(name="p", uid="u", labels={"fault": "patch"}))
    error = refused(lambda: host.scheduling.PreBind(spb.PreBindRequest(ctx=context, node_name="n0")))
    assert (error.code(), "a patch that is no JSON" in (error.details() or "")) == (
        grpc.StatusCode.INTERNAL,
        True,
    )


def test_no_decision_where_one_is_due_sets_no_code(serve: Serve) -> None:
    host = serve(Faulty).host
    host.attach()
    host.give_nodes(*NODES)
    pod = Pod(name="p", uid="u", labels={"fault": "none"})
    replies: list[Any] = [
        host.scheduling.Reserve(spb.ReserveRequest(ctx=host.ctx("Faulty", pod), node_name="n0")),
        host.scheduling.Permit(spb.PermitRequest(ctx=host.ctx("Faulty", pod), node_name="n0")),
        host.scheduling.PreBind(spb.PreBindRequest(ctx=host.ctx("Faulty", pod), node_name="n0")),
        host.scheduling.Bind(spb.BindRequest(ctx=host.ctx("Faulty", pod), node_name="n0")),
    ]
    assert [reply.ctx.status.code for reply in replies] == [pb.PluginStatus.CODE_UNSPECIFIED] * 4


# --- early scores and what-ifs ---------------------------------------------------------------------


class Early(Everything):
    """Final scores that come with the verdicts."""

    normalization = ScoreNormalization.HOST_MAX
    normalize = None  # type: ignore[assignment]  # the second step of the parent class is not wanted

    def pre_score(self, state: CycleState, pod: Pod, nodes: Any) -> Status:
        return Status.skip() if pod.labels.get("quiet") else Status.success()


def test_scores_come_with_the_verdicts_and_a_skip_waits_for_pre_score(serve: Serve) -> None:
    host = serve(Early).host
    host.attach()
    host.give_nodes(*NODES)
    reply = host.filter("Early", POD)
    assert (list(reply.early_scores.dense), reply.skip_score) == ([-5, 0, -4, 0], False)
    quiet = host.filter("Early", Pod(name="q", uid="u2", labels={"quiet": "1"}), "c2")
    assert (quiet.HasField("early_scores"), quiet.skip_score) == (False, False)


def test_without_the_score_point_no_scores_are_sent(serve: Serve) -> None:
    from support.sdk_server import plugin_args

    host = serve(Early).host
    host.handshake()
    host.configure([plugin_args("Early", [ExtensionPoint.FILTER])])
    host.give_nodes(*NODES)
    assert not host.filter("Early", POD).HasField("early_scores")


class Room(Plugin):
    """Takes nodes whose pods request less than one CPU."""

    needs = (Need.nodes(), Need.pods())

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: Any) -> Verdicts:
        return Verdicts.reject_where(nodes.requested("cpu") >= 1000, Status.unschedulable("full"))


def test_a_what_if_knows_the_removed_pod_by_its_uid_alone(serve: Serve) -> None:
    host = serve(Room).host
    host.attach()
    victim = Pod(name="victim", uid="v1", requests={"cpu": 600}, node_name="n0")
    state = node_state(0, NODES[0], NodeUsage(requested={"cpu": 1200}, pod_count=2))
    state.pods.add(pod=wire.encode_pod(victim, in_state=True))
    host.sync(full_state([state]))
    added = pb.PodState(pod=wire.encode_pod(Pod(name="new", uid="w1", requests={"cpu": 500})))
    reply = host.scheduling.SimulateFilter(
        spb.SimulateFilterRequest(
            ctx=host.ctx("Room", POD),
            scenarios=[
                spb.Scenario(node=spb.ScenarioNode(node_index=0)),
                spb.Scenario(node=spb.ScenarioNode(node_index=0, removed=[pb.ObjectRef(uid="v1")])),
                spb.Scenario(
                    node=spb.ScenarioNode(node_index=0, removed=[pb.ObjectRef(uid="v1")], added=[added])
                ),
            ],
        )
    )
    assert [status.code for status in reply.statuses] == [
        pb.PluginStatus.CODE_UNSCHEDULABLE,
        pb.PluginStatus.CODE_SUCCESS,
        pb.PluginStatus.CODE_UNSCHEDULABLE,
    ]


def test_a_what_if_about_an_unknown_node_is_the_hosts_fault(serve: Serve) -> None:
    host = serve(Room).host
    host.attach()
    host.give_nodes(*NODES)
    request = spb.SimulateFilterRequest(
        ctx=host.ctx("Room", POD), scenarios=[spb.Scenario(node=spb.ScenarioNode(node_index=9))]
    )
    assert refused(lambda: host.scheduling.SimulateFilter(request)).code() is grpc.StatusCode.INVALID_ARGUMENT
