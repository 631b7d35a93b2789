"""Arguments that a plugin in another process does not accept: they end the start, later the instance."""

from __future__ import annotations

from pathlib import Path

import pytest
from berth_host.attach.state import State
from berth_host.errors.plugins import PluginLoadError
from berth_sdk.plugin.v1 import identity_pb2
from support.hosts import World, node, pod
from support.scripted_plugin import ScriptedPlugin, descriptor
from support.waiting import until

WORDS = "limit must be positive"


def configured(path: Path, more: str = "") -> str:
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins: {multiPoint: {enabled: [{name: Demo}]}}\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 30s\n"
        f"plugins:\n- {{name: Demo, endpoint: 'unix://{path}', points: {{filter: {{}}}}{more}}}\n"
    )


def refusing() -> ScriptedPlugin:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    plugin.on("Configure", lambda _: identity_pb2.ConfigureResponse(error=WORDS))
    return plugin


@pytest.mark.parametrize("more", ["", ", required: false"])
@pytest.mark.parametrize("stands_by", [False, True])
async def test_refused_arguments_end_the_start_with_the_message_of_the_plugin(
    tmp_path: Path, *, stands_by: bool, more: str
) -> None:
    path = tmp_path / "p.sock"
    world = World([node("n0"), pod("web")], configuration=configured(path, more))
    async with refusing().serving(path):
        try:
            if stands_by:
                await world.host.connect(stands_by=True)
            with pytest.raises(PluginLoadError) as caught:
                await (world.host.lead() if stands_by else world.host.start())
        finally:
            await world.host.stop()
    assert str(caught.value) == (
        f"plugin Demo (unix://{path}) cannot be loaded: it refuses its arguments: {WORDS}"
    )
    assert world.host.loop_task is None
    assert world.node_of("web") == ""


async def test_later_instance_with_refused_arguments_is_refused_and_scheduling_continues(
    tmp_path: Path,
) -> None:
    path = tmp_path / "p.sock"
    scope = ", scope: {podSelector: {matchLabels: {kind: gpu}}}"
    async with World([node("n0")], configuration=configured(path, scope)) as world:
        (place,) = world.host.attachments.attached_places.places
        async with refusing().serving(path):
            await until(lambda: place.state is State.REJECTED)
            assert place.reason == f"refuses its arguments: {WORDS}"
            world.server.create(pod("web"))
            world.server.create(pod("gpu", labels={"kind": "gpu"}))
            await world.settle()
            assert world.host.is_leading
            assert (world.node_of("web"), world.node_of("gpu")) == ("n0", "")
