"""`HandleConnection`: the connection of a plugin process to the host's HandleService, as Configure grants it.

Made by `Instance`, and used by the `HandleClient` of each plugin. Over TLS the process shows the certificate
that it serves with, and trusts the authority that it trusts its hosts by.
"""

from __future__ import annotations

import threading
from typing import Final, TypeAlias

import grpc

from berth_sdk.errors import HandleError
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.plugin.v1.handle_pb2_grpc import HandleServiceStub
from berth_sdk.wire.addresses import is_local
from berth_sdk.wire.certificate import Certificate

Metadata: TypeAlias = tuple[tuple[str, str], ...]
_OPTIONS: Final = (
    # A proxy of the environment would be told the token, as gRPC sends it calls to loopback addresses, too.
    ("grpc.enable_http_proxy", 0),
    # A host whose files were wrong is asked again soon after they were put right.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class HandleConnection:
    """Shared by all plugins of the process.

    none -use-> granted -use-> granted to another attachment -use(None)-> none
    """

    def __init__(self, certificate: Certificate | None = None) -> None:
        """`certificate`: this process's own; None: its host is on the same machine, or cannot be asked."""
        self._certificate = certificate
        self._lock = threading.Lock()
        self._endpoint: identity_pb2.HandleEndpoint | None = None
        self._channel: grpc.Channel | None = None
        self._shown: grpc.ChannelCredentials | None = None
        """What the channel was made with; None: plaintext."""

    @property
    def has_tls(self) -> bool:
        """Whether a host may be asked over TLS."""
        return self._certificate is not None

    @property
    def endpoint(self) -> identity_pb2.HandleEndpoint | None:
        """The endpoint that the host granted last; None: the host granted none."""
        return self._endpoint

    def use(self, endpoint: identity_pb2.HandleEndpoint | None) -> None:
        """Take up the endpoint of a new attachment; the old token is forgotten."""
        with self._lock:
            old, self._channel = self._channel, None
            self._endpoint = endpoint
        if old is not None:
            old.close()

    def open(self) -> tuple[HandleServiceStub, Metadata]:
        """The stub and the metadata of every call. Raises HandleError when nothing was granted, or nothing
        that the token may be sent to.
        """
        with self._lock:
            endpoint = self._endpoint
            if endpoint is None:
                raise HandleError("the host has granted no way back: wait until it has configured the plugin")
            shown = self._credentials(endpoint)
            if self._channel is None or shown is not self._shown:
                # The one before is not closed: calls that are under way end there.
                self._channel, self._shown = _dialled(endpoint, shown), shown
            return HandleServiceStub(self._channel), (("authorization", f"Bearer {endpoint.token}"),)

    def _credentials(self, endpoint: identity_pb2.HandleEndpoint) -> grpc.ChannelCredentials | None:
        """None: plaintext, on this machine. Raises HandleError."""
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


def _dialled(endpoint: identity_pb2.HandleEndpoint, shown: grpc.ChannelCredentials | None) -> grpc.Channel:
    if shown is None:
        return grpc.insecure_channel(endpoint.target, options=_OPTIONS)
    # The name that the host's certificate must have, whatever the address is called.
    options = (*_OPTIONS, ("grpc.ssl_target_name_override", endpoint.server_name))
    return grpc.secure_channel(endpoint.target, shown, options=options)
