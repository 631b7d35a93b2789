"""`HandleServer`: HandleService on a socket of its own, and the tokens that open it. Made by `app`.

A Unix socket in a folder that only the host's user can enter; for plugins behind loopback TCP a loopback
port as well. Implements `attach.configure.HandleGrants`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import grpc
from berth_sdk.plugin.v1 import handle_pb2

from berth_host.errors.state import InvariantError
from berth_host.handle.grants import Grants
from berth_host.handle.registration import register
from berth_host.handle.service import HandleSeams, HandleService
from berth_host.rpc.remote.link import MAX_MESSAGE_BYTES

_STOP_GRACE_S: Final = 0.5


class HandleServer:
    """made -start-> serving -stop-> stopped"""

    def __init__(
        self, seams: HandleSeams, *, tcp: bool = False, ready: Callable[[], bool] = lambda: True
    ) -> None:
        """`tcp`: some plugin is reached over TCP and cannot open the host's sockets. `ready`: what health
        says, asked for every answer.
        """
        self.grants = Grants()
        self._seams = seams
        self._tcp = tcp
        self._ready = ready
        self._server: grpc.aio.Server | None = None
        self._folder: Path | None = None
        self._tcp_target = ""

    async def start(self) -> None:
        """Listen. Before any plugin is configured."""
        # Imported late: a host without such plugins needs neither.
        from berth_host.handle.health import add_health_and_reflection

        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
                ("grpc.so_reuseport", 0),
            ]
        )
        service = handle_pb2.DESCRIPTOR.services_by_name["HandleService"]
        register(server, service, HandleService(self._seams, self.grants))
        add_health_and_reflection(server, self._ready)
        self._folder = Path(tempfile.mkdtemp(prefix="berth-handle-"))  # 0700
        server.add_insecure_port(self._unix_target)
        if self._tcp:
            self._tcp_target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Refuse new calls, end those that are open. Harmless when it was never started."""
        if self._server is not None:
            await self._server.stop(_STOP_GRACE_S)
            self._server = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def grant(self, attachment_id: str, plugins: frozenset[str], *, loopback_tcp: bool) -> tuple[str, str]:
        """(target, token) for one attachment. Raises InvariantError before the start."""
        if self._server is None:
            raise InvariantError("the handle is granted before its server has started")
        token = self.grants.add(attachment_id, plugins)
        return (self._tcp_target if loopback_tcp and self._tcp else self._unix_target), token

    def revoke(self, attachment_id: str) -> None:
        """The attachment's token is worth nothing any more."""
        self.grants.remove(attachment_id)

    @property
    def _unix_target(self) -> str:
        return f"unix://{self._folder}/handle.sock"
