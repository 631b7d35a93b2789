"""`Handle.nominate` and `list_nominated_pods` under the whole host: a plugin in it, or in another process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from berth_sdk.results import Nomination
from support.hosts import World, node, pod
from support.keeps_places import HELD, LEADER
from support.plugin_processes import plugin_process

MODULE = "support.keeps_places"
PLUGINS = ("KeepsPlaces", "TakesStatus")
HELD_MEMBER = pod("member", cpu="1", labels={HELD: ""})


def configuration(where: str, name: str, folder: Path) -> str:
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles:\n- plugins: {{multiPoint: {{enabled: [{{name: {name}}}]}}}}\n"
        f"  pluginConfig: [{{name: {name}, args: {{folder: {folder}}}}}]\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\n"
        f"plugins:\n- name: {name}\n  {where}\n  required: true\n"
        "  points: {preEnqueue: {deadline: 10s}, postFilter: {deadline: 10s}}\n"
    )


Configured = Callable[[str], str]


@pytest.fixture(params=["in process", "served"])
async def configured(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Configured]:
    """Yield a configuration with one of the plugins, in process or served."""
    if request.param == "in process":
        yield lambda name: configuration(f"inProcess: '{MODULE}:{name}'", name, tmp_path)
        return
    async with plugin_process(tmp_path / "p.sock", *(f"{MODULE}:{name}" for name in PLUGINS)) as process:
        yield lambda name: configuration(f"endpoint: '{process.endpoint}'", name, tmp_path)


@pytest.fixture
def text(configured: Configured) -> str:
    """Return the plugin of most tests."""
    return configured("KeepsPlaces")


async def lines(folder: Path) -> list[str]:
    """Return the notes of the plugin."""
    return (await asyncio.to_thread((folder / "log").read_text)).splitlines()


def promised(world: World) -> dict[str, list[str]]:
    """Return the names of the nominated pods by node."""
    return {name: [pod.name for pod in pods] for name, pods in world.host.queue.nominated_pods().items()}


@pytest.mark.sampled(every=2)
@pytest.mark.slow
async def test_room_that_a_nomination_keeps_is_used_by_the_nominated_pod(text: str, tmp_path: Path) -> None:
    leader = pod("head", cpu="3", labels={LEADER: "member.nowhere.n1.n0"})
    async with World([node("n0", cpu="1"), HELD_MEMBER, leader], configuration=text) as world:
        await world.settle()
        assert promised(world) == {"n0": ["member"]}
        found = world.pod("member")
        assert found is not None
        assert not found.get("status.nominatedNodeName", "")

        world.server.create(pod("equal", cpu="1"))
        await world.settle()
        assert world.node_of("equal") == ""
        assert "Insufficient cpu" in world.message_of("equal")

        world.server.patch("pods", found.ref, {"metadata": {"labels": {HELD: None}}})
        await world.settle()
        assert (world.node_of("member"), world.node_of("equal")) == ("n0", "")
        assert promised(world) == {}
        assert world.everything_is_accounted_for()
    assert await lines(tmp_path) == [
        "before:",
        "member to nowhere: UNKNOWN_NODE",
        "member to n1: UNKNOWN_NODE",
        "member to n0: APPLIED",
        "nobody: NOT_PENDING",
        "after: member@n0/",
        "on n0: 1",
        "on none: 0",
    ]


@pytest.mark.sampled(every=2)
@pytest.mark.slow
async def test_pod_of_higher_priority_uses_the_room_of_a_nominated_pod(text: str, tmp_path: Path) -> None:
    leader = pod("head", cpu="3", labels={LEADER: "member.n0"})
    async with World([node("n0", cpu="1"), HELD_MEMBER, leader], configuration=text) as world:
        await world.settle()
        world.server.create(pod("high", cpu="1", priority=5))
        await world.settle()
        assert world.node_of("high") == "n0"
        assert promised(world) == {"n0": ["member"]}, "a promise, and no reservation"


@pytest.mark.sampled(every=2)
@pytest.mark.slow
async def test_preemption_clears_the_nomination_of_a_pod_of_lower_priority(text: str, tmp_path: Path) -> None:
    leader = pod("head", cpu="3", labels={LEADER: "member.n0"})
    objects = [node("n0", cpu="1"), pod("victim", cpu="1"), HELD_MEMBER]
    async with World(objects, configuration=text) as world:
        await world.settle()
        world.server.create(leader)
        await world.settle()
        assert promised(world) == {"n0": ["member"]}
        # It would be tried again when the victim goes, and promise the node once more.
        head = world.pod("head")
        assert head is not None
        world.server.delete("pods", head.ref)
        world.server.create(pod("high", cpu="1", priority=5))
        await world.settle()
        assert (world.node_of("high"), world.pod("victim")) == ("n0", None)
        assert promised(world) == {}


@pytest.mark.sampled(every=2)
@pytest.mark.slow
async def test_the_last_nomination_counts_and_it_can_be_taken_back(text: str, tmp_path: Path) -> None:
    objects = [node("n0", cpu="1"), node("n1", cpu="1"), HELD_MEMBER]
    async with World(
        [*objects, pod("head", cpu="3", labels={LEADER: "member.n0.n1"})], configuration=text
    ) as world:
        await world.settle()
        assert promised(world) == {"n1": ["member"]}
        world.server.create(pod("gives-up", cpu="3", labels={LEADER: "member"}))
        await world.settle()
        assert promised(world) == {}
        world.server.create(pod("other", cpu="1"))
        world.server.create(pod("another", cpu="1"))
        await world.settle()
        assert {world.node_of("other"), world.node_of("another")} == {"n0", "n1"}
    assert (await lines(tmp_path))[-7:] == [
        "on none: 0",
        "before: member@n1/",
        "member to none: APPLIED",
        "nobody: NOT_PENDING",
        "after:",
        "on n0: 0",
        "on none: 0",
    ]


@pytest.mark.sampled(every=2)
async def test_nomination_ends_with_its_pod(text: str) -> None:
    leader = pod("head", cpu="3", labels={LEADER: "member.n0"})
    async with World([node("n0", cpu="1"), HELD_MEMBER, leader], configuration=text) as world:
        await world.settle()
        member = world.pod("member")
        assert member is not None
        world.server.delete("pods", member.ref)
        await world.settle()
        assert promised(world) == {}


@pytest.mark.sampled(every=2)
async def test_nomination_of_the_status_can_be_asked_for(configured: Configured, tmp_path: Path) -> None:
    text = configured("TakesStatus")
    async with World([node("n0", cpu="1"), node("n1", cpu="1"), HELD_MEMBER], configuration=text) as world:
        await world.settle()
        member = world.pod("member")
        assert member is not None
        status = {"status": {"nominatedNodeName": "n1"}}
        world.server.patch("pods", member.ref, status, subresource="status")
        world.server.create(pod("head", cpu="3", labels={LEADER: "member.n0"}))
        await world.settle()
        assert promised(world) == {"n1": ["member"]}
        member = world.pod("member")
        assert member is not None
        assert member.get("status.nominatedNodeName") == "n1"
    assert await lines(tmp_path) == [
        "before: member@n1/n1",
        "member to 'n0': APPLIED",
        "so: member@n0/n1",
        "member to None: APPLIED",
        "so: member@n1/n1",
        "member to '': APPLIED",
        "so:",
        "member to None: APPLIED",
        "so: member@n1/n1",
    ]


async def test_bound_and_foreign_pods_cannot_be_nominated() -> None:
    foreign = pod("foreign", schedulerName="somebody-else")
    async with World([node("n0"), pod("bound"), foreign]) as world:
        await world.settle()
        nominate = world.host.backend.nominate
        for name in ("bound", "foreign"):
            found = world.pod(name)
            assert found is not None
            assert nominate("Some", found.ref.uid, "n0") is Nomination.NOT_PENDING
        assert promised(world) == {}


async def test_a_failed_attempt_has_an_outcome_of_its_own() -> None:
    async with World([node("n0", cpu="1"), pod("big", cpu="3")]) as world:
        await world.settle()
        big = world.host.objects.pod("default/big")
        assert big is not None
        assert world.host.backend.nominate("Some", big.uid, "n0") is Nomination.APPLIED
        assert promised(world) == {"n0": ["big"]}
        # Room, so that it is tried again, on a node that it does not tolerate.
        taint = {"key": "a", "effect": "NoSchedule"}
        world.server.create(node("n1", cpu="4", taints=[taint]))
        await world.settle()
        assert promised(world) == {}
