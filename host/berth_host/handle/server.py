"""`HandleServer`: HandleService on sockets of its own, and the tokens that open it. Made by `app`.

A Unix socket in a folder that only the host's user can enter; for plugins behind loopback TCP a loopback
port as well, and for plugins behind TLS a `TlsPort`. Implements `attach.configure.HandleGrants`.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from berth_sdk.wire.message_limit import DEFAULT_BYTES

from berth_host.attach.interfaces import WayBack
from berth_host.config.berth.configuration import BerthConfiguration
from berth_host.errors.state import InvariantError
from berth_host.handle.calls import HandleSeams
from berth_host.handle.grants import Grants
from berth_host.listening.relay import Relay
from berth_host.metrics.connection_metrics import ConnectionMetrics

# These bring gRPC, which a host without served plugins never imports.
if TYPE_CHECKING:
    import grpc

    from berth_host.handle.service import HandleService
    from berth_host.handle.tls_port import TlsPort

_STOP_GRACE_S: Final = 0.5
_RECEIVED: Final = 4
"""A request up to this many times the limit is read, and refused with the cure."""


class HandleServer:
    """made -start-> serving -stop-> stopped"""

    def __init__(
        self,
        seams: HandleSeams,
        *,
        tcp: bool = False,
        tls: TlsPort | None = None,
        max_message_bytes: int = DEFAULT_BYTES,
        for_group: bool = False,
        metrics: ConnectionMetrics | None = None,
    ) -> None:
        """`metrics`: of connections; None: they are not shown. `tcp`: some plugin is reached over TCP and
        cannot open the host's sockets. `tls`: some are behind TLS, and ask there. `max_message_bytes`: the
        highest limit of an attachment. `for_group`: some plugin runs as another user, so the socket is open
        to the folder's group too; a call still needs its token.
        """
        self._for_group = for_group
        self.grants = Grants()
        self._seams = seams
        self._service: HandleService | None = None
        self._max_message_bytes = max_message_bytes
        self._tcp = tcp
        self._metrics = metrics
        self._loopback: Relay | None = None
        self._tls = tls
        self._server: grpc.aio.Server | None = None
        self._folder: Path | None = None
        self._tcp_target = ""

    async def start(self) -> None:
        """Start to listen on this machine. Called before any plugin is configured."""
        server = self._made()
        self._folder = Path(tempfile.mkdtemp(prefix="berth-handle-"))  # 0700
        server.add_insecure_port(self._unix_target)
        if self._tcp:
            self._loopback = Relay("handle-loopback", self._metrics)
            self._tcp_target = f"127.0.0.1:{self._loopback.bind('127.0.0.1', 0)}"
            server.add_insecure_port(self._loopback.target)
        await server.start()
        if self._loopback is not None:
            self._loopback.start()
        if self._for_group:
            (self._folder / "handle.sock").chmod(0o660)
            self._folder.chmod(0o2750)
        self._server = server

    async def stop(self) -> None:
        """Refuse new calls and end those that are open. Does nothing if the server was never started."""
        if self._loopback is not None:
            self._loopback.pause()
        if self._server is not None:
            await self._server.stop(_STOP_GRACE_S)
            self._server = None
        if self._loopback is not None:
            await self._loopback.stop()
            self._loopback = None
        if self._tls is not None:
            await self._tls.stop(_STOP_GRACE_S)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    @property
    def over_tls(self) -> bool:
        """True if plugins behind TLS may make calls."""
        return self._tls is not None

    async def grant(
        self,
        attachment_id: str,
        plugins: frozenset[str],
        *,
        loopback_tcp: bool = False,
        tls_name: str = "",
        max_message_bytes: int = DEFAULT_BYTES,
    ) -> WayBack:
        """Return the address and the token for one attachment; see `HandleGrants`. Raises DialError, and
        InvariantError before the start.
        """
        if self._server is None:
            raise InvariantError("the handle is granted before its server has started")
        server_name = ""
        target = self._tcp_target if loopback_tcp and self._tcp else self._unix_target
        if tls_name:
            if self._tls is None:
                raise InvariantError("a plugin behind TLS is granted a way back that is not there")
            target, server_name = await self._tls.open(self._made)
        token = self.grants.add(attachment_id, plugins, tls_name, max_message_bytes)
        return WayBack(target=target, token=token, server_name=server_name)

    def revoke(self, attachment_id: str, plugin: str = "") -> None:
        """End the attachment's token, or its use for one plugin."""
        self.grants.remove(attachment_id, plugin)

    @property
    def _unix_target(self) -> str:
        return f"unix://{self._folder}/handle.sock"

    def _made(self) -> grpc.aio.Server:
        """Return a server without a port."""
        import grpc
        from berth_sdk.plugin.v1 import handle_pb2
        from berth_sdk.wire.peer_certificate import SERVER_LIMITS

        from berth_host.handle.health import add_health_and_reflection
        from berth_host.handle.service import HandleService
        from berth_host.rpc.served.registration import register

        if self._service is None:
            self._service = HandleService(self._seams, self.grants)
        server = grpc.aio.server(
            options=[
                ("grpc.max_send_message_length", self._max_message_bytes),
                # gRPC's own refusal names no cure, so the service itself refuses a request over the limit.
                ("grpc.max_receive_message_length", _RECEIVED * self._max_message_bytes),
                ("grpc.so_reuseport", 0),
                *SERVER_LIMITS,
            ]
        )
        register(server, handle_pb2.DESCRIPTOR.services_by_name["HandleService"], self._service.handlers)
        add_health_and_reflection(server)
        return server


def handle_server(
    berth: BerthConfiguration, own_address: str, seams: HandleSeams, metrics: ConnectionMetrics
) -> HandleServer:
    """Make the HandleServer of a host, with the ports that its served plugins need.

    A plugin that is reached over TCP without TLS needs a loopback port; one that is reached over TLS needs
    the port that `handle` in BerthConfiguration describes. `own_address`: where other machines reach the
    host.
    """
    over_tcp = [
        plugin for plugin in berth.plugins if plugin.endpoint and not plugin.endpoint.startswith("unix:")
    ]
    tls: TlsPort | None = None
    if berth.handle is not None and any(plugin.tls is not None for plugin in over_tcp):
        from berth_host.handle.tls_port import TlsPort

        tls = TlsPort(berth.handle, own_address, metrics)
    return HandleServer(
        seams,
        tcp=any(plugin.tls is None for plugin in over_tcp),
        tls=tls,
        max_message_bytes=max(map(berth.message_limit, berth.plugins), default=berth.max_message_bytes),
        for_group=any(plugin.allowed_uids for plugin in berth.plugins),
        metrics=metrics,
    )
