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
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import grpc

from berth_sdk.clocks import monotonic_s
from berth_sdk.errors import BerthError
from berth_sdk.serve.client_names import ClientNames
from berth_sdk.serve.frames import FramedServer
from berth_sdk.serve.instance import Instance
from berth_sdk.serve.optional_services import (
    MISSING,
    add_optional_services,
)
from berth_sdk.serve.services import Services
from berth_sdk.serve.socket_file import SocketFile, is_answered
from berth_sdk.serve.tls import TlsServing
from berth_sdk.serve.tracing import CallTraces
from berth_sdk.wire.addresses import host_and_port, is_loopback, socket_problem
from berth_sdk.wire.certificate import Certificate
from berth_sdk.wire.frames import framed_path
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
        self._traces = traces
        services = Services(self.instance, traces)
        self.framed = FramedServer(services.framed, max_message_bytes)
        services.register(self._server)
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
