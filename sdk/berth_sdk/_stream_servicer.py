"""StreamService: the calls of the scheduling cycle on a stream that stays open.

Each call is put to `SchedulingService`'s own handler, on the one thread of its stream. What ends a call
with an error ends the stream with it. Source: the contract's stream.proto.
"""

# ruff: noqa: N802  (the methods have the contract's names)

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NoReturn, TypeAlias

import grpc

from berth_sdk._instance import Instance
from berth_sdk._wire_stream import unwrap_request, wrap

Answer: TypeAlias = Callable[[bytes, Any], bytes]
"""(request, context) -> answer, both serialised."""
_INVALID: Final = grpc.StatusCode.INVALID_ARGUMENT


class StreamServicer:
    """`calls`: by number (`_wire_stream.NUMBERS`)."""

    def __init__(self, instance: Instance, calls: Mapping[int, Answer], streams: OpenStreams) -> None:
        self.instance = instance
        self._calls = calls
        self._streams = streams

    def StreamCalls(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Answer one request after the other, until the host ends it or the server stops."""
        stream = _Stream(context)
        self._streams.add(stream)
        try:
            for raw in requests:
                if not self._streams.take_up(stream):
                    context.abort(grpc.StatusCode.UNAVAILABLE, "the server stops")
                yield self._answer(raw, stream)
                if not self._streams.lay_down(stream):
                    return
        finally:
            self._streams.discard(stream)

    def _answer(self, raw: bytes, stream: _Stream) -> bytes:
        try:
            number, request = unwrap_request(raw)
        except ValueError as err:
            stream.abort(_INVALID, f"the stream carries what is no call: {err}")
        answer = self._calls.get(number)
        if answer is None:
            stream.abort(_INVALID, f"call {number} is not served on a stream")
        return wrap(number, answer(request, stream))


class OpenStreams:
    """The streams of a server, which must not hold up its end. open -stop-> stopping"""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[_Stream] = set()
        self._stopping = False

    def stop(self) -> None:
        """End the streams: those between two calls now, the others with their answer."""
        with self._lock:
            self._stopping = True
            idle = [stream for stream in self._open if not stream.busy]
        for stream in idle:
            stream.cancel()

    def add(self, stream: _Stream) -> None:
        """A stream begins, between two calls."""
        with self._lock:
            self._open.add(stream)
            late = self._stopping
        if late:
            stream.cancel()

    def discard(self, stream: _Stream) -> None:
        """A stream has ended."""
        with self._lock:
            self._open.discard(stream)

    def take_up(self, stream: _Stream) -> bool:
        """A call begins; False: it may not."""
        with self._lock:
            stream.begin()
            stream.busy = not self._stopping
            return stream.busy

    def lay_down(self, stream: _Stream) -> bool:
        """The call's answer was taken; False: there will be no more."""
        with self._lock:
            stream.busy = False
            return not self._stopping


class _Stream:
    """A stream as the context of the call that it carries now: what the servicers use of one."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        self.busy = False
        self._context = context
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        context.add_callback(self._over)

    def begin(self) -> None:
        """Another call: nobody waits for the end of the last one any more."""
        if self._callbacks:
            with self._lock:
                self._callbacks.clear()

    def is_active(self) -> bool:
        """Whether somebody waits for the answer."""
        return bool(self._context.is_active())

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Call back when the stream ends while this call is open; False if it has ended."""
        with self._lock:
            self._callbacks.append(callback)
        return self.is_active()

    def abort(self, code: grpc.StatusCode, text: str) -> NoReturn:
        """End the call, and the stream, with an error."""
        self._context.abort(code, text)
        raise AssertionError("abort raises")

    def cancel(self) -> None:
        """End the stream."""
        self._context.cancel()

    def _over(self) -> None:
        with self._lock:
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback()
