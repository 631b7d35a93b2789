"""A host's parts are put together without a call to the cluster, and each gets the parts that it needs."""

from __future__ import annotations

from typing import ClassVar

import pytest
from berth_host.app import Host, HostOptions
from berth_host.app.parts import HostParts
from berth_host.cluster.port import WatchEvent
from berth_host.config.loading import default_configuration, load_configuration
from berth_host.explain.diagnosis import Diagnosis, Outcome
from berth_host.model.clock import ManualClock
from berth_host.plugins.registry import ClassRegistry
from berth_host.queue.events import QueueEvent
from berth_host.queue.interfaces import QueueObserver
from berth_sdk.extension_points import DependsOn, Plugin
from berth_sdk.kube_object import KubeObject
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from berth_sim.cluster.cluster import MemoryCluster
from berth_sim.run.settle import settle
from support.hosts import World, enabling, node, pod


class Hears(QueueObserver):
    """Keeps the labels of events."""

    def __init__(self) -> None:
        self.labels: list[str] = []

    def event_received(self, event: QueueEvent, *, own_update: bool) -> None:
        self.labels.append(event.label)


def put_together(options: HostOptions) -> HostParts:
    configuration = default_configuration(registered=ClassRegistry().points())
    return HostParts(configuration, MemoryCluster(options.clock), options)


def test_parts_without_a_loop_follow_the_cluster_and_pop_its_pods() -> None:
    hears = Hears()
    parts = put_together(HostOptions(clock=ManualClock(0.0), queue_observer=hears))
    for kind, item in (("Node", node("n0")), ("Pod", pod("web"))):
        parts.handle_change(WatchEvent(kind, None, KubeObject.of(item)))
    assert parts.cache.node_count == 1
    assert parts.queue.places.find("default/web") is not None
    assert hears.labels
    assert list(parts.scheduler.profiles) == list(parts.clients.by_profile) == ["default-scheduler"]


def test_two_hosts_share_only_their_options() -> None:
    options = HostOptions(clock=ManualClock(0.0))
    one, other = put_together(options), put_together(options)
    assert one.metrics is other.metrics
    shared = {name for name, part in vars(one).items() if part is vars(other).get(name) and part is not None}
    assert shared == {"options", "clock", "metrics"}


def test_each_set_of_options_counts_and_chooses_for_itself() -> None:
    one, other = HostOptions(), HostOptions()
    assert one.metrics is not other.metrics
    assert one.chooser is not other.chooser


async def test_host_reports_every_attempt_at_its_end() -> None:
    clock = ManualClock(0.0)
    cluster = MemoryCluster(clock)
    for item in (node("n0", cpu="1"), pod("web", cpu="1", priority=1), pod("left", cpu="1")):
        cluster.server.create(item)
    told: list[Diagnosis] = []
    configuration = default_configuration(registered=ClassRegistry().points())
    host = Host(configuration, cluster, HostOptions(clock=clock, on_attempt=told.append, max_in_pool_s=1e9))
    await host.start()
    await settle(host)
    await host.stop()
    got = {diagnosis.pod.name: diagnosis.outcome for diagnosis in told}
    assert got == {"web": Outcome.BOUND, "left": Outcome.UNSCHEDULABLE}


TWO_PROFILES = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
percentageOfNodesToScore: 55
profiles:
- schedulerName: as-all
- schedulerName: by-itself
  percentageOfNodesToScore: 60
"""


async def test_percentage_of_a_profile_takes_precedence_over_the_global_one() -> None:
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
async def test_plugin_is_called_for_each_equal_pod_without_kept_answers(
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
