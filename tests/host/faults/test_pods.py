"""Row 29 of the failure table, with real processes: a pod goes, or changes, while a plugin is asked."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from berth_sdk.kube_object import ObjectRef
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2
from support.faults import RawPlugin, configuration, held, in_time, running
from support.hosts import World, node, pod
from support.raw_plugin import HOLD
from support.scripted_plugin import decided, descriptor
from support.waiting import until

pytestmark = pytest.mark.slow
WEB = ObjectRef(namespace="default", name="web")


@pytest.mark.long
async def test_row_29_a_deleted_pod_ends_its_cycle_everywhere(tmp_path: Path) -> None:
    """While Reserve, Permit or PreBind is asked about it."""
    plugin = RawPlugin(tmp_path, descriptor("Raw", "RESERVE", "PERMIT", "PRE_BIND"))
    text = configuration(plugin, Raw="reserve permit preBind")
    async with running(plugin), World([node("n0")], configuration=text) as world:
        for count, rpc in enumerate(("Reserve", "Permit", "PreBind"), 1):
            plugin.on(rpc, HOLD)
            world.server.create(pod("web"))
            await until(functools.partial(has_come, plugin, rpc, 1))
            await world.cluster.delete("pods", WEB)
            await until(functools.partial(has_come, plugin, f"cancelled-{rpc}", 1))
            plugin.on(rpc, None)
            await until(functools.partial(has_come, plugin, "Unreserve", count))
            await until(functools.partial(has_come, plugin, "EndCycles", count))
            reserved = plugin.requests("Reserve")[-1].ctx.cycle_id
            assert [item.cycle_id for item in plugin.requests("Unreserve")[-1].items] == [reserved], rpc
            (end,) = plugin.requests("EndCycles")[-1].ended
            assert (end.cycle_id, end.outcome) == (reserved, pb.CycleEnd.OUTCOME_ABORTED), rpc
            assert world.host.cache.pod_count == 0, rpc
            assert world.everything_is_accounted_for(), rpc


@pytest.mark.long
@pytest.mark.parametrize(
    ("answer", "note"),
    [
        (
            scheduling_pb2.PreBindResponse(ctx=decided(pb.PluginStatus.CODE_ERROR, "the disk has no user")),
            'running PreBind plugin "Raw": the disk has no user',
        ),
        (scheduling_pb2.PreBindResponse(ctx=decided(pb.PluginStatus.CODE_SUCCESS)), "the pod was deleted"),
    ],
)
async def test_row_29_pre_bind_between_two_rounds_is_asked_what_it_makes_of_the_deletion(
    tmp_path: Path, answer: scheduling_pb2.PreBindResponse, note: str
) -> None:
    plugin = RawPlugin(tmp_path, descriptor("Raw", "RESERVE", "PRE_BIND"))
    waits = scheduling_pb2.PreBindResponse(ctx=decided(pb.PluginStatus.CODE_SUCCESS))
    waits.ask_again_after.FromSeconds(600)
    plugin.on("PreBind", waits)
    text = configuration(plugin, Raw="reserve preBind")
    async with running(plugin), World([node("n0"), pod("web")], configuration=text) as world:
        await until(functools.partial(has_come, plugin, "PreBind", 1))
        await until(lambda: not world.host.binding.active_count)
        plugin.on("PreBind", answer)
        await world.cluster.delete("pods", WEB)
        await until(functools.partial(has_come, plugin, "EndCycles", 1))
        assert [asked.pod_deleted for asked in plugin.requests("PreBind")] == [False, True]
        (end,) = plugin.requests("EndCycles")[-1].ended
        assert end.outcome == pb.CycleEnd.OUTCOME_ABORTED
        assert len(plugin.requests("Unreserve")) == 1
        recent = world.server.events.recent
        assert [event.note for event in recent if event.reason == "FailedScheduling"] == [note]
        assert world.everything_is_accounted_for()


@pytest.mark.long
async def test_row_29_a_deleted_pod_ends_its_wait_everywhere(tmp_path: Path) -> None:
    plugin = RawPlugin(tmp_path, descriptor("Raw", "RESERVE", "PERMIT"))
    plugin.on("Permit", scheduling_pb2.PermitResponse(ctx=decided(pb.PluginStatus.CODE_WAIT)))
    text = configuration(plugin, Raw="reserve permit")
    async with running(plugin), World([node("n0"), pod("web")], configuration=text) as world:
        await held(world)
        await world.cluster.delete("pods", WEB)
        await until(functools.partial(has_come, plugin, "Unreserve", 1))
        await until(functools.partial(has_come, plugin, "EndCycles", 1))
        (end,) = plugin.requests("EndCycles")[-1].ended
        reserved = plugin.requests("Reserve")[-1].ctx.cycle_id
        assert (end.cycle_id, end.outcome) == (reserved, pb.CycleEnd.OUTCOME_ABORTED)
        assert not len(world.host.waiting_pods)
        assert world.host.cache.pod_count == 0
        assert world.everything_is_accounted_for()


def has_come(plugin: RawPlugin, rpc: str, count: int) -> bool:
    """Return True if the plugin got `count` requests of `rpc`."""
    return len(plugin.requests(rpc)) == count


@pytest.mark.long
async def test_row_29_a_pod_that_changes_while_it_waits_is_ordered_anew(tmp_path: Path) -> None:
    plugin = RawPlugin(tmp_path, descriptor("Raw", "QUEUE_SORT"))
    text = configuration(plugin, Raw="queueSort")

    def tiers() -> list[str]:
        return [item.summary.labels["tier"] for asked in plugin.requests("SortKeys") for item in asked.pods]

    async with running(plugin), World([node("n0"), pod("web", cpu="8")], configuration=text) as world:
        await in_time(lambda: world.message_of("web"))
        await world.settle()
        assert set(tiers()) == {""}
        await world.cluster.patch("pods", WEB, {"metadata": {"labels": {"tier": "gold"}}})
        world.server.create(node("large", cpu="16"))
        await in_time(lambda: world.node_of("web") == "large")
        # A pod that is alone is tried before its key is there.
        await until(lambda: tiers()[-1] == "gold")
