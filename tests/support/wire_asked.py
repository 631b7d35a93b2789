"""The requests that a server of `wire_server` has received, over HTTP/1.1 or HTTP/2."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from h2.settings import SettingCodes


@dataclass
class Asked:
    """One request. `of`: the connection it came over. `headers`: by lower-case name, `:path` among them."""

    of: Any
    stream: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def path(self) -> str:
        return self.headers[":path"]

    def answer(self, status: int = 200, body: bytes = b"{}", *, retry_after: str = "") -> None:
        """Answer, as soon as the client takes it."""
        self.of.answer(self.stream, status, body, retry_after)


Handler = Callable[[Asked], Awaitable[None]]


@dataclass
class WireServer:
    """The settings of a server, and the requests that it got.

    `handler`: answers each; None: nobody does. `protocol`: as ALPN names it, or empty for HTTP/1.1 without
    ALPN; `settings`: those of HTTP/2.
    """

    handler: Handler | None = None
    settings: dict[SettingCodes, int] = field(default_factory=dict)
    protocol: str = "h2"
    is_tls: bool = True
    asks_certificate: bool = False
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    resets: list[tuple[int, int]] = field(default_factory=list)
    connections: list[Any] = field(default_factory=list)
    acknowledges: bool = True
    """Whether PING is answered."""
    _tasks: set[asyncio.Future[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"{'https' if self.is_tls else 'http'}://127.0.0.1:{self.port}"

    def got(self, asked: Asked) -> None:
        """Note a whole request, and have it answered."""
        self.asked.append(asked)
        if self.handler is not None:
            task = asyncio.ensure_future(self.handler(asked))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


def certificate_of(transport: asyncio.BaseTransport) -> str:
    """Return the name in the client's certificate; empty without one."""
    shown = transport.get_extra_info("peercert") or {}
    names = dict(pair for part in shown.get("subject", ()) for pair in part)
    return str(names.get("commonName", ""))


def agreed_protocol(transport: asyncio.BaseTransport) -> str:
    """Return the protocol that client and server agreed on (ALPN); empty without one."""
    tls = transport.get_extra_info("ssl_object")
    return (tls.selected_alpn_protocol() or "") if tls is not None else ""
