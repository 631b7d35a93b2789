"""`KubeClient`: sends requests to one API server, with credentials, rate limit and retries.

Opened by `process`. Used by `cluster`, `informer`, `calls`, `events`, leader election and the delegated
checks of the secure port. Bodies are bytes or plain JSON values, without models. Source: client-go
`rest/request.go` (retries on Retry-After), v1.36.
"""

from __future__ import annotations

import errno
import math
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
from aiohttp.client_exceptions import ClientConnectorDNSError
from berth_host.errors.cluster import ClusterError, RepeatableError, TimedOutError, UnavailableError
from berth_host.model.clock import Clock, RealClock, sleep
from berth_host.model.compact_json import json_bytes
from berth_sdk.clocks import monotonic_s, work_s

from berth_kube.answers import error_of, retry_after_s
from berth_kube.client_metrics import ClientMetrics, NoMetrics
from berth_kube.connect import DialTimeoutError, ProxyError
from berth_kube.connection import Connection
from berth_kube.credentials import Credentials
from berth_kube.limiter import RequestRate, Turns
from berth_kube.reading import ObjectReader, read_object
from berth_kube.session import Session, StreamedAnswer
from berth_kube.write_client import WriteClient
from berth_kube.write_connection import ConnectionLostError, NotActedOnError

MAX_RETRIES: Final = 10
"""The number of times that a request is sent again when the server asks for a retry."""
MAX_UNDER_WAY: Final = 64
"""The most concurrent requests, not counting those sent with `limited=False`.

Each request of the session needs a connection: with thousands of them the API server spends more time on
handshakes than on requests, and refuses the excess.
"""
_NAME_MISMATCHES: Final = (62, 64)
"""OpenSSL's verify codes for a certificate of another host name and of another address."""
_OF_PROXY: Final = (
    *(ProxyError, DialTimeoutError),
    *(aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError, ClientConnectorDNSError),
)
"""Errors that concern the proxy, if there is one: the proxy resolves the server's name."""
_NEEDS_NO_ESCAPE: Final = re.compile(r"[A-Za-z0-9:_.~-]*").fullmatch
"""Matches a text that `quote` leaves as it is, as nearly all names are, and takes a third of its time."""
_DEFAULT_TIMEOUT_S: Final = 30.0
_ANY_KIND: Final = ObjectReader("")


