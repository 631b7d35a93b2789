"""Rows 13 to 15 of the failure table, with real processes: nobody knows whether a call had its effect."""

from __future__ import annotations

from pathlib import Path

import pytest
from berth_host.attach.state import State
from berth_host.rpc.served import overdue
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2
from berth_sim.cluster.http.serving import served
from structlog.testing import capture_logs
from support.faults import (
    FailingProcess,
    RawPlugin,
    as_time_passes,
    attached,
    configuration,
    in_time,
    metric,
    running,
)
from support.hosts import World, node, pod
from support.scripted_plugin import decided, descriptor
from support.waiting import until

pytestmark = pytest.mark.slow

UNSCHEDULABLE = pb.PluginStatus.CODE_UNSCHEDULABLE
TRIES = 6
"""Of an Unreserve, after the first Reconcile that does not list its reservation."""
OVERDUE_S = 0.1
NODES = [node("n0"), node("n1")]


@pytest.mark.long
async def test_row_13_reserve_that_happened_and_was_not_answered_in_time_is_undone(tmp_path: Path) -> None:
    plugin = FailingProcess(tmp_path)
    plugin.arm("Reserve", "hang-after")
    text = configuration(plugin, Failing="reserve", deadline="1s")
    async with running(plugin), World([*NODES, pod("web")], configuration=text) as world:
        await in_time(lambda: world.message_of("web"))
        assert 'plugin "Failing" did not answer within 1000 ms at Reserve' in world.message_of("web")
        await world.settle()
        (late, _), (kept, _) = plugin.did("reserve")
        assert [cycle for cycle, _ in plugin.did("unreserve")] == [late]
        assert late != kept
        assert world.node_of("web")


@pytest.mark.long
async def test_row_13_reserve_that_comes_after_its_unreserve_takes_nothing(tmp_path: Path) -> None:
    plugin = FailingProcess(tmp_path)
    plugin.arm("Reserve", "late")
    text = configuration(plugin, Failing="reserve", deadline="1s")
    async with running(plugin), World([*NODES, pod("web")], configuration=text) as world:
        await in_time(lambda: world.message_of("web"))
        await until(lambda: bool(plugin.did("late")))
        await world.settle()
        assert world.node_of("web")
        (late, _), (kept, _) = [words[1:] for words in plugin.asked("Reserve")]
        assert plugin.did("late") == [[late, "-"]]
        assert [cycle for cycle, _ in plugin.did("reserve")] == [kept]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("where", ["chosen", "elsewhere", "nowhere"])
async def test_row_14_the_pod_is_read_where_the_plugin_bound_it_or_not_and_did_not_say(
    tmp_path: Path, where: str
) -> None:
    plugin = FailingProcess(tmp_path)
    text = configuration(plugin, Failing="reserve bind postBind", deadline="1s")
    world = World([*NODES, pod("web", labels={"binds": where})], configuration=text)
    async with served(world.server) as cluster, running(plugin), world:
        plugin.put("cluster", cluster.url)
        await until(lambda: bool(plugin.did("bind")))
        ((_, chosen),) = plugin.did("bind")
        await in_time(lambda: not len(world.host.binding))
        if where == "nowhere":
            assert 'plugin "Failing" did not answer within 1000 ms at Bind' in world.message_of("web")
        await world.settle()
        assert cluster.handlers.rebinds == 0
        assert (world.node_of("web") == chosen) == (where != "elsewhere")
        assert len(plugin.did("bind")) == (2 if where == "nowhere" else 1)
        assert len(plugin.did("unreserve")) == (0 if where == "chosen" else 1)
        await until(lambda: len(plugin.did("post-bind")) == (0 if where == "elsewhere" else 1))
        assert world.everything_is_accounted_for()


@pytest.mark.long
async def test_row_15_an_unreserve_that_is_never_acknowledged_is_dropped_some_tries_after_a_reconcile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each instance answers without naming the cycle; one that does so to three Reserves is in quarantine."""
    monkeypatch.setattr(overdue, "OVERDUE_S", OVERDUE_S)
    plugin = RawPlugin(tmp_path, descriptor("Raw", "RESERVE", "PERMIT"))
    plugin.on("Unreserve", scheduling_pb2.UnreserveResponse())
    plugin.once("Permit", scheduling_pb2.PermitResponse(ctx=decided(UNSCHEDULABLE, "not this time")))
    text = configuration(plugin, Raw="reserve permit")
    with capture_logs() as lines:
        async with running(plugin), World([*NODES, pod("web")], configuration=text) as world:
            (place,) = world.host.attachments.attached_places.places
            await as_time_passes(world, lambda: "acknowledged none of 1" in world.message_of("web"))
            (lost,) = (request.ctx.cycle_id for request in plugin.requests("Reserve"))
            await plugin.kill()
            await in_time(lambda: "outbox.overdue" in [line["event"] for line in lines])
            assert await metric(world, "berth_unreserve_age_seconds", "Raw") >= OVERDUE_S
            before = len(plugin.requests("Unreserve"))
            while not world.node_of("web"):
                await plugin.restart()
                await in_time(lambda: attached(world, "Raw"))
                assert not plugin.requests("Reconcile")[-1].live
                await as_time_passes(
                    world, lambda: bool(world.node_of("web")) or place.state is State.QUARANTINED
                )
            sent = [item.cycle_id for request in plugin.requests("Unreserve") for item in request.items]
            assert sent == [lost] * (before + TRIES)
            dropped = [line["cycle_id"] for line in lines if line["event"] == "outbox.superseded"]
            assert dropped == [lost]
            assert await metric(world, "berth_unreserve_age_seconds", "Raw") == 0
