"""What a plugin can reach through its handle, from its constructor on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from berth_host.errors.plugins import PluginLoadError
from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from support.hosts import World, node, pod


class AsksTooEarly(Plugin):
    """Asks for what is made of the plugins while it is made itself."""

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        handle.list_nominated_pods()

    def permit(self, state: object, pod: Pod, node_name: str) -> Status:
        return Status.success()


def test_a_plugin_that_asks_for_the_queue_before_there_is_one_is_refused() -> None:
    with pytest.raises(
        PluginLoadError, match=r"AsksTooEarly.*HandleError: .*\(no queue yet\): .* not in __init__"
    ):
        World(plugins=[AsksTooEarly])


class KeepsItsObjects(Plugin):
    """Takes its reader of declared objects when it is made."""

    needs: Sequence[Need] = (Need.objects("persistentvolumeclaims"),)

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self.claims = handle.objects("persistentvolumeclaims")

    def permit(self, state: object, pod: Pod, node_name: str) -> Status:
        return Status.unschedulable(f"claims: {', '.join(claim.ref.name for claim in self.claims.list())}")


class TakesOthersObjects(KeepsItsObjects):
    """Did not declare them."""

    needs: Sequence[Need] = ()


async def test_a_plugin_may_take_the_reader_of_its_objects_when_it_is_made() -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    async with World([node("n0"), pod("web"), claim], [KeepsItsObjects]) as world:
        await world.settle()
        assert "claims: data" in world.message_of("web")


def test_a_plugin_that_takes_undeclared_objects_when_it_is_made_is_refused_with_the_need() -> None:
    with pytest.raises(
        PluginLoadError, match=r"UndeclaredError.*add Need\.objects\('persistentvolumeclaims'\)"
    ):
        World(plugins=[TakesOthersObjects])


class ReadsSnapshotWhenMade(Plugin):
    """Reads the nodes before the host knows any."""

    needs = (Need.nodes(),)

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        handle.snapshot()

    def permit(self, state: object, pod: Pod, node_name: str) -> Status:
        return Status.success()


def test_a_plugin_that_reads_the_snapshot_when_it_is_made_is_refused_as_a_served_one_is() -> None:
    with pytest.raises(PluginLoadError, match=r"HandleError: .* read it in a call, not in __init__"):
        World(plugins=[ReadsSnapshotWhenMade])


class Asks(Plugin):
    """Keeps what its handle says in Permit."""

    def permit(self, state: object, pod: Pod, node_name: str) -> Status:
        nominated = self.handle.list_nominated_pods()
        names = ",".join(f"{item.pod.name} on {item.node_name}" for item in nominated)
        return Status.unschedulable(f"nominated: {names}")


async def test_handle_reaches_parts_that_are_made_after_the_plugin() -> None:
    nominated = pod("waits", cpu="9", priority=9)
    async with World([node("n0"), nominated], [Asks]) as world:
        await world.settle()
        waits = world.host.objects.pod("default/waits")
        assert waits is not None
        world.host.queue.nominate(waits, "n0")
        world.server.create(pod("web", priority=10))
        await world.settle()
        assert "nominated: waits on n0" in world.message_of("web")
