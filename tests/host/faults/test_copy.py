"""Rows 18, 21, 28 and 30 of the failure table, with real processes: what is sent is lost, large or new."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from berth_host.explain.diagnosis import Diagnosis, Outcome
from berth_sdk.kube_object import ObjectRef
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2, scheduling_pb2
from berth_sdk.wire.message_limit import DEFAULT_BYTES
from support.faults import FailingProcess, RawPlugin, attached, configuration, in_time, running
from support.hosts import World, node, pod
from support.raw_plugin import HOLD
from support.scripted_plugin import WHOLE_POD, descriptor, lacking
from support.waiting import until

pytestmark = pytest.mark.slow


def is_made_anew(world: World) -> bool:
    """Whether the host has heard of the node that is smaller."""
    found = world.host.cache.node_info("n0")
    return found is not None and found.node is not None and found.node.allocatable["cpu"] == 3000


async def copy_of(world: World, plugin: FailingProcess) -> dict[str, Any]:
    """Return the pods by node, as in the plugin's copy in the cycle of a probing pod."""
    world.server.create(pod("look"))
    table = plugin.folder / "table.json"
    await until(table.exists)
    return {name: uids for name, (_, _, uids) in json.loads(table.read_text()).items()}


def truth(world: World) -> dict[str, Any]:
    """Return the pods by node, as in the cluster."""
    pods = [item for item in world.server.list("pods") if item.get("spec.nodeName")]
    return {
        one.ref.name: sorted(item.ref.uid for item in pods if item.get("spec.nodeName") == one.ref.name)
        for one in world.server.list("nodes")
    }


@pytest.mark.sampled(every=3)
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


@pytest.mark.long
async def test_row_18_after_one_repair_the_policy_applies_and_everything_is_sent_in_the_background(
    tmp_path: Path,
) -> None:
    plugin = RawPlugin(tmp_path, descriptor("Raw", "FILTER"))
    for _ in range(2):
        plugin.once("Filter", scheduling_pb2.FilterResponse(ctx=pb.ReplyContext(missing=[pb.MISSING_STATE])))
    text = configuration(plugin, Raw="filter")
    async with running(plugin), World([node("n0"), pod("a")], configuration=text) as world:
        await in_time(lambda: world.message_of("a"))
        assert len(plugin.requests("Filter")) == 2
        assert 'plugin "Raw"' in world.message_of("a")
        synced = len(plugin.requests("SyncState"))
        await until(lambda: len(plugin.requests("SyncState")) > synced)
        assert not plugin.requests("SyncState")[-1].chunk.HasField("base")
        await world.settle()
        assert world.node_of("a") == "n0"


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("need", ["MISSING_STATE", "MISSING_POD", "MISSING_CYCLE"])
async def test_row_20_what_a_plugin_says_it_lacks_comes_within_the_attempt(tmp_path: Path, need: str) -> None:
    plugin = RawPlugin(tmp_path, descriptor("Raw", "PRE_FILTER", "FILTER"))
    lacks = lacking(pb.Missing.Value(need))
    plugin.once("Filter", scheduling_pb2.FilterResponse(ctx=lacks))
    text = configuration(plugin, Raw="preFilter filter")
    attempts: list[Diagnosis] = []
    world = World([node("n0")], configuration=text, on_attempt=attempts.append)
    async with running(plugin), world:
        await in_time(lambda: attached(world, "Raw"))
        synced = len(plugin.requests("SyncState"))
        world.server.create(pod("web"))
        await in_time(lambda: world.node_of("web"))
        assert [one.outcome for one in attempts] == [Outcome.BOUND]
        first, second = (request.ctx for request in plugin.requests("Filter"))
        begun = len(plugin.requests("PreFilter"))
        if need == "MISSING_CYCLE":
            assert (begun, second.attempt) == (2, 0)
            assert first.cycle_id != second.cycle_id
        else:
            assert (begun, second.attempt) == (1, 1)
            assert first.cycle_id == second.cycle_id
            assert not first.pod.complete
            assert second.pod.complete == (need == "MISSING_POD")
        assert len(plugin.requests("SyncState")) - synced == (1 if need == "MISSING_STATE" else 0)
        assert world.clock.monotonic_s() == 0  # no backoff


@pytest.mark.long
async def test_row_21_what_is_too_large_is_cut_up_or_not_sent_or_not_believed(tmp_path: Path) -> None:
    plugin = RawPlugin(tmp_path, descriptor("Raw", "FILTER", needs=[WHOLE_POD]))
    text = configuration(plugin, Raw="filter")
    group = scheduling_pb2.NodeGroup(status=pb.PluginStatus(reasons=["x" * (5 * 1024 * 1024)]))
    too_large = scheduling_pb2.FilterResponse(verdicts=scheduling_pb2.NodeVerdicts(rejected=[group]))
    plugin.once("Filter", too_large)
    async with running(plugin), World([node("n0"), pod("a")], configuration=text) as world:
        await in_time(lambda: world.message_of("a"))
        assert "answered more than was agreed" in world.message_of("a")
        assert plugin.requests("Configure")[-1].max_message_bytes == DEFAULT_BYTES
        assert world.host.plugin_stats()["Raw"].violations == 1
        await world.settle()
        assert world.node_of("a") == "n0"
        asked = len(plugin.requests("Filter"))
        big = pod("big")
        big["metadata"]["annotations"] = {"filler": "x" * (3 * 1024 * 1024)}
        world.server.create(big)
        await in_time(lambda: world.message_of("big"))
        assert "4194304 are the limit: raise the smaller one of maxMessageBytes" in world.message_of("big")
        assert len(plugin.requests("Filter")) == asked


