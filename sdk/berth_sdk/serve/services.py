"""The calls of a plugin process, for the transports that carry them: gRPC's server, and frames.

They stand in place of gRPC's generated registration: they encode an answer once, and check its size before it
is sent. `PluginServer` carries them over sockets. A life carries the same calls over a simulated link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from berth_sdk.serve.calls import CallRefusedError
from berth_sdk.serve.framed_requests import Answer
from berth_sdk.serve.instance import Instance
from berth_sdk.serve.lanes import CallCancelledError, LaneFullError
from berth_sdk.serve.optional_services import IDENTITY, QUEUE, SCHEDULING, STATE
from berth_sdk.serve.scheduling_servicer import SchedulingServicer
from berth_sdk.serve.servicers import IdentityServicer, QueueServicer, StateServicer
from berth_sdk.serve.tracing import CallTraces
from berth_sdk.wire.call_names import disagreement_of
from berth_sdk.wire.frames import NUMBERS

_Method: TypeAlias = Callable[[Any, grpc.ServicerContext], Any]


class Servicer(Protocol):
    """A servicer of this package."""

    instance: Instance


class _Traced:
    """A service with a span around each traced call."""

    def __init__(self, service: Any, servicer: Servicer, traces: CallTraces) -> None:
        self.instance = servicer.instance
        for method in service.methods:
            answer = traces.traced(getattr(servicer, method.name), f"{service.full_name}/{method.name}")
            setattr(self, method.name, answer)


def handlers_of(service: Any, servicer: Servicer) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
    """Return the handler of every method of a service's descriptor, by the method's name."""
    return {method.name: _handler(method, servicer) for method in service.methods}


def framed_calls(service: Any, servicer: Servicer) -> dict[int, Answer]:
    """Return the handlers of the calls that may come in frames, by their numbers in frames."""
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
    named = _named_streams if method.client_streaming else _named
    return make(
        _answered(named(getattr(servicer, method.name), request_type), servicer.instance),
        request_deserializer=request_type.FromString,
        response_serializer=None,
    )


def _named(method: _Method, request_type: Any) -> _Method:
    """Return the method with a check of the call's metadata before it; see `wire.call_names`."""
    disagreement = disagreement_of(request_type)

    def call(request: Any, context: grpc.ServicerContext) -> Any:
        if why := disagreement(request, context.invocation_metadata()):
            raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, why)
        return method(request, context)

    return call


def _named_streams(method: _Method, request_type: Any) -> _Method:
    """Return the method with a check of each message of its stream against the call's metadata."""
    disagreement = disagreement_of(request_type)

    def checked(messages: Iterable[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        metadata = context.invocation_metadata()
        for message in messages:
            if why := disagreement(message, metadata):
                raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, why)
            yield message

    return lambda messages, context: method(checked(messages, context), context)


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
            finally:
                instance.endings.close_idle()
            return answer

    return call


class Services:
    """The calls of one instance.

    `handlers`: by service (`berth.plugin.v1.StateService`), then by method. `framed`: by their numbers in
    frames.
    """

    def __init__(self, instance: Instance, traces: CallTraces | None = None) -> None:
        """`traces`: makes a span for each traced call; None: no spans."""
        scheduling: Servicer = SchedulingServicer(instance)
        state: Servicer = StateServicer(instance)
        queue: Servicer = QueueServicer(instance)
        if traces is not None:
            scheduling, state, queue = (
                _Traced(service, servicer, traces)
                for service, servicer in ((SCHEDULING, scheduling), (STATE, state), (QUEUE, queue))
            )
        served = (
            (SCHEDULING, scheduling),
            (STATE, state),
            (QUEUE, queue),
            (IDENTITY, IdentityServicer(instance)),
        )
        self.handlers = {service.full_name: handlers_of(service, servicer) for service, servicer in served}
        self.framed = framed_calls(SCHEDULING, scheduling)

    def register(self, server: grpc.Server) -> None:
        """Serve every call."""
        for name, handlers in self.handlers.items():
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
            # Registered by their whole paths too, so that gRPC need not search the services one after the
            # other.
            server.add_registered_method_handlers(name, handlers)
