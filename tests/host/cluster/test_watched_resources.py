"""The host watches only the resources that the host and its plugins read."""

from __future__ import annotations

from pathlib import Path

import pytest
from berth_bench.life.faulty_cluster import Faults
from berth_host.cluster.watching import resources_of
from berth_host.plugins.registry import ClassRegistry
from berth_sdk.events import EventInterest
from berth_sdk.extension_points import Plugin
from berth_sdk.pod import Pod
from berth_sdk.runtime.descriptor import describe
from berth_sdk.status import Status
from support.hosts import World, node, pod
from support.plugin_processes import PluginProcess

KUBE_SCHEDULER_WATCHES = {
    "namespaces",
    "nodes",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "replicationcontrollers",
    "services",
    "apps/replicasets",
    "apps/statefulsets",
    "policy/poddisruptionbudgets",
    "resource.k8s.io/deviceclasses",
    "resource.k8s.io/devicetaintrules",
    "resource.k8s.io/resourceclaims",
    "resource.k8s.io/resourceslices",
    "storage.k8s.io/csidrivers",
    "storage.k8s.io/csinodes",
    "storage.k8s.io/csistoragecapacities",
    "storage.k8s.io/storageclasses",
    "storage.k8s.io/volumeattachments",
}
BARE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      disabled: [{name: "*"}]
      enabled: [{name: PrioritySort}, {name: DefaultBinder}%s]
"""
BERTH = """
---
apiVersion: config.berth.io/v1alpha1
kind: BerthConfiguration
plugins:
- name: %s
  %s
"""
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"ports": [{"port": 80}]},
}


def test_default_configuration_needs_the_resources_that_kube_scheduler_watches() -> None:
    assert World().host.watching.needed == KUBE_SCHEDULER_WATCHES


async def test_cluster_is_asked_for_exactly_that() -> None:
    async with World([node("n0")], faults=Faults()) as world:
        assert world.faulty is not None
        assert world.faulty.resources == KUBE_SCHEDULER_WATCHES


def test_without_plugins_that_read_more_there_are_pods_and_nodes() -> None:
    assert World(configuration=BARE % "").host.watching.needed == {"pods", "nodes"}


def test_budgets_are_read_only_for_pods_that_may_preempt() -> None:
    found = World(configuration=BARE % ", {name: DefaultPreemption}").host.watching.needed
    assert found == {"pods", "nodes", "policy/poddisruptionbudgets"}


def test_namespaces_are_for_scopes_that_select_them() -> None:
    text = BARE % ", {name: Steady}" + BERTH % (
        "Steady",
        "inProcess: support.gatekeeper:Steady\n"
        "  points: {filter: {deadline: 1s}}\n"
        "  scope: {namespaceSelector: {}}",
    )
    assert "namespaces" in World(configuration=text).host.watching.needed
    without = text.replace("namespaceSelector: {}", "podSelector: {}")
    assert "namespaces" not in World(configuration=without).host.watching.needed


@pytest.mark.parametrize(
    ("events", "want"),
    [
        ((), set()),
        ((EventInterest("Pod"), EventInterest("Node")), set()),
        ((EventInterest("storage.k8s.io/CSINode"),), {"storage.k8s.io/csinodes"}),
        ((EventInterest("widgets.v1.example.com"),), {"example.com/widgets"}),
        (None, {"persistentvolumes", "resource.k8s.io/resourceclaims", "storage.k8s.io/storageclasses"}),
    ],
)
def test_events_count_as_what_is_read_does(events: tuple[EventInterest, ...] | None, want: set[str]) -> None:
    class Hears(Plugin):
        def filter(self, state: object, pod: Pod, node: object) -> Status:
            return Status.success()

    Hears.events = events
    found = resources_of(describe(Hears, "Hears"))
    assert want <= found
    if events is not None:
        assert found == want


async def test_plugin_that_attaches_later_gets_its_objects_before_it_is_asked(tmp_path: Path) -> None:
    process = PluginProcess(tmp_path / "p.sock", "support.reads_services:ReadsServices")
    text = BARE % ", {name: ReadsServices}" + BERTH % (
        "ReadsServices",
        f"endpoint: {process.endpoint}\n  required: true\n  points: {{filter: {{deadline: 10s}}}}",
    )
    world = World([SERVICE, node("n0"), pod("web")], configuration=text, faults=Faults(turns=0))
    assert world.faulty is not None
    try:
        async with world:
            assert "services" not in world.faulty.resources
            await process.start()
            while world.host.attachments.recoveries == 0:
                await world.settle()
            await world.settle()
            assert "services" in world.faulty.resources
            assert world.node_of("web") == "n0"
    finally:
        await process.kill()


@pytest.mark.long
async def test_copy_of_a_host_that_stood_by_is_sent_anew_when_it_leads(tmp_path: Path) -> None:
    process = PluginProcess(tmp_path / "p.sock", "support.reads_services:ReadsServices")
    text = BARE % ", {name: ReadsServices}" + BERTH % (
        "ReadsServices",
        f"endpoint: {process.endpoint}\n  required: true\n  points: {{filter: {{deadline: 10s}}}}",
    )
    await process.start()
    world = World([SERVICE, node("n0"), pod("web")], configuration=text)
    try:
        await world.host.connect()
        (place,) = world.host.attachments.attached_places.places
        assert place.link is not None
        assert place.link.held is not None
        stood_by = place.link.held.epoch
        await world.host.lead()
        await world.settle()
        assert world.node_of("web") == "n0"
        assert place.link.held.epoch == world.host.snapshot.epoch != stood_by
    finally:
        await world.host.stop()
        await process.kill()


def test_registry_has_every_default_plugin() -> None:
    """Those that are missing would be left out of the comparison above."""
    assert ClassRegistry().find("DynamicResources") is not None
    assert World().host.clients.missing == []
