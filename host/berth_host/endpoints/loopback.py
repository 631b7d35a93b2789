"""`LoopbackServer`: the page for one user, over plain HTTP on 127.0.0.1.

`berth ui` and `kubectl berth ui` serve the page with it. Every process of this machine can reach the port.
So can any site through the user's browser, but a site must neither read the answers nor ask for them with the
user's rights: a request whose Host header is another name (DNS rebinding) is refused, a question that the
browser says comes from another site is refused, and no header allows another origin to read.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from typing import Final

from aiohttp import web
from aiohttp.web_request import BaseRequest

from berth_host.endpoints.front_door import FrontDoor
from berth_host.endpoints.pages import PREFIX as ANSWERS
from berth_host.endpoints.request_response import Answer, Handler, Request, failure, not_found
from berth_host.endpoints.ui import PATH, Ui
from berth_host.endpoints.ui import PREFIX as PAGE
from berth_host.endpoints.write_response import query_of, sent
from berth_host.errors.endpoints import EndpointError
from berth_host.listening.connections import Connections, limits_within
from berth_host.listening.descriptors import descriptor_limit
from berth_host.metrics.connection_metrics import ConnectionMetrics

ADDRESS: Final = "127.0.0.1"
_PORT: Final = "loopback"
_SHUTDOWN_S: Final = 0.5
_OWN: Final = ("", "none", "same-origin")
"""The values of Sec-Fetch-Site of the page's own requests, of a typed address, and of other programs."""


class LoopbackServer:
    """The server. `answers`: the handler of the paths below `/berth/v1/`. `scripts`: see `Ui`."""

    def __init__(self, answers: Handler, scripts: Mapping[str, bytes] | None = None) -> None:
        self._answers = answers
        self._ui = Ui(scripts)
        metrics = ConnectionMetrics()
        limits = limits_within(descriptor_limit())
        self._door = FrontDoor(self._handle, Connections(_PORT, metrics, limits), metrics)
        self._listening: socket.socket | None = None
        self._hosts: frozenset[str] = frozenset()
        self.port = 0
        """The port; 0 before `start`."""

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{ADDRESS}:{self.port}{PAGE}"

    async def start(self, port: int) -> None:
        """Listen on `port`; 0: a free one. Raises EndpointError if the port cannot be used."""
        try:
            listening = socket.create_server((ADDRESS, port))
        except OSError as err:
            cure = "choose another --port (0: any free one)"
            problem = "the port is in use" if err.errno == errno.EADDRINUSE else err.strerror or str(err)
            raise EndpointError(f"cannot listen on {ADDRESS}:{port}: {problem}; {cure}") from err
        self.port = int(listening.getsockname()[1])
        self._hosts = frozenset(f"{name}:{self.port}" for name in (ADDRESS, "localhost"))
        self._listening = listening
        self._door.start(listening, None)

    async def stop(self) -> None:
        """Close the port and all connections. Has no effect without `start`."""
        await self._door.stop(_SHUTDOWN_S)
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    async def _handle(self, raw: BaseRequest) -> web.StreamResponse:
        return await sent(raw, await self._answer(raw))

    async def _answer(self, raw: BaseRequest) -> Answer:
        if raw.headers.get("Host", "") not in self._hosts:
            message = f"this page answers at {self.url} alone: open it by this address"
            return failure(421, "MisdirectedRequest", message)
        self._door.know(raw)
        request = Request(
            method=raw.method,
            path=raw.path,
            query=query_of(raw),
            accept=raw.headers.get("Accept", ""),
        )
        if raw.method not in ("GET", "HEAD"):
            return failure(405, "MethodNotAllowed", f"{raw.path} is read with GET")
        if raw.path.startswith(ANSWERS):
            if raw.headers.get("Sec-Fetch-Site", "") not in _OWN:
                return failure(403, "Forbidden", f"another site asked: open the page at {self.url}")
            return await self._answers(request)
        if raw.path == "/":
            return Answer(status=307, headers={"Location": PAGE})
        if raw.path == PATH or raw.path.startswith(PAGE):
            return await self._ui.answer(request)
        return not_found()
