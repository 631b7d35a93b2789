"""What a plugin can reach through its handle, from its constructor on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from berth_host.app import PluginLoadError
from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle
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
    with pytest.raises(PluginLoadError, match=r"AsksTooEarly.*queue"):
        World(plugins=[AsksTooEarly])


class Asks(Plugin):
    """Keeps what its handle says in Permit."""

    def permit(self, state: object, pod: Pod, node_name: str) -> Status:
        nominated = self.handle.list_nominated_pods()
        names = ",".join(f"{item.pod.name} on {item.node_name}" for item in nominated)
        return Status.unschedulable(f"nominated: {names}")


async def test_the_handle_leads_to_the_parts_that_were_made_after_the_plugin() -> None:
    nominated = pod("waits", cpu="9", priority=9)
    async with World([node("n0"), nominated], [Asks]) as world:
        await world.settle()
        waits = world.host.objects.pod("default/waits")
        assert waits is not None
        world.host.queue.nominate(waits, "n0")
        world.server.create(pod("web", priority=10))
        await world.settle()
        assert "nominated: waits on n0" in world.message_of("web")
