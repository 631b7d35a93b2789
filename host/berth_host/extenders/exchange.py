"""`Exchange`: POSTs to one HTTP extender, in time and of bounded size, over kept connections.

Made by `client` at the first call, because few configurations have extenders and the import of aiohttp takes
time. Every failure becomes an `ExtenderError` with the words of net/http and kube-scheduler, so that a pod's
condition reads the same.
Source: kube-scheduler `pkg/scheduler/extender.go` (send, makeTransport), v1.36; net/http `client.go`.
"""

from __future__ import annotations

import ast
import asyncio
import io
import os
import re
import ssl
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies

import aiohttp
import orjson
from berth_sdk.clocks import work_s
from berth_sdk.json.reader import read_deep_json
from berth_sdk.wire.traces import TRACEPARENT
from berth_sdk.wire.verification import verify_as_go
from yarl import URL

from berth_host.config.checks.extender_tls import load_client_pair
from berth_host.config.decoding.types_v1 import Extender, ExtenderTls
from berth_host.errors.extenders import ExtenderError, ExtenderOutcomeUnknownError
from berth_host.log.secrets import masked
from berth_host.model.no_proxy import goes_direct
from berth_host.model.session_sockets import SessionSockets

MOST_ANSWERED: Final = 32 * 2**20
"""The most bytes of an answer, beside twice the size of its request: an answer may repeat the request's
nodes."""
_KEEP_ALIVE_S: Final = 30.0
_MOST_REDIRECTS: Final = 10
_READ_SIZE: Final = 2**20
_HEADER_SIZE: Final = 2**16
"""The most bytes of one line of an answer's head."""
_ONE_PIECE: Final = 2**20
_RELOAD_S: Final = 10.0
"""Seconds between two looks at the files of a client certificate."""
_HEADERS: Final = {
    # The headers that kube-scheduler sends. A proxy or an extender that looks at them sees no difference.
    "User-Agent": "Go-http-client/1.1",
    "Content-Type": "application/json",
    "Accept-Encoding": "gzip",
}
_UNKNOWN_AUTHORITY: Final = (2, 18, 19, 20, 21)
_OUT_OF_DATE: Final = (9, 10)
_OF_ANOTHER: Final = (62, 64)
_BROKEN: Final = "net/http: HTTP/1.x transport connection broken: "
_STATUS_LINE: Final = re.compile(r"Bad status line:.*?(b'.*'|b\".*\")$", re.DOTALL | re.MULTILINE)
_ALERT: Final = re.compile(r"(?:TLSV\d+|SSLV3)_ALERT_(\w+)")


@dataclass(slots=True)
class _Progress:
    """The progress of a request. `url`: the last URL, after redirects; `location`: the last redirect's own
    text. `reused`: over a kept connection.

    `traceparent`: the header of a traced request; empty: none. `headers`: the head of the answer arrived.
    `parts`: the part of the body that arrived.
    """

    url: str
    location: str = ""
    traceparent: str = ""
    reused: bool = False
    headers: bool = False
    parts: list[bytes] = field(default_factory=list)

    def whole(self) -> bytes | None:
        """Return the body if it is a whole JSON value, else None.

        kube-scheduler reads an answer until its value ends, so what happens to the rest does not matter.
        """
        body = b"".join(self.parts)
        try:
            orjson.loads(body)
        except orjson.JSONDecodeError:
            return _shallow(body)
        return body


def _shallow(body: bytes) -> bytes | None:
    """Return an answer with null in place of what is nested too deeply for any parser; None for no JSON.

    An extender sends back the nodes that it got, and of these only the names are read.
    """
    try:
        return orjson.dumps(read_deep_json(body), default=lambda _: None)
    except ValueError:
        return None