@pytest.mark.long
async def test_row_21_a_copy_that_is_larger_than_a_message_goes_in_chunks(tmp_path: Path) -> None:
    plugin = FailingProcess(tmp_path / "failing")
    raw = RawPlugin(tmp_path / "raw", descriptor("Raw", "FILTER"))
    text = configuration(plugin, raw, Failing="filter", Raw="filter")
    count = 3000
    nodes = [node(f"n{i}") for i in range(count)]
    async with running(plugin, raw), World(nodes, configuration=text) as world:
        await in_time(lambda: attached(world) and attached(world, "Raw"))
        assert len(await copy_of(world, plugin)) == count
        _, *chunks = max((words for words in raw.lines("journal") if words[0] == "SyncState"), key=len)
        assert len(chunks) > 1
        assert all(len(b64decode(chunk)) <= DEFAULT_BYTES for chunk in chunks)


@pytest.mark.long
async def test_row_28_a_verdict_on_a_node_that_is_made_anew_meanwhile_belongs_to_the_snapshot(
    tmp_path: Path,
) -> None:
    """The node is deleted and made again, smaller, while the plugin judges it: both are told apart after."""
    plugin = RawPlugin(tmp_path, descriptor("Raw", "FILTER", "RESERVE"))
    plugin.on("Filter", HOLD)
    text = configuration(plugin, Raw="filter reserve")
    async with running(plugin), World([node("n0"), pod("a", cpu="2")], configuration=text) as world:
        await in_time(lambda: len(plugin.requests("Filter")) == 1)
        old = world.host.snapshot.columns.index_of["n0"]
        await world.cluster.delete("nodes", ObjectRef(name="n0"))
        world.server.create(node("n0", cpu="3"))
        await in_time(lambda: is_made_anew(world))
        plugin.on("Filter", None)
        await in_time(lambda: world.node_of("a") == "n0")
        judged, reserved = plugin.requests("Filter")[0], plugin.requests("Reserve")[0]
        assert (reserved.ctx.version, reserved.node_index) == (judged.ctx.version, old)
        # The next cycle sees another node, with the pod on it.
        world.server.create(pod("b", cpu="1"))
        await in_time(lambda: world.node_of("b") == "n0")
        reserved = plugin.requests("Reserve")[-1]
        new = world.host.snapshot.columns.index_of["n0"]
        assert reserved.node_index == new != old
        delta = plugin.requests("Filter")[-1].ctx.delta
        assert list(delta.removed) == [old]
        (upsert,) = delta.upserts
        assert (upsert.index, upsert.usage.requested["cpu"]) == (new, 2000)
        assert upsert.generation > judged.ctx.version.generation
        world.server.create(pod("c", cpu="1"))
        await in_time(lambda: "Insufficient cpu" in world.message_of("c"))


@pytest.mark.long
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


@pytest.mark.long
async def test_row_30_a_feature_of_a_newer_peer_is_not_used_and_hinders_nothing(tmp_path: Path) -> None:
    plugin = RawPlugin(tmp_path, descriptor("Raw", "FILTER"))
    newer = identity_pb2.HandshakeResponse(
        supported=[
            identity_pb2.ContractVersion(major=1, minor=77),
            identity_pb2.ContractVersion(major=9),
        ],
        features=["call-teleport"],
        plugins=[descriptor("Raw", "FILTER")],
        instance_id="newer",
    )
    newer.started_at.FromSeconds(1)
    plugin.on("Handshake", newer)
    plugin.on("Probe", identity_pb2.ProbeResponse(ready=True, instance_id="newer"))
    text = configuration(plugin, Raw="filter")
    async with running(plugin), World([node("n0"), pod("a")], configuration=text) as world:
        await in_time(lambda: world.node_of("a"))
        told = plugin.requests("Configure")[-1]
        assert (told.contract.major, told.accepted) == (1, True)
        assert "call-teleport" not in told.features


async def test_row_30_values_and_fields_of_a_newer_peer_have_their_readings_and_warn_once(
    tmp_path: Path,
) -> None:
    message = descriptor("Raw", "FILTER", "RESERVE")
    message.points.append(77)  # type: ignore[arg-type]  # from a newer contract
    plugin = RawPlugin(tmp_path, message)
    newer = pb.PluginStatus(reasons=["because"])
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
