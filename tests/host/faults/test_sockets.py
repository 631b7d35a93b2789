"""Rows 4 and 31 of the failure table, with real processes: sockets and their folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from berth_host.attach import folder as folder_module
from berth_host.attach.state import State
from structlog.testing import capture_logs
from support.faults import FailingProcess, attached, configuration, in_time, running
from support.hosts import World, node, pod

pytestmark = pytest.mark.slow


def in_folder(plugin: FailingProcess, sockets: Path) -> str:
    """Return a configuration in which the plugin filters, and is found in the folder."""
    text = configuration(plugin, Failing="filter").replace(f"  endpoint: {plugin.endpoint}\n", "")
    return text.replace("plugins:\n- name", f"socketFolder: {sockets}\nplugins:\n- name")


@pytest.mark.long
async def test_row_4_the_socket_of_a_killed_plugin_is_tried_again_in_silence_and_left_alone(
    tmp_path: Path,
) -> None:
    sockets = tmp_path / "sockets"
    sockets.mkdir()
    dead = FailingProcess(tmp_path / "dead", sockets / "dead.sock")
    live = FailingProcess(tmp_path / "live", sockets / "live.sock")
    async with running(dead):
        await dead.kill()
    with capture_logs() as lines:
        async with World([node("n0"), pod("web")], configuration=in_folder(live, sockets)) as world:
            places = world.host.attachments.attached_places
            await in_time(lambda: places.places and places.places[0].backoff.failures >= 3)
            await in_time(lambda: places.places[0].state is State.BACKOFF)
            assert places.places[0].place.endpoint == dead.endpoint
            async with running(live):
                await in_time(lambda: world.node_of("web") == "n0")
            assert dead.socket_path.exists()
    told = [
        line for line in lines if "dead.sock" in str(line.get("place")) and line["log_level"] == "warning"
    ]
    assert len(told) == 1, told


async def test_row_31_a_socket_that_the_watch_missed_is_found_by_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is not there when the watch begins, and goes again while the plugin is attached."""
    monkeypatch.setattr(folder_module, "RESCAN_S", 0.1)
    sockets = tmp_path / "sockets"
    plugin = FailingProcess(tmp_path / "plugin", sockets / "p.sock")
    async with World([node("n0"), pod("web")], configuration=in_folder(plugin, sockets)) as world:
        places = world.host.attachments.attached_places
        await in_time(lambda: "No such file or directory" in str(places.conditions()))
        sockets.mkdir()
        async with running(plugin):
            await in_time(lambda: world.node_of("web") == "n0")
            shutil.rmtree(sockets)
            await in_time(lambda: "No such file or directory" in str(places.conditions()))
            assert attached(world)
            world.server.create(pod("next"))
            await in_time(lambda: world.node_of("next") == "n0")
            assert [words[2] for words in plugin.asked("Filter")] == ["web", "next"]
