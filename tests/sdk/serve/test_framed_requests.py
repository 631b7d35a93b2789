"""The calls on a framed connection, as bytes."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from berth_sdk.serve.framed_requests import aborted, next_request, reply_to
from berth_sdk.wire.frames import (
    CLOSING_FRAME,
    Frame,
    FrameError,
    Incoming,
    Kind,
    call_frame,
    failure_frame,
)

PERMIT = 8


def answered(raw: bytes, context: Any) -> bytes:
    return raw.upper()


def refused(raw: bytes, context: Any) -> bytes:
    aborted(grpc.StatusCode.PERMISSION_DENIED, "not here")


def broken(raw: bytes, context: Any) -> bytes:
    raise ValueError("a bug")


def test_request_comes_in_pieces() -> None:
    incoming, frame = Incoming(100), call_frame(PERMIT, b"request")
    pieces = [frame[:3], frame[3:7], frame[7:]]
    assert [next_request(incoming, piece) for piece in pieces] == [
        None,
        None,
        (Kind.CALL, PERMIT, b"request"),
    ]
    assert next_request(incoming, b"") is None


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        (CLOSING_FRAME, "the kind CLOSING"),
        (2 * call_frame(PERMIT, b"twice"), "a second call"),
        (call_frame(PERMIT, b"one") + b"\0", "a second call"),
    ],
)
def test_what_a_host_may_not_send_ends_the_connection(data: bytes, wrong: str) -> None:
    with pytest.raises(FrameError, match=wrong):
        next_request(Incoming(100), data)


def test_end_in_the_middle_of_a_frame_is_an_error() -> None:
    incoming = Incoming(100)
    next_request(incoming, b"\0")
    with pytest.raises(FrameError, match="in the middle"):
        next_request(incoming, b"")


@pytest.mark.parametrize(
    ("calls", "reply"),
    [
        ({PERMIT: answered}, call_frame(PERMIT, b"ASK")),
        ({PERMIT: refused}, failure_frame(PERMIT, 7, "not here")),
        ({PERMIT: broken}, failure_frame(PERMIT, 2, "Exception calling application: a bug")),
        ({}, failure_frame(PERMIT, 3, f"call {PERMIT} is not served in frames")),
    ],
)
def test_reply_is_the_answer_or_a_failure(calls: dict[int, Any], reply: bytes) -> None:
    assert reply_to(calls, Frame(Kind.CALL, PERMIT, b"ask"), None) == reply
