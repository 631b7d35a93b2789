"""The calls on one framed connection, as bytes: which request has arrived, and the answer to a request.

`serve.frames` carries the bytes over a socket. Source: docs/reference/framed-transport.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, TypeAlias

import grpc

from berth_sdk.serve.calls import LOG
from berth_sdk.wire.frames import Frame, FrameError, Incoming, Kind, call_frame, failure_frame

Answer: TypeAlias = Callable[[bytes, Any], bytes]
"""(request, context) -> answer, both serialised. The context ends a call with `aborted`."""
_NUMBERS: Final = {code: code.value[0] for code in grpc.StatusCode}


class AbortedError(Exception):
    """The error with which a call ends. Attributes: code, text."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        self.code = code
        self.text = text
        super().__init__(text)


def aborted(code: grpc.StatusCode, text: str) -> NoReturn:
    """End the call with an error, as `ServicerContext.abort` does. Raises AbortedError."""
    raise AbortedError(code, text)


def next_request(incoming: Incoming, data: bytes) -> Frame | None:
    """Return the request that `data` completes; None if more has to come. Raises FrameError.

    `data`: what arrived; empty at the end of the connection, which may not be in the middle of a frame.
    """
    if not data:
        if incoming.has_begun:
            raise FrameError("it was closed in the middle of a frame")
        return None
    frames = incoming.take(data)
    if not frames:
        return None
    request = frames[0]
    if request.kind is not Kind.CALL:
        raise FrameError(f"a frame of the kind {request.kind.name} where a call was due")
    if len(frames) > 1 or incoming.has_begun:
        raise FrameError("a second call before the answer to the first")
    return request


def reply_to(calls: Mapping[int, Answer], request: Frame, context: Any) -> bytes:
    """Pass a request to its handler; return the frame of the answer, or of the failure."""
    call = request.call
    handler = calls.get(call)
    try:
        if handler is None:
            aborted(grpc.StatusCode.INVALID_ARGUMENT, f"call {call} is not served in frames")
        return call_frame(call, handler(request.payload, context))
    except AbortedError as err:
        return failure_frame(call, _NUMBERS[err.code], err.text)
    except Exception as err:  # noqa: BLE001 (as gRPC does for a unary call; the next one must be served)
        LOG.exception("a call failed")
        text = f"Exception calling application: {err}"
        return failure_frame(call, _NUMBERS[grpc.StatusCode.UNKNOWN], text)
