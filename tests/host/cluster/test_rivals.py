"""Another client that binds pods of this host's queue is named, once the host has led for a while."""

from __future__ import annotations

import asyncio
from typing import Any

from berth_host.cluster.port import EventRecord
from berth_host.cluster.rivals import GRACE_S, PAUSE_S, REASON, Rivals
from berth_host.model.clock import ManualClock
from berth_sdk.kube_object import ObjectRef
from berth_sdk.testing.builders import make_pod
from structlog.testing import capture_logs
from support.hosts import World, node, pod
from support.waiting import PATIENCE_S

POD = make_pod("web", uid="u", node="n1")


class RecordedRivals:
    """The warnings of a `Rivals`, and the events that it wrote."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.events: list[EventRecord] = []
        self.rivals = Rivals(self.clock, self.events.append)

    def bound_at(self, *moments_s: float) -> list[Any]:
        """Note a pod at each moment; return the numbers of pods in the warnings."""
        with capture_logs() as lines:
            for moment_s in moments_s:
                self.clock.advance_to(moment_s)
                self.rivals.bound(POD)
        return [line["pods"] for line in lines if line["event"] == "pod.bound_by_others"]


def test_host_that_does_not_lead_says_nothing() -> None:
    told = RecordedRivals()
    assert told.bound_at(0, 1000) == []
    assert (told.events, told.rivals.count) == ([], 0)


def test_bindings_that_an_earlier_leader_had_sent_are_no_news() -> None:
    told = RecordedRivals()
    told.clock.advance_to(100)
    told.rivals.begin()
    assert told.bound_at(100, 100 + GRACE_S - 0.1) == []
    assert told.rivals.count == 0
    assert told.bound_at(100 + GRACE_S) == [1]


def test_one_warning_a_minute_counts_the_pods_since_the_last() -> None:
    told = RecordedRivals()
    told.rivals.begin()
    assert told.bound_at(30, 31, 40, 30 + PAUSE_S - 1, 30 + PAUSE_S, 500) == [1, 4, 1]
    assert told.rivals.count == 6
    assert len(told.events) == 3


def test_warning_names_the_pod_and_the_cure() -> None:
    told = RecordedRivals()
    told.rivals.begin()
    with capture_logs() as lines:
        told.clock.advance_to(GRACE_S)
        told.rivals.bound(POD)
    [line] = lines
    assert (line["log_level"], line["pod"], line["node"]) == ("warning", "default/web", "n1")
    assert "leaderElection.resourceName" in line["cure"]
    [event] = told.events
    assert (event.type, event.reason, event.regarding.name) == ("Warning", REASON, "web")
    assert "leaderElection.resourceName" in event.note


async def bound_by(world: World, item: dict[str, Any]) -> None:
    """Let another client bind a pending pod, and wait until the host has seen it."""
    name = item["metadata"]["name"]
    world.server.create(item)
    await world.settle()
    await world.cluster.bind(ObjectRef(namespace="default", name=name), "n0")
    async with asyncio.timeout(PATIENCE_S):
        while not ((seen := world.host.objects.pod(f"default/{name}")) and seen.node_name):
            await asyncio.sleep(0)


async def test_only_pods_of_the_hosts_own_queue_count() -> None:
    async with World([node("n0", cpu="1")]) as world:
        world.clock.advance(GRACE_S)
        await bound_by(world, pod("theirs", schedulerName="other"))
        world.server.create(pod("mine"))
        await world.settle()
        assert world.node_of("mine") == "n0"
        world.server.create(pod("placed", nodeName="n0"))
        await world.settle()
        assert world.host.handlers.bound_by_others_count == 0
        await bound_by(world, pod("large", cpu="2"))
        assert world.host.handlers.bound_by_others_count == 1
        assert [one.reason for one in world.server.events.recent].count(REASON) == 1
