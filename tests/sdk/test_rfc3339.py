"""RFC 3339 times of Kubernetes objects: read and written as Go does."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from berth_sdk.rfc3339 import format_micro_time, format_time, parse_time, parse_time_ns
from hypothesis import given
from hypothesis import strategies as st
from support.places import ROOT

MOMENTS_US = st.integers(0, 4_102_444_800_000_000)


@pytest.mark.parametrize(
    ("text", "unix_s"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("2026-01-01T00:00:00Z", 1_767_225_600.0),
        ("2026-01-01T02:30:00+02:30", 1_767_225_600.0),
        ("2025-12-31T16:00:00-08:00", 1_767_225_600.0),
        ("2026-01-01T00:00:00.25Z", 1_767_225_600.25),
        pytest.param("2026-01-01T00:00:00,25Z", 1_767_225_600.25, id="Go reads a comma"),
        pytest.param("2026-01-01T0:00:00Z", 1_767_225_600.0, id="Go reads an hour of one digit"),
        pytest.param("2026-01-01T00:00:00+24:60", 1_767_225_600.0 - 90_000, id="Go's largest zone"),
    ],
)
def test_time_is_read_as_go_reads_it(text: str, unix_s: float) -> None:
    assert parse_time(text) == unix_s


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("2026-01-01T00:00:00", id="no zone"),
        pytest.param("2026-01-01T00:00:00.000000", id="no zone after a fraction"),
        pytest.param("2026-01-01", id="no time of day"),
        pytest.param("2026-01-01 00:00:00Z", id="a space for the T"),
        pytest.param("2026-01-01t00:00:00z", id="small letters"),
        pytest.param("2026-01-01T00:00Z", id="no seconds"),
        pytest.param("20260101T000000Z", id="ISO 8601's short form"),
        pytest.param("2026-W01-4T00:00:00Z", id="ISO 8601's weeks"),
        pytest.param("2026-01-01T00:00:00+0100", id="a zone without a colon"),
        pytest.param("2026-01-01T00:00:00+25:00", id="a zone of more than a day"),
        pytest.param("2026-02-29T00:00:00Z", id="no such day"),
        pytest.param("2026-01-01T24:00:00Z", id="no such hour"),
        pytest.param("2026-01-01T00:00:60Z", id="a leap second"),
        pytest.param("２０２６-01-01T00:00:00Z", id="digits of another script"),
        pytest.param("2026-01-01T00:00:00Z\n", id="a line end"),
        "",
        None,
        1_767_225_600,
        ["2026-01-01T00:00:00Z"],
    ],
)
def test_what_go_refuses_is_refused(text: object) -> None:
    with pytest.raises(ValueError):
        parse_time(text)


@given(MOMENTS_US, st.integers(-1439, 1439))
def test_reader_agrees_with_the_standard_library_in_every_zone(moment_us: int, zone_minutes: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment_us)
    sign, size = ("-", -zone_minutes) if zone_minutes < 0 else ("+", zone_minutes)
    local = moment + timedelta(minutes=zone_minutes)
    text = f"{local:%Y-%m-%dT%H:%M:%S.%f}{sign}{size // 60:02d}:{size % 60:02d}"
    assert parse_time_ns(text) == (moment_us * 1000, zone_minutes * 60)
    assert parse_time(text) == moment.timestamp()


@given(MOMENTS_US)
def test_what_is_written_is_read_back(moment_us: int) -> None:
    moment_s = moment_us / 1_000_000
    assert parse_time(format_micro_time(moment_s)) == moment_s
    assert parse_time(format_time(moment_s)) == moment_us // 1_000_000


@pytest.mark.parametrize(
    ("moment_s", "whole", "micro"),
    [
        (0.0, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000Z"),
        (1_767_225_600.5, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.500000Z"),
        (0.999_999_9, "1970-01-01T00:00:00Z", "1970-01-01T00:00:01.000000Z"),
        (-0.5, "1969-12-31T23:59:59Z", "1969-12-31T23:59:59.500000Z"),
    ],
)
def test_times_are_written_as_kubernetes_objects_have_them(moment_s: float, whole: str, micro: str) -> None:
    assert (format_time(moment_s), format_micro_time(moment_s)) == (whole, micro)


def test_machine_s_own_zone_changes_nothing() -> None:
    code = (
        "from berth_sdk.rfc3339 import *\n"
        "print(format_time(0), format_micro_time(0), parse_time('1970-01-01T05:45:00+05:45'))"
    )
    child = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TZ": "Asia/Kathmandu"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert child.stdout.split() == ["1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000Z", "0.0"]


def test_nothing_else_reads_or_writes_such_times() -> None:
    """`fromisoformat` takes a time without a zone for local time; `%SZ` is a second writer."""
    # A certificate's times are ASN.1; CEL's `format.date` is a day; the others write for people, or to CEL.
    own = {
        "sdk/berth_sdk/rfc3339.py",
        "sdk/berth_sdk/wire/peer_certificate.py",
        "plugins/berth_plugins/cel/functions/formats.py",
        "plugins/berth_plugins/cel/values.py",
    }
    found = {
        f"{path}: line {node.lineno}"
        for top in ("host", "sdk", "plugins", "bench")
        for file in (ROOT / top).rglob("*.py")
        if (path := str(file.relative_to(ROOT))) not in own
        and any(part in (text := file.read_text(encoding="utf-8")) for part in ("isoformat", "%H", "%d"))
        for node in ast.walk(ast.parse(text))
        if (isinstance(node, ast.Attribute) and node.attr in ("fromisoformat", "isoformat"))
        or (isinstance(node, ast.Constant) and isinstance(node.value, str) and "%dT%H:%M:%S" in node.value)
    }
    assert found == set()
