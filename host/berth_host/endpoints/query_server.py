"""`QueryServer`: the query service on a port of its own, over TLS or, on loopback, without.

The process makes it beside the secure port, with the same certificate and the same reviews of users; `berth
query` makes one for a simulation. It brings gRPC when it starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from berth_host.endpoints.certificates import ServingCertificate
from berth_host.errors.endpoints import EndpointError
from berth_host.listening.relay import Relay
from berth_host.log import get_logger
from berth_host.metrics.connection_metrics import ConnectionMetrics

if TYPE_CHECKING:
    import grpc

    from berth_host.endpoints.query_service import QueryService

log = get_logger()
MOST_STREAMS: Final = 64
"""The most calls of one connection at the same time; its client keeps further ones back."""
STALLED_S: Final = 60.0
"""The most seconds that a message of an answer waits for the client to read. A message of 1 MiB may wait
until the client has read four others.
"""
_AGE_MS: Final = 5 * 60 * 1000
"""The age of a connection at which its client is asked to make another one, in milliseconds."""
_AGE_GRACE_MS: Final = 3 * 60 * 1000
"""The time that calls of a connection of that age may still take, in milliseconds. A call whose client reads
takes less.
"""
_HANDSHAKE_MS: Final = 20_000
_STOP_GRACE_S: Final = 0.5
_CURE: Final = "set TMPDIR to a folder that berth may write to, with a path of at most 70 bytes"


class QueryServer:
    """made -start-> serving -stop-> stopped"""

    def __init__(
        self,
        make_service: Callable[[], QueryService],
        *,
        stalled_s: float = STALLED_S,
        metrics: ConnectionMetrics | None = None,
    ) -> None:
        """Create the server. `make_service`: called by `start`, as the service brings gRPC. `stalled_s`: see
        STALLED_S. `metrics`: of connections; None: they are not shown.
        """
        self._metrics = metrics
        self._make_service = make_service
        self._stalled_s = stalled_s
        self._server: grpc.aio.Server | None = None
        self._relay: Relay | None = None
        self.port = 0
        """The port; 0 while the server does not listen."""

    async def start(self, address: str, port: int, certificate: ServingCertificate | None = None) -> None:
        """Listen; `port` 0: on a free port. `certificate` None: without TLS. Raises EndpointError."""
        import grpc
        from berth_sdk.query.v1 import query_pb2

        from berth_host.endpoints.query_service import LIMITS, MOST_REQUEST_BYTES
        from berth_host.rpc.served.registration import register_streams

        options: list[tuple[str, Any]] = [
            # gRPC's own refusal names no cure, so the service itself refuses a request over the limit.
            ("grpc.max_receive_message_length", MOST_REQUEST_BYTES + MOST_REQUEST_BYTES // 4),
            ("grpc.so_reuseport", 0),
            # A client that never reads keeps its call, even one that has ended, as long as its connection.
            ("grpc.max_connection_age_ms", _AGE_MS),
            ("grpc.max_connection_age_grace_ms", _AGE_GRACE_MS),
            ("grpc.max_concurrent_streams", MOST_STREAMS),
            ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
        ]
        service = self._make_service()
        # The service bounds the calls, once their callers are known. gRPC would count strangers, too.
        server = grpc.aio.server(interceptors=service.interceptors, options=options)
        described = query_pb2.DESCRIPTOR.services_by_name["QueryService"]
        register_streams(server, described, service.handlers, limits=LIMITS, stalled_s=self._stalled_s)
        credentials = None if certificate is None else _credentials(certificate)
        try:
            relay = self._relay = Relay("query", self._metrics)
        except OSError as err:
            raise EndpointError(f"the query service has no folder for its socket: {err}; {_CURE}") from err
        target = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        try:
            self.port = relay.bind(address, port)
        except OSError as err:
            await self.stop()
            raise EndpointError(
                f"cannot listen on {target}: is the address this machine's, and the port free? Choose another"
                " one (0: none, and for `berth query` any free one)"
            ) from err
        try:
            if credentials is None:
                server.add_insecure_port(relay.target)
            else:
                server.add_secure_port(relay.target, credentials)
        except RuntimeError as err:
            await self.stop()
            raise EndpointError(f"the query service cannot listen at {relay.target}; {_CURE}") from err
        await server.start()
        self._server = server
        relay.start()
        log.info("query.started", address=address, port=self.port, tls=certificate is not None)

    async def stop(self) -> None:
        """End the open calls and close the port. Has no effect without `start`."""
        if self._relay is not None:
            self._relay.pause()
        if self._server is not None:
            await self._server.stop(_STOP_GRACE_S)
        if self._relay is not None:
            await self._relay.stop()
        self._server, self._relay, self.port = None, None, 0


def _credentials(certificate: ServingCertificate) -> grpc.ServerCredentials:
    """Return the credentials of the port, which follow the certificate's files. Raises EndpointError."""
    import grpc

    seen = certificate.stamp()

    def configuration(pair: tuple[bytes, bytes]) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(pair[1], pair[0])])

    def changed() -> grpc.ServerCertificateConfiguration | None:
        # gRPC calls this in its own thread, before each handshake.
        nonlocal seen
        stamp = certificate.stamp()
        if stamp == seen:
            return None
        seen = stamp
        try:
            return configuration(certificate.pair())
        except EndpointError as err:
            log.error("endpoints.certificate_refused", problem=str(err))
            return None

    # None is documented to mean "no change", but is missing in the types of the package.
    follow: Any = changed
    return grpc.dynamic_ssl_server_credentials(configuration(certificate.pair()), follow, False)
