"""StreamService: the calls of the scheduling cycle on a stream that stays open.

The handler of `SchedulingService` executes each call, on the one thread of the stream. An error that ends a
call ends the stream too. Source: the contract's stream.proto.
"""

# ruff: noqa: N802  (the methods have the contract's names)

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NoReturn

import grpc

from berth_sdk.serve.carriers import Answer, Carrier, Carriers, carried
from berth_sdk.serve.instance import Instance


class StreamServicer:
    """`calls`: by number (`wire.stream.NUMBERS`)."""

    def __init__(self, instance: Instance, calls: Mapping[int, Answer], streams: Carriers) -> None:
        self.instance = instance
        self._calls = calls
        self._streams = streams

    def StreamCalls(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Answer one request after the other, until the host ends it or the server stops."""
        stream = Stream(context)
        self._streams.add(stream)
        try:
            for raw in requests:
                if not self._streams.take_up(stream):
                    context.abort(grpc.StatusCode.UNAVAILABLE, "the server stops")
                yield carried(self._calls, raw, stream)
                if not self._streams.lay_down(stream):
                    return
        finally:
            self._streams.discard(stream)


class Stream(Carrier):
    """A stream as the context of the call that it carries now."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        super().__init__()
        self._context = context
        context.add_callback(self.given_up)

    def is_active(self) -> bool:
        """Whether a caller waits for the answer."""
        return bool(self._context.is_active())

    def abort(self, code: grpc.StatusCode, text: str) -> NoReturn:
        """End the call, and the stream, with an error."""
        self._context.abort(code, text)
        raise AssertionError("abort raises")

    def cancel(self) -> None:
        """End the stream."""
        self._context.cancel()
