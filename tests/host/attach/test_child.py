"""Launched children: handshake line, private folder, every way to end, output. Real processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from berth_host.attach.child import (
    KEPT_LINES,
    LINES_PER_S,
    MAX_LINE_BYTES,
    Child,
    ChildError,
    OutputLog,
    read_lines,
    throw_away,
)
from support.waiting import PATIENCE_S

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
        async with asyncio.timeout(PATIENCE_S):
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
        pytest.param(
            ("line['address'] = 'unix:plugin.sock'\n", SAY, WAIT),
            "says that it listens at 'unix:plugin.sock': a socket is named unix:///absolute/path",
            id="relative socket",
        ),
        pytest.param(
            ("line['address'] = '127.0.0.1:0'\n", SAY, WAIT),
            "'127.0.0.1:0': .*: write the port at which the plugin listens",
            id="port that nobody can dial",
        ),
        pytest.param(("line['address'] = 7001\n", SAY, WAIT), "write it as a text", id="a number"),
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


@pytest.mark.parametrize(
    "lines",
    [
        ("sys.stdout.write('x' * 170 + ' ' + SECRET + '\\n')\nsys.stdout.flush()\n", WAIT),
        ("line['protocol'] = SECRET\n", SAY, WAIT),
        ("line['address'] = SECRET\n", SAY, WAIT),
        ("sys.stderr.write('x' * 4070 + ' ' + SECRET + '\\n')\nsys.exit(3)\n",),
    ],
    ids=["cut line", "protocol", "address", "cut last words"],
)
@pytest.mark.parametrize("name", ["BERTH_PLUGIN_COOKIE", "BERTH_PLUGIN_CREDENTIAL"])
async def test_no_part_of_a_secret_is_in_the_error_of_a_child(
    lines: tuple[str, ...], name: str, tmp_path: Path
) -> None:
    said = f"SECRET = os.environ['{name}']\nopen({str(tmp_path / 's')!r}, 'w').write(SECRET)\n"
    with pytest.raises(ChildError) as caught:
        await Child.launch(python(said, *lines), "demo")
    assert (tmp_path / "s").read_text()[:8] not in str(caught.value)


async def test_silent_child_is_ended_after_its_time() -> None:
    with pytest.raises(ChildError, match=r"wrote nothing within 0.3 s"):
        await Child.launch(python(WAIT), "demo", handshake_s=0.3)


async def test_endpoint_of_a_child_is_absolute_where_the_folder_of_temporary_files_is_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", ".")
    async with launched(SAY, WAIT) as child:
        assert child.address.startswith(f"unix://{tmp_path}/berth-")


async def test_child_is_not_started_where_its_endpoint_would_be_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with pytest.raises(ChildError, match=r"a socket's at most 107; .*: set TMPDIR to another folder"):
        await Child.launch(python(SAY, WAIT), "demo")
    assert list(long.iterdir()) == []


async def test_program_that_does_not_exist_is_named() -> None:
    with pytest.raises(ChildError, match=r"demo cannot be started: No such file"):
        await Child.launch(["/no/such/program"], "demo")


async def test_flood_on_both_pipes_stops_neither_child_nor_host() -> None:
    flood = "for i in range(20000):\n    print('out', i)\n    print('err', i, file=sys.stderr)\n"
    async with launched(SAY, flood, "sys.exit(0)\n") as child:
        async with asyncio.timeout(PATIENCE_S):
            assert await child.ended() == "exited with code 0: err 19999"
        assert child.output.dropped > 10_000


def stream_of(*chunks: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    for chunk in chunks:
        reader.feed_data(chunk)
    reader.feed_eof()
    return reader


async def lines_of(*chunks: bytes) -> list[bytes]:
    lines: list[bytes] = []
    await read_lines(stream_of(*chunks), lines.append)
    return lines


async def test_lines_are_split_wherever_the_chunks_end() -> None:
    assert await lines_of(b"one\ntw", b"o\n", b"three") == [b"one", b"two", b"three"]


async def test_line_without_an_end_comes_in_pieces() -> None:
    pieces = await lines_of(b"x" * (3 * MAX_LINE_BYTES + 5))
    assert [len(piece) for piece in pieces] == [MAX_LINE_BYTES] * 3 + [5]


async def test_discarded_output_is_read_to_its_end() -> None:
    reader = stream_of(b"x" * 1_000_000)
    await throw_away(reader)
    assert reader.at_eof()


def test_only_the_last_lines_are_kept() -> None:
    log = OutputLog("Demo", clock=lambda: 0.0, later=Timer().later)
    for i in range(KEPT_LINES + 50):
        log.add(str(i).encode())
    assert len(log.lines) == KEPT_LINES
    assert log.last == str(KEPT_LINES + 49)


class Timer:
    """Seconds that pass when the test says so, and one call that is due at some of them."""

    def __init__(self) -> None:
        self.now_s = 10.0
        self.due: list[tuple[float, Callable[[], None]]] = []

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        self.due.append((self.now_s + delay_s, call))

    def pass_to(self, now_s: float) -> None:
        self.now_s = now_s
        for at_s, call in [one for one in self.due if one[0] <= now_s]:
            self.due.remove((at_s, call))
            call()


def flooded(timer: Timer, count: int) -> OutputLog:
    log = OutputLog("Demo", clock=lambda: timer.now_s, later=timer.later)
    for i in range(count):
        log.add(str(i).encode())
    return log


def left_out(written: list[MutableMapping[str, Any]]) -> list[int]:
    return [entry["lines"] for entry in written if entry["event"] == "plugin.log_dropped"]


def test_host_log_gets_so_many_lines_a_second_and_a_count_of_the_rest() -> None:
    timer = Timer()
    with structlog.testing.capture_logs() as written:
        log = flooded(timer, LINES_PER_S + 30)
        timer.now_s = 11.5
        log.add(b"later")
    passed = [entry for entry in written if entry["event"] == "plugin.logged"]
    assert len(passed) == LINES_PER_S + 1
    assert left_out(written) == [30]
    assert log.dropped == 30


def test_dropped_lines_of_a_flood_are_reported_without_a_further_line() -> None:
    timer = Timer()
    with structlog.testing.capture_logs() as written:
        flooded(timer, LINES_PER_S + 30)
        assert left_out(written) == []
        timer.pass_to(11.0)
        assert left_out(written) == [30]
        timer.pass_to(20.0)
    assert left_out(written) == [30]


async def test_dropped_lines_of_a_flood_are_reported_when_the_child_ends() -> None:
    timer = Timer()
    log = OutputLog("Demo", clock=lambda: timer.now_s, later=timer.later)
    with structlog.testing.capture_logs() as written:
        await log.follow(stream_of(b"line\n" * (LINES_PER_S + 7)))
    assert left_out(written) == [7]


RECORD = {"timestamp": "2026-01-01T00:00:00+0000", "level": "error", "logger": "berth_sdk.serve.server"}
TRACEBACK = "Traceback (most recent call last):\n  File \"demo.py\", line 3, in filter\nKeyError: 'x'"


def test_record_of_berth_sdks_log_becomes_lines() -> None:
    log = OutputLog("Demo")
    with structlog.testing.capture_logs() as written:
        log.add(json.dumps(RECORD | {"event": "Demo.filter failed", "exception": TRACEBACK}).encode())
        log.add(b'{"level": "info", "message": "another\'s"}')
        log.add(b"{not json")
        log.add(b'{"a":' * 3000 + b"1" + b"}" * 3000)
        log.add(b"   ")
    lines = [entry["line"] for entry in written]
    assert lines.pop().startswith('{"a":{"a":')
    assert lines[:4] == ["Demo.filter failed", *TRACEBACK.splitlines()]
    assert lines[4:] == ['{"level": "info", "message": "another\'s"}', "{not json"]
    assert [entry.get("plugin_level") for entry in written] == ["error"] * 4 + [None] * 3


def test_traceback_comes_whole_or_is_left_out_whole() -> None:
    timer = Timer()
    with structlog.testing.capture_logs() as written:
        log = flooded(timer, LINES_PER_S - 1)
        log.add(json.dumps(RECORD | {"event": "Demo.filter failed", "exception": TRACEBACK}).encode())
        timer.pass_to(11.0)
    assert len(written) == LINES_PER_S - 1 + 1
    assert left_out(written) == [4]


def test_reason_of_an_end_is_no_info_line_of_berth_sdk() -> None:
    log = OutputLog("Demo")
    log.add(json.dumps(RECORD | {"event": "Demo.filter failed", "exception": TRACEBACK}).encode())
    assert log.last == "Demo.filter failed: KeyError: 'x'"
    log.add(json.dumps(RECORD | {"level": "info", "event": "configured: Demo"}).encode())
    assert log.last == "Demo.filter failed: KeyError: 'x'"
    log.add(b"no price list")
    assert log.last == "no price list"


def test_control_characters_of_a_line_are_replaced() -> None:
    log = OutputLog("Demo", clock=lambda: 0.0, later=Timer().later)
    record = {
        "timestamp": "t",
        "level": "error",
        "logger": "l",
        "event": "\x1b[2Jbroke",
        "exception": "\x07E",
    }
    with structlog.testing.capture_logs() as told:
        log.add(b"\x1b[2J\x1b]0;title\x07in order")
        log.add(json.dumps(record).encode())
    assert [line["line"] for line in told] == ["?[2J?]0;title?in order", "?[2Jbroke", "?E"]
