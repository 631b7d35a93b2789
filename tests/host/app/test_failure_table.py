"""Failures that the whole host must survive, row by row; tests/host/attach has the other rows.

Source: the failure table of the plugin contract.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from berth_host.attach import backoff
from berth_host.errors.cluster import UnavailableError
from berth_sdk.kube_object import ObjectRef
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import handle_pb2, handle_pb2_grpc, queue_pb2, scheduling_pb2
from berth_sdk.results import PermitResult
from support.hosts import World, node, pod
from support.scripted_plugin import WAYS, ScriptedPlugin, decided, descriptor, for_ever, lacking
from support.waiting import PATIENCE_S, until

Result = handle_pb2.DecideWaitingPodsResponse


@pytest.fixture(autouse=True, params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of the scheduling cycle as calls of their own, on a stream, and in frames."""
    monkeypatch.setattr(ScriptedPlugin, "features", WAYS[request.param])


@pytest.fixture(autouse=True)
def back_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attachments are tried again within a tenth of a second."""
    monkeypatch.setattr(backoff, "FIRST_S", 0.05)
    monkeypatch.setattr(backoff, "MAX_S", 0.1)


def configuration(path: Path, *points: str, more: str = "required: true", bind_deadline: str = "10s") -> str:
    """The plugin Demo at some points, before the default plugins."""
    plugins = ""
    for point in points:
        if point == "queueSort":
            plugins += "    queueSort: {enabled: [{name: Demo}], disabled: [{name: PrioritySort}]}\n"
        elif point == "bind":
            plugins += "    bind: {enabled: [{name: Demo}, {name: DefaultBinder}], disabled: [{name: '*'}]}\n"
        else:
            plugins += f"    {point}: {{enabled: [{{name: Demo}}]}}\n"
    deadlines = "".join(
        f"    {point}: {{deadline: {bind_deadline if point == 'bind' else '10s'}}}\n" for point in points
    )
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles:\n- plugins:\n{plugins}"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 10s\n"
        f"plugins:\n- name: Demo\n  endpoint: unix://{path}\n  {more}\n  points:\n{deadlines}"
    )


def nodes(count: int = 2) -> list[dict[str, Any]]:
    return [node(f"n{i}") for i in range(count)]


async def in_time(condition: Callable[[], object]) -> None:
    """Wait for something on this loop."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # the condition is the host's, it sets no event of ours
            await asyncio.sleep(0.001)


# --- rows 2 and 3: absent and required -------------------------------------------------------------------


