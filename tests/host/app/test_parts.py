"""A host's parts are put together without a call to the cluster, and each gets the parts that it needs."""

from __future__ import annotations

from berth_host.app.options import HostOptions
from berth_host.app.parts import HostParts
from berth_host.cluster.memory.cluster import MemoryCluster
from berth_host.cluster.port import WatchEvent
from berth_host.config.loading import default_configuration
from berth_host.model.clock import ManualClock
from berth_host.plugins.registry import ClassRegistry
from berth_host.queue.events import QueueEvent
from berth_host.queue.seams import QueueObserver
from berth_sdk.kube_object import KubeObject
from support.hosts import node, pod


class Hears(QueueObserver):
    """Keeps the labels of events."""

    def __init__(self) -> None:
        self.labels: list[str] = []

    def event_received(self, event: QueueEvent, *, own_update: bool) -> None:
        self.labels.append(event.label)


def put_together(options: HostOptions) -> HostParts:
    configuration = default_configuration(registered=ClassRegistry().points())
    return HostParts(configuration, MemoryCluster(options.clock), options)


def test_without_a_loop_the_parts_take_the_cluster_over_and_pop_its_pods() -> None:
    hears = Hears()
    parts = put_together(HostOptions(clock=ManualClock(0.0), queue_observer=hears))
    for kind, item in (("Node", node("n0")), ("Pod", pod("web"))):
        parts.handle_change(WatchEvent(kind, None, KubeObject.of(item)))
    assert parts.cache.node_count == 1
    assert parts.queue.places.find("default/web") is not None
    assert hears.labels
    assert list(parts.scheduler.profiles) == list(parts.clients.by_profile) == ["default-scheduler"]


def test_nothing_is_shared_by_two_hosts_but_their_options() -> None:
    options = HostOptions(clock=ManualClock(0.0))
    one, other = put_together(options), put_together(options)
    assert one.metrics is other.metrics
    shared = {name for name, part in vars(one).items() if part is vars(other).get(name) and part is not None}
    assert shared == {"options", "clock", "metrics"}
