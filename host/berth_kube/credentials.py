"""`Credentials`: the API server's address, trusted CAs and client credentials, kept up to date.

Opened by `client`, which checks them before every request. `server` reads the fixed fields; token files,
certificate files and exec plugins are read again here when they are due.
Source: client-go `tools/clientcmd`, `transport/token_source.go` and `plugin/pkg/client/auth/exec`, v1.36.
"""

from __future__ import annotations

import asyncio
import math
import ssl
import urllib.request
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from berth_host.errors.cluster import ClientConfigError
from berth_host.log import get_logger
from berth_host.model.in_memory import load_pair
from berth_host.model.no_proxy import goes_direct
from berth_host.model.paths import why_unread
from berth_sdk.clocks import monotonic_s, wall_s
from berth_sdk.rfc3339 import parse_time

from berth_kube import exec_plugin, server
from berth_kube.connection import Connection
from berth_kube.exec_plugin import ExecPluginError, cluster_of
from berth_kube.kubeconfig import Entry, read_kubeconfig
from berth_kube.kubeconfig_fields import check_proxy, check_server_name
from berth_kube.server import Server

log = get_logger()

FILE_PERIOD_S: Final = 60.0
"""Seconds after which files are read again."""
EXPIRY_MARGIN_S: Final = 10.0
"""Seconds before its expiry at which an exec plugin's answer is renewed."""
RETRY_S: Final = 10.0
"""Seconds after a failed read of a plugin or a file before the next one; the old answer stays in use."""


Current = tuple[str, ssl.SSLContext]
"""The Authorization header, and the context with the client certificate."""


class Credentials:
    """The credentials for one API server.

    Attributes: host (URL without a final slash), server_hostname and proxy (None: as the URL says),
    authorization (a header's value, empty for none), impersonation (headers and their values), ssl_context,
    http2_context (the same, for connections that may speak HTTP/2), and takes_compressed (False with
    `disable-compression` in the kubeconfig).
    """

    def __init__(
        self,
        server: Server,
        entry: Entry | None,
        token_file: Path | None,
        exec_cluster: Mapping[str, Any] | None = None,
    ) -> None:
        self._server = server
        self._entry = entry
        self._token_file = token_file
        self._exec: Any = entry.exec_plugin if entry is not None else None
        self._exec_cluster = exec_cluster
        self._lock = asyncio.Lock()
        self._certificate: tuple[bytes, bytes] | None = None
        self.host, in_url = _without_user(server.host.rstrip("/"))
        self.server_hostname: str | None = server.server_name or None
        self.proxy: str | None = server.proxy or proxy_of_environment(self.host)
        self.impersonation = entry.impersonation if entry is not None else ()
        self.takes_compressed = entry is None or not entry.disables_compression
        self.authorization: str = server.authorization or in_url
        if entry is not None:
            _check_header(self.authorization, f"the token of kubeconfig {str(entry.path)!r}")
        self.ssl_context = server.ssl_context()
        self.http2_context = _offering_http2(server.ssl_context())
        self.due_s = math.inf
        """The monotonic time, in seconds, from which on `refresh` reads again."""

    @classmethod
    async def open(cls, connection: Connection) -> Credentials:
        """Read the kubeconfig or the service account, and the credentials. Raises ClientConfigError."""
        entry: Entry | None = None
        token_file: Path | None = None
        if connection.kubeconfig:
            entry = read_kubeconfig(connection.kubeconfig, connection.master, connection.context)
            found = await server.of_kubeconfig(entry)
            token_file = entry.token_file
        elif not connection.master:
            found = server.of_service_account()
            token_file = server.TOKEN_FILE
        else:
            found = Server(host=connection.master)
        if connection.master:
            found = replace(found, host=connection.master)
        _check_host(found.host)
        try:
            opened = cls(found, entry, token_file, _exec_cluster(entry, connection.master))
        except (OSError, ValueError) as err:  # ssl.SSLError is an OSError.
            where = connection.kubeconfig or "the service account"
            raise ClientConfigError(
                f"{where}: certificate-authority cannot be used: {err}; it needs certificates in PEM"
            ) from err
        await opened._read()
        return opened

    @property
    def current(self) -> Current:
        """The credentials that requests have now."""
        return self.authorization, self.ssl_context

    async def refresh(self, *, refused: Current | None = None) -> bool:
        """Read the files again; return True if the credentials changed.

        `refused`: the credentials that the server refused. They are read again before they are due, unless
        newer ones are in use already. A failure is logged, and the old credentials stay in use.
        """
        before = self.current if refused is None else refused
        async with self._lock:
            # Another task may have read the files, before this one came or while it waited for the lock.
            is_done = self.current != before
            if not is_done and (refused is not None or monotonic_s() >= self.due_s):
                try:
                    await self._read()
                except (ClientConfigError, OSError, ValueError) as err:
                    # OSError: a CA file is missing; it is read again with each new certificate.
                    self.due_s = monotonic_s() + RETRY_S
                    log.error("client.credentials_failed", error=str(err))
        return self.current != before

    async def _read(self) -> None:
        if self._exec is not None:
            await self._run_plugin()
            return
        if self._token_file is not None:
            self.authorization = f"Bearer {_read_token(self._token_file)}"
            self.due_s = monotonic_s() + FILE_PERIOD_S
        certificate, key = (self._entry.certificate, self._entry.key) if self._entry else (None, None)
        if certificate is not None or key is not None:
            if certificate is None or key is None:
                raise ClientConfigError("client-certificate and client-key go together; set both or neither")
            self._use_certificate(_pem(certificate), _pem(key))
            if isinstance(certificate, Path) or isinstance(key, Path):
                self.due_s = monotonic_s() + FILE_PERIOD_S

    async def _run_plugin(self) -> None:
        command = self._exec["command"]
        hint = self._exec.get("installHint") or "check users[].user.exec of the kubeconfig"
        try:
            status = await exec_plugin.run(self._exec, self._exec_cluster)
        except ExecPluginError as err:
            raise ClientConfigError(f"exec plugin {command!r} gave no credentials: {err}; {hint}") from err
        token, certificate, key = (
            status.get(name) for name in ("token", "clientCertificateData", "clientKeyData")
        )
        try:
            due_s = monotonic_s() + _life_s(status.get("expirationTimestamp"))
        except ValueError as err:
            raise ClientConfigError(
                f"exec plugin {command!r} gave no credentials: expirationTimestamp: {err}; {hint}"
            ) from err
        if not token and not (certificate and key):
            raise ClientConfigError(
                f"exec plugin {command!r} answered neither token nor client certificate and key; {hint}"
            )
        if token:
            _check_header(str(token), f"the token of exec plugin {command!r}")
            self.authorization = f"Bearer {token}"
        if certificate and key:
            self._use_certificate(str(certificate).encode(), str(key).encode())
        self.due_s = due_s

    def _use_certificate(self, certificate: bytes, key: bytes) -> None:
        if self._certificate == (certificate, key):
            return
        context, http2_context = self._server.ssl_context(), self._server.ssl_context()
        for one in (context, http2_context):
            _load_certificate(one, certificate, key)
        self.http2_context = _offering_http2(http2_context)
        # Connections are keyed by their context, so a new context prevents the use of old connections.
        self.ssl_context = context
        self._certificate = certificate, key

    def show_certificate_in(self, context: ssl.SSLContext) -> None:
        """Load the client certificate, if there is one, into a context that trusts other servers."""
        if self._certificate is not None:
            _load_certificate(context, *self._certificate)


