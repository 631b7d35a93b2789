"""What happens to the served plugin of a life, and the laws about it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest
from berth_bench.life.configurations import DEADLINES_MS
from berth_bench.life.guard import FORBIDDEN, PLUGIN
from berth_bench.life.laws import LawBrokenError
from berth_bench.life.processes import Process
from berth_bench.life.served import PluginProcess
from berth_bench.life.served_weights import ServedWeights
from berth_bench.life.served_world import ENDPOINT, ServedWorld
from berth_bench.life.stage import Stage
from berth_bench.life.trace import Trace
from berth_bench.life.virtual_loop import VirtualClocks, run
from berth_bench.life.weights import Weights
from berth_host.cluster.port import WatchEvent
from berth_sdk.kube_object import KubeObject
from berth_sim.cluster.server import ApiServer

CALM, HELL = (
    next(weights for seed in range(99) if (weights := Weights.drawn(random.Random(seed))).mood == mood)
    for mood in ("calm", "hell")
)


def of(
    clocks: VirtualClocks, of_life: Weights = HELL, machines: Sequence[str] = ()
) -> tuple[ServedWorld, Trace]:
    trace = Trace(clocks.monotonic_s)
    weights = ServedWeights.drawn(random.Random(0), 1.0)
    stage = Stage(server=ApiServer(clocks), weights=of_life, trace=trace, clocks=clocks)
    return ServedWorld(stage, weights, random.Random(0), machines), trace


def pod(node: str = "") -> KubeObject:
    metadata = {"name": "web", "namespace": "default", "uid": "u"}
    return KubeObject.of(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": node}}
    )


def test_each_act_happens_and_afterwards_an_honest_process_listens() -> None:
    async def main(clocks: VirtualClocks) -> list[str]:
        served, trace = of(clocks)
        served.begin()
        (act,) = served.acts()
        assert act.name == PLUGIN
        for seed in range(30):
            await act.do(random.Random(seed))
        before = served.network.identity_of(ENDPOINT)
        served.repair()
        link = served.network.link(ENDPOINT)
        # Two messages and two waits of the process take less than the shortest deadline of a reload.
        assert isinstance(link.process, PluginProcess)
        assert 2 * (link.delays.longest_s + link.process.habits.work_s) < min(DEADLINES_MS) / 1000 / 2
        assert link.accepts is not None
        assert link.identity not in (None, before)
        served.end()
        assert link.identity is None
        assert clocks.loop.timers() == []
        return [line.split(maxsplit=3)[-1] for line in trace.lines]

    seen = run(main, random.Random(0))
    assert set(seen) == {"listens", "dies", "stands_still", "is_replaced", "loses", "is_cut_off"}


def test_nothing_happens_in_a_life_that_is_calm() -> None:
    async def main(clocks: VirtualClocks) -> Any:
        return of(clocks, CALM)[0].acts()

    assert run(main, random.Random(0)) == ()


@pytest.mark.parametrize(
    ("node", "law"),
    [("n1", "without an answer of the guard"), (f"{FORBIDDEN}-1", "although the guard forbids")],
)
def test_binding_without_the_guard_breaks_a_law(node: str, law: str) -> None:
    async def main(clocks: VirtualClocks) -> None:
        served, _ = of(clocks)
        served.see(WatchEvent("Pod", None, pod()))
        served.check()
        served.see(WatchEvent("Pod", pod(), pod(node)))
        with pytest.raises(LawBrokenError, match=law):
            served.check()

    run(main, random.Random(0))


def test_reservation_that_is_left_breaks_a_law() -> None:
    async def main(clocks: VirtualClocks) -> None:
        served, _ = of(clocks)
        served.begin()
        served.check_at_rest("host-1")
        # A plugin that lost an Unreserve.
        served._places[""].memory.held["u"] = "default/web"  # noqa: SLF001
        with pytest.raises(LawBrokenError, match="default/web"):
            served.check_at_rest("host-1")
        served.end()
        await asyncio.sleep(0.0)

    run(main, random.Random(0))


def test_each_host_reaches_the_process_of_its_own_machine_and_is_judged_by_that_one() -> None:
    async def main(clocks: VirtualClocks) -> None:
        served, _ = of(clocks, machines=("host-1", "host-2"))
        served.begin()

        async def identity() -> object:
            return served.network.identity_of(ENDPOINT)

        met = [
            await clocks.loop.create_task(identity(), context=Process("h", machine=machine).context())
            for machine in ("host-1", "host-2", "host-2")
        ]
        assert met[0] == (1, 1, 1)
        served._start(served._places["host-2"])  # noqa: SLF001
        later = Process("h", machine="host-2").context()
        assert await clocks.loop.create_task(identity(), context=later) == (1, 2, 2)
        served._places["host-2"].memory.held["u"] = "default/web"  # noqa: SLF001
        served.check_at_rest("host-1")
        with pytest.raises(LawBrokenError, match="default/web"):
            served.check_at_rest("host-2")
        served.end()

    run(main, random.Random(0))