@pytest.mark.slow
async def test_row_2_pods_in_the_scope_of_an_absent_required_plugin_wait_for_it(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    scope = "required: true\n  scope: {podSelector: {matchLabels: {kind: gpu}}}"
    text = configuration(path, "filter", more=scope)
    objects = [*nodes(), pod("plain"), pod("gpu", labels={"kind": "gpu"})]
    async with World(objects, configuration=text) as world:
        await world.settle()
        assert world.node_of("plain")
        assert not world.node_of("gpu")
        assert 'plugin "Demo" is not attached' in world.message_of("gpu")
        assert "No such file" in world.message_of("gpu")
        assert world.everything_is_accounted_for()
        async with ScriptedPlugin(descriptor("Demo", "FILTER")).serving(path):
            await until(lambda: world.host.attachments.recoveries == 1)
            # No time passes on the host's clock: the plugin's return alone brings the pod back.
            await in_time(lambda: world.node_of("gpu"))


async def test_row_3_pods_of_the_plugins_own_workload_do_not_need_it(tmp_path: Path) -> None:
    own = pod("demo-0", labels={"berth.io/plugin": "Demo"})
    text = configuration(tmp_path / "p.sock", "filter")
    async with World([*nodes(), own, pod("other")], configuration=text) as world:
        await world.settle()
        assert world.node_of("demo-0")
        assert not world.node_of("other")


# --- rows 8 and 9: it dies inside a cycle --------------------------------------------------------------


@pytest.mark.slow
async def test_row_8_death_between_pre_filter_and_reserve_costs_one_attempt(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    dying, next_one = (ScriptedPlugin(descriptor("Demo", "PRE_FILTER", "FILTER")) for _ in range(2))
    asked = asyncio.Event()

    async def stop_while_asked(_request: Any) -> None:
        asked.set()
        await for_ever(None)

    dying.on("Filter", stop_while_asked)
    text = configuration(path, "preFilter", "filter")
    async with dying.serving(path), World([*nodes(), pod("web")], configuration=text) as world:
        await asyncio.wait_for(asked.wait(), PATIENCE_S)
        await dying.stop()
        await in_time(lambda: "web" in [item.ref.name for item in world.server.list("pods")])
        await in_time(lambda: world.host.scheduler.in_cycle is None)
        async with next_one.serving(path):
            await until(lambda: world.host.attachments.recoveries == 2)
            await world.settle()
            assert world.node_of("web")
            assert len(next_one.requests("PreFilter")) == 1


async def test_row_8_cycle_begins_again_at_once_where_an_instance_can_take_it(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    plugin = ScriptedPlugin(descriptor("Demo", "PRE_FILTER", "FILTER"))
    plugin.once("Filter", lambda _: scheduling_pb2.FilterResponse(ctx=lacking(pb.NEED_CYCLE_RESTART)))
    text = configuration(path, "preFilter", "filter")
    async with plugin.serving(path), World([*nodes(), pod("web")], configuration=text) as world:
        await in_time(lambda: world.node_of("web"))
        assert world.clock.monotonic_s() == 0  # no backoff
        assert len(plugin.requests("PreFilter")) == 2
        assert len({request.ctx.cycle_id for request in plugin.requests("PreFilter")}) == 2


async def test_row_9_death_after_reserve_is_no_obstacle_where_nothing_else_needs_it(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    plugin = ScriptedPlugin(descriptor("Demo", "RESERVE"))
    text = configuration(path, "reserve")
    release = asyncio.Event()
    async with plugin.serving(path), World([*nodes(), pod("web")], configuration=text) as world:

        async def die_with_the_answer(_request: Any) -> scheduling_pb2.ReserveResponse:
            asyncio.get_running_loop().call_later(0.01, release.set)
            return scheduling_pb2.ReserveResponse(ctx=decided())

        plugin.on("Reserve", die_with_the_answer)
        await in_time(lambda: world.node_of("web"))
        await release.wait()
        await plugin.stop()
        await world.settle()
        assert world.node_of("web")
        assert not plugin.requests("Unreserve")


@pytest.mark.slow
async def test_row_9_death_after_reserve_gives_back_and_tries_again_where_it_is_needed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "p.sock"
    first, second = (ScriptedPlugin(descriptor("Demo", "RESERVE", "PRE_BIND")) for _ in range(2))
    asked = asyncio.Event()

    async def hang(_request: Any) -> None:
        asked.set()
        await for_ever(None)

    first.on("PreBind", hang)
    text = configuration(path, "reserve", "preBind")
    async with first.serving(path), World([*nodes(), pod("web")], configuration=text) as world:
        await asyncio.wait_for(asked.wait(), PATIENCE_S)
        await first.stop()
        async with second.serving(path):
            await until(lambda: world.host.attachments.recoveries == 2)
            await world.settle()
            assert world.node_of("web")
            (lost,) = first.requests("Reserve")
            (kept,) = second.requests("Reserve")
            given_back = [item.cycle_id for request in second.requests("Unreserve") for item in request.items]
            # At least once: the broken connection may have found the new process before it was attached.
            assert set(given_back) == {lost.ctx.cycle_id}
            assert kept.ctx.cycle_id != lost.ctx.cycle_id
            order = [rpc for rpc, _ in second.asked if rpc in ("Reserve", "Unreserve")]
            assert (order[0], order[-1], order.count("Reserve")) == ("Unreserve", "Reserve", 1)


# --- row 14: it is unknown whether the pod is bound ------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("bound_to", "ends"), [("chosen", "bound"), ("nowhere", "retried")])
async def test_row_14_bind_without_an_answer_is_followed_by_a_look_at_the_pod(
    tmp_path: Path, bound_to: str, ends: str
) -> None:
    path = tmp_path / "p.sock"
    plugin = ScriptedPlugin(descriptor("Demo", "RESERVE", "BIND", "POST_BIND"))
    text = configuration(path, "reserve", "bind", "postBind", bind_deadline="2s")
    async with plugin.serving(path), World([*nodes(), pod("web")], configuration=text) as world:

        async def act_and_hang(request: Any) -> None:
            if bound_to == "chosen":
                await world.cluster.bind(
                    ObjectRef(namespace="default", name="web", uid=request.ctx.pods[0].summary.ref.uid),
                    request.node_name,
                )
            await for_ever(None)

        plugin.once("Bind", act_and_hang)
        await until(lambda: bool(plugin.requests("Bind")))
        await in_time(lambda: not len(world.host.binding))
        if ends == "bound":
            assert world.node_of("web") == plugin.requests("Bind")[0].node_name
            await until(lambda: bool(plugin.requests("PostBind")))
            assert not plugin.requests("Unreserve")
        else:
            said = 'plugin "Demo" did not answer within 2000 ms at Bind'
            await until(lambda: said in world.message_of("web"))
            assert not world.node_of("web")
            assert len(plugin.requests("Unreserve")) == 1
            await world.settle()
            assert world.node_of("web")
        assert len(plugin.requests("Bind")) == (1 if ends == "bound" else 2)


@pytest.mark.slow
async def test_row_14_binding_to_another_node_gives_the_reservation_back(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    plugin = ScriptedPlugin(descriptor("Demo", "RESERVE", "BIND", "POST_BIND"))
    text = configuration(path, "reserve", "bind", "postBind", bind_deadline="2s")
    async with plugin.serving(path), World([*nodes(), pod("web")], configuration=text) as world:

        async def bind_elsewhere(request: Any) -> None:
            other = "n1" if request.node_name == "n0" else "n0"
            ref = ObjectRef(namespace="default", name="web", uid=request.ctx.pods[0].summary.ref.uid)
            await world.cluster.bind(ref, other)
            await for_ever(None)

        plugin.on("Bind", bind_elsewhere)
        await until(lambda: bool(plugin.requests("Unreserve")))
        await world.settle()
        chosen = plugin.requests("Bind")[0].node_name
        assert world.node_of("web") not in ("", chosen)
        assert len(plugin.requests("Bind")) == 1
        assert not plugin.requests("PostBind")
        assert world.everything_is_accounted_for()


async def test_row_14_the_hosts_own_bind_is_looked_at_too(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    plugin = ScriptedPlugin(descriptor("Demo", "RESERVE", "BIND", "POST_BIND"))
    text = configuration(path, "reserve", "bind", "postBind")
    async with plugin.serving(path), World([*nodes(), pod("web")], configuration=text) as world:
        real = world.cluster.bind

        async def bind_and_lose_the_answer(pod: ObjectRef, node_name: str) -> None:
            await real(pod, node_name)
            raise UnavailableError("pods", pod.key, "the connection broke")

        world.cluster.bind = bind_and_lose_the_answer  # type: ignore[method-assign]  # the broken connection
        await until(lambda: bool(plugin.requests("PostBind")))
        assert world.node_of("web")
        assert not plugin.requests("Unreserve")
        assert len(plugin.requests("Bind")) == 1


# --- rows 16 and 17: decisions about waiting pods ----------------------------------------------------------


async def decide(plugin: ScriptedPlugin, uid: str, cycle_id: str, *, reject: bool = False) -> str:
    """One decision through the handle that Configure gave."""
    handle = plugin.requests("Configure")[-1].handle
    verdict = handle_pb2.WaitDecision.VERDICT_REJECT if reject else handle_pb2.WaitDecision.VERDICT_ALLOW
    request = handle_pb2.DecideWaitingPodsRequest(
        plugin="Demo",
        decisions=[handle_pb2.WaitDecision(pod_uid=uid, cycle_id=cycle_id, verdict=verdict, message="no")],
    )
    async with grpc.aio.insecure_channel(handle.target) as channel:
        reply = await handle_pb2_grpc.HandleServiceStub(channel).DecideWaitingPods(
            request, metadata=(("authorization", f"Bearer {handle.token}"),), timeout=PATIENCE_S
        )
    return Result.Result.Name(reply.results[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "reject", "ends"),
    [
        pytest.param(pb.Status.CODE_WAIT, False, "bound", id="allowed, then wait"),
        pytest.param(pb.Status.CODE_WAIT, True, "rejected", id="rejected, then wait"),
        pytest.param(pb.Status.CODE_UNSCHEDULABLE, False, "rejected", id="allowed, then denied"),
        pytest.param(pb.Status.CODE_SUCCESS, True, "bound", id="rejected, then approved"),
    ],
)
async def test_row_16_decision_before_the_answer_of_permit_counts_with_wait_alone(
    tmp_path: Path, answer: pb.Status.Code.ValueType, reject: bool, ends: str
) -> None:
    path = tmp_path / "p.sock"
    plugin = ScriptedPlugin(descriptor("Demo", "PERMIT", handle_client=True))
    results: list[str] = []

    async def permit(request: Any) -> scheduling_pb2.PermitResponse:
        ctx = request.ctx
        results.append(await decide(plugin, ctx.pods[0].summary.ref.uid, ctx.cycle_id, reject=reject))
        return scheduling_pb2.PermitResponse(ctx=decided(answer, "denied"))

    plugin.once("Permit", permit)
    text = configuration(path, "permit")
    async with plugin.serving(path), World([*nodes(), pod("web")], configuration=text) as world:
        await in_time(lambda: world.node_of("web") if ends == "bound" else world.message_of("web"))
        assert results == ["RESULT_STORED_EARLY"]
        assert not len(world.host.waiting_pods)


async def test_row_17_decisions_that_come_too_late_or_twice_have_no_effect(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    plugin = ScriptedPlugin(descriptor("Demo", "PERMIT", handle_client=True))
    plugin.on("Permit", lambda _: scheduling_pb2.PermitResponse(ctx=decided(pb.Status.CODE_WAIT)))
    text = configuration(path, "permit")
    async with plugin.serving(path), World([*nodes(), pod("web")], configuration=text) as world:
        await in_time(lambda: len(world.host.waiting_pods) == 1)
        ctx = plugin.requests("Permit")[0].ctx
        uid = ctx.pods[0].summary.ref.uid
        assert await decide(plugin, uid, "an-older-cycle") == "RESULT_STALE_CYCLE"
        assert await decide(plugin, "nobody", ctx.cycle_id) == "RESULT_NOT_WAITING"
        assert len(world.host.waiting_pods) == 1
        assert await decide(plugin, uid, ctx.cycle_id) == "RESULT_APPLIED"
        second = await decide(plugin, uid, ctx.cycle_id)
        assert second in ("RESULT_ALREADY_DECIDED", "RESULT_NOT_WAITING")
        await in_time(lambda: world.node_of("web"))


class Holder:
    """An in-process plugin that holds every pod."""

    def __init__(self, args: Any, handle: Any) -> None: ...

    def permit(self, state: Any, pod: Any, node_name: str) -> Any:
        return PermitResult.wait()


async def test_row_17_a_plugin_cannot_allow_for_another_plugin(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    plugin = ScriptedPlugin(descriptor("Demo", "PERMIT", handle_client=True))
    text = configuration(path, "permit").replace("[{name: Demo}]", "[{name: Demo}, {name: Holder}]")
    async with plugin.serving(path), World([*nodes(), pod("web")], [Holder], configuration=text) as world:
        await in_time(lambda: len(world.host.waiting_pods) == 1)
        ctx = plugin.requests("Permit")[0].ctx
        assert await decide(plugin, ctx.pods[0].summary.ref.uid, ctx.cycle_id) == "RESULT_NOT_PERMITTED"
        assert len(world.host.waiting_pods) == 1
        assert not world.node_of("web")


# --- row 29: the pod goes away -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("while_at", ["Reserve", "Permit", "PreBind"])
async def test_row_29_deleted_pod_ends_its_cycle_everywhere(tmp_path: Path, while_at: str) -> None:
    path = tmp_path / "p.sock"
    plugin = ScriptedPlugin(descriptor("Demo", "RESERVE", "PERMIT", "PRE_BIND"))
    cancelled = asyncio.Event()

    async def hang(_request: Any) -> None:
        try:
            await for_ever(None)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    plugin.on(while_at, hang)
    text = configuration(path, "reserve", "permit", "preBind")
    async with plugin.serving(path), World([*nodes(), pod("web")], configuration=text) as world:
        await until(lambda: bool(plugin.requests(while_at)))
        await world.cluster.delete("pods", ObjectRef(namespace="default", name="web"))
        await asyncio.wait_for(cancelled.wait(), PATIENCE_S)
        await until(lambda: bool(plugin.requests("Unreserve")))
        reserved = plugin.requests("Reserve")[0].ctx.cycle_id
        assert [item.cycle_id for item in plugin.requests("Unreserve")[0].items] == [reserved]
        await until(lambda: bool(plugin.requests("EndCycles")))
        (end,) = plugin.requests("EndCycles")[0].ended
        assert (end.cycle_id, end.outcome) == (reserved, pb.CycleEnd.OUTCOME_ABORTED)
        assert world.host.cache.pod_count == 0
        assert world.everything_is_accounted_for()


async def test_row_29_pod_that_was_updated_gets_a_new_sort_key_when_it_returns(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    plugin = ScriptedPlugin(descriptor("Demo", "QUEUE_SORT"))
    text = configuration(path, "queueSort")
    async with plugin.serving(path), World([*nodes(), pod("web", cpu="100")], configuration=text) as world:
        await world.settle()
        before = len(plugin.requests("SortKeys"))
        change = {"metadata": {"labels": {"tier": "gold"}}}
        await world.cluster.patch("pods", ObjectRef(namespace="default", name="web"), change)
        world.server.create(node("large", cpu="200"))
        await world.settle()
        assert world.node_of("web") == "large"
        asked = plugin.requests("SortKeys")[before:]
        assert [request.pods[0].summary.labels["tier"] for request in asked] == ["gold"]


# --- row 35: the order of the queue -----------------------------------------------------------------


@pytest.mark.slow
async def test_row_35_without_its_sorter_the_queue_falls_back_and_is_keyed_anew_in_place(
    tmp_path: Path,
) -> None:
    gate, sorter = (
        ScriptedPlugin(descriptor("Gate", "FILTER")),
        ScriptedPlugin(descriptor("Demo", "QUEUE_SORT")),
    )
    opened = asyncio.Event()
    order: list[str] = []

    async def hold(request: Any) -> scheduling_pb2.FilterResponse:
        await opened.wait()
        order.append(request.ctx.pods[0].summary.ref.name)
        return scheduling_pb2.FilterResponse()

    def backwards(request: Any) -> queue_pb2.SortKeysResponse:
        keys = [bytes([200 - int(item.summary.ref.name[1:])]) for item in request.pods]
        return queue_pb2.SortKeysResponse(keys=keys)

    gate.on("Filter", hold)
    sorter.on("SortKeys", backwards)
    text = configuration(tmp_path / "sorter.sock", "queueSort", more="required: false")
    text = text.replace("- plugins:\n", "- plugins:\n    filter: {enabled: [{name: Gate}]}\n")
    text = text.replace("cycleBudget: 10s", "cycleBudget: 30s")
    text += (
        f"- {{name: Gate, endpoint: 'unix://{tmp_path}/gate.sock', points: {{filter: {{deadline: 10s}}}}}}\n"
    )
    names = [f"p{i}" for i in range(6)]
    objects = [*nodes(), *(pod(name) for name in names)]
    async with gate.serving(tmp_path / "gate.sock"), World(objects, configuration=text) as world:
        # The sorter is absent: by priority and time, p0 goes first; it is held in its Filter.
        await until(lambda: len(gate.requests("Filter")) == 1)
        assert gate.requests("Filter")[0].ctx.pods[0].summary.ref.name == "p0"
        async with sorter.serving(tmp_path / "sorter.sock"):
            await until(lambda: bool(sorter.requests("SortKeys")))
            asked = [
                item.summary.ref.name for request in sorter.requests("SortKeys") for item in request.pods
            ]
            assert sorted(asked) == names[1:]
            assert len(gate.requests("Filter")) == 1  # no pod left the queue in the meantime
            await until(lambda: not world.host.wiring.busy)
            opened.set()
            await world.settle()
            assert order == ["p0", "p5", "p4", "p3", "p2", "p1"]