class KubeClient:
    """A client of one API server, for one event loop.

    `metrics` counts the requests. `clock` times the waits for the rate limit and before a retry.
    """

    def __init__(
        self,
        connection: Connection,
        credentials: Credentials,
        metrics: ClientMetrics | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.credentials = credentials
        self.metrics = metrics if metrics is not None else NoMetrics()
        self.connection = connection
        self.host = credentials.host
        self._authority = urlsplit(credentials.host).netloc.rpartition("@")[2]
        self._clock = clock if clock is not None else RealClock()
        self._limiter = RequestRate(connection.qps, connection.burst, self._clock)
        self._turns = Turns(MAX_UNDER_WAY)
        self._session = Session(credentials, connection.user_agent)
        self.lane = WriteClient(credentials, connection.user_agent)
        self.metrics.transport_count += 1
        self.metrics.transport_used(made=True)

    @classmethod
    async def open(
        cls, connection: Connection, metrics: ClientMetrics | None = None, clock: Clock | None = None
    ) -> KubeClient:
        """Read the credentials and return a client; send nothing. Raises ClientConfigError."""
        return cls(connection, await Credentials.open(connection), metrics, clock)

    async def close(self) -> None:
        """Close all connections."""
        if not self._session.is_closed:
            self.metrics.transport_count -= 1
            await self.lane.close()
            await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        timeout_s: float = _DEFAULT_TIMEOUT_S,
        resource: str = "",
        key: str = "",
        limited: bool = True,
        frequent: bool = False,
        before_sending: Callable[[], None] | None = None,
        reader: ObjectReader | None = None,
    ) -> dict[str, Any]:
        """Send a request and return its JSON answer, without managedFields; {} for an empty one. Raises
        ClusterError.

        Args:
            path: Already escaped (see `path_of`).
            timeout_s: Counted from the first turn, over all tries.
            resource, key: Named in errors.
            limited: Whether the request waits for the rate limit (qps and burst) and for one of
                MAX_UNDER_WAY turns.
            frequent: Whether it takes the way of bindings and events (`write_client`).
            before_sending: Called before every try; stops the request by raising.
            reader: Of the answer's kind, for an object that may have opaque values.
        """
        raw = await self.send(
            method,
            path,
            query=query,
            body=body if body is None or isinstance(body, bytes) else json_bytes(body),
            content_type=content_type,
            timeout_s=timeout_s,
            resource=resource,
            key=key,
            limited=limited,
            frequent=frequent,
            before_sending=before_sending,
        )
        if not raw:
            return {}
        try:
            parsed = await read_object(_ANY_KIND if reader is None else reader, raw)
        except ValueError as err:
            raise self.no_json(err, resource, key) from err
        if not isinstance(parsed, dict):
            raise UnavailableError(resource, key, f"{self.host} answered no JSON object")
        return parsed

    def no_json(self, err: ValueError, resource: str, key: str) -> ClusterError:
        """Return the error for an answer that is no JSON."""
        return UnavailableError(resource, key, f"{self.host} answered no JSON: {err}")

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float = _DEFAULT_TIMEOUT_S,
        resource: str = "",
        key: str = "",
        limited: bool = True,
        frequent: bool = False,
        before_sending: Callable[[], None] | None = None,
        most_bytes: int = 0,
    ) -> bytes:
        """Send a request and return the answer's bytes; the arguments are those of `request`.

        `most_bytes`: raise `session.AnswerTooLargeError` for a larger answer, unless the request is
        `frequent`; 0: no limit.
        """
        if query:
            path = f"{path}?{urlencode(query, quote_via=quote)}"
        # No helper calls for what is off, and none for one use: this runs several times for each pod.
        credentials = self.credentials
        ends_s = math.inf
        retry_count, is_renewed = 0, False
        while True:
            if limited:
                if self._limiter.is_on:
                    self.metrics.waited(self._authority, method, await self._limiter.take())
                if not self._turns.take_free():
                    await self._turns.take()
            code, answer = 0, b""
            started_s = work_s()
            used = credentials.current
            try:
                ends_s = min(ends_s, self._clock.monotonic_s() + timeout_s)
                if before_sending is not None:
                    before_sending()
                if monotonic_s() >= credentials.due_s:
                    await credentials.refresh()
                    used = credentials.current
                    started_s = work_s()
                try:
                    if frequent:
                        code, answer, retry_after = await self.lane.exchange(
                            method, path, body, content_type, timeout_s, before_sending
                        )
                    else:
                        code, answer, retry_after = await self._session.exchange(
                            method, path, body, content_type, timeout_s, most_bytes
                        )
                except (aiohttp.ClientError, OSError) as err:
                    raise self._lost(err, resource, key, timeout_s) from err
                finally:
                    self.metrics.request_ended(
                        self._authority,
                        method,
                        code=code,
                        started_s=started_s,
                        sent_bytes=len(body) if body is not None else 0,
                        received_bytes=len(answer),
                    )
            finally:
                if limited:
                    self._turns.give_back()
            if code < 300:
                return answer
            if code == 401 and not is_renewed:
                is_renewed = True
                if await credentials.refresh(refused=used):
                    continue
            wait_s = retry_after_s(retry_after)
            is_asked_to_wait = code == 429 or (code >= 500 and wait_s > 0)
            wait_s = max(wait_s, 1.0)
            if is_asked_to_wait and retry_count < MAX_RETRIES and self._clock.monotonic_s() + wait_s < ends_s:
                retry_count += 1
                self.metrics.retried(self._authority, method, code)
                await sleep(self._clock, wait_s)
                continue
            raise error_of(code, answer, resource, key, retry_after=retry_after)

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], idle_s: float, resource: str = ""
    ) -> AsyncIterator[Stream]:
        """Open a streamed answer, such as a watch.

        `idle_s`: the silence, in seconds, after which the connection counts as lost. Raises ClusterError on
        entering, for an answer other than 200; nothing on leaving.
        """
        credentials = self.credentials
        if monotonic_s() >= credentials.due_s:
            await credentials.refresh()
        path = f"{path}?{urlencode(query, quote_via=quote)}" if query else path
        started_s = work_s()
        used = credentials.current
        code = 0
        try:
            answer = await self._session.stream(path, idle_s)
            code = answer.status
        except (aiohttp.ClientError, OSError) as err:
            raise self._lost(err, resource, "", idle_s) from err
        finally:
            self.metrics.request_ended(self._authority, "GET", code=code, started_s=started_s)
        stream = Stream(answer, lambda err: self._lost(err, resource, "", idle_s))
        try:
            if code != 200:
                if code == 401:
                    await credentials.refresh(refused=used)
                said = b""
                while chunk := await stream.chunk():
                    said += chunk
                raise error_of(code, said, resource, "")
            yield stream
        finally:
            stream.close()

    def _lost(self, err: Exception, resource: str, key: str, timeout_s: float) -> ClusterError:
        """Return the error for a failed connection, in one line that ends in the cure."""
        host = self.host
        if isinstance(err, TimeoutError) and not isinstance(err, DialTimeoutError):
            return TimedOutError(resource, key, f"no answer from {host} within {timeout_s:g} s")
        cause = _cause_of(err)
        if isinstance(err, ConnectionLostError):
            text = f"the connection to {host} was lost: {err}"
            if isinstance(err, NotActedOnError):
                return RepeatableError(resource, key, text)
        elif isinstance(cause, ssl.SSLCertVerificationError):
            reason = str(cause.verify_message or cause)
            text = f"the certificate of {host} is not trusted: {reason.rstrip('.')}; {self._cure(cause)}"
        elif self.credentials.proxy and isinstance(err, _OF_PROXY):
            # The URL's user and password must not appear in the message; aiohttp's text has them.
            proxy = urlsplit(self.credentials.proxy).netloc.rpartition("@")[2]
            why = str(err)
            if isinstance(err, aiohttp.ClientHttpProxyError):
                why = f"it answered {err.status} to CONNECT"
            text = f"no way to {host} through the proxy {proxy}: {why}; check proxy-url, or HTTPS_PROXY"
        elif isinstance(cause, ssl.SSLError):
            text = f"no TLS with {host}: {cause}; is it an https address?"
        elif isinstance(cause, socket.gaierror):
            text = f"the name in {host} cannot be resolved; check server in the kubeconfig, or --master"
        elif cause is not None:
            said = cause.strerror or cause
            text = f"cannot connect to {host}: {said}; is the API server running, and the address right?"
            if cause.errno == errno.ECONNREFUSED:
                return RepeatableError(resource, key, text)
        else:
            text = f"the connection to {host} was lost: {err or type(err).__name__}"
        made = TimedOutError if isinstance(err, TimeoutError) else UnavailableError
        return made(resource, key, text)

    def _cure(self, err: ssl.SSLCertVerificationError) -> str:
        """Return the cure for a refused certificate: wrong name, or unknown signer."""
        if err.verify_code not in _NAME_MISMATCHES:
            return "set certificate-authority in the kubeconfig to the cluster's CA"
        if self.credentials.server_hostname:
            return (
                "set tls-server-name in the kubeconfig to a name that the certificate is for, or leave it out"
            )
        return "set server in the kubeconfig, or tls-server-name beside it, to a name that it is for"


