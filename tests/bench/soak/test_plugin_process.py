"""A plugin of the soak as a process: in a socket folder its upgrade has no gap."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from berth_bench.soak import plugin_process
from berth_bench.soak.plugin_process import PluginProcess
from berth_bench.soak.plugins import Mood
from support.plugin_processes import can_connect
from support.waiting import until


def listening(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.sock") if can_connect(path))


@pytest.mark.long
@pytest.mark.slow
async def test_older_process_runs_until_the_newer_is_called(tmp_path: Path) -> None:
    sockets = tmp_path / "sockets"
    sockets.mkdir()
    plugin = PluginProcess("SoakFit", tmp_path, sockets)
    try:
        await plugin.start()
        await until(lambda: listening(sockets) == ["SoakFit-1.sock"])
        upgrade = asyncio.create_task(plugin.upgrade())
        await until(lambda: listening(sockets) == ["SoakFit-0.sock", "SoakFit-1.sock"])
        assert not upgrade.done()
        (tmp_path / "SoakFit-2.asked").touch()
        assert await upgrade
        assert listening(sockets) == ["SoakFit-0.sock"]
    finally:
        await plugin.stop()
    assert listening(sockets) == []


@pytest.mark.slow
async def test_newer_process_takes_over_even_if_it_is_not_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_process, "ASKED_WITHIN_S", 0.1)
    plugin = PluginProcess("SoakFit", tmp_path, tmp_path)
    try:
        await plugin.start()
        assert not await plugin.upgrade()
        await until(lambda: listening(tmp_path) == ["SoakFit-0.sock"])
    finally:
        await plugin.stop()


@pytest.mark.long
@pytest.mark.slow
async def test_process_ends_even_if_the_wait_for_its_end_is_cancelled(tmp_path: Path) -> None:
    plugin = PluginProcess("SoakFit", tmp_path)
    socket = tmp_path / "SoakFit.sock"
    try:
        await plugin.start()
        await until(lambda: can_connect(socket))
        plugin.hold()  # so that it does not end by itself
        upgrade = asyncio.create_task(plugin.upgrade())
        await asyncio.sleep(0)
        upgrade.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upgrade
        # The one that was started in its place is not refused.
        await until(lambda: can_connect(socket))
    finally:
        await plugin.stop()


async def test_call_before_now_does_not_count(tmp_path: Path) -> None:
    plugin = PluginProcess("SoakFit", tmp_path, tmp_path)
    file = tmp_path / "SoakFit-1.asked"
    file.touch()
    os.utime(file, (0, file.stat().st_mtime - 1))
    assert not await plugin.is_asked(0.1)


def test_behaviour_is_read_from_a_file(tmp_path: Path) -> None:
    PluginProcess("SoakFit", tmp_path).behave(Mood.INVALID)
    assert (tmp_path / "SoakFit.mood").read_text() == "invalid"
