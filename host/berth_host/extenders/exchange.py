"""`Exchange`: POSTs to one HTTP extender, in time and of bounded size, over kept connections.

Made by `client` at the first call, because few configurations have extenders and the import of aiohttp takes
time. Every failure becomes an `ExtenderError` with the words of net/http and kube-scheduler, so that a pod's
condition reads the same.
Source: kube-scheduler `pkg/scheduler/extender.go` (send, makeTransport), v1.36; net/http `client.go`.
"""

from __future__ import annotations

import asyncio
import io
import os
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from berth_host.config.checks.extender_tls import load_client_pair
from berth_host.config.decoding.types_v1 import Extender, ExtenderTls
from berth_host.config.secrets import masked
from berth_host.errors.extenders import ExtenderError, ExtenderOutcomeUnknownError
from berth_host.metrics.series import instant_s

MOST_ANSWERED: Final = 32 * 2**20
"""The most bytes of an answer, beside twice the size of its request: an answer may repeat the request's
nodes."""
_KEEP_ALIVE_S: Final = 30.0
_MOST_REDIRECTS: Final = 10
_READ_SIZE: Final = 2**20
_ONE_PIECE: Final = 2**20
_RELOAD_S: Final = 10.0
"""Seconds between two looks at the files of a client certificate."""
_HEADERS: Final = {
    # The headers that kube-scheduler sends. A proxy or an extender that looks at them sees no difference.
    "User-Agent": "Go-http-client/1.1",
    "Content-Type": "application/json",
    "Accept-Encoding": "gzip",
}
_LOOPBACK: Final = ("localhost", "::1")
_UNKNOWN_AUTHORITY: Final = (2, 18, 19, 20, 21)
_OUT_OF_DATE: Final = (9, 10)


class Exchange:
    """The HTTP session of one extender. `settings`: its entry in the configuration."""

    def __init__(self, settings: Extender) -> None:
        self._settings = settings
        self._base = settings.url_prefix.rstrip("/")
        self._tls = _Tls(settings)
        self._proxy = _proxy_for(self._base)
        self._session: aiohttp.ClientSession | None = None

    async def post(self, verb: str, body: bytes) -> bytes:
        """Send one request and return the body of its answer. Raises ExtenderError."""
        url = f"{self._base}/{verb}"
        progress = SimpleNamespace(reused=False, headers=False)
        try:
            async with asyncio.timeout(self._settings.http_timeout_s):
                try:
                    return await self._once(verb, url, body, progress)
                except (aiohttp.ServerDisconnectedError, ConnectionResetError):
                    # The extender closed a kept connection while the request was on its way. Ask again
                    # on a new one, as net/http does. A Binding is never sent twice.
                    if not progress.reused or progress.headers or verb == self._settings.bind_verb:
                        raise
                    progress.reused = False
                    return await self._once(verb, url, body, progress)
        except TimeoutError as err:
            where = (
                "Client.Timeout or context cancellation while reading body"
                if progress.headers
                else "Client.Timeout exceeded while awaiting headers"
            )
            text = f"context deadline exceeded ({where})"
            raise ExtenderOutcomeUnknownError(
                text if progress.headers else _post(url, text), "timeout"
            ) from err
        except aiohttp.ClientPayloadError as err:
            raise ExtenderOutcomeUnknownError("unexpected EOF", "cut_off") from err
        except (aiohttp.ClientError, OSError, ValueError) as err:
            text, is_known = _problem(err, url)
            raised = ExtenderError if is_known else ExtenderOutcomeUnknownError
            raise raised(_post(url, text), "unavailable") from err

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _once(self, verb: str, url: str, body: bytes, progress: SimpleNamespace) -> bytes:
        session = self._session or self._opened()
        async with session.post(
            url,
            # Small bodies go out in one piece with the head; of large ones the loop would be held up.
            data=body if len(body) < _ONE_PIECE else io.BytesIO(body),
            ssl=self._tls.context(),
            server_hostname=self._tls.server_name,
            proxy=self._proxy,
            max_redirects=_MOST_REDIRECTS,
            trace_request_ctx=progress,
        ) as response:
            progress.headers = True
            if response.status != 200:
                shown = masked(url)
                raise ExtenderOutcomeUnknownError(
                    f"failed {verb} with extender at URL {shown}, code {response.status}", "refused"
                )
            return await _read(response, MOST_ANSWERED + 2 * len(body))

    def _opened(self) -> aiohttp.ClientSession:
        tracing = aiohttp.TraceConfig()
        tracing.on_connection_reuseconn.append(_note_reuse)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=_HEADERS,
            skip_auto_headers=("Accept",),
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=_READ_SIZE,
            trace_configs=[tracing],
        )
        return self._session


