"""Launched children: the handshake line, the private folder, and every way to end. Real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from berth_host.attach.children.child import Child, ChildError

GOOD = """
import json, os, sys, time
line = {"protocol": "berth/1", "address": os.environ["BERTH_PLUGIN_ENDPOINT"], "instance_id": "i-1",
        "cookie": os.environ["BERTH_PLUGIN_COOKIE"]}
"""
SAY = "print(json.dumps(line), flush=True)\n"
WAIT = "sys.stdin.read()\n"


def python(*lines: str) -> list[str]:
    return [sys.executable, "-c", GOOD + "".join(lines)]


@asynccontextmanager
async def launched(*lines: str) -> AsyncIterator[Child]:
    child = await Child.launch(python(*lines), "demo")
    try:
        yield child
    finally:
        await child.stop(terminate_s=1.0)


async def test_child_reports_its_address_and_its_instance_id() -> None:
    async with launched(SAY, WAIT) as child:
        assert child.address.startswith("unix://")
        assert child.instance_id == "i-1"


async def test_folder_of_a_child_is_private_and_removed_afterwards() -> None:
    async with launched(SAY, WAIT) as child:
        folder = Path(child.address.removeprefix("unix://")).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not folder.exists()


async def test_child_has_its_own_process_group() -> None:
    async with launched(SAY, WAIT) as child:
        assert os.getpgid(child.pid) == child.pid
        assert os.getpgid(child.pid) != os.getpgid(0)


async def test_child_learns_the_process_id_of_its_host() -> None:
    async with launched("line['instance_id'] = os.environ['BERTH_HOST_PID']\n", SAY, WAIT) as child:
        assert child.instance_id == str(os.getpid())


async def test_child_ends_when_its_standard_input_is_closed() -> None:
    child = await Child.launch(
        python("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n", SAY, WAIT), "demo"
    )
    await child.stop(terminate_s=60.0)
    assert "exited with code 0" in await child.ended()


async def test_a_child_that_ignores_every_request_is_killed() -> None:
    child = await Child.launch(
        python("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n", SAY, "time.sleep(600)\n"),
        "demo",
    )
    await child.stop(terminate_s=0.1)
    assert "signal 9" in await child.ended()


async def test_a_process_that_a_child_left_behind_does_not_block_the_host(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    left = f"""
import subprocess
left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({str(pid_file)!r}, "w").write(str(left.pid))
"""
    child = await Child.launch(python(left, SAY, WAIT), "demo")
    try:
        async with asyncio.timeout(60):
            await child.stop(terminate_s=1.0)
    finally:
        os.kill(int(pid_file.read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        pytest.param(("sys.exit(3)\n",), "exited with code 3", id="exits at once"),
        pytest.param(
            ("print('no such plugin', file=sys.stderr)\nsys.exit(2)\n",),
            "exited with code 2: no such plugin",
            id="says why it exits",
        ),
        pytest.param(("print('hello')\n", SAY, WAIT), "but with 'hello'", id="talks first"),
        pytest.param(("line['protocol'] = 'berth/9'\n", SAY, WAIT), "uses 'berth/9'", id="other protocol"),
        pytest.param(("line['cookie'] = 'x'\n", SAY, WAIT), "did not return its cookie", id="wrong cookie"),
        pytest.param(("line['address'] = '192.0.2.1:1'\n", SAY, WAIT), "not on this machine", id="far away"),
        pytest.param(("del line['address']\n", SAY, WAIT), "which lacks address", id="no address"),
        pytest.param(
            ("line = {'cookie': 'x'}\n", SAY, WAIT), "lacks protocol, address, instance_id", id="few"
        ),
        pytest.param(("line = ['x']\n", SAY, WAIT), "did not begin with the handshake", id="no object"),
        pytest.param(
            ("sys.stdout.write('x' * 100000)\nsys.stdout.flush()\n", WAIT),
            "did not begin with the handshake",
            id="flood instead of a line",
        ),
    ],
)
async def test_a_child_that_begins_badly_is_ended_with_the_reason(lines: tuple[str, ...], words: str) -> None:
    with pytest.raises(ChildError, match=words):
        await Child.launch(python(*lines), "demo")


async def test_silent_child_is_ended_after_its_time() -> None:
    with pytest.raises(ChildError, match=r"wrote nothing within 0.3 s"):
        await Child.launch(python(WAIT), "demo", handshake_s=0.3)


async def test_program_that_does_not_exist_is_named() -> None:
    with pytest.raises(ChildError, match=r"demo cannot be started: No such file"):
        await Child.launch(["/no/such/program"], "demo")


async def test_flood_on_both_pipes_stops_neither_child_nor_host() -> None:
    flood = "for i in range(20000):\n    print('out', i)\n    print('err', i, file=sys.stderr)\n"
    async with launched(SAY, flood, "sys.exit(0)\n") as child:
        async with asyncio.timeout(60):
            assert await child.ended() == "exited with code 0: err 19999"
        assert child.output.dropped > 10_000
