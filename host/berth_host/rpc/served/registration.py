"""gRPC handlers that refuse bytes which are no request, instead of failing over them.

gRPC's own registration answers them with UNKNOWN and writes a traceback for each, which a caller could fill
the log with.

    register          the request is read, then the call is answered: `HandleServer`
    register_streams  the call is answered, and reads its request when it wants to: `QueryServer`
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

Read: TypeAlias = Callable[[], Awaitable[Any]]
"""Reads the request of a call; aborts the call if there is none, or if the bytes are no request."""


@dataclass(frozen=True, slots=True)
class RequestLimit:
    """The most bytes of a request. A longer one is dropped before it is parsed. `cure`: what the sender
    does.
    """

    most_bytes: int
    cure: str


_NO_REQUEST: Final = "the request is no message of this call"


def register(server: grpc.aio.Server, service: Any, answers: Mapping[str, Callable[..., Any]]) -> None:
    """Serve every method of a service's descriptor. The requests of each come one at a time.

    `answers`: by method, a coroutine function, or an async generator function where the reply is a stream.
    """
    handlers = {method.name: _handler(method, answers[method.name]) for method in service.methods}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))


def register_streams(
    server: grpc.aio.Server,
    service: Any,
    answers: Mapping[str, Callable[[Read, Any], AsyncGenerator[Any, None]]],
    *,
    limits: Mapping[str, RequestLimit],
    stalled_s: float,
) -> None:
    """Serve every method of a service's descriptor, each with one request and a stream of replies.

    `answers`: by method, an async generator function of what reads the request, and of the context. gRPC
    takes no more bytes of the request than a window of HTTP/2 before it is read. `limits`: by method.
    `stalled_s`: the most seconds that a reply waits for its reader; then the generator is closed, and the
    call ends with DEADLINE_EXCEEDED.
    """
    handlers = {
        # On the wire one message is a stream of one.
        method.name: grpc.stream_stream_rpc_method_handler(
            _conversation(answers[method.name], stalled_s),
            request_deserializer=_limited(method, limits[method.name]),
            response_serializer=_written,
        )
        for method in service.methods
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))


def _conversation(
    answer: Callable[[Read, Any], AsyncGenerator[Any, None]], stalled_s: float
) -> Callable[..., Any]:
    async def call(_: Any, context: Any) -> None:
        async def read() -> Any:
            request = await context.read()
            if request is grpc.aio.EOF:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no request: send one")
            if isinstance(request, _TooLong):
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, request.problem)
            await _check(request, context)
            return request

        async with aclosing(answer(read, context)) as replies:
            async for reply in replies:
                if not await _is_taken(context, reply, stalled_s):
                    break
            else:
                return
        # After the generator is closed: the end of the call waits for the reader, too.
        await context.abort(
            grpc.StatusCode.DEADLINE_EXCEEDED,
            f"a message of the answer waited {stalled_s:g} s for the client, which reads too slowly: read the"
            " stream as it comes, and ask again",
        )

    return call


class _TooLong:
    """A request over its limit, without its bytes. `problem`: the text of the refusal."""

    def __init__(self, problem: str) -> None:
        self.problem = problem


def _limited(method: Any, limit: RequestLimit) -> Callable[[bytes], Any]:
    read = _reader(method.input_type)

    def read_or_refuse(raw: bytes) -> Any:
        if len(raw) <= limit.most_bytes:
            return read(raw)
        return _TooLong(
            f"the request has {len(raw)} bytes, and the limit of {method.name} is {limit.most_bytes}:"
            f" {limit.cure}"
        )

    return read_or_refuse


async def _is_taken(context: Any, reply: Any, stalled_s: float) -> bool:
    """Send a reply; return False if gRPC could not pass it on, as the client does not read."""
    sending = asyncio.ensure_future(context.write(reply))
    try:
        await asyncio.wait({sending}, timeout=stalled_s)
        if sending.done():
            await sending
            return True
        return False
    finally:
        if not sending.done():
            # gRPC goes on with the message, whatever happens here.
            sending.add_done_callback(_look_at)


def _look_at(sending: asyncio.Future[Any]) -> None:
    """Read the outcome, which nobody needs any more, so that it is not logged."""
    if not sending.cancelled():
        sending.exception()


def _handler(method: Any, answer: Callable[..., Any]) -> grpc.RpcMethodHandler[Any, Any]:
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(
            _many(answer), request_deserializer=_reader(method.input_type), response_serializer=_written
        )
    return grpc.unary_unary_rpc_method_handler(
        _one(answer), request_deserializer=_reader(method.input_type), response_serializer=_written
    )


def _reader(message_type: Any) -> Callable[[bytes], Any]:
    parse = GetMessageClass(message_type).FromString

    def read(raw: bytes) -> Any:
        try:
            return parse(raw)
        except DecodeError as err:
            return err  # here it could not be refused

    return read


def _written(reply: Any) -> bytes:
    return bytes(reply.SerializeToString())


def _one(answer: Callable[..., Any]) -> Callable[..., Any]:
    async def call(request: Any, context: Any) -> Any:
        await _check(request, context)
        return await answer(request, context)

    return call


def _many(answer: Callable[..., Any]) -> Callable[..., Any]:
    async def call(request: Any, context: Any) -> AsyncIterator[Any]:
        await _check(request, context)
        async with aclosing(answer(request, context)) as replies:
            async for reply in replies:
                yield reply

    return call


async def _check(request: Any, context: Any) -> None:
    if isinstance(request, DecodeError):
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, _NO_REQUEST)
