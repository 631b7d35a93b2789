"""A servicer -> gRPC handlers that count calls, turn refusals into gRPC codes and check an answer's size.

It takes the place of the generated registration, so that an answer is encoded once and its size is known
before it is sent. Called by `server`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from berth_sdk.serve.calls import CallRefusedError
from berth_sdk.serve.frames import Answer
from berth_sdk.serve.instance import Instance
from berth_sdk.serve.lanes import CallCancelledError, LaneFullError
from berth_sdk.wire.frames import NUMBERS


class Servicer(Protocol):
    """One of our servicers."""

    instance: Instance


def register(server: grpc.Server, service: Any, servicer: Servicer) -> None:
    """Serve every method of a service's descriptor."""
    handlers = {method.name: _handler(method, servicer) for method in service.methods}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))
    # Known by their whole paths as well, methods are found without asking one service after the other.
    server.add_registered_method_handlers(service.full_name, handlers)


def handlers_of(service: Any, servicer: Servicer) -> grpc.GenericRpcHandler:
    """Handlers for every method of a service's descriptor, without a server."""
    return grpc.method_handlers_generic_handler(
        service.full_name, {method.name: _handler(method, servicer) for method in service.methods}
    )


def framed_calls(service: Any, servicer: Servicer) -> dict[int, Answer]:
    """Return the handlers of the calls that may travel in frames, by their numbers there."""
    return {
        NUMBERS[method.name]: _in_frame(method, servicer)
        for method in service.methods
        if method.name in NUMBERS
    }


def _in_frame(method: Any, servicer: Servicer) -> Answer:
    answer = _answered(getattr(servicer, method.name), servicer.instance)
    parse = GetMessageClass(method.input_type).FromString

    def call(raw: bytes, context: Any) -> bytes:
        try:
            request = parse(raw)
        except DecodeError as err:
            context.abort(grpc.StatusCode.INTERNAL, f"the request cannot be read ({err})")
        return answer(request, context)

    return call


def _handler(method: Any, servicer: Servicer) -> grpc.RpcMethodHandler[Any, Any]:
    make = (
        grpc.stream_unary_rpc_method_handler
        if method.client_streaming
        else grpc.unary_unary_rpc_method_handler
    )
    request_type = GetMessageClass(method.input_type)
    return make(
        _answered(getattr(servicer, method.name), servicer.instance),
        request_deserializer=request_type.FromString,
        response_serializer=None,
    )


def _answered(
    method: Callable[[Any, grpc.ServicerContext], Any], instance: Instance
) -> Callable[[Any, grpc.ServicerContext], bytes]:
    def call(request: Any, context: grpc.ServicerContext) -> bytes:
        with instance.in_flight:
            try:
                answer: bytes = method(request, context).SerializeToString()
                instance.check_size(answer)
            except CallRefusedError as err:
                context.abort(err.code, err.text)
            except CallCancelledError:
                context.abort(grpc.StatusCode.CANCELLED, "the call was cancelled")
            except LaneFullError:
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls of binding cycles are open")
            return answer

    return call
