"""A plugin that cannot be asked guards its pods all the same: by default its calls fail, at every point that
decides.
"""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from berth_host.attach import retrying
from berth_host.attach.attachment import Attachment
from berth_host.attach.state import State
from berth_host.explain.make_pod_answer import pod_answer
from berth_host.rpc.breaker import IN_A_ROW, BreakerState
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import queue_pb2, scheduling_pb2
from support.hosts import World, node, pod
from support.scripted_plugin import SUCCESS, WAYS, ScriptedPlugin, decided, descriptor, refuse
from support.waiting import until

VIOLATIONS = 3


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send calls of the scheduling cycle as unary calls, and in frames."""
    monkeypatch.setattr(ScriptedPlugin, "features", WAYS[request.param])


@pytest.fixture(autouse=True)
def back_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attachments are tried again within a tenth of a second."""
    monkeypatch.setattr(retrying, "FIRST_S", 0.05)
    monkeypatch.setattr(retrying, "MAX_S", 0.1)


def configuration(path: Path, more: str = "") -> str:
    """Return a configuration with the plugin Demo at every point of its instance."""
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins: {multiPoint: {enabled: [{name: Demo}]}}\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 30s\n"
        f"plugins:\n- {{name: Demo, endpoint: 'unix://{path}'{more}}}\n"
    )


def place_of(world: World) -> Attachment:
    (place,) = world.host.attachments.attached_places.places
    return place


async def place_pod(world: World, name: str) -> str:
    """Create a pod; return its node."""
    world.server.create(pod(name))
    await world.settle()
    return world.node_of(name)


# --- quarantine -------------------------------------------------------------------------------------------


async def quarantined(world: World, plugin: ScriptedPlugin) -> None:
    """Three violations at Reserve: a status without a code, where a decision is due."""
    plugin.on("Reserve", lambda _: scheduling_pb2.ReserveResponse(ctx=pb.ReplyContext()))
    world.server.create(pod("liar"))
    await world.settle()
    await until(lambda: place_of(world).state is State.QUARANTINED)
    assert plugin_count(plugin, "Reserve") >= VIOLATIONS


def plugin_count(plugin: ScriptedPlugin, rpc: str) -> int:
    return len(plugin.requests(rpc))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("points", ["", ", points: {filter: {policy: Fail}}"], ids=["default", "Fail"])
async def test_violations_at_reserve_do_not_remove_the_filter_of_the_plugin(
    tmp_path: Path, points: str
) -> None:
    path = tmp_path / "p.sock"
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER", "RESERVE"))
    async with (
        plugin.serving(path),
        World([node("n0")], configuration=configuration(path, points)) as world,
    ):
        await quarantined(world, plugin)
        assert await place_pod(world, "web") == ""
        said = world.message_of("web")
        assert 'plugin "Demo"' in said
        assert "quarantine" in said or "broke the contract" in said
        stats = world.host.plugin_stats()["Demo"]
        assert stats.of("Filter").policies["Fail"] >= 1
        assert stats.of("Filter").policies["Ignore"] == 0


@pytest.mark.usefixtures("way")
async def test_quarantined_optional_plugin_is_left_out_and_the_attempt_names_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "p.sock"
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER", "RESERVE"))
    async with (
        plugin.serving(path),
        World([node("n0")], configuration=configuration(path, ", required: false")) as world,
    ):
        await quarantined(world, plugin)
        assert await place_pod(world, "web") == "n0"
        await told_of(world, "web", "Filter, Reserve")


# --- an open circuit --------------------------------------------------------------------------------------


async def told_of(world: World, name: str, points: str) -> None:
    """Check that the pod's Event and `berth why` name the plugin without which the pod was placed."""
    event = world.server.events.latest("PluginLeftOut", f"default/{name}")
    assert event is not None
    assert event.note.startswith(f'placed without plugin "Demo" at {points}: it ')
    assert event.note.endswith("(required: false)")
    found = await pod_answer(world.host, f"default/{name}")
    assert found is not None
    (note,) = found.explanation.notes
    assert event.note == f"placed {note}"


