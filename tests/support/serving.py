"""The secure port over a host on an embedded cluster: a process as its pages see it, and known users."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from berth_host.app import Host, HostOptions
from berth_host.config.configuration import LoadedConfiguration
from berth_host.endpoints.access import Reviewer
from berth_host.endpoints.options import ServingOptions
from berth_host.endpoints.secure_port import Endpoints, make_endpoints
from berth_host.errors.endpoints import ReviewError
from berth_host.model.user import ClientTrust, User

RECORDED = Path(__file__).parent.parent / "host" / "endpoints" / "testdata"
PUBLIC_PATHS = ("/healthz", "/livez", "/readyz", "/version")
TOKENS = {
    "clusterAdmin": User(name="admin", groups=("system:masters",)),
    "authenticatedWithoutRights": User(name="someuser"),
    "schedulerItself": User(name="system:kube-scheduler"),
}


def recorded(name: str) -> Any:
    """Return a file recorded from kube-scheduler."""
    return json.loads(gzip.decompress((RECORDED / f"{name}.json.gz").read_bytes()))


class FakeElection:
    """A Lease that is renewed, or not."""

    def __init__(self) -> None:
        self.problem = ""

    def complaint(self) -> str:
        return self.problem


@dataclass
class FakeProcess:
    """The process as `endpoints.secure_port` sees it; with an election unless `elector` is None."""

    configuration: LoadedConfiguration
    host: Host | None = None
    elector: FakeElection | None = field(default_factory=FakeElection)
    is_connected: bool = True
    is_leading: bool = True
    is_stopping: bool = False


@dataclass
class FakeSettings:
    """The settings of the process that `endpoints.secure_port` reads."""

    serving: ServingOptions = field(default_factory=ServingOptions)
    flags: Sequence[tuple[str, str]] = ()
    options: HostOptions = field(default_factory=HostOptions)


class KnownUsers:
    """An API server with the default roles: everybody may see PUBLIC_PATHS. `asked` counts the questions."""

    def __init__(self, tokens: Mapping[str, User] = TOKENS, trust: ClientTrust | None = None) -> None:
        self.tokens = tokens
        self.found_trust = trust or ClientTrust()
        self.is_reachable = True
        self.asked: list[str] = []

    async def user_of(self, token: str) -> User | None:
        self._ask(f"token {token}")
        return self.tokens.get(token)

    async def may(self, user: User, verb: str, path: str) -> bool:
        self._ask(f"{user.name} {verb} {path}")
        return path in PUBLIC_PATHS

    async def trust(self) -> ClientTrust:
        self._ask("trust")
        return self.found_trust

    def _ask(self, what: str) -> None:
        if not self.is_reachable:
            raise ReviewError("nobody answers")
        self.asked.append(what)


@dataclass(frozen=True)
class Reply:
    """The answer."""

    status: int
    content_type: str | None
    body: str
    headers: Mapping[str, str]


@dataclass
class Served:
    """Endpoints that listen, and a client for them."""

    endpoints: Endpoints
    session: aiohttp.ClientSession

    async def ask(self, method: str, path: str, *, token: str = "", **more: Any) -> Reply:
        """One request; `more`: headers, data, ssl."""
        headers = dict(more.pop("headers", {}))
        if token:
            headers["Authorization"] = f"Bearer {token}"
        url = f"https://127.0.0.1:{self.endpoints.server.port}{path}"
        more.setdefault("ssl", False)
        async with self.session.request(method, url, headers=headers, **more) as response:
            body = await response.text()
            content_type = response.headers.get("Content-Type")
            return Reply(response.status, content_type, body, dict(response.headers))


@asynccontextmanager
async def served(
    process: FakeProcess,
    reviewer: Reviewer | None = None,
    settings: FakeSettings | None = None,
    **more: Any,
) -> AsyncIterator[Served]:
    """Endpoints on a free port of loopback. `more`: as `make_endpoints` takes it."""
    settings = settings or FakeSettings()
    if process.host is not None:
        settings.options = process.host.options
    endpoints = make_endpoints(process, settings, reviewer=reviewer, **more)
    listening = socket.create_server(("127.0.0.1", 0))
    try:
        await endpoints.start(listening)
    except BaseException:
        listening.close()
        raise
    # Without keep-alive: every request makes a handshake, with the certificates of that moment.
    connector = aiohttp.TCPConnector(force_close=True)
    try:
        async with aiohttp.ClientSession(connector=connector, skip_auto_headers=["Accept"]) as session:
            yield Served(endpoints, session)
    finally:
        await endpoints.stop()


def client_context(ca: Path, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """Return a client that checks the server, and shows a certificate of its own if there is one."""
    context = ssl.create_default_context(cafile=str(ca))
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context
