"""A new configuration whose arguments a plugin refuses is refused whole, wherever the plugin runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from berth_host.app.reload import reload
from berth_host.attach.state import State
from berth_host.config.loading import load_configuration
from berth_host.errors.plugins import PluginLoadError
from berth_sdk.kube_object import ObjectRef
from berth_sdk.plugin.v1 import identity_pb2
from structlog.testing import capture_logs
from support.hosts import World, node, pod
from support.limits_pods import REFUSED
from support.patience import with_patience
from support.plugin_processes import plugin_environment, plugin_process, serve_command
from support.scripted_plugin import ScriptedPlugin, descriptor

CLASS = "support.limits_pods:Limits"
OWN_POD = ObjectRef(namespace="kube-system", name="berth-0")
EVERYWHERE = ("inProcess", "endpoint", "command", "folder")


def configured(where: str, path: Path, limit: int, more: str = "") -> str:
    """One plugin, in this process, at a socket, in a folder of sockets, or as a child."""
    place = {
        "inProcess": f"inProcess: '{CLASS}'",
        "endpoint": f"endpoint: 'unix://{path}'",
        "command": f"command: {json.dumps(serve_command(CLASS))}",
        "folder": "points: {filter: {}}",
    }[where]
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins: {multiPoint: {enabled: [{name: Limits}]}}\n"
        f"  pluginConfig: [{{name: Limits, args: {{limit: {limit}}}}}]\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 30s\n"
        f"socketFolder: {path.parent}\nplugins:\n- {{name: Limits, {place}{more}}}\n"
    )


@asynccontextmanager
async def running(where: str, path: Path, limit: int) -> AsyncIterator[World]:
    path.parent.mkdir()
    world = World([node("n0")], configuration=configured(where, path, limit), own_pod=OWN_POD)
    if where in ("inProcess", "command"):
        async with world:
            yield world
        return
    async with plugin_process(path, CLASS), world:
        yield world


async def reloaded(world: World, where: str, path: Path, limit: int) -> None:
    text = configured(where, path, limit)
    world.host = await reload(world.host, with_patience(load_configuration(text, source="new.yaml")))


async def placed(world: World, name: str) -> bool:
    world.server.create(pod(name))
    await world.settle()
    return world.node_of(name) == "n0"


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("where", EVERYWHERE)
@pytest.mark.parametrize(
    ("limit", "words"), [(0, REFUSED), (2000, "ConnectionError: no such shelf")], ids=["refused", "raises"]
)
async def test_reload_with_refused_arguments_changes_nothing(
    where: str, limit: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", plugin_environment()["PYTHONPATH"])
    path = tmp_path / "plugins" / "p.sock"
    async with running(where, path, 2) as world:
        assert await placed(world, "first")
        old, before = world.host, world.host.conditions()
        with pytest.raises(PluginLoadError, match=r"plugin Limits \(.*\) cannot be loaded: .*" + words):
            await reloaded(world, where, path, limit)
        assert world.host is old
        assert old.is_leading and old.internal_error.error is None  # one state
        # The same attachments to the same instances, which still count: one place is left.
        after = world.host.conditions()
        assert [(one.state, one.instance_id) for one in after] == [
            (one.state, one.instance_id) for one in before
        ]
        assert await placed(world, "second")
        assert not await placed(world, "third")
        assert "2 taken" in world.message_of("third")
        if where != "inProcess":
            event = world.server.events.latest("ConfigurationRefused", OWN_POD.key)
            assert event is not None
            assert words in event.note
            assert event.note.endswith("; the previous configuration stays in use")


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("where", EVERYWHERE)
async def test_arguments_that_the_plugin_accepts_are_used(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", plugin_environment()["PYTHONPATH"])
    path = tmp_path / "plugins" / "p.sock"
    async with running(where, path, 1) as world:
        assert await placed(world, "first")
        assert not await placed(world, "second")
        await reloaded(world, where, path, 3)
        await world.settle()
        assert world.node_of("second") == "n0"
        assert await placed(world, "third")
        assert await placed(world, "fourth")
        assert not await placed(world, "fifth")
        assert "3 taken" in world.message_of("fifth")


async def test_reload_without_trials_refuses_only_the_instance(tmp_path: Path) -> None:
    """The log says that its arguments were not tried."""
    path = tmp_path / "plugins" / "p.sock"
    path.parent.mkdir()
    plugin = ScriptedPlugin(descriptor("Limits", "FILTER"))
    async with (
        plugin.serving(path),
        World([node("n0")], configuration=configured("endpoint", path, 1)) as world,
    ):
        assert await placed(world, "first")
        plugin.on("Configure", lambda _: identity_pb2.ConfigureResponse(error=REFUSED))
        with capture_logs() as logs:
            await reloaded(world, "endpoint", path, 0)
        (told,) = [line for line in logs if line["event"] == "plugin.untried"]
        assert told["reason"] == "its server does not know the feature 'configure-trial'"
        (condition,) = world.host.conditions()
        assert (condition.state, condition.reason) == (State.REJECTED, f"refuses its arguments: {REFUSED}")
        assert not await placed(world, "second")


async def test_arguments_that_did_not_change_are_not_tried(tmp_path: Path) -> None:
    path = tmp_path / "plugins" / "p.sock"
    path.parent.mkdir()
    plugin = ScriptedPlugin(descriptor("Limits", "FILTER"))
    plugin.features = ("configure-trial",)  # type: ignore[misc]  # of this one
    async with (
        plugin.serving(path),
        World([node("n0")], configuration=configured("endpoint", path, 1)) as world,
    ):
        await reloaded(world, "endpoint", path, 1)
        assert not any(request.trial for request in plugin.requests("Configure"))
        await reloaded(world, "endpoint", path, 2)
        assert [request.trial for request in plugin.requests("Configure")] == [False, False, True, False]