def _offering_http2(context: ssl.SSLContext) -> ssl.SSLContext:
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def _load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    try:
        load_pair(context, certificate, key)
    except OSError as err:
        raise ClientConfigError(
            f"the client certificate and its key cannot be used: {err}; they need PEM, and each other,"
            " and a key that is not encrypted"
        ) from err


def _exec_cluster(entry: Entry | None, master: str) -> Mapping[str, Any] | None:
    plugin = entry.exec_plugin if entry is not None else None
    if entry is None or plugin is None or not plugin.get("provideClusterInfo"):
        return None
    return cluster_of(entry, master)


def _without_user(url: str) -> tuple[str, str]:
    """Return a server's URL without `user:password@`, and these as an Authorization header.

    As in Go's client, the header is used if the kubeconfig has no other credentials. It is empty if the URL
    has no user.
    """
    parts = urlsplit(url)
    user, at, server = parts.netloc.rpartition("@")
    if not at:
        return url, ""
    name, _, password = user.partition(":")
    encoded = b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode("ascii")
    return parts._replace(netloc=server).geturl(), f"Basic {encoded}"


def _check_host(host: str) -> None:
    try:
        parts = urlsplit(host)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        check_server_name(parts.hostname or "")
    except ValueError:
        is_good = False
    if not is_good:
        raise ClientConfigError(f"server {host!r} is not a URL; write it as https://HOST:PORT")


def _read_token(path: Path) -> str:
    try:
        # A file written by an editor or by echo ends in a line feed, which a header must not contain.
        token = path.read_text().strip()
    except (OSError, ValueError) as err:
        raise ClientConfigError(f"token file {str(path)!r} cannot be read: {err}") from err
    _check_header(token, f"token file {str(path)!r}")
    if not token:
        raise ClientConfigError(f"token file {str(path)!r} is empty; write the token into it")
    return token


def _check_header(value: str, whose: str) -> None:
    """Raise ClientConfigError, without the token in its text, if a header cannot hold `value`."""
    if any(character in value for character in "\r\n\0"):
        raise ClientConfigError(f"{whose} has a line end in it, which a header cannot hold: take it out")


def _pem(source: bytes | Path) -> bytes:
    if isinstance(source, bytes):
        return source
    try:
        return source.read_bytes()
    except (OSError, ValueError) as err:
        raise ClientConfigError(
            f"{str(source)!r} cannot be read: {why_unread(err)}; the kubeconfig names it as"
            " client-certificate or client-key"
        ) from err


def _life_s(expires: object) -> float:
    """Return the seconds until credentials that expire at `expires` must be renewed; inf for None. Raises
    ValueError.
    """
    if expires is None:
        return math.inf
    return max(parse_time(expires) - wall_s() - EXPIRY_MARGIN_S, 1.0)


def proxy_of_environment(host: str) -> str | None:
    """Return the proxy that HTTPS_PROXY, HTTP_PROXY or NO_PROXY give for `host`; None for no proxy.

    Read once, because the HTTP library would read them for every request, in a thread. Raises
    ClientConfigError.
    """
    parts = urlsplit(host)
    found = urllib.request.getproxies().get(parts.scheme)
    if not found or goes_direct(parts):
        return None
    # As in Go, a bare HOST:PORT is an http proxy.
    proxy = found if "://" in found else f"http://{found}"
    try:
        check_proxy(proxy)
    except ValueError as err:
        # The user and the password must not appear in the message.
        shown = found.rpartition("@")[2]
        raise ClientConfigError(f"{parts.scheme.upper()}_PROXY {shown!r} {err}") from err
    return proxy
