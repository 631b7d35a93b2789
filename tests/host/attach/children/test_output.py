"""A child's output: the last lines are kept, the log is bounded, and a flood of lines blocks nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, MutableMapping
from typing import Any

import structlog
from berth_host.attach.children.output import (
    KEPT_LINES,
    LINES_PER_S,
    MAX_LINE_BYTES,
    OutputLog,
    read_lines,
    throw_away,
)


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
        log.add(b"   ")
    lines = [entry["line"] for entry in written]
    assert lines[:4] == ["Demo.filter failed", *TRACEBACK.splitlines()]
    assert lines[4:] == ['{"level": "info", "message": "another\'s"}', "{not json"]
    assert [entry.get("plugin_level") for entry in written] == ["error"] * 4 + [None] * 2


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
