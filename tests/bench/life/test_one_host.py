"""The only host of a life: it ends and begins anew, and its API server goes away."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from berth_bench.life.faulty_cluster import HARMLESS
from berth_bench.life.hosts import Hosts
from berth_bench.life.laws import Laws
from berth_bench.life.one_host import OneHost
from berth_bench.life.stage import Stage
from berth_bench.life.trace import Trace
from berth_bench.life.virtual_loop import VirtualClocks, run
from berth_bench.life.weights import Weights
from berth_bench.versus.objects import node, pod
from berth_host.app import HostOptions
from berth_host.config.loading import load_configuration
from berth_sim.cluster.server import ApiServer

HELL = next(weights for seed in range(99) if (weights := Weights.drawn(random.Random(seed))).mood == "hell")
CONFIGURATION = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
WEIGHTS = replace(HELL, faults=HARMLESS, cut_s=30.0)


def lived(main: Callable[[Hosts, ApiServer, Trace], Coroutine[Any, Any, None]]) -> list[str]:
    """Run a host and `main`; return the trace, without the times."""

    async def life(clocks: VirtualClocks) -> list[str]:
        server, trace = ApiServer(clocks), Trace(clocks.monotonic_s, keeps=True)
        laws = Laws(server, clocks, trace, 90.0, {})
        server.create(node("n1", "4"))
        one = OneHost(
            Stage(server=server, weights=WEIGHTS, trace=trace, clocks=clocks),
            random.Random(1),
            laws,
            lambda chance: load_configuration(CONFIGURATION, source="none"),
            lambda clock, name: (HostOptions(clock=clock), []),
        )
        await one.start()
        await main(one, server, trace)
        await one.stop()
        laws.close()
        return [line.partition(" ")[2] for line in trace.lines]

    return run(life, random.Random(0))


def act_of(hosts: Hosts, kind: str) -> Callable[[random.Random], Any]:
    return next(act.do for act in hosts.acts() if act.name == kind)


@pytest.mark.parametrize("loses_lead", [False, True])
def test_next_host_schedules_after_a_restart(loses_lead: bool) -> None:
    chance = random.Random(
        next(seed for seed in range(9) if (random.Random(seed).random() < 0.5) == loses_lead)
    )

    async def main(hosts: Hosts, server: ApiServer, trace: Trace) -> None:
        before = hosts.host
        await act_of(hosts, "restart")(chance)
        assert hosts.host is not before
        server.create(pod("web", "1"))
        await asyncio.sleep(5)
        assert server.list("pods")[0].get("spec.nodeName") == "n1"

    lines = lived(main)
    assert ("host loses the lead" if loses_lead else "host stops") in lines
    assert "host began" in lines


def test_no_pod_is_bound_while_the_api_server_is_away() -> None:
    away = random.Random(next(seed for seed in range(9) if random.Random(seed).random() < 0.5))

    async def main(hosts: Hosts, server: ApiServer, trace: Trace) -> None:
        cut = asyncio.create_task(act_of(hosts, "cut")(away))
        await asyncio.sleep(0)
        server.create(pod("web", "1"))
        await asyncio.sleep(0.4)
        assert not server.list("pods")[0].get("spec.nodeName")
        await cut
        await asyncio.sleep(30)
        assert server.list("pods")[0].get("spec.nodeName") == "n1"

    lines = lived(main)
    assert lines.index("server away") < lines.index("server back")


def test_host_of_another_configuration_goes_on_after_a_reload() -> None:
    async def main(hosts: Hosts, server: ApiServer, trace: Trace) -> None:
        before = hosts.host
        server.create(pod("first", "1"))
        await asyncio.sleep(5)
        reloading = asyncio.create_task(act_of(hosts, "reload")(random.Random(0)))
        await asyncio.sleep(0)
        reloading.cancel()  # the world ends
        await hosts.settle()
        assert hosts.host is not before
        server.create(pod("second", "1"))
        await asyncio.sleep(5)
        assert [one.get("spec.nodeName") for one in server.list("pods")] == ["n1", "n1"]

    assert "host reloads" in lived(main)
