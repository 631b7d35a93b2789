"""gRPC handlers that refuse bytes which are no request, instead of failing over them.

gRPC's own registration answers them with UNKNOWN and writes a traceback for each, which a caller could fill
the log with. Called by `HandleServer` and `QueryServer`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass


def register(server: grpc.aio.Server, service: Any, answers: Mapping[str, Callable[..., Any]]) -> None:
    """Serve every method of a service's descriptor. The requests of each come one at a time.

    `answers`: by method, a coroutine function, or an async generator function where the reply is a stream.
    """
    handlers = {method.name: _handler(method, answers[method.name]) for method in service.methods}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))


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
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request is no message of this call")
