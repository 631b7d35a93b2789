"""`berth plugins --folder`: what sidecars say of themselves, without a host."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from berth_sdk.plugin.v1 import identity_pb2
from support.commands import answer
from support.plugin_processes import PluginProcess, plugin_environment, plugin_process
from support.scripted_plugin import ScriptedPlugin, descriptor
from support.waiting import PATIENCE_S

from .conftest import Run

ECHO = "support.echo_plugin:Echo"


@asynccontextmanager
async def watching(*options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Yield the running command; at the end of the block it must have ended as after Ctrl-C."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "berth_host", "plugins", "--watch", *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=plugin_environment(),
    )
    try:
        yield process
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE_S):
            _, errors = await process.communicate()
        assert (process.returncode, errors) == (130, b"")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def printed(process: asyncio.subprocess.Process, text: str) -> list[str]:
    """Return the lines up to the first line with the text."""
    assert process.stdout is not None
    lines: list[str] = []
    async with asyncio.timeout(PATIENCE_S):
        while True:
            line = (await process.stdout.readline()).decode()
            assert line, lines
            lines.append(line)
            if text in line:
                return lines


@pytest.mark.slow
async def test_instances_are_listed_with_plugins_and_points_and_dead_sockets_with_the_reason(
    run: Run, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead.sock"))
    async with plugin_process(tmp_path / "live.sock", ECHO):
        shown = await asyncio.to_thread(run, "plugins", "--folder", str(tmp_path))
        assert shown.exit_code == 0, shown.output
        head, row = (line.split(maxsplit=4) for line in shown.stdout.splitlines()[:2])
        assert head == ["NAME", "PLACE", "INSTANCE", "STARTED", "POINTS"]
        assert row[:2] == ["Echo", f"unix://{tmp_path}/live.sock"]
        assert row[4] == "filter, score"
        assert f"unix://{tmp_path}/dead.sock does not shake hands (" in shown.stdout
        found = answer(await asyncio.to_thread(run, "plugins", "--folder", str(tmp_path), "-o", "json"))
    dead_one, live_one = found["instances"]
    assert dead_one["error"].startswith("does not shake hands (UNAVAILABLE")
    assert live_one["plugins"] == [{"name": "Echo", "version": "", "points": ["filter", "score"]}]


def test_folder_without_sockets_is_reported(run: Run, tmp_path: Path) -> None:
    shown = run("plugins", "--folder", str(tmp_path))
    assert shown.exit_code == 0
    assert (
        shown.stderr
        == f"no sockets in {tmp_path}: a sidecar's socket appears when the sidecar listens there\n"
    )


async def test_instance_with_invalid_answers_does_not_hide_the_others(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start in the far future, a name that would clear the screen; the path is relative."""
    liar = ScriptedPlugin(descriptor("\x1b[2JLiar\n", "FILTER"))

    def introduce(_: object) -> identity_pb2.HandshakeResponse:
        reply = identity_pb2.HandshakeResponse(instance_id="\x1b[2Jliar", plugins=liar.plugins)
        reply.started_at.seconds = 2**62
        return reply

    liar.on("Handshake", introduce)
    monkeypatch.chdir(tmp_path)
    Path("sockets").mkdir(mode=0o700)
    path = tmp_path / "sockets"
    async with (
        liar.serving(path / "a.sock"),
        ScriptedPlugin(descriptor("Demo", "SCORE")).serving(path / "b.sock"),
    ):
        shown = await asyncio.to_thread(run, "plugins", "--folder", "sockets")
    assert shown.exit_code == 0, shown.output
    rows = [line.split() for line in shown.stdout.splitlines()[1:]]
    assert rows[0] == ["?[2JLiar", f"unix://{path}/a.sock", "?[2Jliar", "?", "filter"]
    assert rows[1][:2] == ["Demo", f"unix://{path}/b.sock"]


@pytest.mark.slow
async def test_watch_prints_the_list_again_when_an_instance_comes_or_goes(tmp_path: Path) -> None:
    plugin = PluginProcess(tmp_path / "live.sock", ECHO)
    async with watching("--folder", str(tmp_path)) as process:
        await printed(process, "NAME")
        try:
            await plugin.start()
            await printed(process, "Echo ")
        finally:
            await plugin.kill()
        await printed(process, "does not shake hands")


def test_missing_folder_and_watch_without_a_source_are_refused(run: Run, tmp_path: Path) -> None:
    missing = run("plugins", "--folder", str(tmp_path / "missing"))
    assert (missing.exit_code, "does not exist" in missing.stderr) == (2, True)
    idle = run("plugins", "--watch")
    assert (idle.exit_code, "--watch needs --server or --folder" in idle.stderr) == (2, True)
