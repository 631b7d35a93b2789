"""A new configuration for a running host: nothing is listed again, lost, or bound twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import ClassVar

import pytest
from berth_bench.life.faulty_cluster import Fault, Faults
from berth_host.app import Host
from berth_host.app import host as host_module
from berth_host.app import reload as reload_module
from berth_host.app.reload import reload
from berth_host.cluster import watching
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.loading import load_configuration
from berth_host.errors.cluster import UnavailableError
from berth_host.errors.plugins import PluginLoadError
from berth_host.plugins.registry import ClassRegistry
from berth_sdk.extension_points import Plugin
from berth_sdk.pod import Pod
from berth_sdk.results import PermitResult
from berth_sdk.status import Status
from support.hosts import World, enabling, node, pod

AT_ONCE = Faults(turns=0, reorder=False)


class RejectsAll(Plugin):
    """Nothing fits."""

    def filter(self, state: object, pod: Pod, node: object) -> Status:
        return Status.unschedulable("all of them")


class HoldsHeld(Plugin):
    """Pods called `held...` wait on Permit, where they are not let through."""

    lets_through: ClassVar[bool] = False

    def permit(self, state: object, pod: Pod, node_name: str) -> PermitResult | Status:
        if self.lets_through or not pod.name.startswith("held"):
            return Status.success()
        return PermitResult.wait(600.0)


class CannotBeMade(Plugin):
    """Raises in its constructor."""

    def __init__(self, args: object, handle: object) -> None:
        raise OSError("no such file")

    def filter(self, state: object, pod: Pod, node: object) -> Status:
        return Status.success()


PLUGINS = (RejectsAll, HoldsHeld, CannotBeMade)


def with_plugins(*names: str) -> LoadedConfiguration:
    registered = ClassRegistry({cls.__name__: cls for cls in PLUGINS}).points()
    return load_configuration(enabling(names), source="new.yaml", registered=registered)


@asynccontextmanager
async def running(*objects: dict[str, object], enabled: tuple[str, ...] = ()) -> AsyncIterator[World]:
    world = World(objects, PLUGINS, configuration=enabling(enabled), faults=AT_ONCE)
    async with world:
        yield world


async def reloaded(world: World, *plugins: str) -> Host:
    world.host = await reload(world.host, with_plugins(*plugins))
    return world.host


async def test_pods_that_the_old_plugins_rejected_are_placed_by_the_new_ones() -> None:
    async with running(node("n0"), pod("web"), enabled=("RejectsAll",)) as world:
        await world.settle()
        assert world.node_of("web") == ""
        old = world.host
        new = await reloaded(world)
        await world.settle()
        assert world.node_of("web") == "n0"
        assert (new is old, new.is_leading) == (False, True)
        assert new.snapshot.epoch != old.snapshot.epoch
        world.server.create(pod("later"))
        await world.settle()
        assert world.node_of("later") == "n0"
        await reloaded(world, "RejectsAll")
        world.server.create(pod("last"))
        await world.settle()
        assert world.node_of("last") == ""
        assert world.everything_is_accounted_for()


@pytest.mark.slow
async def test_new_host_has_all_objects_of_the_old_one_without_a_relist() -> None:
    objects = [node(f"n{i}", cpu="1") for i in range(30)] + [pod(f"p{i}", cpu="1") for i in range(40)]
    async with running(*objects) as world:
        await world.settle()
        assert world.faulty is not None
        starts: list[object] = []
        world.faulty.start = lambda *args: starts.append(args)  # type: ignore[assignment,method-assign]  # must not be called
        old, new = world.host, await reloaded(world)
        await world.settle()
        assert starts == []
        assert {item.name for item in new.objects.nodes()} == {item.name for item in old.objects.nodes()}
        assert {item.uid for item in new.objects.pods()} == {item.uid for item in old.objects.pods()}
        assert (new.cache.pod_count, new.cache.node_count) == (30, 30)
        assert {kind: len(store) for kind, store in new.objects.by_kind()} == {
            kind: len(store) for kind, store in old.objects.by_kind()
        }
        assert world.everything_is_accounted_for()


async def test_configuration_that_cannot_be_used_changes_nothing() -> None:
    async with running(node("n0"), pod("web"), enabled=("RejectsAll",)) as world:
        await world.settle()
        old = world.host
        with pytest.raises(PluginLoadError, match="no such file"):
            await reload(old, with_plugins("CannotBeMade"))
        world.server.create(node("n1"))
        world.server.create(pod("later"))
        await world.settle()
        assert "0/2 nodes are available: 2 all of them." in world.message_of("later")
        assert old.internal_error.error is None


async def test_pod_that_was_bound_just_now_is_not_scheduled_again() -> None:
    """The watch has not shown it: only the reservation tells."""
    async with running(node("n0", cpu="1"), pod("web", cpu="1")) as world:
        assert world.faulty is not None
        gate = world.faulty.gate("bind")
        await gate.arrived.wait()
        world.server.create(pod("other", cpu="1", priority=-1))
        reloading = asyncio.ensure_future(reload(world.host, with_plugins()))
        while world.host.scheduler.is_stopping is False:
            await asyncio.sleep(0)
        world.faulty.stand_still()
        gate.open.set()
        world.host = await reloading
        assert world.host.cache.assumed_count == 1
        for _ in range(100):
            await asyncio.sleep(0)
        world.faulty.revive()
        await world.settle()
        assert [call for call in world.faulty.calls if call[0] == "bind"] == [("bind", "default/web")]
        assert (world.node_of("web"), world.node_of("other")) == ("n0", "")
        assert world.host.cache.assumed_count == 0
        assert world.everything_is_accounted_for()


@pytest.mark.sampled(every=2)
@pytest.mark.slow
@pytest.mark.parametrize("fault", [Fault.TIME_OUT_AFTER, Fault.TIME_OUT_BEFORE])
async def test_binding_that_stays_unknown_is_followed_by_the_new_host(
    fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload_module, "DRAIN_S", 0.05)
    monkeypatch.setattr(host_module, "STOP_S", 0.05)
    async with running(node("n0", cpu="1"), pod("web", cpu="1")) as world:
        assert world.faulty is not None
        world.faulty.script("bind", fault)
        with world.faulty.always("get", Fault.UNAVAILABLE_BEFORE):
            while not world.faulty.calls:
                await asyncio.sleep(0)
            await reloaded(world)
            # The watch has told of the one that took effect.
            assert len(world.host.binding) == (fault is Fault.TIME_OUT_BEFORE)
        for _ in range(5):
            world.clock.advance(5)
            await world.settle()
        assert world.node_of("web") == "n0"
        assert world.host.cache.assumed_count == 0
        assert world.everything_is_accounted_for()


@pytest.mark.long
@pytest.mark.slow
async def test_binding_that_stays_unknown_is_followed_through_several_hosts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reload_module, "DRAIN_S", 0.05)
    monkeypatch.setattr(host_module, "STOP_S", 0.05)
    async with running(node("n0", cpu="1"), pod("web", cpu="1")) as world:
        assert world.faulty is not None
        world.faulty.script("bind", Fault.TIME_OUT_BEFORE)
        with world.faulty.always("get", Fault.UNAVAILABLE_BEFORE):
            while not world.faulty.calls:
                await asyncio.sleep(0)
            for _ in range(3):
                await reloaded(world)
                assert world.host.cache.assumed_count == 1
        for _ in range(5):
            world.clock.advance(5)
            await world.settle()
        assert world.node_of("web") == "n0"
        assert (world.host.cache.assumed_count, world.host.binding.undecided) == (0, [])
        assert world.everything_is_accounted_for()


async def test_kind_that_the_cluster_does_not_hand_over_refuses_the_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a role lacks the right to list it: the API server is asked again for ever."""
    monkeypatch.setattr(watching, "WATCH_S", 0.05)
    async with running(node("n0"), enabled=("RejectsAll",)) as world:
        await world.settle()
        assert world.faulty is not None

        async def watch(resources: Collection[str]) -> None:
            await asyncio.Event().wait()

        world.faulty.watch = watch  # type: ignore[method-assign]
        old = world.host
        old.watching.needed -= {"namespaces"}
        with pytest.raises(UnavailableError, match=r"namespaces: not listed within 0.05 s; .*watch.failed"):
            await reload(old, with_plugins())
        world.server.create(pod("later"))
        await world.settle()
        assert "1 all of them" in world.message_of("later")
        assert old.internal_error.error is None


