"""`HandleConnection`: the connection of a plugin process to the host's HandleService, as Configure grants it.

`Instance` makes it, and the `HandleClient` of each plugin uses it. With TLS, the process uses its server
certificate as client certificate, and trusts the authority of its hosts.
"""

from __future__ import annotations

import threading
from typing import Final, TypeAlias

import grpc

from berth_sdk.errors import HandleError, NoWayBackError
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.plugin.v1.handle_pb2_grpc import HandleServiceStub
from berth_sdk.wire.addresses import is_local
from berth_sdk.wire.certificate import Certificate
from berth_sdk.wire.message_limit import DEFAULT_BYTES, size_options

Metadata: TypeAlias = tuple[tuple[str, str], ...]
_OPTIONS: Final = (
    # gRPC would use a proxy of the environment, even for loopback, and the proxy would get the token.
    ("grpc.enable_http_proxy", 0),
    # Short backoffs, so that the connection works soon after a host's certificate files are corrected.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class HandleConnection:
    """The connection that all plugins of the process share.

    none -use-> granted -use-> granted to another attachment -use(None)-> none
    """

    def __init__(self, certificate: Certificate | None = None) -> None:
        """Begin without a connection. `certificate`: of this process; None: no calls to other machines."""
        self._certificate = certificate
        self._lock = threading.Lock()
        self._endpoint: identity_pb2.HandleEndpoint | None = None
        self._channel: grpc.Channel | None = None
        self._limit_bytes = DEFAULT_BYTES
        self._shown: grpc.ChannelCredentials | None = None
        """The credentials of the channel; None: plaintext."""

    @property
    def has_tls(self) -> bool:
        """True if calls to the host can use TLS."""
        return self._certificate is not None

    @property
    def endpoint(self) -> identity_pb2.HandleEndpoint | None:
        """The endpoint that the host granted last; None if it granted none."""
        return self._endpoint

    @property
    def limit_bytes(self) -> int:
        """The size of the largest message to or from the host."""
        return self._limit_bytes

    def use(self, endpoint: identity_pb2.HandleEndpoint | None, limit_bytes: int = DEFAULT_BYTES) -> None:
        """Use the endpoint of a new attachment, or none; drop the old endpoint and its token.

        `limit_bytes`: the size of the largest message of the attachment.
        """
        with self._lock:
            old, self._channel = self._channel, None
            self._endpoint, self._limit_bytes = endpoint, limit_bytes
        if old is not None:
            old.close()

    def open(self) -> tuple[HandleServiceStub, Metadata]:
        """Return the stub and the metadata of every call.

        Raises NoWayBackError if the host granted no endpoint, HandleError for one to which the token must not
        be sent.
        """
        with self._lock:
            endpoint = self._endpoint
            if endpoint is None:
                raise NoWayBackError(
                    "the host has granted no way back: wait until the host has configured the plugin"
                )
            shown = self._credentials(endpoint)
            if self._channel is None or shown is not self._shown:
                # The old channel stays open for calls that have begun.
                self._channel, self._shown = _dialled(endpoint, shown, self._limit_bytes), shown
            return HandleServiceStub(self._channel), (("authorization", f"Bearer {endpoint.token}"),)

    def _credentials(self, endpoint: identity_pb2.HandleEndpoint) -> grpc.ChannelCredentials | None:
        """Return the credentials for a channel; None: plaintext, to this machine. Raises HandleError."""
        if endpoint.server_name:
            if self._certificate is None:
                raise HandleError("the host is to be asked over TLS, and this process has no certificate")
            return self._certificate.client_credentials()
        if not is_local(endpoint.target):
            raise HandleError(
                f"the host is to be asked at {endpoint.target}, on another machine, and in plaintext: the"
                " token is not sent there"
            )
        return None


def _dialled(
    endpoint: identity_pb2.HandleEndpoint, shown: grpc.ChannelCredentials | None, limit_bytes: int
) -> grpc.Channel:
    options = [*_OPTIONS, *size_options(limit_bytes)]
    if shown is None:
        return grpc.insecure_channel(endpoint.target, options=options)
    # The name that the host's certificate must have, instead of the name in the address.
    options.append(("grpc.ssl_target_name_override", endpoint.server_name))
    return grpc.secure_channel(endpoint.target, shown, options=options)
