"""The cluster with faults: what a call meets, what it did, and what is handed over meanwhile."""

from __future__ import annotations

import asyncio

import pytest
from berth_bench.life.faulty_cluster import Fault, Faults, FaultyCluster
from berth_bench.versus.objects import node, pod
from berth_host.cluster.port import WatchEvent
from berth_host.errors.cluster import (
    ClusterError,
    ConflictError,
    RepeatableError,
    TimedOutError,
    TooManyRequestsError,
    UnavailableError,
)
from berth_host.model.clock import ManualClock
from berth_sdk.kube_object import ObjectRef
from berth_sim.cluster.cluster import MemoryCluster

POD = ObjectRef(name="a", namespace="default")


class Made:
    """A cluster with one pod, and with what a host was handed."""

    def __init__(self, seed: int = 0, faults: Faults | None = None) -> None:
        clock = ManualClock()
        self.inner = MemoryCluster(clock)
        self.inner.server.create(node("n1", "1"))
        self.inner.server.create(pod("a", "1m"))
        self.notes: list[tuple[str, str, str, str, Fault]] = []
        self.port = FaultyCluster(
            self.inner, clock, seed, faults or Faults(turns=0), note=lambda *note: self.notes.append(note)
        )
        self.seen: list[str] = []

    async def start(self) -> None:
        def see(event: WatchEvent) -> None:
            if event.new is not None:
                self.seen.append(event.new.ref.name)

        await self.port.start(see, ["pods", "nodes"])

    @property
    def is_bound(self) -> bool:
        found = self.inner.server.get("pods", POD)
        return found is not None and found.get("spec.nodeName") == "n1"


@pytest.mark.parametrize(
    ("fault", "error", "takes_effect"),
    [
        (Fault.TIME_OUT_BEFORE, TimedOutError, False),
        (Fault.TIME_OUT_AFTER, TimedOutError, True),
        (Fault.UNAVAILABLE_BEFORE, UnavailableError, False),
        (Fault.UNAVAILABLE_AFTER, UnavailableError, True),
        (Fault.INTERNAL_BEFORE, RepeatableError, False),
        (Fault.INTERNAL_AFTER, RepeatableError, True),
        (Fault.CONFLICT, ConflictError, False),
        (Fault.TOO_MANY, TooManyRequestsError, False),
        (Fault.RAISES, KeyError, False),
    ],
)
async def test_fault_is_met_before_or_after_the_effect(
    fault: Fault, error: type[Exception], takes_effect: bool
) -> None:
    made = Made()
    made.port.script("bind", fault)
    with pytest.raises(error) as raised:
        await made.port.bind(POD, "n1")
    assert made.is_bound is takes_effect
    if isinstance(raised.value, ClusterError) and takes_effect:
        assert not raised.value.outcome_known
    moments = ["begun", "done"] if takes_effect else ["begun"]
    assert made.notes == [(moment, "bind", "pods", "default/a", fault) for moment in moments]


async def test_share_of_calls_fails_in_the_same_way_for_the_same_seed() -> None:
    async def met(seed: int) -> list[str]:
        made = Made(seed, Faults(turns=2, share=0.5))
        found = []
        for _ in range(40):
            try:
                await made.port.get("pods", POD)
                found.append("")
            except ClusterError as err:
                found.append(type(err).__name__)
        return found

    first = await met(1)
    assert first == await met(1)
    assert first != await met(2)
    assert 8 < first.count("") < 32


async def test_silent_watch_hands_over_everything_later_and_calls_are_answered() -> None:
    made = Made()
    await made.start()
    assert sorted(made.seen) == ["a", "n1"]
    made.port.stand_still()
    made.inner.server.create(pod("b", "1m"))
    await made.port.bind(POD, "n1")
    for _ in range(20):
        await asyncio.sleep(0)
    assert sorted(made.seen) == ["a", "n1"]
    assert made.port.undelivered_count == 2
    made.port.revive()
    assert await made.port.catch_up(5.0) == []
    assert sorted(made.seen) == ["a", "a", "b", "n1"]
    await made.port.stop()


async def test_server_that_is_away_answers_no_call_until_it_is_back() -> None:
    made = Made()
    made.port.die()
    with pytest.raises(UnavailableError, match="connection refused"):
        await made.port.bind(POD, "n1")
    assert not made.is_bound
    made.port.behave()
    await made.port.bind(POD, "n1")
    assert made.is_bound
    made.port.cut()
    with pytest.raises(UnavailableError, match="not the leader"):
        await made.port.get("pods", POD)