async def test_pods_that_wait_on_permit_are_tried_again_by_the_new_host() -> None:
    async with running(node("n0"), pod("held"), enabled=("HoldsHeld",)) as world:
        await world.until_waiting(1)
        await reloaded(world)
        await world.settle()
        assert world.node_of("held") == "n0"


async def test_nominations_are_kept() -> None:
    low = pod("low", cpu="1", nodeName="n0")
    low["metadata"]["finalizers"] = ["example.com/stops-slowly"]
    async with running(node("n0", cpu="1"), low, pod("high", cpu="1", priority=9)) as world:
        await world.settle()
        found = world.pod("high")
        assert found is not None
        assert found.get("status.nominatedNodeName") == "n0"
        new = await reloaded(world)
        assert [item.name for item in new.queue.nominated_to("n0")] == ["high"]
        world.server.create(pod("rival", cpu="1", priority=5))
        await world.settle()
        gone = world.pod("low")
        assert gone is not None
        world.server.patch("pods", gone.ref, {"metadata": {"finalizers": None}})
        await world.settle()
        assert (world.node_of("high"), world.node_of("rival")) == ("n0", "")


async def test_reload_of_a_standby_host_makes_a_standby_host() -> None:
    world = World([node("n0"), pod("web")], PLUGINS, configuration=enabling(("RejectsAll",)))
    await world.host.connect()
    try:
        new = await reloaded(world)
        assert (new.is_leading, new.cache.node_count) == (False, 1)
        world.server.create(node("n1"))
        await new.lead()
        await world.settle()
        assert new.cache.node_count == 2
        assert world.node_of("web") == "n0"
    finally:
        await world.host.stop()


async def test_changes_during_the_hand_over_reach_the_new_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reload_module, "ADDS_PER_TURN", 1)
    objects = [node(f"n{i}", cpu="1") for i in range(20)] + [pod(f"p{i}", cpu="1") for i in range(10)]
    async with running(*objects) as world:
        await world.settle()
        reloading = asyncio.ensure_future(reload(world.host, with_plugins()))
        for i in range(10):
            await asyncio.sleep(0)
            found = world.pod(f"p{i}")
            assert found is not None
            world.server.delete("pods", found.ref)
            world.server.create(pod(f"q{i}", cpu="1"))
        world.host = await reloading
        await world.settle()
        assert {item.name for item in world.host.objects.pods()} == {f"q{i}" for i in range(10)}
        assert len({world.node_of(f"q{i}") for i in range(10)} - {""}) == 10
        assert world.host.cache.pod_count == 10
