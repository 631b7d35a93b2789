"""Rows 18, 21, 28 and 30 of the failure table, with real processes: what is sent is lost, large or new."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from berth_sdk.kube_object import ObjectRef
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2
from support.faults import FailingProcess, RawPlugin, attached, configuration, in_time, running
from support.hosts import World, node, pod
from support.scripted_plugin import WHOLE_POD, descriptor
from support.waiting import until

pytestmark = pytest.mark.slow


async def copy_of(world: World, plugin: FailingProcess) -> dict[str, Any]:
    """The pods by node, as the plugin has them in the cycle of a pod that is looked at."""
    world.server.create(pod("look"))
    table = plugin.folder / "table.json"
    await until(table.exists)
    return {name: uids for name, (_, _, uids) in json.loads(table.read_text()).items()}


def truth(world: World) -> dict[str, Any]:
    """The same, as the cluster has it."""
    pods = [item for item in world.server.list("pods") if item.get("spec.nodeName")]
    return {
        one.ref.name: sorted(item.ref.uid for item in pods if item.get("spec.nodeName") == one.ref.name)
        for one in world.server.list("nodes")
    }


@pytest.mark.parametrize("kind", ["lose", "twice", "strange-base"])
async def test_row_18_a_delta_that_is_lost_or_twice_there_or_of_an_unknown_base_is_repaired_in_the_call(
    tmp_path: Path, kind: str
) -> None:
    plugin = FailingProcess(tmp_path)
    text = configuration(plugin, Failing="filter")
    async with running(plugin), World([node("n0"), node("n1"), pod("a")], configuration=text) as world:
        await in_time(lambda: world.node_of("a"))
        world.server.create(node("n2"))
        await in_time(lambda: world.host.cache.node_count == 3)
        plugin.arm("Filter", kind)
        world.server.create(pod("b"))
        await in_time(lambda: world.node_of("b"))
        assert plugin.has_fired
        # What it lacked is asked for and sent within the call: no attempt is lost.
        assert not world.message_of("b").strip()
        calls = [words[1] for words in plugin.asked("Filter")]
        assert len(set(calls)) == 2
        assert len(calls) == (2 if kind == "twice" else 3)
        assert await copy_of(world, plugin) == truth(world)


async def test_row_18_after_one_repair_the_policy_applies_and_everything_is_sent_in_the_background(
    tmp_path: Path,
) -> None:
    plugin = RawPlugin(tmp_path, descriptor("Raw", "FILTER"))
    for _ in range(2):
        plugin.once("Filter", scheduling_pb2.FilterResponse(ctx=pb.ReplyContext(needs=[pb.NEED_STATE])))
    text = configuration(plugin, Raw="filter")
    async with running(plugin), World([node("n0"), pod("a")], configuration=text) as world:
        await in_time(lambda: world.message_of("a"))
        assert len(plugin.requests("Filter")) == 2
        assert 'plugin "Raw"' in world.message_of("a")
        synced = len(plugin.requests("SyncState"))
        await until(lambda: len(plugin.requests("SyncState")) > synced)
        assert plugin.requests("SyncState")[-1].full
        await world.settle()
        assert world.node_of("a") == "n0"


async def test_row_21_what_is_too_large_is_cut_up_or_not_sent_or_not_believed(tmp_path: Path) -> None:
    plugin = RawPlugin(tmp_path, descriptor("Raw", "FILTER", needs=[WHOLE_POD]))
    text = configuration(plugin, Raw="filter")
    group = scheduling_pb2.NodeGroup(status=pb.Status(reasons=["x" * (5 * 1024 * 1024)]))
    too_large = scheduling_pb2.FilterResponse(verdicts=scheduling_pb2.NodeVerdicts(rejected=[group]))
    plugin.once("Filter", too_large)
    async with running(plugin), World([node("n0"), pod("a")], configuration=text) as world:
        await in_time(lambda: world.message_of("a"))
        assert "answered more than was agreed" in world.message_of("a")
        assert world.host.plugin_stats()["Raw"].violations == 1
        await world.settle()
        assert world.node_of("a") == "n0"
        asked = len(plugin.requests("Filter"))
        big = pod("big")
        big["metadata"]["annotations"] = {"filler": "x" * (3 * 1024 * 1024)}
        world.server.create(big)
        await in_time(lambda: world.message_of("big"))
        assert "is over the agreed limit" in world.message_of("big")
        assert len(plugin.requests("Filter")) == asked


async def test_row_21_a_copy_that_is_larger_than_a_message_goes_in_chunks(tmp_path: Path) -> None:
    plugin = FailingProcess(tmp_path)
    text = configuration(plugin, Failing="filter")
    count = 3000
    async with running(plugin), World([node(f"n{i}") for i in range(count)], configuration=text) as world:
        await in_time(lambda: attached(world))
        assert len(await copy_of(world, plugin)) == count


async def test_row_28_a_node_that_comes_back_under_its_name_is_another_node(tmp_path: Path) -> None:
    plugin = FailingProcess(tmp_path)
    text = configuration(plugin, Failing="filter")
    async with running(plugin), World([node("n0"), pod("a")], configuration=text) as world:
        await in_time(lambda: world.node_of("a"))
        old = world.host.snapshot.columns.index_of["n0"]
        await world.cluster.delete("nodes", ObjectRef(name="n0"))
        await world.cluster.delete("pods", ObjectRef(namespace="default", name="a"))
        await in_time(lambda: world.host.cache.node_count == 0 and world.host.cache.pod_count == 0)
        world.server.create(node("n0", cpu="64"))
        world.server.create(pod("b", cpu="32"))
        await in_time(lambda: world.node_of("b") == "n0")
        assert world.host.snapshot.columns.index_of["n0"] != old
        assert await copy_of(world, plugin) == truth(world)


async def test_row_30_values_and_fields_of_a_newer_peer_have_their_readings_and_warn_once(
    tmp_path: Path,
) -> None:
    message = descriptor("Raw", "FILTER", "RESERVE")
    message.points.append(77)  # type: ignore[arg-type]  # from a newer contract
    plugin = RawPlugin(tmp_path, message)
    newer = pb.Status(reasons=["because"])
    newer.code = 50  # type: ignore[assignment]  # as above
    plugin.once("Reserve", scheduling_pb2.ReserveResponse(ctx=pb.ReplyContext(status=newer)))
    # An unknown field: number 900, a string.
    plugin.on("Filter", scheduling_pb2.FilterResponse.FromString(b"\xa2\x38\x05hello"))
    text = configuration(plugin, Raw="filter reserve")
    async with running(plugin), World([node("n0"), pod("a"), pod("b")], configuration=text) as world:
        await in_time(lambda: world.message_of("a") or world.message_of("b"))
        said = world.message_of("a") or world.message_of("b")
        assert 'plugin "Raw" answered the unknown status code 50' in said
        await world.settle()
        assert world.node_of("a") == world.node_of("b") == "n0"
        (condition,) = world.host.attachments.attached_places.conditions()
        assert condition.warnings == ("plugin Raw declares the unknown extension point 77, which is ignored",)