class Exchange:
    """The HTTP session of one extender. `settings`: its entry in the configuration."""

    def __init__(self, settings: Extender) -> None:
        self._settings = settings
        self._base = settings.url_prefix.rstrip("/")
        # As in net/http, a negative limit is none.
        self._limit_s = settings.http_timeout_s if settings.http_timeout_s > 0 else None
        self._tls = _Tls(settings)
        self._proxy = _proxy_for(self._base)
        self._session: aiohttp.ClientSession | None = None
        self._sockets = SessionSockets()

    def shown_url(self, verb: str) -> str:
        """Return the URL of a verb, without what may be secret."""
        return str(masked(f"{self._base}/{verb}".partition("?")[0]))

    async def post(self, verb: str, body: bytes, traceparent: str = "") -> bytes:
        """Send one request and return the body of its answer. Raises ExtenderError.

        `traceparent`: the header of a traced request; empty: none.
        """
        url = f"{self._base}/{verb}"
        if problem := _parse_problem(url):
            raise ExtenderError(f'parse "{masked(url)}": {problem}', "unavailable")
        progress = _Progress(url, traceparent=traceparent)
        try:
            async with asyncio.timeout(self._limit_s):
                try:
                    return await self._once(verb, url, body, progress)
                except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionResetError):
                    # The extender closed or reset a kept connection while the request was on its way. Ask
                    # again on a new one, as net/http does. A Binding is never sent twice.
                    if not progress.reused or progress.headers or verb == self._settings.bind_verb:
                        raise
                    progress.reused = False
                    return await self._once(verb, url, body, progress)
        except TimeoutError as err:
            if (whole := progress.whole()) is not None:
                return whole
            where = (
                "Client.Timeout or context cancellation while reading body"
                if progress.headers
                else "Client.Timeout exceeded while awaiting headers"
            )
            text = f"context deadline exceeded ({where})"
            raise ExtenderOutcomeUnknownError(
                text if progress.headers else _post(progress.url, text), "timeout"
            ) from err
        except (aiohttp.ClientPayloadError, zlib.error) as err:
            if (whole := progress.whole()) is not None:
                return whole
            text = "gzip: invalid header" if isinstance(err, zlib.error) else "unexpected EOF"
            raise ExtenderOutcomeUnknownError(text, "cut_off") from err
        except (aiohttp.ClientError, OSError, ValueError) as err:
            text, is_known = _problem(err, progress.url)
            # A request that was redirected has been at the extender.
            raised = ExtenderError if is_known and progress.url == url else ExtenderOutcomeUnknownError
            # net/http names a redirect too many by the text of its header.
            where = progress.location if isinstance(err, aiohttp.TooManyRedirects) else progress.url
            raise raised(_post(where, text), "unavailable") from err

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            await self._sockets.end()
            self._session = None

    async def _once(self, verb: str, url: str, body: bytes, progress: _Progress) -> bytes:
        session = self._session or self._opened()
        async with session.post(
            url,
            # Small bodies go out in one piece with the head; of large ones the loop would be held up.
            data=body if len(body) < _ONE_PIECE else io.BytesIO(body),
            headers={TRACEPARENT: progress.traceparent} if progress.traceparent else None,
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
            return await _read(response, MOST_ANSWERED + 2 * len(body), progress.parts)

    def _opened(self) -> aiohttp.ClientSession:
        tracing = aiohttp.TraceConfig()
        tracing.on_connection_reuseconn.append(_note_reuse)
        tracing.on_connection_create_start.append(_note_new)
        tracing.on_request_redirect.append(_note_redirect)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=_KEEP_ALIVE_S, socket_factory=self._sockets.make
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=_HEADERS,
            skip_auto_headers=("Accept",),
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=_READ_SIZE,
            max_line_size=_HEADER_SIZE,
            max_field_size=_HEADER_SIZE,
            auto_decompress=False,
            trace_configs=[tracing],
        )
        return self._session


async def _note_reuse(_: Any, context: SimpleNamespace, __: Any) -> None:
    context.trace_request_ctx.reused = True


