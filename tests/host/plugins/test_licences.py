"""Licences that a plugin counts by the contract's words alone are neither given out twice nor lost.

The plugin is `support.literal_licences`: NAMES mode, raw messages. Over the end of its process, of its
connection and of its host, and beside a host that stands by.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import grpc
import pytest
from berth_host.app import Host
from berth_host.attach import retrying
from berth_sdk.cycle_state import CycleState
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.results import PermitResult
from berth_sdk.status import SUCCESS, Status
from support.hosts import World, node, pod
from support.literal_licences import LABEL, LiteralLicences
from support.scripted_plugin import refuse
from support.waiting import until

COUNT = 2
REFUSED = f"all {COUNT} licences are taken"


@pytest.fixture(autouse=True)
def back_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attachments are tried again within a tenth of a second."""
    monkeypatch.setattr(Hold, "holds", True)
    monkeypatch.setattr(retrying, "FIRST_S", 0.05)
    monkeypatch.setattr(retrying, "MAX_S", 0.1)


class Hold:
    """Holds pods with the label `hold` at Permit, between Reserve and Bind, while it `holds`."""

    holds: ClassVar[bool] = True

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
        return PermitResult.wait() if self.holds and "hold" in pod.labels else SUCCESS


def configuration(path: Path) -> str:
    deadlines = "points: {reserve: {deadline: 10s}, unreserve: {deadline: 10s}}"
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins:\n    reserve: {enabled: [{name: Licences}]}\n"
        "    postBind: {enabled: [{name: Licences}]}\n    permit: {enabled: [{name: Hold}]}\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 10s\n"
        f"plugins:\n- name: Licences\n  endpoint: unix://{path}\n  required: true\n  {deadlines}\n"
    )


def licensed(name: str, *, held: bool = False) -> dict[str, Any]:
    return pod(name, labels={LABEL: "yes"} | ({"hold": "yes"} if held else {}))


@asynccontextmanager
async def world_with(path: Path, *pods: dict[str, Any], of: World | None = None) -> AsyncIterator[World]:
    """Yield a host that leads. `of`: the world whose cluster it uses."""
    world = World(
        [node("n0"), node("n1"), *pods] if of is None else (), [Hold], configuration=configuration(path)
    )
    if of is not None:
        world.cluster.server = world.server = of.server
    async with world:
        yield world


def holders(world: World) -> set[str]:
    """Pods that are on nodes, by the API server."""
    return {item.ref.name for item in world.server.list("pods") if item.get("spec.nodeName")}


def unbound(world: World) -> set[str]:
    return {item.ref.name for item in world.server.list("pods")} - holders(world)


async def gone(world: World, *names: str) -> None:
    for name in names:
        await world.cluster.delete("pods", ObjectRef(namespace="default", name=name))


def let_go(world: World) -> None:
    Hold.holds = False
    for held in world.host.waiting_pods.list("Hold"):
        world.host.waiting_pods.allow("Hold", held.pod.uid, held.cycle_id)


def tried_later(world: World) -> bool:
    world.clock.advance(1.0)
    return True


async def again(world: World) -> None:
    """Wait until the plugin is attached once more."""
    before = world.host.attachments.recoveries
    await until(lambda: world.host.attachments.recoveries > before)


async def ends_well(world: World, plugin: LiteralLicences) -> None:
    """Delete the pods one after the other: pending pods get their licences, and all are free at the end."""
    let_go(world)
    await world.settle()
    while names := sorted(holders(world)):
        assert len(names) == min(COUNT, len(names) + len(unbound(world))), (names, unbound(world))
        await gone(world, names[0])
        await world.settle()
    assert not unbound(world)
    world.server.create(pod("plain"))  # its Reserve brings the copy up to date
    await world.settle()
    assert (plugin.taken, plugin.reserved) == (set(), {})


async def test_bound_pods_keep_their_licences_until_they_are_gone(tmp_path: Path) -> None:
    plugin = LiteralLicences(COUNT)
    path = tmp_path / "p.sock"
    async with plugin.serving(path), world_with(path, *(licensed(f"p{i}") for i in range(5))) as world:
        await world.settle()
        assert len(holders(world)) == COUNT
        assert plugin.reserved == {}, "PostBind ends a reservation"
        assert REFUSED in world.message_of(min(unbound(world)))
        await ends_well(world, plugin)