async def with_open_circuit(world: World, plugin: ScriptedPlugin) -> None:
    """Filter fails until its circuit breaker is open; from then on the plugin would answer."""
    plugin.on("Filter", refuse(grpc.StatusCode.INTERNAL))
    for number in range(IN_A_ROW):
        world.server.create(pod(f"failed-{number}", priority=-number))
    await until(lambda: len(plugin.requests("Filter")) >= IN_A_ROW)
    await world.settle()
    (circuit,) = world.host.conditions()[0].circuits
    assert (circuit.point, circuit.state) == ("filter", BreakerState.OPEN)
    plugin.on("Filter", plugin.unscripted("Filter"))


@pytest.mark.usefixtures("way")
async def test_optional_plugin_with_an_open_circuit_is_left_out_and_the_attempt_names_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "p.sock"
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    async with (
        plugin.serving(path),
        World([node("n0")], configuration=configuration(path, ", required: false")) as world,
    ):
        await with_open_circuit(world, plugin)
        asked = len(plugin.requests("Filter"))
        assert await place_pod(world, "web") == "n0"
        assert len(plugin.requests("Filter")) == asked
        await told_of(world, "web", "Filter")


@pytest.mark.usefixtures("way")
async def test_pod_is_not_placed_while_the_circuit_of_a_plugin_is_open(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    async with plugin.serving(path), World([node("n0")], configuration=configuration(path)) as world:
        await with_open_circuit(world, plugin)
        assert await place_pod(world, "web") == ""
        assert "is not asked until it is well again" in world.message_of("web")
        assert world.server.events.latest("PluginLeftOut", "default/web") is None


# --- the gate of the queue --------------------------------------------------------------------------------


async def test_pod_waits_at_pre_enqueue_while_the_plugin_is_away_and_is_asked_when_it_is_back(
    tmp_path: Path,
) -> None:
    path = tmp_path / "p.sock"
    first, second = (ScriptedPlugin(descriptor("Demo", "PRE_ENQUEUE")) for _ in range(2))
    async with World([node("n0")], configuration=configuration(path)) as world:
        async with first.serving(path):
            await until(lambda: place_of(world).state is State.ACTIVE)
        await until(lambda: not world.host.attachments.attached_places.plugins["Demo"].is_attached)
        world.server.create(pod("web"))
        await until(lambda: world.host.queue.places.find("default/web") is not None)
        found = world.host.queue.places.find("default/web")
        assert found is not None
        assert 'plugin "Demo"' in found[1].gating_message
        async with second.serving(path):
            await until(lambda: bool(second.requests("PreEnqueue")))
            await world.settle()
            assert world.node_of("web") == "n0"
        assert not first.requests("PreEnqueue")


@pytest.mark.parametrize("failure", ["error", "violation"])
async def test_pod_waits_at_pre_enqueue_after_a_failed_call_and_is_asked_again(
    tmp_path: Path, failure: str
) -> None:
    path = tmp_path / "p.sock"
    plugin = ScriptedPlugin(descriptor("Demo", "PRE_ENQUEUE"))
    failing = {
        "error": refuse(grpc.StatusCode.INTERNAL),
        "violation": lambda _: queue_pb2.PreEnqueueResponse(statuses=[SUCCESS, SUCCESS, SUCCESS]),
    }[failure]
    plugin.on("PreEnqueue", failing)
    async with plugin.serving(path), World([node("n0")], configuration=configuration(path)) as world:
        world.server.create(pod("web"))
        await until(lambda: bool(plugin.requests("PreEnqueue")))
        await until(lambda: world.host.queue.places.find("default/web") is not None)
        assert world.node_of("web") == ""
        plugin.on("PreEnqueue", plugin.unscripted("PreEnqueue"))
        await world.settle()
        assert world.node_of("web") == "n0"


async def test_reserve_decides_again_after_a_good_instance_is_attached(tmp_path: Path) -> None:
    """The way out of the quarantine: another instance."""
    path = tmp_path / "p.sock"
    liar, sound = (ScriptedPlugin(descriptor("Demo", "FILTER", "RESERVE")) for _ in range(2))
    sound.on("Reserve", lambda _: scheduling_pb2.ReserveResponse(ctx=decided()))
    async with World([node("n0")], configuration=configuration(path)) as world:
        async with liar.serving(path):
            await until(lambda: place_of(world).state is State.ACTIVE)
            await quarantined(world, liar)
            assert await place_pod(world, "web") == ""
        async with sound.serving(path):
            await until(lambda: place_of(world).state is State.ACTIVE)
            await world.settle()
            assert (world.node_of("web"), world.node_of("liar")) == ("n0", "n0")
