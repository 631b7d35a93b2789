"""Preemption with every default plugin in another process: the same victims, and few calls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.decision_configuration import served_at
from support.hosts import World, node, pod
from support.served import default_plugin_server

SCHEDULER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
VICTIMS = 4


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with default_plugin_server(tmp_path_factory.mktemp("plugins")) as address:
        yield address


async def preempted(count: int, configuration: str = "") -> tuple[str, set[str], int]:
    """Return the node of the preemptor, the pods that left, and NodeResourcesFit's SimulateFilter calls."""
    low = [
        pod(f"low-{i}-{j}", cpu="1", priority=j, nodeName=f"n{i:02}")
        for i in range(count)
        for j in range(VICTIMS)
    ]
    objects = [*(node(f"n{i:02}", cpu=str(VICTIMS)) for i in range(count)), *low]
    async with World([*objects, pod("high", cpu="2", priority=10)], configuration=configuration) as world:
        await world.settle()
        left = {one["metadata"]["name"] for one in low if world.pod(one["metadata"]["name"]) is None}
        calls = world.host.plugin_stats()["NodeResourcesFit"].of("SimulateFilter").calls
        return world.node_of("high"), left, calls


@pytest.mark.sampled(every=3)
@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 12])
async def test_number_of_preemption_calls_depends_on_the_victims_per_node(endpoint: str, count: int) -> None:
    there = await preempted(count, f"---\n{SCHEDULER}\n---\n{served_at(endpoint)}")
    here = await preempted(count)
    assert there[:2] == here[:2] == ("n00", {"low-0-0", "low-0-1"})
    assert there[2] == 1 + VICTIMS
