"""A plugin ends the waits of another one through its handle, in the host or in another process."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from support.ends_waits import ASKS
from support.hosts import World, node, pod
from support.plugin_processes import plugin_process
from support.waiting import until

CLASS = "support.ends_waits:EndsWaits"
HOLDER = "support.ends_waits:HoldsPods"
HELD = pod("held")


def configuration(where: str, folder: Path, handle: str) -> str:
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins: {permit: {enabled: [{name: HoldsPods}, {name: EndsWaits}]}}\n"
        f"  pluginConfig: [{{name: EndsWaits, args: {{folder: {folder}}}}}]\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\n"
        f"plugins:\n- {{name: HoldsPods, inProcess: '{HOLDER}'}}\n"
        f"- name: EndsWaits\n  {where}\n  required: true\n  points: {{permit: {{deadline: 10s}}}}\n{handle}"
    )


Configured = Callable[[str], str]


@pytest.fixture(params=["in process", "served"])
async def configured(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Configured]:
    """Yield a configuration with the plugin in process or served, and with its `handle`."""
    if request.param == "in process":
        yield lambda handle: configuration(f"inProcess: '{CLASS}'", tmp_path, handle)
        return
    async with plugin_process(tmp_path / "p.sock", CLASS) as process:
        yield lambda handle: configuration(f"endpoint: '{process.endpoint}'", tmp_path, handle)


async def outcomes(folder: Path) -> list[str]:
    """Return the answers that the plugin got."""
    return (await asyncio.to_thread((folder / "log").read_text)).splitlines()


def is_bound(world: World, name: str) -> bool:
    """Whether the pod has a node."""
    return world.node_of(name) != ""


async def hold(world: World) -> None:
    """Wait until the pod `held` waits at Permit."""
    await until(lambda: [waiting.pod.name for waiting in world.host.waiting_pods.list()] == ["held"])


async def test_a_plugin_allows_a_pod_in_the_name_of_the_plugin_that_holds_it(
    configured: Configured, tmp_path: Path
) -> None:
    async with World([node("n0"), HELD], configuration=configured("")) as world:
        await hold(world)
        world.server.create(pod("asks", labels={ASKS: "own"}))
        await until(lambda: bool(world.node_of("asks")))
        assert world.node_of("held") == "", "an allow without a name ends the plugin's own wait alone"
        world.server.create(pod("asks-again", labels={ASKS: "allow"}))
        await until(lambda: world.node_of("held") == "n0")
        await world.settle()
        assert world.everything_is_accounted_for()
    assert await outcomes(tmp_path) == ["own held: NOT_PERMITTED", "allow held: APPLIED"]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("names", ["[]", "[Somebody]"])
async def test_handle_permit_refuses_the_waits_of_plugins_that_it_does_not_name(
    configured: Configured, tmp_path: Path, names: str
) -> None:
    text = configured(f"  handle: {{permit: {names}}}\n")
    async with World([node("n0"), HELD], configuration=text) as world:
        await hold(world)
        for decision in ("allow", "reject"):
            world.server.create(pod(decision, labels={ASKS: decision}))
            await until(functools.partial(is_bound, world, decision))
            assert [waiting.pod.name for waiting in world.host.waiting_pods.list()] == ["held"]
        assert (world.node_of("held"), world.node_of("allow")) == ("", "n0")
    assert await outcomes(tmp_path) == ["allow held: NOT_PERMITTED", "reject held: NOT_PERMITTED"]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("decision", ["allow", "reject"])
async def test_handle_permit_lets_a_plugin_end_the_waits_of_those_that_it_names(
    configured: Configured, tmp_path: Path, decision: str
) -> None:
    text = configured("  handle: {permit: [HoldsPods]}\n")
    async with World([node("n0"), HELD], configuration=text) as world:
        await hold(world)
        world.server.create(pod("asks", labels={ASKS: decision}))
        said = world.node_of if decision == "allow" else world.message_of
        await until(lambda: bool(said("held")))
        assert (world.node_of("held") == "n0") == (decision == "allow")
    assert await outcomes(tmp_path) == [f"{decision} held: APPLIED"]
