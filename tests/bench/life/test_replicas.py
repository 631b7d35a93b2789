"""Two processes with a Lease: one leads, the other takes over, and no write comes without the Lease."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import pytest
from berth_bench.life.laws import LawBrokenError, Laws
from berth_bench.life.plugins import Ledger
from berth_bench.life.replicas import Replicas
from berth_bench.life.stage import Stage
from berth_bench.life.trace import Trace
from berth_bench.life.virtual_loop import VirtualClocks, run
from berth_bench.life.weights import Weights
from berth_bench.versus.objects import node, pod
from berth_host import log
from berth_host.app import HostOptions
from berth_host.config.loading import load_configuration
from berth_host.model.clock import Clock
from berth_kube.cluster import KubeCluster
from berth_kube.lease import LeaderElector
from berth_sdk import chance
from berth_sim.cluster.server import ApiServer

CONFIGURATION = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
CALM, HELL = (
    next(weights for seed in range(99) if (weights := Weights.drawn(random.Random(seed))).mood == mood)
    for mood in ("calm", "hell")
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    log.configure("CRITICAL")
    yield
    log.configure("INFO")


class Pair:
    """Two hosts, of which one leads, with one node."""

    def __init__(self, clocks: VirtualClocks, weights: Weights = CALM) -> None:
        self.clocks = clocks
        self.server = ApiServer(clocks)
        self.trace = Trace(clocks.monotonic_s, keeps=True)
        self.server.create(node("n1", "64"))
        self.replicas = Replicas(
            Stage(server=self.server, weights=weights, trace=self.trace, clocks=clocks),
            random.Random(1),
            Laws(self.server, clocks, self.trace, 90.0, {}),
            lambda chance: load_configuration(CONFIGURATION, source="none"),
            self._options,
        )

    def _options(self, clock: Clock, name: str) -> tuple[HostOptions, Sequence[Ledger]]:
        return HostOptions(clock=clock), [Ledger()]

    @property
    def lines(self) -> list[str]:
        return [line.partition(" ")[2] for line in self.trace.lines]

    @property
    def leader(self) -> Any:
        return self.replicas.leader()

    def is_bound(self, name: str) -> bool:
        return any(one.ref.name == name and one.get("spec.nodeName") for one in self.server.list("pods"))

    async def act(self, kind: str, seed: int = 0) -> None:
        await next(act.do for act in self.replicas.acts() if act.name == kind)(random.Random(seed))


def lived(main: Callable[[Pair], Coroutine[Any, Any, None]], weights: Weights = CALM) -> list[str]:
    async def life(clocks: VirtualClocks) -> list[str]:
        pair = Pair(clocks, weights)
        try:
            await pair.replicas.start()
            await main(pair)
            await pair.replicas.stop()
        except BaseException:
            pair.replicas.kill()
            raise
        return pair.lines

    with chance.replaced(random.Random(0)):
        return run(life, random.Random(0))


async def leader_dies(pair: Pair) -> None:
    before = pair.leader
    pair.trace.add("the leader is killed")
    pair.replicas.end(before)
    pair.server.create(pod("web", "1"))
    await asyncio.sleep(10)
    assert not pair.is_bound("web")
    await asyncio.sleep(30)
    assert pair.is_bound("web")
    assert pair.leader is not before
    pair.replicas.check()


def test_other_host_leads_when_the_lease_of_a_killed_one_has_run_out() -> None:
    lines = lived(leader_dies)
    begun = [line for line in lines if line.endswith("begins")]
    assert begun[:2] == ["host-1.1 begins", "host-2.1 begins"]
    assert len(begun) == 3
    assert len([line for line in lines if line.endswith("holds the Lease")]) >= 2


def test_other_host_leads_at_once_when_the_leader_is_told_to_stop() -> None:
    async def main(pair: Pair) -> None:
        pair.leader.scheduler.signals.stop()
        pair.server.create(pod("web", "1"))
        await asyncio.sleep(6)
        assert pair.is_bound("web")

    lived(main)


async def leader_pauses(pair: Pair) -> None:
    """Pause the leader when it is about to bind; the other one binds other pods meanwhile."""
    before = pair.leader
    pair.server.create(pod("early", "1"))
    for _ in range(2000):
        await asyncio.sleep(0)
        if before.scheduler.host.cache.assumed_uids:
            break
    assert not pair.is_bound("early")
    pair.replicas.pause(before)
    await asyncio.sleep(40)
    assert pair.leader is not before
    pair.replicas.resume(before)
    await asyncio.sleep(40)
    assert pair.is_bound("early")
    pair.replicas.check()


def test_leader_that_was_paused_for_longer_than_its_lease_writes_nothing() -> None:
    lines = lived(leader_pauses)
    assert any(line.endswith("LeadershipLostError") for line in lines)


def test_law_finds_a_leader_that_writes_after_its_lease_ran_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaderElector, "has_run_out", False)
    monkeypatch.setattr(KubeCluster, "cut", lambda self: None)
    with pytest.raises(LawBrokenError, match="a host wrote without the Lease"):
        lived(leader_pauses)


def test_law_finds_that_nobody_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(self: LeaderElector) -> None:
        await asyncio.sleep(10**6)

    monkeypatch.setattr(LeaderElector, "acquire", never)
    with pytest.raises(LawBrokenError, match="no host has led for 120 s"):
        lived(leader_dies)


def test_hosts_live_through_every_act_and_one_leads_afterwards() -> None:
    async def main(pair: Pair) -> None:
        kinds = [act.name for act in pair.replicas.acts()]
        for number, kind in enumerate(kinds):
            await pair.act(kind, number)
            await asyncio.sleep(5)
        await pair.replicas.settle()
        pair.server.create(pod("web", "1"))
        await asyncio.sleep(60)
        assert pair.is_bound("web")
        pair.replicas.check()

    lines = lived(main, HELL)
    for text in (
        "is killed",
        "pauses",
        "goes on",
        "server away",
        "compacted",
        "is reset",
        "lags",
        "wall clock",
    ):
        assert any(text in line for line in lines), text