@pytest.mark.sampled(every=4)
@pytest.mark.slow
@pytest.mark.parametrize("same_process", [True, False], ids=["cut off", "restarted"])
async def test_licences_are_right_after_a_plugin_was_absent_while_its_pods_were_bound(
    tmp_path: Path, same_process: bool
) -> None:
    """One pod waits with its reservation, one is bound while no instance can get PostBind."""
    path = tmp_path / "p.sock"
    plugin = LiteralLicences(COUNT)
    plugin.on("PostBind", refuse(grpc.StatusCode.UNAVAILABLE))
    pods = (licensed("bound"), licensed("held", held=True), licensed("late"))
    async with plugin.serving(path), world_with(path, *pods) as world:
        await until(lambda: holders(world) == {"bound"} and len(world.host.waiting_pods) == 1)
        await plugin.stop()
        await until(lambda: not world.host.attachments.attached_places.plugins["Licences"].is_attached)
        after = plugin if same_process else LiteralLicences(COUNT)
        after.on("PostBind", after.unscripted("PostBind"))
        back = asyncio.ensure_future(again(world))
        async with after.serving(path):
            await back
            # Its attempt may have met the end of the plugin; it waits then for the clock.
            await until(lambda: tried_later(world) and REFUSED in world.message_of("late"))
            assert holders(world) == {"bound"}
            assert len(after.taken) == COUNT
            let_go(world)
            await world.settle()
            assert holders(world) == {"bound", "held"}
            await ends_well(world, after)


async def killed(world: World) -> None:
    """-9: nothing is sent any more, and nothing is tidied up."""
    world.cluster.is_cut = True
    (place,) = world.host.attachments.attached_places.places
    assert place.task is not None
    place.task.cancel()
    await asyncio.wait({place.task})


@pytest.mark.sampled(every=4)
@pytest.mark.slow
@pytest.mark.parametrize("same_process", [True, False], ids=["plugin stays", "plugin too"])
async def test_licences_are_right_after_a_host_is_killed_between_reserve_and_post_bind(
    tmp_path: Path, same_process: bool
) -> None:
    path = tmp_path / "p.sock"
    plugin = LiteralLicences(COUNT)
    plugin.on("PostBind", refuse(grpc.StatusCode.UNAVAILABLE))
    pods = (licensed("bound"), licensed("held", held=True), *(licensed(f"late{i}") for i in range(2)))
    async with plugin.serving(path), world_with(path, *pods) as first:
        await until(lambda: holders(first) == {"bound"} and len(first.host.waiting_pods) == 1)
        await until(lambda: len(plugin.reserved) == 2)
        await killed(first)
        after = plugin
        if not same_process:
            await plugin.stop()
            after = LiteralLicences(COUNT)
        after.on("PostBind", after.unscripted("PostBind"))
        async with AsyncExit(after, path, same_process), world_with(path, of=first) as second:
            await until(lambda: len(after.taken) == COUNT)
            assert "bound" in holders(second)
            await ends_well(second, after)


class AsyncExit:
    """Serves a plugin that is not served yet."""

    def __init__(self, plugin: LiteralLicences, path: Path, is_served: bool) -> None:
        self._serving = None if is_served else plugin.serving(path)

    async def __aenter__(self) -> None:
        if self._serving is not None:
            await self._serving.__aenter__()

    async def __aexit__(self, *exc: Any) -> None:
        if self._serving is not None:
            await self._serving.__aexit__(*exc)


async def test_standby_host_takes_no_licences_from_the_leader(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    plugin = LiteralLicences(COUNT)
    pods = (licensed("held", held=True), licensed("bound"))
    async with plugin.serving(path), world_with(path, *pods) as first:
        await until(lambda: holders(first) == {"bound"} and len(first.host.waiting_pods) == 1)
        second = World((), [Hold], configuration=configuration(path))
        second.cluster.server = second.server = first.server
        await second.host.connect(stands_by=True)
        try:
            asked = [rpc for rpc, _ in plugin.asked]
            assert asked.count("Handshake") == 2
            assert (asked.count("Configure"), asked.count("Reconcile")) == (1, 1)
            first.server.create(licensed("late"))
            await until(lambda: REFUSED in first.message_of("late"))
            assert (len(plugin.taken), unbound(first)) == (COUNT, {"held", "late"})
            # The leader is gone without a word; its pod waits no more.
            await killed(first)
            await lead(second.host)
            await until(lambda: len(plugin.taken) == COUNT)
            requests = plugin.requests("Reconcile")
            assert [request.host_epoch for request in requests] == [
                first.host.snapshot.epoch,
                second.host.snapshot.epoch,
            ]
            await ends_well(second, plugin)
        finally:
            await second.host.stop()


async def lead(host: Host) -> None:
    await host.lead()
    place = host.attachments.attached_places.places[0]
    assert place.state.value == "Active", place.reason