async def _note_new(_: Any, context: SimpleNamespace, __: Any) -> None:
    context.trace_request_ctx.reused = False


async def _note_redirect(_: Any, context: SimpleNamespace, redirect: Any) -> None:
    progress: _Progress = context.trace_request_ctx
    location = redirect.response.headers.get("Location", "")
    to = redirect.url.join(URL(location))
    progress.url, progress.location = str(to), location
    # The headers of the next request, as net/http sends them.
    headers = redirect.headers
    headers.popall("Referer", None)
    if not (redirect.url.scheme == "https" and to.scheme == "http"):
        headers["Referer"] = str(redirect.url.with_user(None))
    if redirect.response.status not in (307, 308):
        headers.popall("Content-Type", None)  # a GET without a body


async def _read(response: aiohttp.ClientResponse, most: int, parts: list[bytes]) -> bytes:
    """Return the whole body, and put it into `parts` as it comes.

    Raises ExtenderError for a body of more than `most` bytes, aiohttp.ClientPayloadError for one that is cut
    off, and zlib.error for one that is no gzip although its head says so.
    """
    length = response.content_length
    size = 0
    if length is None or length <= most:
        async for part in _unpacked(response):
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


async def _unpacked(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the body in pieces of bounded size. As in net/http, gzip is the only encoding."""
    if response.headers.get("Content-Encoding", "").lower() != "gzip":
        async for part in response.content.iter_any():
            yield part
        return
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    async for part in response.content.iter_any():
        packed = part
        while packed and not unpacker.eof:
            yield unpacker.decompress(packed, _READ_SIZE)
            packed = unpacker.unconsumed_tail
    if not unpacker.eof:
        raise aiohttp.ClientPayloadError


def _proxy_for(url: str) -> str | None:
    """Return the proxy that HTTP_PROXY and its like name; None if requests go to the extender directly.

    aiohttp's `trust_env` would also send the passwords of ~/.netrc.
    """
    try:
        parts = urlsplit(url)
        if goes_direct(parts):
            return None
    except ValueError:
        return None
    return getproxies().get(parts.scheme)


def _post(url: str, text: str) -> str:
    return f'Post "{masked(url)}": {text}'


def _parse_problem(url: str) -> str:
    """Return Go's words for a text that is no URL; "" for any other."""
    first = url.partition("/")[0]
    if ":" in first and not first[:1].isalpha():
        return "first path segment in URL cannot contain colon"
    try:
        port = urlsplit(url).netloc.rpartition("@")[2].rpartition("]")[2].partition(":")[2]
    except ValueError:
        return "missing ']' in host" if "[" in url else "invalid URL"
    if port and not (port.isascii() and port.isdigit()):
        return f"invalid port {_quoted(f':{port}')} after host"
    return ""


def _problem(err: Exception, url: str) -> tuple[str, bool]:
    """Return net/http's words for a failed exchange, and whether the request cannot have had an effect."""
    if isinstance(err, aiohttp.ClientConnectorDNSError):
        return f"dial tcp: lookup {urlsplit(url).hostname}: no such host", True
    if isinstance(err, aiohttp.ClientConnectorCertificateError):
        return f"tls: failed to verify certificate: {_certificate_problem(err.certificate_error)}", True
    if isinstance(err, aiohttp.ClientConnectorError):
        cause = err.os_error
        if isinstance(cause, ssl.SSLError):
            return _tls_problem(cause), True
        host = f"[{err.host}]" if ":" in err.host else err.host
        return f"dial tcp {host}:{err.port}: connect: {_errno_text(cause)}", True
    if isinstance(err, aiohttp.TooManyRedirects):
        return f"stopped after {_MOST_REDIRECTS} redirects", False
    if isinstance(err, aiohttp.ServerDisconnectedError):
        if isinstance(err.message, str) or not err.message:
            return "EOF", False
        # The connection ended within the head of the answer.
        return f"{_BROKEN}unexpected EOF", False
    if isinstance(err, aiohttp.NonHttpUrlClientError | ValueError):
        scheme = urlsplit(str(err)).scheme if isinstance(err, aiohttp.InvalidURL) else ""
        scheme = scheme or urlsplit(url).scheme
        if scheme in ("http", "https"):
            port = urlsplit(url).netloc.rpartition(":")[2]
            if port.isdigit():
                return f"dial tcp: address {port}: invalid port", True
            return f"invalid URL: {err}", True
        return f'unsupported protocol scheme "{scheme}"', True
    if isinstance(err, aiohttp.ClientResponseError):
        return f"{_BROKEN}{_malformed(str(err.message))}", False
    if isinstance(err, ssl.SSLError):
        return _tls_problem(err), False
    if isinstance(err, OSError) and err.errno:
        return _errno_text(err), False
    return f"{type(err).__name__}: {err}", False


def _malformed(said: str) -> str:
    """Return net/http's words for a malformed head, in one line."""
    found = _STATUS_LINE.search(said)
    if found is None:
        return f"malformed HTTP response: {' '.join(said.split())}"
    line = ast.literal_eval(found[1]).decode("latin-1")
    _, space, rest = line.partition(" ")
    code = rest.strip().partition(" ")[0]
    if not space:
        return f"malformed HTTP response {_quoted(line)}"
    if not (len(code) == 3 and code.isdigit()):
        return f"malformed HTTP status code {_quoted(code)}"
    return f"malformed HTTP version {_quoted(line.partition(' ')[0])}"


def _quoted(text: str) -> str:
    return orjson.dumps(text[:200]).decode()


def _tls_problem(err: ssl.SSLError) -> str:
    """Return the words of Go's TLS for a handshake that failed."""
    reason = err.reason or str(err)
    if "WRONG_VERSION_NUMBER" in reason or "HTTP_REQUEST" in reason or "RECORD_LAYER_FAILURE" in reason:
        return "http: server gave HTTP response to HTTPS client"
    alert = _ALERT.fullmatch(reason)
    return f"remote error: tls: {(alert[1] if alert else reason).lower().replace('_', ' ')}"


def _errno_text(err: OSError) -> str:
    """Return the system's text of an error; asyncio and uvloop have texts of their own."""
    return os.strerror(err.errno).lower() if err.errno else str(err)


def _certificate_problem(err: Exception) -> str:
    code = getattr(err, "verify_code", 0)
    if code in _UNKNOWN_AUTHORITY:
        return "x509: certificate signed by unknown authority"
    if code in _OUT_OF_DATE:
        return "x509: certificate has expired or is not yet valid"
    if code in _OF_ANOTHER:
        return "x509: certificate is valid for another name: set tlsConfig.serverName to its name"
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
        """Return the context of the next request.

        Raises ExtenderError for files that cannot be used, unless an earlier form of them could: they may be
        about to be replaced.
        """
        tls = self._settings
        if not self._is_https_url and self._settings == ExtenderTls():
            return True
        if self._context is not None and work_s() - self._looked_s < _RELOAD_S:
            return self._context
        self._looked_s = work_s()
        seen = tuple(_changed_ns(path) for path in (tls.ca_file, tls.cert_file, tls.key_file) if path)
        if self._context is None or seen != self._seen:
            try:
                self._context, self._seen = self._made(), seen
            except (OSError, ValueError) as err:
                if self._context is None:
                    raise ExtenderError(_unusable(err), "unavailable") from err
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
        load_client_pair(context, tls)
        return verify_as_go(context)


def _unusable(err: Exception) -> str:
    """Return what is wrong with the files of a TLS configuration."""
    if isinstance(err, OSError) and err.filename and not isinstance(err, ssl.SSLError):
        return f"open {err.filename}: {_errno_text(err)}: put the file there, or correct tlsConfig"
    return "tls: the files of tlsConfig are no certificates, or the key is that of another certificate"


def _changed_ns(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0
