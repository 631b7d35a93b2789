"""Frames, cut anywhere, come out as they went in; bad bytes are refused as soon as they show."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from berth_sdk.wire.frames import (
    CALLS,
    Frame,
    FrameError,
    Incoming,
    Kind,
    TooLongError,
    failure_frame,
    framed_path,
    read_failure,
)
from hypothesis import given
from hypothesis import strategies as st

LIMIT = 64
HEADER = struct.Struct(">IBB")
KINDS = st.sampled_from(Kind)
FRAMES = st.lists(st.builds(Frame, KINDS, st.integers(0, 255), st.binary(max_size=LIMIT)), max_size=6)
CUTS = st.lists(st.integers(0, 7 * (LIMIT + HEADER.size)), max_size=12)


def written(frame: Frame) -> bytes:
    """Return the bytes of a frame of any kind."""
    return HEADER.pack(len(frame.payload), frame.kind, frame.call) + frame.payload


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """`data`, cut at these places; reading never gives nothing."""
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    return [data[start:end] for start, end in pairwise(places)]


@given(FRAMES, CUTS)
def test_frames_come_out_as_they_went_in(frames: list[Frame], cuts: list[int]) -> None:
    data = b"".join(map(written, frames))
    incoming = Incoming(LIMIT)
    found = [one for piece in pieces(data, cuts) for one in incoming.take(piece)]
    assert found == frames
    assert not incoming.has_begun


@given(FRAMES, st.binary(min_size=1, max_size=LIMIT), KINDS, st.data())
def test_part_of_a_frame_is_waited_for(
    frames: list[Frame], payload: bytes, kind: Kind, data: st.DataObject
) -> None:
    last = written(Frame(kind, 1, payload))
    part = last[: data.draw(st.integers(1, len(last) - 1))]
    incoming = Incoming(LIMIT)
    whole = b"".join(map(written, frames))
    assert incoming.take(whole + part) == frames
    assert incoming.has_begun
    assert incoming.take(last[len(part) :]) == [(kind, 1, payload)]
    assert not incoming.has_begun


@given(st.binary(), CUTS)
def test_bytes_of_any_kind_are_frames_or_refused(data: bytes, cuts: list[int]) -> None:
    incoming = Incoming(LIMIT)
    kept = b""
    try:
        for piece in pieces(data, cuts):
            for found in incoming.take(piece):
                assert len(found.payload) <= LIMIT
                kept += written(found)
    except FrameError:
        length, kind_number, _ = HEADER.unpack_from(data, len(kept))
        assert length > LIMIT or kind_number not in set(Kind)
    else:
        assert data.startswith(kept)
        assert incoming.has_begun == (len(kept) < len(data))


@given(st.integers(LIMIT + 1, 2**32 - 1), KINDS)
def test_length_over_the_limit_is_refused_before_it_is_read(length: int, kind: Kind) -> None:
    with pytest.raises(TooLongError) as caught:
        Incoming(LIMIT).take(HEADER.pack(length, kind, 1))
    assert (caught.value.length, caught.value.limit) == (length, LIMIT)


@given(st.integers(0, 2**32 - 1), st.text())
def test_failure_is_read_as_it_was_written(code: int, text: str) -> None:
    ((kind, call, payload),) = Incoming(2**20).take(failure_frame(3, code, text))
    assert (kind, call) == (Kind.FAILURE, 3)
    assert read_failure(payload) == (code, text)


def test_text_of_a_failure_is_cut_to_8_kib() -> None:
    ((_, _, payload),) = Incoming(2**20).take(failure_frame(1, 2, "ä" * 10_000))
    code, text = read_failure(payload)
    assert (code, len(text)) == (2, 4096)


def test_failure_without_a_code_is_refused() -> None:
    with pytest.raises(FrameError, match="without a code"):
        read_failure(b"abc")


def test_framed_socket_has_a_suffix() -> None:
    assert framed_path(Path("/run/a.sock")) == Path("/run/a.sock.framed")


def test_calls_in_frames_are_those_of_the_scheduling_cycle_that_run_one_at_a_time() -> None:
    service: Any = spb.DESCRIPTOR.services_by_name["SchedulingService"]
    names = [method.name for method in service.methods]
    of_groups = names[names.index("PlacementGenerate") : names.index("PostBind")]
    cycle = names[: names.index("PreBindPreFlight")] + of_groups
    # During PostFilter and PodGroupPostFilter other calls come; Unreserve is not of a cycle that goes on.
    apart = {"PostFilter", "PodGroupPostFilter", "Unreserve"}
    assert sorted(set(cycle) - apart) == sorted(CALLS)
