"""Needs, events and node mode that follow from a plugin's arguments, wherever the plugin runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from berth_host.app.reload import reload
from berth_host.config.loading import load_configuration
from berth_host.endpoints.pages import plugins_answer
from berth_host.errors.plugins import PluginLoadError
from berth_host.explain.diagnosis import Diagnosis
from support.by_arguments import CLAIMS
from support.hosts import World, node, pod
from support.patience import with_patience
from support.plugin_processes import plugin_environment, plugin_process, serve_command

CLASS = "support.by_arguments:ByArguments"
EVERYWHERE = (
    "inProcess",
    "command",
    "endpoint",
)  # a child of the host takes longest: `make test-all` starts it
NOTHING = ("NAMES", list[str](), ["Node add"])


def configured(where: str, path: Path, *args: Mapping[str, Any]) -> str:
    """The plugin in one profile for each of `args`."""
    place = {
        "inProcess": f"inProcess: '{CLASS}'",
        "endpoint": f"endpoint: 'unix://{path}'",
        "command": f"command: {json.dumps(serve_command(CLASS))}",
    }[where]
    profiles = "".join(
        f"- schedulerName: s{number}\n  plugins: {{multiPoint: {{enabled: [{{name: ByArguments}}]}}}}\n"
        f"  pluginConfig: [{{name: ByArguments, args: {json.dumps(given)}}}]\n"
        for number, given in enumerate(args)
    )
    return (
        f"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n{profiles}"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 30s\n"
        f"plugins:\n- {{name: ByArguments, {place}, points: {{filter: {{deadline: 10s}}}}}}\n"
    )


@asynccontextmanager
async def running(
    where: str, path: Path, *args: Mapping[str, Any], on_attempt: Callable[[Diagnosis], None] = lambda _: None
) -> AsyncIterator[World]:
    world = World([node("n0")], configuration=configured(where, path, *args), on_attempt=on_attempt)
    if where != "endpoint":
        async with world:
            yield world
        return
    async with plugin_process(path, CLASS), world:
        yield world


async def reloaded(world: World, where: str, path: Path, *args: Mapping[str, Any]) -> None:
    text = configured(where, path, *args)
    world.host = await reload(world.host, with_patience(load_configuration(text, source="new.yaml")))
    await world.settle()


async def placed(world: World, name: str, profile: int = 0) -> bool:
    world.server.create(pod(name, schedulerName=f"s{profile}"))
    await world.settle()
    return world.node_of(name) == "n0"


def declared(world: World) -> list[tuple[str, list[str], list[str]]]:
    """Node mode, needs and events in each profile, as `berth plugins -o json` shows them."""
    (found,) = [one for one in plugins_answer(world.host)["plugins"] if one["name"] == "ByArguments"]
    shown = [profile["declares"] for profile in found["profiles"]]
    return [(one["nodeMode"], one["needs"], one["events"]) for one in shown]


def claim(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }


@pytest.mark.sampled(every=2)
@pytest.mark.slow
@pytest.mark.parametrize("where", EVERYWHERE)
async def test_arguments_decide_what_the_plugin_gets_and_what_requeues_its_pods(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", plugin_environment()["PYTHONPATH"])
    path = tmp_path / "p.sock"
    async with running(where, path, {}) as world:
        assert await placed(world, "free")
        assert declared(world) == [NOTHING]
        # Other arguments: the needs, the events and the mode are others too.
        await reloaded(world, where, path, {"claim": "gold", "mode": "SNAPSHOT"})
        assert declared(world) == [("SNAPSHOT", [f"OBJECT {CLAIMS}"], ["PersistentVolumeClaim add"])]
        assert not await placed(world, "waits")
        assert "waits for the claim gold" in world.message_of("waits")
        world.server.create(claim("silver"))
        await world.settle()
        assert not world.node_of("waits")
        world.server.create(claim("gold"))
        await world.settle()
        assert world.node_of("waits") == "n0"
        await reloaded(world, where, path, {})
        assert declared(world) == [NOTHING]
        assert await placed(world, "free-again")


@pytest.mark.sampled(every=2)
@pytest.mark.slow
@pytest.mark.parametrize("where", EVERYWHERE)
async def test_a_wrong_declaration_by_arguments_refuses_the_new_configuration(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", plugin_environment()["PYTHONPATH"])
    path = tmp_path / "p.sock"
    async with running(where, path, {}) as world:
        before = world.host
        with pytest.raises(
            PluginLoadError, match=r"ByArguments\.needs is \['pods'\]: it must be a list of Need"
        ):
            await reloaded(world, where, path, {"needs": ["pods"]})
        # Asked for in __init__, and not declared by it.
        with pytest.raises(PluginLoadError, match=rf"objects of '{CLAIMS}'"):
            await reloaded(world, where, path, {"claim": "gold", "needs": []})
        assert world.host is before
        assert await placed(world, "free")


@pytest.mark.sampled(every=2)
@pytest.mark.slow
@pytest.mark.parametrize("where", EVERYWHERE)
async def test_profiles_have_needs_of_their_own_and_one_node_mode_where_they_share_a_process(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", plugin_environment()["PYTHONPATH"])
    path = tmp_path / "p.sock"
    own = ("NAMES", [f"OBJECT {CLAIMS}"], ["PersistentVolumeClaim add"])
    async with running(where, path, {}, {"claim": "gold"}) as world:
        # In process each profile has its own instance; served, the process has one copy of what all need.
        assert await placed(world, "free", 0)
        first = NOTHING if where == "inProcess" else ("NAMES", [f"OBJECT {CLAIMS}"], ["Node add"])
        assert declared(world) == [first, own]
        assert not await placed(world, "waits", 1)
        if where == "inProcess":
            await reloaded(world, where, path, {}, {"mode": "SNAPSHOT"})
            assert await placed(world, "other", 1)
        else:
            with pytest.raises(
                PluginLoadError, match="node_mode NAMES in profile s0, SNAPSHOT in profile s1"
            ):
                await reloaded(world, where, path, {}, {"mode": "SNAPSHOT"})


@pytest.mark.sampled(every=2)
@pytest.mark.slow
@pytest.mark.parametrize("where", EVERYWHERE)
async def test_events_of_one_profile_do_not_requeue_the_pods_of_another(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", plugin_environment()["PYTHONPATH"])
    tried: list[str] = []
    profiles: list[dict[str, Any]] = [{"claim": "gold"}, {"closed": True}]
    async with running(
        where, tmp_path / "p.sock", *profiles, on_attempt=lambda one: tried.append(one.pod.name)
    ) as world:
        assert not await placed(world, "for-a-claim", 0)
        assert not await placed(world, "for-a-node", 1)
        tried.clear()
        world.server.create(claim("silver"))
        await world.settle()
        assert tried == ["for-a-claim"]
        world.server.create(node("n1"))
        await world.settle()
        assert tried == ["for-a-claim", "for-a-node"]