async def _note_reuse(_: Any, context: SimpleNamespace, __: Any) -> None:
    context.trace_request_ctx.reused = True


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Return the whole body. Raises ExtenderError for one that is larger than `most` bytes."""
    length = response.content_length
    parts: list[bytes] = []
    size = 0
    if length is None or length <= most:
        async for part in response.content.iter_any():
            size += len(part)
            if size > most:
                break
            parts.append(part)
        else:
            return parts[0] if len(parts) == 1 else b"".join(parts)
    # The rest is not read: the connection cannot be used again.
    response.close()
    raise ExtenderOutcomeUnknownError(
        f"the answer is larger than {most // 2**20} MiB: an extender should answer with the names of nodes"
        " (nodeCacheCapable: true)",
        "too_large",
    )


def _proxy_for(url: str) -> str | None:
    """Return the proxy that HTTP_PROXY and its like name; None for an address of this machine, as in Go.

    aiohttp's `trust_env` would also send the passwords of ~/.netrc.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return None
    if host in _LOOPBACK or host.startswith("127.") or proxy_bypass(host):
        return None
    return getproxies().get(parts.scheme)


def _post(url: str, text: str) -> str:
    return f'Post "{masked(url)}": {text}'


def _problem(err: Exception, url: str) -> tuple[str, bool]:
    """Return net/http's words for a failed exchange, and whether the request cannot have had an effect."""
    if isinstance(err, aiohttp.ClientConnectorDNSError):
        return f"dial tcp: lookup {urlsplit(url).hostname}: no such host", True
    if isinstance(err, aiohttp.ClientConnectorCertificateError):
        return f"tls: failed to verify certificate: {_certificate_problem(err.certificate_error)}", True
    if isinstance(err, aiohttp.ClientConnectorError):
        cause = err.os_error
        if isinstance(cause, ssl.SSLError):
            if "WRONG_VERSION_NUMBER" in str(cause) or "HTTP_REQUEST" in str(cause):
                return "http: server gave HTTP response to HTTPS client", True
            return f"remote error: tls: {_lower(cause.reason or str(cause))}", True
        return f"dial tcp {err.host}:{err.port}: connect: {_errno_text(cause)}", True
    if isinstance(err, aiohttp.TooManyRedirects):
        return f"stopped after {_MOST_REDIRECTS} redirects", False
    if isinstance(err, aiohttp.ServerDisconnectedError):
        message = err.message
        if isinstance(message, str) or message is None or not str(message):
            return "EOF", False
        return f"net/http: HTTP/1.x transport connection broken: {message}", False
    if isinstance(err, aiohttp.NonHttpUrlClientError | ValueError):
        scheme = urlsplit(url).scheme if "://" in url else ""
        if scheme in ("http", "https"):
            return f"invalid URL: {err}", True
        return f'unsupported protocol scheme "{scheme}"', True
    if isinstance(err, aiohttp.ClientResponseError):
        return (
            f"net/http: HTTP/1.x transport connection broken: malformed HTTP response: {err.message}",
            False,
        )
    if isinstance(err, OSError) and err.errno:
        return _errno_text(err), False
    return f"{type(err).__name__}: {err}", False


def _errno_text(err: OSError) -> str:
    """Return the system's text of an error; asyncio and uvloop have texts of their own."""
    return os.strerror(err.errno).lower() if err.errno else str(err)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:].replace("_", " ")


def _certificate_problem(err: Exception) -> str:
    code = getattr(err, "verify_code", 0)
    if code in _UNKNOWN_AUTHORITY:
        return "x509: certificate signed by unknown authority"
    if code in _OUT_OF_DATE:
        return "x509: certificate has expired or is not yet valid"
    return f"x509: {getattr(err, 'verify_message', '') or err}"


class _Tls:
    """The TLS of one extender, made anew when the files of its client certificate have changed."""

    def __init__(self, settings: Extender) -> None:
        self._settings = settings.tls or ExtenderTls()
        self._is_https = settings.enable_https
        self._is_https_url = settings.url_prefix.lower().startswith("https:")
        self._context: ssl.SSLContext | None = None
        self._looked_s = 0.0
        self._seen: tuple[int, ...] = ()
        self.server_name = self._settings.server_name or None

    def context(self) -> ssl.SSLContext | bool:
        """Return the context of the next request. Raises OSError for files that cannot be read."""
        tls = self._settings
        if not self._is_https_url and self._settings == ExtenderTls():
            return True
        if self._context is not None and instant_s() - self._looked_s < _RELOAD_S:
            return self._context
        self._looked_s = instant_s()
        seen = tuple(_changed_ns(path) for path in (tls.ca_file, tls.cert_file, tls.key_file) if path)
        if self._context is None or seen != self._seen:
            self._context, self._seen = self._made(), seen
        return self._context

    def _made(self) -> ssl.SSLContext:
        tls = self._settings
        has_ca = bool(tls.ca_data or tls.ca_file)
        if tls.ca_data:
            context = ssl.create_default_context(cadata=tls.ca_data.decode("ascii", "ignore"))
        else:
            context = ssl.create_default_context(cafile=tls.ca_file or None)
        if tls.insecure or (self._is_https and not has_ca):
            # HTTPS without any CA means: do not verify.
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        # Go's TLS has no such strict check, and the certificates of many clusters would fail it.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        load_client_pair(context, tls)
        return context


def _changed_ns(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0
