"""Failures that the whole host must survive, row by row, from a script in each way that calls travel.

tests/host/attach has other rows, tests/host/faults those where the faults of real processes say as much.

Source: the failure table of the plugin contract.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from berth_host.attach import retrying
from berth_host.errors.cluster import UnavailableError
from berth_sdk.kube_object import ObjectRef
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import queue_pb2, scheduling_pb2
from support.hosts import World, node, pod
from support.scripted_plugin import WAYS, ScriptedPlugin, descriptor, for_ever, lacking
from support.waiting import PATIENCE_S, until


@pytest.fixture(autouse=True, params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send calls of the scheduling cycle as unary calls, and in frames."""
    monkeypatch.setattr(ScriptedPlugin, "features", WAYS[request.param])


@pytest.fixture(autouse=True)
def back_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attachments are tried again within a tenth of a second."""
    monkeypatch.setattr(retrying, "FIRST_S", 0.05)
    monkeypatch.setattr(retrying, "MAX_S", 0.1)


def configuration(path: Path, *points: str, more: str = "required: true", bind_deadline: str = "10s") -> str:
    """Return a configuration with the plugin Demo at some points, before the default plugins."""
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


# --- row 8: it dies inside a cycle --------------------------------------------------------------


@pytest.mark.long
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
    plugin.once("Filter", lambda _: scheduling_pb2.FilterResponse(ctx=lacking(pb.MISSING_CYCLE)))
    text = configuration(path, "preFilter", "filter")
    async with plugin.serving(path), World([*nodes(), pod("web")], configuration=text) as world:
        await in_time(lambda: world.node_of("web"))
        assert world.clock.monotonic_s() == 0  # no backoff
        assert len(plugin.requests("PreFilter")) == 2
        assert len({request.ctx.cycle_id for request in plugin.requests("PreFilter")}) == 2


# --- row 14: it is unknown whether the pod is bound ------------------------------------------------------


@pytest.mark.sampled(every=3)
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
                    ObjectRef(namespace="default", name="web", uid=request.ctx.pod.summary.ref.uid),
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


@pytest.mark.long
@pytest.mark.slow
async def test_row_14_binding_to_another_node_gives_the_reservation_back(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    plugin = ScriptedPlugin(descriptor("Demo", "RESERVE", "BIND", "POST_BIND"))
    text = configuration(path, "reserve", "bind", "postBind", bind_deadline="2s")
    async with plugin.serving(path), World([*nodes(), pod("web")], configuration=text) as world:

        async def bind_elsewhere(request: Any) -> None:
            other = "n1" if request.node_name == "n0" else "n0"
            ref = ObjectRef(namespace="default", name="web", uid=request.ctx.pod.summary.ref.uid)
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


# --- row 29: the pod goes away -----------------------------------------------------------------------------


@pytest.mark.sampled(every=3)
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
        order.append(request.ctx.pod.summary.ref.name)
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
        assert gate.requests("Filter")[0].ctx.pod.summary.ref.name == "p0"
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
