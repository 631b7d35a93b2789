"""`close` of a plugin: once for each instance, after its last call, in process and over the wire."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from berth_host.app import Fit, FrameworkAlone
from berth_host.app import host as host_module
from berth_host.app.host import Host
from berth_host.app.reload import reload
from berth_host.config.loading import load_configuration
from berth_host.errors.plugins import PluginLoadError
from berth_host.rpc import in_process as in_process_module
from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from berth_sdk.testing import make_node, make_pod
from structlog.testing import capture_logs
from support.closes import lives
from support.hosts import World, enabling, node, pod
from support.patience import with_patience
from support.plugin_processes import plugin_environment, plugin_process, serve_command
from support.waiting import PATIENCE_S

CLASS = "support.closes:Closes"
LATER = "support.closes:ClosesLater"
ELSEWHERE = [pytest.param(where, marks=pytest.mark.slow) for where in ("endpoint", "command", "folder")]
EVERYWHERE = ["inProcess", *ELSEWHERE]
PATIENT = "points: {filter: {deadline: 10s}, reserve: {deadline: 10s}, permit: {deadline: 10s}}"


def configured(where: str, folder: Path, cls: str = CLASS, **args: Any) -> str:
    """One plugin, in this process, at a socket, in a folder of sockets, or as a child."""
    name = cls.partition(":")[2]
    place = {
        "inProcess": f"inProcess: '{cls}', ",
        "endpoint": f"endpoint: 'unix://{folder}/plugins/p.sock', ",
        "command": f"command: {json.dumps(serve_command(cls))}, ",
        "folder": "",
    }[where]
    given = json.dumps({"journal": str(folder / "journal"), **args})
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles:\n- plugins: {{multiPoint: {{enabled: [{{name: {name}}}]}}}}\n"
        f"  pluginConfig: [{{name: {name}, args: {given}}}]\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 30s\n"
        f"socketFolder: {folder}/plugins\nplugins:\n- {{name: {name}, {place}{PATIENT}}}\n"
    )


@asynccontextmanager
async def running(where: str, folder: Path, cls: str = CLASS, **args: Any) -> AsyncIterator[World]:
    """Run a host with the plugin; at the end, the host and then the plugin's process get SIGTERM's stop."""
    (folder / "plugins").mkdir()
    world = World([node("n0")], configuration=configured(where, folder, cls, **args))
    if where in ("inProcess", "command"):
        async with world:
            yield world
        return
    async with plugin_process(folder / "plugins" / "p.sock", cls) as process:
        async with world:
            yield world
        assert await process.terminate() == 0


async def placed(world: World, name: str) -> None:
    world.server.create(pod(name))
    await world.settle()
    assert world.node_of(name) == "n0"


@pytest.fixture(autouse=True)
def _children_find_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", plugin_environment()["PYTHONPATH"])


@pytest.mark.parametrize("cls", [CLASS, LATER], ids=["plain", "async"])
@pytest.mark.parametrize("where", EVERYWHERE[:3])
async def test_instance_is_closed_once_after_its_last_call(where: str, cls: str, tmp_path: Path) -> None:
    async with running(where, tmp_path, cls) as world:
        world.server.create(pod("denied"))
        await world.settle()
        assert world.node_of("denied") == ""
    (life,) = lives(tmp_path / "journal")
    assert life[:4] == ["made", "asked", "reserved", "unreserved"]
    assert life[-2:] == ["unreserved", "closed"]
    assert life.count("closed") == 1


@pytest.mark.parametrize("where", EVERYWHERE)
async def test_reload_with_other_arguments_closes_the_old_instance(where: str, tmp_path: Path) -> None:
    async with running(where, tmp_path, limit=1) as world:
        await placed(world, "before")
        text = configured(where, tmp_path, limit=2)
        world.host = await reload(world.host, with_patience(load_configuration(text, source="new.yaml")))
        await placed(world, "after")
        old, *others = lives(tmp_path / "journal")
        assert old == ["made", "asked", "reserved", "closed"]
        *trials, new = others  # a child that the host starts for a trial makes an instance, too
        assert new == ["made", "asked", "reserved"]
        assert trials == [["made", "closed"]] * (where == "command")
    assert all(life.count("closed") == 1 and life[-1] == "closed" for life in lives(tmp_path / "journal"))


async def test_reload_that_fails_after_the_old_host_retired_closes_both_instances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object, **__: object) -> None:
        raise RuntimeError("the cluster is gone")

    async with running("inProcess", tmp_path, limit=1) as world:
        text = configured("inProcess", tmp_path, limit=2)
        monkeypatch.setattr(Host, "adopt_cluster", fails)
        with pytest.raises(RuntimeError, match="the cluster is gone"):
            await reload(world.host, load_configuration(text, source="new.yaml"))
        assert lives(tmp_path / "journal") == [["made", "closed"]] * 2


@pytest.mark.parametrize("where", EVERYWHERE[:2])
async def test_refused_reload_leaves_the_instance_open(where: str, tmp_path: Path) -> None:
    async with running(where, tmp_path, limit=1) as world:
        with pytest.raises(PluginLoadError, match="limit must be positive"):
            await reload(
                world.host, load_configuration(configured(where, tmp_path, limit=0), source="new.yaml")
            )
        await placed(world, "web")
    assert lives(tmp_path / "journal") == [["made", "asked", "reserved", "closed"]]


@pytest.mark.parametrize("where", EVERYWHERE[:2])
async def test_exception_of_close_stops_nothing(where: str, tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with running(where, tmp_path, at_close="raise") as world:
            await placed(world, "web")
    assert lives(tmp_path / "journal") == [["made", "asked", "reserved", "closed"]]
    found = [(one["plugin"], one["error"]) for one in logs if one["event"] == "plugin.not_closed"]
    if where == "inProcess":
        ((plugin, error),) = found
        assert plugin == "Closes"
        assert error.startswith("close raised RuntimeError: the shelf is stuck at support/closes.py:")
    else:
        assert found == []  # the plugin's own server logs it: tests/sdk/serve/test_endings.py


# --- in process ------------------------------------------------------------------------------------


class Noted(Plugin):
    """Notes that it was closed. `_Broken` comes after it in the order of names."""

    closed: ClassVar[list[str]] = []

    def filter(self, state: object, pod: Pod, node: object) -> Status:
        return Status.success()

    def close(self) -> None:
        self.closed.append("Noted")


class NotedLater(Noted):
    """As Noted, with a coroutine."""

    async def close(self) -> None:  # type: ignore[override]  # a class has either form
        await asyncio.sleep(0)
        self.closed.append("NotedLater")


class Other(Plugin):
    """Cannot be made."""

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        raise OSError("no such file")

    def filter(self, state: object, pod: Pod, node: object) -> Status:
        return Status.success()


@pytest.fixture(autouse=True)
def _nothing_noted() -> None:
    Noted.closed = []


async def test_failed_start_closes_the_plugins_made_before() -> None:
    with pytest.raises(PluginLoadError, match="no such file"):
        World([], (Noted, NotedLater, Other))
    assert sorted(Noted.closed) == ["Noted", "NotedLater"]


async def test_failed_reload_closes_the_plugins_of_the_new_host() -> None:
    async with World([node("n0")]) as world:
        classes = {cls.__name__: cls for cls in (Noted, Other)}
        world.host.options.plugins.update(classes)  # type: ignore[attr-defined]  # a dict, here
        text, points = enabling(classes), dict.fromkeys(classes, frozenset({"filter"}))
        with pytest.raises(PluginLoadError, match="no such file"):
            await reload(world.host, load_configuration(text, source="new.yaml", registered=points))
        assert Noted.closed == ["Noted"]


async def test_framework_alone_closes_its_plugins_at_the_end_of_the_block() -> None:
    configuration = load_configuration(
        enabling(["Noted"]), source="x", registered={"Noted": frozenset({"filter"})}
    )
    async with FrameworkAlone(configuration, plugins={"Noted": Noted}) as alone:
        alone.add_node(make_node("n0"))
        assert (await alone.ask(Fit(make_pod("web")))).verdicts["n0"].is_success
        assert Noted.closed == []
    assert Noted.closed == ["Noted"]


class Hangs(Noted):
    """Its `close` does not end before `let_go`."""

    let_go: ClassVar[threading.Event] = threading.Event()

    def close(self) -> None:
        self.let_go.wait()


async def test_close_that_hangs_holds_the_host_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process_module, "CLOSE_S", 0.2)
    Hangs.let_go.clear()
    try:
        with capture_logs() as logs:
            async with World([node("n0")], (Hangs,)):
                pass
    finally:
        Hangs.let_go.set()
    found = [(one["plugin"], one["error"]) for one in logs if one["event"] == "plugin.not_closed"]
    assert found == [("Hangs", "close has not ended after 0.2 s")]


class Prepares(Noted):
    """Its PreBind does not end before `let_go`."""

    let_go: ClassVar[threading.Event] = threading.Event()
    is_closed: ClassVar[threading.Event] = threading.Event()

    def pre_bind(self, state: object, pod: Pod, node_name: str, patched: object) -> Status:
        self.let_go.wait()
        self.closed.append("prepared")
        return Status.success()

    def close(self) -> None:
        self.closed.append("closed")
        self.is_closed.set()


async def test_close_waits_for_a_call_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process_module, "CLOSE_S", 0.2)
    monkeypatch.setattr(host_module, "STOP_S", 0.05)
    Prepares.let_go.clear()
    Prepares.is_closed.clear()
    try:
        with capture_logs() as logs:
            async with World([node("n0"), pod("web")], (Prepares,)) as world:
                async with asyncio.timeout(PATIENCE_S):
                    while not world.host.binding.active_count:
                        await asyncio.sleep(0)
        assert Noted.closed == []
    finally:
        Prepares.let_go.set()
    assert await asyncio.to_thread(Prepares.is_closed.wait, 60)
    assert Noted.closed == ["prepared", "closed"]
    found = [(one["plugin"], one["error"]) for one in logs if one["event"] == "plugin.not_closed"]
    assert found == [("Prepares", "a call has not ended after 0.2 s, and close comes after the last call")]
