"""What each profile's search and framework take from the configuration and from the options."""

from __future__ import annotations

from typing import ClassVar

import pytest
from berth_host.app import Host, HostOptions
from berth_host.cluster.memory.cluster import MemoryCluster
from berth_host.config.loading import load_configuration
from berth_host.model.clock import ManualClock
from berth_host.plugins.registry import ClassRegistry
from berth_host.simulation.settle import settle
from berth_sdk.extension_points import DependsOn, Plugin
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from support.hosts import World, enabling, node, pod

TWO_PROFILES = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
percentageOfNodesToScore: 55
profiles:
- schedulerName: as-all
- schedulerName: by-itself
  percentageOfNodesToScore: 60
"""


async def test_the_percentage_of_a_profile_goes_before_that_of_all() -> None:
    pods = [pod(name, schedulerName=name) for name in ("as-all", "by-itself")]
    async with World([*(node(f"n{i}") for i in range(200)), *pods], configuration=TWO_PROFILES) as world:
        await world.settle()
        found = [world.host.diagnoses.find(f"default/{name}") for name in ("as-all", "by-itself")]
        assert [item and item.feasible_count for item in found] == [110, 120]


def test_every_profile_has_the_cycle_budget() -> None:
    text = "\n---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 7s\n"
    profiles = World(configuration=TWO_PROFILES + text).host.scheduler.profiles
    budgets_s = {name: profile.cycle_budget_s for name, profile in profiles.items()}
    assert budgets_s == {"as-all": 7.0, "by-itself": 7.0}


class Judges(Plugin):
    """Lets every pod onto every node, and says that it goes by these two alone."""

    depends_on = DependsOn.NODE
    asked: ClassVar[list[str]] = []

    def filter(self, state: object, pod: Pod, node: Node) -> Status:
        self.asked.append(pod.name)
        return Status.success()


@pytest.mark.parametrize("keep_answers", [True, False])
async def test_a_plugin_is_asked_about_equal_pods_each_time_where_no_answer_is_kept(
    keep_answers: bool,
) -> None:
    Judges.asked.clear()
    clock = ManualClock(0.0)
    cluster = MemoryCluster(clock)
    names = [f"p{i}" for i in range(5)]
    for item in (node("n0"), node("n1"), *map(pod, names)):
        cluster.server.create(item)
    classes = {"Judges": Judges}
    configuration = load_configuration(
        enabling(classes), source="test.yaml", registered=ClassRegistry(classes).points()
    )
    host = Host(configuration, cluster, HostOptions(clock=clock, plugins=classes, keep_answers=keep_answers))
    await host.start()
    await settle(host)
    await host.stop()
    assert host.binding.bound_count == 5
    assert (sorted(Judges.asked) == sorted(2 * names)) is not keep_answers
