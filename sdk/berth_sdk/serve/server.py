"""Plugin classes -> a gRPC server that a host can attach to.

`berth-sdk serve` runs a `PluginServer`; tests and custom programs start it themselves:

    with PluginServer({"AvoidSpot": AvoidSpot}) as server:
        server.listen("unix:/run/berth/plugins/avoid-spot.sock")
        server.wait()

Each call has its own thread. `lanes` decides which calls run at the same time.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from berth_sdk.clocks import monotonic_s
from berth_sdk.errors import BerthError
from berth_sdk.serve.calls import CallRefusedError
from berth_sdk.serve.client_names import ClientNames
from berth_sdk.serve.frames import Answer, FramedServer
from berth_sdk.serve.instance import Instance
from berth_sdk.serve.lanes import CallCancelledError, LaneFullError
from berth_sdk.serve.optional_services import (
    IDENTITY,
    MISSING,
    QUEUE,
    SCHEDULING,
    STATE,
    add_optional_services,
)
from berth_sdk.serve.scheduling_servicer import SchedulingServicer
from berth_sdk.serve.servicers import IdentityServicer, QueueServicer, StateServicer
from berth_sdk.serve.socket_file import SocketFile, is_answered
from berth_sdk.serve.tls import TlsServing
from berth_sdk.serve.tracing import CallTraces
from berth_sdk.wire.addresses import host_and_port, is_loopback, socket_problem
from berth_sdk.wire.call_names import disagreement_of
from berth_sdk.wire.certificate import Certificate
from berth_sdk.wire.frames import NUMBERS, framed_path
from berth_sdk.wire.message_limit import FLAG, SERVER_BYTES, limit_problem, size_options
from berth_sdk.wire.peer_certificate import SERVER_LIMITS

LOG: Final = logging.getLogger("berth_sdk.serve.server")
DEFAULT_GRACE_S: Final = 5.0
LEAST_CLOSE_S: Final = 1.0
"""Seconds that the plugins have for `close`, at least, when calls have taken the whole grace."""
_THREADS: Final = 256
"""Threads are made when calls need them. Calls of the binding cycle get three quarters of them at most
(`served`).
"""
IDLE_MS: Final = 60_000
"""The time, in milliseconds, after which gRPC closes a connection without calls: when the port is full, gRPC
itself closes none. Hosts call every five seconds.
"""
_SOCKET_UMASK: Final = 0o007
_UNIX: Final = "unix://"


class ListenError(BerthError):
    """The error of an endpoint at which the server cannot listen, or of a limit. The text names the cure."""


class PluginServer:
    """A gRPC server of plugins. made -listen-> serving -stop-> stopped."""

    def __init__(
        self,
        classes: Mapping[str, type],
        credential: str = "",
        tls: TlsServing | None = None,
        *,
        max_message_bytes: int = SERVER_BYTES,
        traces: CallTraces | None = None,
    ) -> None:
        """Make the server of `classes`, given by plugin name.

        Raises PluginDefinitionError, TlsError, and ListenError for a limit that is too small or too large.
        `credential`: a secret that every host has to name; empty: any host that reaches the endpoint may
        attach. `tls`: mutual TLS, for a TCP endpoint; None: plaintext. `max_message_bytes`: the largest
        message that the server receives; the host is told, and may have a smaller limit. `traces`: makes a
        span for each traced call; None: no spans. The server closes it.
        """
        if problem := limit_problem(max_message_bytes):
            raise ListenError(f"max_message_bytes ({FLAG}) is {max_message_bytes}: {problem}")
        self._certificate = None if tls is None else Certificate(tls.files)
        self.instance = Instance(classes, credential, self._certificate, max_message_bytes)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="berth-call")
        self._server = grpc.server(
            self._threads,
            interceptors=None if tls is None else [ClientNames(tls.client_names)],
            options=[
                *size_options(max_message_bytes),
                ("grpc.so_reuseport", 0),
                *SERVER_LIMITS,
                ("grpc.max_connection_idle_ms", IDLE_MS),
            ],
        )
        scheduling: Servicer = SchedulingServicer(self.instance)
        state: Servicer = StateServicer(self.instance)
        queue: Servicer = QueueServicer(self.instance)
        self._traces = traces
        if traces is not None:
            scheduling, state, queue = (
                _Traced(service, servicer, traces)
                for service, servicer in ((SCHEDULING, scheduling), (STATE, state), (QUEUE, queue))
            )
        self.framed = FramedServer(framed_calls(SCHEDULING, scheduling), max_message_bytes)
        register(self._server, SCHEDULING, scheduling)
        register(self._server, STATE, state)
        register(self._server, QUEUE, queue)
        register(self._server, IDENTITY, IdentityServicer(self.instance))
        self._begin_stop: Callable[[], None] = _nothing
        self._file: SocketFile | None = None
        self._stopped = threading.Event()
        self._stop_lock = threading.Lock()

    def listen(self, endpoint: str) -> str:
        """Start to serve at `unix:PATH` or `HOST:PORT` (without TLS only loopback; port 0: any free port).

        Returns the address to dial. Raises ListenError.
        """
        address = _checked(endpoint, has_tls=self._certificate is not None)
        if address.startswith(_UNIX):
            self._file = _free_file(Path(address.removeprefix(_UNIX)), endpoint)
        try:
            self._begin_stop = add_optional_services(self._server)
        except ImportError:
            LOG.warning(MISSING)
        old_umask = os.umask(_SOCKET_UMASK)
        try:
            if self._file is None:
                port = self._add_tcp_port(address)
            else:
                port = self._server.add_insecure_port(f"{_UNIX}{self._file.private}")
                self._file.publish()
                self.instance.framed = self.framed.listen(framed_path(self._file.path))
        except (RuntimeError, OSError) as err:
            raise ListenError(f"cannot listen at {endpoint}: {err}; is the address free?") from err
        finally:
            os.umask(old_umask)
        self._server.start()
        return address if address.startswith(_UNIX) else f"{address.rpartition(':')[0]}:{port}"

    def _add_tcp_port(self, address: str) -> int:
        if self._certificate is None:
            return self._server.add_insecure_port(address)
        return self._server.add_secure_port(address, self._certificate.server_credentials())

    def wait(self) -> None:
        """Wait until the server has stopped."""
        self._stopped.wait()

    def stop(self, grace_s: float = DEFAULT_GRACE_S) -> bool:
        """Accept no new calls, wait for running calls, then close the plugins. Return False if some calls
        have not ended.

        `grace_s`: seconds for both, with LEAST_CLOSE_S for `close` at least.
        """
        with self._stop_lock:
            if not self._stopped.is_set():
                self._begin_stop()
                stopped = self._server.stop(grace_s)
                ends_s = monotonic_s() + grace_s
                self.framed.stop()
                if self._file is not None:
                    self._file.remove()
                stopped.wait()
                self.framed.wait(max(ends_s - monotonic_s(), 0.0))
                self.instance.stop(max(ends_s - monotonic_s(), LEAST_CLOSE_S))
                self._threads.shutdown(wait=False, cancel_futures=True)
                if self._traces is not None:
                    self._traces.close()
                self._stopped.set()
        return self.instance.in_flight.count == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _free_file(path: Path, endpoint: str) -> SocketFile:
    """Return the socket file for `path`.

    Raises ListenError if no socket can be there, another process listens there, or another file exists.
    """
    if problem := socket_problem(str(path)):
        raise ListenError(f"cannot listen at {endpoint}: {problem}")
    if not path.parent.is_dir():
        raise ListenError(f"cannot listen at {endpoint}: there is no folder {path.parent}; make it")
    if path.exists() and not path.is_socket():
        raise ListenError(f"cannot listen at {endpoint}: a file that is no socket is there; remove it")
    if is_answered(path):
        raise ListenError(
            f"cannot listen at {endpoint}: another process serves there; stop it, or listen at another path"
        )
    return SocketFile(path)


def _checked(endpoint: str, *, has_tls: bool) -> str:
    """Return the address for gRPC. Raises ListenError."""
    if endpoint.startswith("unix:"):
        if has_tls:
            raise ListenError(f"{endpoint} is a Unix socket, and TLS is for TCP: leave one of both out")
        path = endpoint.removeprefix("unix:").removeprefix("//")
        if not path:
            raise ListenError(f"{endpoint!r} names no socket: write unix:PATH")
        return f"{_UNIX}{Path(path).absolute()}"
    found = host_and_port(endpoint)
    if found is None:
        raise ListenError(f"{endpoint!r} is no address: write unix:PATH or HOST:PORT, such as 127.0.0.1:7001")
    if not has_tls and not is_loopback(found[0]):
        raise ListenError(
            f"{endpoint} can be reached from other machines, and would be served in plaintext: give"
            " --tls-cert, --tls-key, --tls-client-ca and --tls-client-name, or listen on a Unix socket or on"
            " 127.0.0.1"
        )
    return endpoint


def _nothing() -> None:
    return None


# --- handlers, in place of gRPC's generated registration: they encode an answer once, and check its size
# before sending it


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


def register(server: grpc.Server, service: Any, servicer: Servicer) -> None:
    """Serve every method of a service's descriptor."""
    handlers = handlers_of(service, servicer)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))
    # Registered by their whole paths too, so that gRPC need not search the services one after the other.
    server.add_registered_method_handlers(service.full_name, handlers)


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
