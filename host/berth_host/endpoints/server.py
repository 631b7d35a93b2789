"""`EndpointServer`: serves HTTPS requests: identifies the user, checks the right, calls the page.

    handshake (certificates.py) -> user (access.py) -> right (access.py) -> health.py, a page, a route

Read this module first. Made by `endpoints.secure_port`, which adds the pages. Other callers add pages with
`add_checks` and `add_route`.
Source: kube-scheduler `cmd/kube-scheduler/app/server.go` (buildHandlerChain), v1.36.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from aiohttp import web
from aiohttp.web_request import BaseRequest
from cryptography import x509

from berth_host.endpoints.access import Authentication, Authorization, NoReviewer, Reviewer
from berth_host.endpoints.certificates import ClientAuthorities, ServingCertificate, check_options
from berth_host.endpoints.front_door import FrontDoor
from berth_host.endpoints.health import KINDS, Check, Health
from berth_host.endpoints.options import ServingOptions
from berth_host.endpoints.request_response import (
    Answer,
    Handler,
    Request,
    failure,
    forbidden,
    not_found,
    too_many,
    unauthorized,
)
from berth_host.endpoints.write_response import query_of, sent
from berth_host.errors.endpoints import BusyError, EndpointError, ReviewError
from berth_host.listening.connections import Connections, limits_within
from berth_host.listening.descriptors import descriptor_limit
from berth_host.listening.listener import BACKLOG, LARGE_KEY_TURNS_PER_S, TURNS_PER_S
from berth_host.log import get_logger
from berth_host.metrics.connection_metrics import ConnectionMetrics
from berth_host.metrics.slis import HealthMetrics
from berth_host.model.sparing_lines import SparingLines
from berth_host.model.user import ANONYMOUS, ClientTrust, User

log = get_logger()
RENEW_S: Final = 60.0
"""Seconds between checks of the certificate files and of the cluster's CAs for clients."""
PORT: Final = "secure"
"""The name of the port in metrics and log lines."""
_SHUTDOWN_S: Final = 2.0
_MAX_BODY_BYTES: Final = 256 * 1024


