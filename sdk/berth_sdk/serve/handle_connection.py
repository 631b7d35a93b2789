"""`HandleConnection`: the connection of a plugin process to the host's HandleService, as Configure grants it.

Made by `Instance`, and used by the `HandleClient` of each plugin.
"""

from __future__ import annotations

import threading
from typing import Final, TypeAlias

import grpc

from berth_sdk.errors import HandleError
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.plugin.v1.handle_pb2_grpc import HandleServiceStub
from berth_sdk.wire.addresses import is_local

Metadata: TypeAlias = tuple[tuple[str, str], ...]
_OPTIONS: Final = (
    # A proxy of the environment would be told the token, as gRPC sends it calls to loopback addresses, too.
    ("grpc.enable_http_proxy", 0),
)


class HandleConnection:
    """Shared by all plugins of the process.

    none -use-> granted -use-> granted to another attachment -use(None)-> none
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._endpoint: identity_pb2.HandleEndpoint | None = None
        self._channel: grpc.Channel | None = None

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
            if self._channel is None:
                self._channel = _dialled(endpoint)
            return HandleServiceStub(self._channel), (("authorization", f"Bearer {endpoint.token}"),)


def _dialled(endpoint: identity_pb2.HandleEndpoint) -> grpc.Channel:
    """Raises HandleError."""
    if not is_local(endpoint.target):
        raise HandleError(
            f"the host is to be asked at {endpoint.target}, on another machine, and in plaintext: the token"
            " is not sent there"
        )
    return grpc.insecure_channel(endpoint.target, options=_OPTIONS)
