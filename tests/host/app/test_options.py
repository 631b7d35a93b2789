"""What each set of options changes, and what the host tells about its attempts."""

from __future__ import annotations

from berth_host.app import Host, HostOptions
from berth_host.cluster.memory.cluster import MemoryCluster
from berth_host.config.loading import default_configuration
from berth_host.explain.diagnosis import Diagnosis, Outcome
from berth_host.model.clock import ManualClock
from berth_host.plugins.registry import ClassRegistry
from berth_host.simulation.settle import settle
from support.hosts import node, pod


def test_each_set_of_options_counts_and_chooses_for_itself() -> None:
    one, other = HostOptions(), HostOptions()
    assert one.metrics is not other.metrics
    assert one.chooser is not other.chooser


async def test_the_host_tells_of_every_attempt_at_its_end() -> None:
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