class EndpointServer:
    """The HTTPS server of one event loop; pages may be added before and after `start`."""

    def __init__(
        self,
        options: ServingOptions,
        reviewer: Reviewer | None = None,
        metrics: ConnectionMetrics | None = None,
    ) -> None:
        """Create the server. `reviewer`: reviews users; None: only the health pages can be read. `metrics`:
        of connections; None: they are not shown.

        Raises EndpointError for options that cannot work.
        """
        check_options(options)
        self.options = options
        self.health_metrics = HealthMetrics()
        self._health = Health(self.health_metrics)
        self._reviewer = reviewer if reviewer is not None else NoReviewer()
        self.authentication = self._authentication = Authentication(options, self._reviewer)
        """Identifies users, also for the query service."""
        self.authorization = self._authorization = Authorization(options, self._reviewer)
        """Reviews their rights, also for the query service."""
        self._pages: dict[str, Handler] = {}
        self._listed = {f"/{kind}" for kind in KINDS}
        self._routes: dict[str, Handler] = {}
        try:
            self._authorities = ClientAuthorities(options.trust)
        except ValueError as err:
            raise EndpointError(
                "--client-ca-file or --requestheader-client-ca-file cannot be used:"
                " it needs certificates in PEM"
            ) from err
        self._given, self._found = options.trust, ClientTrust()
        """The CAs of the flags' files, and the cluster's, as they were read last."""
        self._certificate: ServingCertificate | None = None
        """The certificate while the server listens."""
        self._made: ServingCertificate | None = None
        self._socket: socket.socket | None = None
        self._renewing: asyncio.Future[None] | None = None
        metrics = metrics or ConnectionMetrics()
        connections = Connections(PORT, metrics, limits_within(descriptor_limit()))
        self._door = FrontDoor(self._handle, connections, metrics)
        self._failures = SparingLines()
        for lines in (self._authentication.lines, self._authorization.lines, self._health.lines):
            metrics.show_lines(PORT, lines)

    # --- answers ---------------------------------------------------------------------------------

    def add_checks(self, kind: str, checks: Iterable[Check]) -> None:
        """Add checks to `healthz`, `livez` or `readyz`, behind the existing ones."""
        self._health.add(kind, checks)

    def add_page(self, path: str, handler: Handler, *, listed: bool = False) -> None:
        """Add the page of exactly `path`. `listed`: `/statusz` lists it."""
        self._pages[path] = handler
        if listed:
            self._listed.add(path)

    def add_route(self, prefix: str, handler: Handler) -> None:
        """Add the handler of every path that begins with `prefix`, which ends with a slash."""
        self._routes[prefix] = handler

    @property
    def paths(self) -> list[str]:
        """The listed paths, sorted."""
        return sorted(self._listed)

    # --- life ------------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """The port that the server listens on; 0 while it does not listen."""
        return 0 if self._socket is None else int(self._socket.getsockname()[1])

    def certificate(self) -> ServingCertificate:
        """Return the certificate, which is read or made once. Raises EndpointError."""
        if self._made is None:
            self._made = ServingCertificate(self.options)
        return self._made

    async def start(self, listening: socket.socket | None = None) -> None:
        """Listen, on the caller's socket if there is one. Does nothing with port 0.

        Raises EndpointError if the port is in use, the machine does not have the address, there is no usable
        certificate, or (unless tolerated) the cluster's CAs for clients cannot be read.
        """
        if listening is None and not self.options.port:
            return
        self._certificate = self.certificate()
        await self._look_up_trust(tolerate=self.options.tolerate_lookup_failure)
        context = self._certificate.context(self._authentication.trust)
        self._socket = listening or _bound(self.options.bind_address, self.options.port)
        per_s = LARGE_KEY_TURNS_PER_S if self._certificate.has_large_key else TURNS_PER_S
        self._door.start(self._socket, context, self._authorities, turns_per_s=per_s)
        self._renewing = asyncio.ensure_future(self._renew_for_ever())
        log.info("endpoints.started", address=self.options.bind_address, port=self.port)

    async def stop(self) -> None:
        """Stop listening and close the connections, after a short wait for running requests.

        Has no effect without `start`.
        """
        if self._renewing is not None:
            self._renewing.cancel()
            with suppress(asyncio.CancelledError):
                await self._renewing
            self._renewing = None
        await self._door.stop(_SHUTDOWN_S)
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def renew(self) -> None:
        """Check the certificate's files and the CAs of clients, and use changed ones for new connections.

        Open connections end whose client certificate was issued by none of the new CAs.
        """
        if self._certificate is None:
            return
        changed = self._certificate.has_changed()
        changed |= await self._look_up_trust(tolerate=True)
        if not changed:
            return
        try:
            context = self._certificate.context(self._authentication.trust)
        except EndpointError as err:
            log.error("endpoints.certificate_refused", problem=str(err))
            return
        self._door.use(context, self._authorities)
        log.info("endpoints.certificate_renewed", port=self.port)

    async def _renew_for_ever(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            await self.renew()

    async def _look_up_trust(self, *, tolerate: bool) -> bool:
        """Read the CAs of client certificates again; return True if they changed."""
        self._given = _read_again(self._given, self.options)
        try:
            if not self.options.skip_lookup:
                self._found = await self._reviewer.trust()
        except ReviewError as err:
            if not tolerate:
                raise EndpointError(
                    f"the cluster's CAs of client certificates cannot be read: {err}. Grant the rights of the"
                    " Role extension-apiserver-authentication-reader in kube-system, or set"
                    " --authentication-tolerate-lookup-failure or --authentication-skip-lookup"
                ) from err
            log.warning("endpoints.trust_unknown", problem=str(err))
        trust = _merged(self._given, self._found)
        if trust == self._authentication.trust:
            return False
        try:
            self._authorities = ClientAuthorities(trust)
        except ValueError as err:
            log.error("endpoints.certificate_refused", problem=f"the CA of client certificates: {err}")
            return False
        self._authentication.trust = trust
        return True

    # --- one request -------------------------------------------------------------------------------

    async def _handle(self, raw: BaseRequest) -> web.StreamResponse:
        try:
            answer = await self._answer(raw)
        except Exception as err:  # An error of a page must not end the connection or the server.
            left_out = self._failures.take()
            if left_out is not None:
                log.error("endpoints.failed", path=raw.path, exc_info=err, left_out=left_out)
            answer = failure(500, "InternalError", f"an error on the server: {type(err).__name__}")
        return await sent(raw, answer)

    async def _answer(self, raw: BaseRequest) -> Answer:
        headers: dict[str, list[str]] = {}
        for name, value in raw.headers.items():
            headers.setdefault(name.lower(), []).append(value)
        request = Request(
            method=raw.method,
            path=raw.path,
            query=query_of(raw),
            accept=",".join(headers.get("accept", ())),
        )
        refused, user = await self._refused(raw, headers, request)
        if refused is not None:
            await self._door.stranger_turn(raw)
            return refused
        if user is ANONYMOUS or self._authorization.is_open(request.path):
            # Everybody may ask, so a caller is no better known.
            await self._door.stranger_turn(raw)
        else:
            self._door.know(raw)
        request = replace(request, user=user)
        if request.method in ("PUT", "POST"):
            # The body is read only after the right was checked.
            self._door.know(raw)
            body = await _body(raw)
            if body is None:
                return failure(
                    413, "RequestEntityTooLarge", f"the body has more than {_MAX_BODY_BYTES} bytes"
                )
            request = replace(request, body=body)
        return await self._page(request)

    async def _refused(
        self, raw: BaseRequest, headers: dict[str, list[str]], request: Request
    ) -> tuple[Answer | None, User]:
        """Return the refusal of a request, or None and the user who may ask."""
        door = self._door
        peer = door.peer_of(raw)
        try:
            user = await self._authentication.user_of(headers, door.certificate_of(raw), peer)
            if user is None:
                door.refused("unauthenticated")
                return unauthorized(), ANONYMOUS
            if not await self._authorization.may(user, request.method, request.path, peer):
                door.refused("forbidden")
                return forbidden(replace(request, user=user)), user
        except BusyError as err:
            door.refused("busy")
            return too_many(str(err)), ANONYMOUS
        return None, user

    async def _page(self, request: Request) -> Answer:
        page = self._pages.get(request.path)
        if page is not None:
            return await page(request)
        kind, _, name = request.path[1:].partition("/")
        if kind in KINDS:
            return self._health.answer(kind, name, request)
        for prefix, handler in self._routes.items():
            if request.path.startswith(prefix):
                return await handler(request)
        return not_found()


async def _body(raw: BaseRequest) -> bytes | None:
    """Return the whole body; None if it is too large."""
    body = bytearray()
    while chunk := await raw.content.read(_MAX_BODY_BYTES + 1 - len(body)):
        body += chunk
        if len(body) > _MAX_BODY_BYTES:
            return None
    return bytes(body)


def _read_again(given: ClientTrust, options: ServingOptions) -> ClientTrust:
    """Return `given` with the CAs that the flags' files have now. A file that holds no certificate, as it is
    being written, changes nothing.
    """
    client_ca = _pem_of(options.client_ca_file, given.client_ca)
    return replace(given, client_ca=client_ca, proxy_ca=_pem_of(options.proxy_ca_file, given.proxy_ca))


def _pem_of(path: Path | None, before: str) -> str:
    if path is None:
        return before
    try:
        text = path.read_text(encoding="ascii")
        return text if x509.load_pem_x509_certificates(text.encode()) else before
    except (OSError, ValueError) as err:
        log.error("endpoints.certificate_refused", problem=f"{path}: {err}")
        return before


def _merged(given: ClientTrust, found: ClientTrust) -> ClientTrust:
    """Return the CAs from the flags, and for unset ones the cluster's."""
    proxy = given if given.proxy_ca else found
    return ClientTrust(
        client_ca=given.client_ca or found.client_ca,
        proxy_ca=proxy.proxy_ca,
        proxy_names=proxy.proxy_names,
        user_headers=proxy.user_headers,
        uid_headers=proxy.uid_headers,
        group_headers=proxy.group_headers,
        extra_prefixes=proxy.extra_prefixes,
    )


def _bound(address: str, port: int) -> socket.socket:
    """Return a listening socket; `::` also accepts IPv4. Raises EndpointError."""
    shown = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    try:
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        both = family == socket.AF_INET6 and address == "::" and socket.has_dualstack_ipv6()
        return socket.create_server((address, port), family=family, dualstack_ipv6=both, backlog=BACKLOG)
    except OSError as err:
        if err.errno == errno.EADDRINUSE:
            problem = "the port is in use; stop its process, or choose another --secure-port (0: none)"
        elif err.errno == errno.EADDRNOTAVAIL:
            problem = "this machine does not have the address; correct --bind-address"
        elif err.errno == errno.EACCES:
            problem = "not allowed; ports below 1024 need the capability NET_BIND_SERVICE"
        else:
            problem = err.strerror or str(err)
        raise EndpointError(f"cannot listen on {shown}: {problem}") from err
