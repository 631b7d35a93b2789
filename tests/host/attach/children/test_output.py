"""A child's output: the last lines are kept, the log is bounded, and a flood of lines blocks nothing."""

from __future__ import annotations

import asyncio

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
    log = OutputLog("Demo", clock=lambda: 0.0)
    for i in range(KEPT_LINES + 50):
        log.add(str(i).encode())
    assert len(log.lines) == KEPT_LINES
    assert log.last == str(KEPT_LINES + 49)


def test_host_log_gets_so_many_lines_a_second_and_a_count_of_the_rest() -> None:
    now_s = 10.0
    log = OutputLog("Demo", clock=lambda: now_s)
    with structlog.testing.capture_logs() as written:
        for i in range(LINES_PER_S + 30):
            log.add(str(i).encode())
        now_s = 11.5
        log.add(b"later")
    passed = [entry for entry in written if entry["event"] == "plugin.logged"]
    assert len(passed) == LINES_PER_S + 1
    (dropped,) = (entry for entry in written if entry["event"] == "plugin.log_dropped")
    assert dropped["lines"] == 30
    assert log.dropped == 30


def test_line_of_json_is_passed_on_as_a_record() -> None:
    log = OutputLog("Demo")
    with structlog.testing.capture_logs() as written:
        log.add(b'{"level": "info", "message": "up"}')
        log.add(b"{not json")
        log.add(b"   ")
    assert [entry.get("record", entry.get("line")) for entry in written] == [
        {"level": "info", "message": "up"},
        "{not json",
    ]