class Stream:
    """A streamed answer."""

    def __init__(self, answer: StreamedAnswer, lost: Callable[[Exception], ClusterError]) -> None:
        self._answer = answer
        self._lost = lost

    async def chunk(self) -> bytes:
        """Return the bytes that have arrived; b"" at the end.

        Raises UnavailableError, and TimedOutError after a silence of `idle_s`.
        """
        try:
            return await self._answer.chunk()
        except (aiohttp.ClientError, OSError) as err:
            raise self._lost(err) from err

    def close(self) -> None:
        """Close the connection, so that `chunk` ends or raises."""
        self._answer.abort()


def _cause_of(err: Exception) -> OSError | None:
    """Return why no connection was opened; None if one was, and was lost."""
    if isinstance(err, aiohttp.ClientConnectorCertificateError):
        return err.certificate_error if isinstance(err.certificate_error, OSError) else None
    if isinstance(err, aiohttp.ClientConnectorError):
        return err.os_error
    # The lane names a lost connection so; the session wraps what it could not open.
    return err if isinstance(err, OSError) and not isinstance(err, aiohttp.ClientError) else None


def path_of(prefix: str, plural: str, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Return the path of a resource or of an object: `/api/v1/namespaces/default/pods/web/binding`."""
    parts = [prefix]
    if namespace:
        parts += ["namespaces", segment(namespace)]
    parts.append(segment(plural))
    if name:
        parts.append(segment(name))
    if subresource:
        parts.append(segment(subresource))
    return "/".join(parts)


def segment(text: str) -> str:
    """Escape one segment of a path; `.` and `..` are escaped too, so that they cannot change the path."""
    if text in (".", ".."):
        return text.replace(".", "%2E")
    return text if _NEEDS_NO_ESCAPE(text) else quote(text, safe=":")
