"""What a plugin holds with `Reservations` comes back on a host, whatever tells the plugin of the end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from berth_host.attach import retrying
from berth_sdk.cycle_state import CycleState
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.results import PermitResult
from berth_sdk.status import SUCCESS, Status
from support.hosts import World, node, pod
from support.plugin_processes import PluginProcess, plugin_process
from support.seats import SEAT
from support.waiting import until


def configuration(name: str, points: str, where: str) -> str:
    enabled = "".join(f"    {point}: {{enabled: [{{name: {name}}}]}}\n" for point in points.split())
    patient = ", ".join(f"{point}: {{deadline: 10s}}" for point in points.split())
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles:\n- plugins:\n{enabled}"
        f"  pluginConfig: [{{name: {name}, args: {{seats: 1}}}}]\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 30s\n"
        f"plugins:\n- name: {name}\n  {where}\n  required: true\n  points: {{{patient}}}\n"
    )


@asynccontextmanager
async def hosted(name: str, points: str, folder: Path, *, served: bool) -> AsyncIterator[World]:
    nodes = [node("n0"), node("n1")]
    if not served:
        where = f"inProcess: support.seats:{name}"
        async with World(nodes, configuration=configuration(name, points, where)) as world:
            yield world
        return
    async with plugin_process(folder / "p.sock", f"support.seats:{name}"):
        where = f"endpoint: unix://{folder / 'p.sock'}"
        async with World(nodes, configuration=configuration(name, points, where)) as world:
            yield world


@pytest.mark.parametrize(
    "served", [pytest.param(False, id="in process"), pytest.param(True, id="served", marks=pytest.mark.long)]
)
@pytest.mark.parametrize(
    ("name", "points"),
    [("SeatsWithPostBind", "reserve preBind postBind"), ("Seats", "reserve preBind")],
    ids=["PostBind", "an end BOUND"],
)
async def test_seat_goes_from_one_pod_to_the_next(
    name: str, points: str, tmp_path: Path, *, served: bool
) -> None:
    async with hosted(name, points, tmp_path, served=served) as world:
        for pod_name in ("a", "b", "c"):
            world.server.create(pod(pod_name))
        for _ in range(3):
            await world.settle()
            (holder,) = [pod_name for pod_name in ("a", "b", "c") if world.node_of(pod_name)]
            await world.cluster.delete("pods", ObjectRef(namespace="default", name=holder))
        await world.settle()
        assert world.host.plugin_stats()[name].violations == 0


class Hold:
    """Holds pods with the label `hold` at Permit, after their Reserve."""

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
        return PermitResult.wait() if pod.labels.get("hold") else SUCCESS


def two_profiles(process: PluginProcess) -> str:
    """Return a configuration with a profile of 2 seats and one of 4, whose plugin is one process."""
    seats = {"few": 2, "many": 4}
    points = {point: {"deadline": "10s"} for point in ("reserve", "unreserve", "preBind", "postBind")}
    scheduler = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "schedulerName": name,
                "plugins": {"multiPoint": {"enabled": [{"name": "SeatsWithPostBind"}, {"name": "Hold"}]}},
                "pluginConfig": [{"name": "SeatsWithPostBind", "args": {"seats": count}}],
            }
            for name, count in seats.items()
        ],
    }
    plugin = {"name": "SeatsWithPostBind", "endpoint": process.endpoint, "required": True, "points": points}
    own = {
        "apiVersion": "config.berth.io/v1alpha1",
        "kind": "BerthConfiguration",
        "cycleBudget": "30s",
        "plugins": [plugin],
    }
    return str(yaml.safe_dump_all([scheduler, own]))


def held(world: World) -> dict[str, int]:
    """Return the seats of the pods that wait at Permit, by their tokens."""
    return {
        attempt.pod.name: json.loads(attempt.state("SeatsWithPostBind").token or b"null")
        for attempt in world.host.binding.attempts()
    }


@pytest.mark.slow
async def test_instance_of_each_profile_takes_over_its_own_reservations_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "FIRST_S", 0.05)
    monkeypatch.setattr(retrying, "MAX_S", 0.1)
    process = PluginProcess(tmp_path / "p.sock", "support.seats:SeatsWithPostBind")
    try:
        await process.start()
        async with World([node("n0"), node("n1")], [Hold], configuration=two_profiles(process)) as world:

            async def holds(profile: str, name: str, seat: int) -> None:
                world.server.create(pod(name, labels={"hold": "yes"}, schedulerName=profile))
                await until(lambda: held(world).get(name) == seat)

            await holds("few", "few-0", 0)
            await holds("many", "gone", 0)
            await holds("many", "many-1", 1)
            world.server.delete("pods", ObjectRef(namespace="default", name="gone"), grace_period_s=0)
            await until(lambda: held(world) == {"few-0": 0, "many-1": 1})
            before = world.host.attachments.recoveries
            await process.kill()
            await process.start()
            await until(lambda: world.host.attachments.recoveries > before)
            # An instance with the other's reservation, or with both, would give other seats.
            await holds("few", "few-1", 1)
            await holds("many", "many-0", 0)
            await holds("many", "many-2", 2)
            world.server.create(pod("few-2", schedulerName="few"))
            await until(lambda: "no seat is free" in world.message_of("few-2"))
            for waiting in world.host.waiting_pods.list("Hold"):
                world.host.waiting_pods.allow("Hold", waiting.pod.uid, waiting.cycle_id)
            await world.settle()
            bound = {item.ref.name: item for item in world.server.list("pods") if item.get("spec.nodeName")}
            assert {name: item.get("metadata.annotations")[SEAT] for name, item in bound.items()} == {
                "few-0": "0",
                "few-1": "1",
                "many-0": "0",
                "many-1": "1",
                "many-2": "2",
            }
            assert not world.host.reservations().get("SeatsWithPostBind")
    finally:
        await process.kill()


@pytest.mark.slow
async def test_both_reservations_of_a_plugin_come_back_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "FIRST_S", 0.05)
    monkeypatch.setattr(retrying, "MAX_S", 0.1)
    process = PluginProcess(tmp_path / "p.sock", "support.seats:SeatsAndLockers")
    where = f"endpoint: {process.endpoint}"
    text = configuration("SeatsAndLockers", "reserve preBind postBind", where)
    scheduler, own = yaml.safe_load_all(text.replace("seats: 1", "seats: 3"))
    scheduler["profiles"][0]["plugins"]["permit"] = {"enabled": [{"name": "Hold"}]}
    nodes = [node("n0"), node("n1")]
    try:
        await process.start()
        async with World(nodes, [Hold], configuration=yaml.safe_dump_all([scheduler, own])) as world:

            async def reserved(name: str) -> bytes:
                world.server.create(pod(name, labels={"hold": "yes"}))
                await until(lambda: name in {one.pod.name for one in world.host.binding.attempts()})
                (attempt,) = [one for one in world.host.binding.attempts() if one.pod.name == name]
                return attempt.state("SeatsAndLockers").token or b""

            first = await reserved("first")
            assert b"0" in first
            assert b"locker-2" in first
            before = world.host.attachments.recoveries
            await process.kill()
            await process.start()
            await until(lambda: world.host.attachments.recoveries > before)
            # An instance that had lost either one would give it again.
            second = await reserved("second")
            assert b"locker-1" in second
            for waiting in world.host.waiting_pods.list("Hold"):
                world.host.waiting_pods.allow("Hold", waiting.pod.uid, waiting.cycle_id)
            await world.settle()
            seats = {
                item.ref.name: item.get("metadata.annotations")[SEAT] for item in world.server.list("pods")
            }
            assert seats == {"first": "0", "second": "1"}
    finally:
        await process.kill()
