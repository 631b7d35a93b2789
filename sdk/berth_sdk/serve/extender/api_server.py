"""`ApiServer`: the few requests to an API server that an extender makes: lists and watches, a pod, a Binding.

It is a small client of its own, because the SDK does not depend on a Kubernetes client.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import aiohttp
from yarl import URL

from berth_sdk.errors import BerthError
from berth_sdk.json.bounded import read_bounded_json
from berth_sdk.serve.extender.cluster_copy import ClusterCopy, Feed
from berth_sdk.serve.extender.messages import BindingArgs, Json
from berth_sdk.wire.verification import verify_as_go

LOG: Final = logging.getLogger("berth_sdk.serve.extender")
_REQUEST_S: Final = 30.0
_WATCH_S: Final = 300
"""Seconds after which the API server ends a watch, which then continues in a new request."""
_SILENT_S: Final = 30.0
"""Seconds after the end of a watch until a connection without an answer counts as dead."""
_BETWEEN_S: Final = 0.1
"""Seconds between two watches, for an API server that ends each at once."""
_PAGE: Final = 500
_FIRST_DELAY_S: Final = 0.5
_MOST_DELAY_S: Final = 30.0
_MAX_TEXT: Final = 400
_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_RUNNING: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
_GONE: Final = 410


class ApiError(BerthError):
    """A request that failed. `status`: of HTTP; 0: there was no answer."""

    def __init__(self, text: str, status: int = 0) -> None:
        self.status = status
        super().__init__(text)


class AccessError(BerthError):
    """Settings with which an API server cannot be reached. The text names the flag and the cure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAccess:
    """The API server and the credentials. `url`: `https://HOST:PORT`. Paths are empty where not given.

    The token is read again for every request, because a service account's token is replaced while it is
    used.
    """

    url: str
    token_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    @staticmethod
    def in_cluster(environment: Mapping[str, str] = os.environ, folder: Path = _SERVICE_ACCOUNT) -> ApiAccess:
        """Return the access of the pod's service account. Raises AccessError outside of a cluster."""
        host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
        if not host or not port or not (folder / "token").is_file():
            raise AccessError(
                "--in-cluster: this process does not run in a pod with a service account: give --server and"
                " its credentials"
            )
        host = f"[{host}]" if ":" in host else host
        url = f"https://{host}:{port}"
        return ApiAccess(url=url, token_file=str(folder / "token"), ca_file=str(folder / "ca.crt"))

    def check(self) -> None:
        """Raise AccessError for settings that cannot work."""
        try:
            url = URL(self.url)
        except ValueError as err:
            raise AccessError(f"--server {self.url} is no URL: {err}") from err
        if url.scheme not in ("http", "https") or not url.host:
            raise AccessError(f"--server {self.url} is no URL: write https://HOST:PORT")
        if bool(self.cert_file) != bool(self.key_file):
            raise AccessError("--client-certificate and --client-key go together: give both, or neither")
        if self.token_file:
            self.headers()
        self.tls()

    def headers(self) -> dict[str, str]:
        """Return the header with the token, if there is one. Raises AccessError."""
        if not self.token_file:
            return {}
        try:
            token = Path(self.token_file).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as err:
            raise AccessError(f"--token-file {self.token_file} cannot be read: {err}") from err
        return {"Authorization": f"Bearer {token}"}

    def tls(self) -> ssl.SSLContext:
        """Return the TLS context. Raises AccessError."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
        except (OSError, ssl.SSLError) as err:
            raise AccessError(f"--certificate-authority {self.ca_file} cannot be used: {err}") from err
        verify_as_go(context)
        if self.cert_file:
            try:
                context.load_cert_chain(self.cert_file, self.key_file, password="")
            except (OSError, ssl.SSLError) as err:
                files = f"--client-certificate {self.cert_file} and --client-key {self.key_file}"
                raise AccessError(f"{files} are no certificate with its key, in PEM: {err}") from err
        return context


class ApiServer:
    """A connection pool to one API server. Made in the event loop that uses it; close it after use."""

    def __init__(self, access: ApiAccess) -> None:
        """Make the pool. Raises AccessError."""
        self._access = access
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=access.tls()))

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def pod(self, name: str, namespace: str) -> Json:
        """Return one pod. Raises ApiError."""
        return await self._request("GET", _pod_path(name, namespace))

    async def bind(self, binding: BindingArgs) -> None:
        """Post a Binding. Raises ApiError."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": binding.name, "namespace": binding.namespace, "uid": binding.uid},
            "target": {"kind": "Node", "name": binding.node},
        }
        await self._request("POST", f"{_pod_path(binding.name, binding.namespace)}/binding", body=body)

    # --- lists and watches -----------------------------------------------------------------------------

    async def follow(self, copy: ClusterCopy) -> None:
        """Keep a copy up to date until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow("nodes", {}, copy.nodes, _name))
            if copy.pods is not None:
                tasks.create_task(self._follow("pods", {"fieldSelector": _RUNNING}, copy.pods, _uid))

    async def _follow(
        self, resource: str, query: Mapping[str, str], feed: Feed, key: Callable[[Json], str]
    ) -> None:
        """List and watch one resource, again after every failure, with growing delays."""
        delay_s, version = _FIRST_DELAY_S, ""
        while True:
            try:
                if not version:
                    version = await self._list(resource, query, feed, key)
                    LOG.info("the copy has all %s", resource)
                async for seen in self._watch(resource, query, version, feed, key):
                    version, delay_s = seen, _FIRST_DELAY_S
                await asyncio.sleep(_BETWEEN_S)
            except (ApiError, AccessError) as err:
                if isinstance(err, ApiError) and err.status == _GONE:
                    version = ""  # the changes since then are no longer there
                    continue
                LOG.warning("%s cannot be followed, next try in %s s: %s", resource, delay_s, err)
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, _MOST_DELAY_S)

    async def _list(
        self, resource: str, query: Mapping[str, str], feed: Feed, key: Callable[[Json], str]
    ) -> str:
        """Replace all objects of a feed; return the version to watch from. Raises ApiError."""
        items: dict[str, Json] = {}
        more: dict[str, str] = {}
        while True:
            answer = await self._request("GET", f"api/v1/{resource}", {**query, "limit": str(_PAGE), **more})
            items.update((key(item), item) for item in answer.get("items") or ())
            metadata = answer.get("metadata") or {}
            if not metadata.get("continue"):
                feed.replace(items)
                return str(metadata.get("resourceVersion") or "")
            more = {"continue": metadata["continue"]}

    async def _watch(
        self,
        resource: str,
        query: Mapping[str, str],
        version: str,
        feed: Feed,
        key: Callable[[Json], str],
    ) -> AsyncIterator[str]:
        """Apply changes until the API server ends the watch; yield the version of each. Raises ApiError."""
        asked = {
            **query,
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_S),
        }
        async for line in self._lines(f"api/v1/{resource}", asked):
            change = _parsed(line, f"watch of {resource}")
            kind, item = change.get("type"), change.get("object") or {}
            if kind == "ERROR":
                raise ApiError(f"watch of {resource}: {item.get('message')}", int(item.get("code") or 0))
            if kind in ("ADDED", "MODIFIED"):
                feed.put(key(item), item)
            elif kind == "DELETED":
                feed.put(key(item), None)
            yield str((item.get("metadata") or {}).get("resourceVersion") or version)

    async def _lines(self, path: str, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        timeout = aiohttp.ClientTimeout(total=None, connect=_REQUEST_S, sock_read=_WATCH_S + _SILENT_S)
        try:
            async with self._session.get(
                self._url(path, query), headers=self._access.headers(), timeout=timeout, allow_redirects=False
            ) as answer:
                if answer.status != 200:
                    raise _failed("GET", path, answer.status, await answer.text(errors="replace"))
                rest = b""
                async for piece in answer.content.iter_any():
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in lines:
                        yield line
        except (aiohttp.ClientError, TimeoutError, OSError) as err:
            raise ApiError(f"watch {path}: {_why(err)}") from err

    # --- requests --------------------------------------------------------------------------------------

    async def _request(
        self, verb: str, path: str, query: Mapping[str, str] | None = None, body: Json | None = None
    ) -> Json:
        """Make one request. Raises ApiError and AccessError."""
        data = None if body is None else json.dumps(body).encode()
        headers = {**self._access.headers(), **({} if data is None else {"Content-Type": "application/json"})}
        timeout = aiohttp.ClientTimeout(total=_REQUEST_S)
        try:
            async with self._session.request(
                verb,
                self._url(path, query or {}),
                data=data,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            ) as answer:
                content, status = await answer.read(), answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as err:
            raise ApiError(f"{verb} {path}: {_why(err)}") from err
        if not 200 <= status < 300:
            raise _failed(verb, path, status, content.decode(errors="replace"))
        return _parsed(content, f"{verb} {path}")

    def _url(self, path: str, query: Mapping[str, str]) -> URL:
        return URL(f"{self._access.url.rstrip('/')}/{path}", encoded=True).with_query(query)


def _pod_path(name: str, namespace: str) -> str:
    return f"api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"


def _name(item: Json) -> str:
    return str((item.get("metadata") or {}).get("name") or "")


def _uid(item: Json) -> str:
    return str((item.get("metadata") or {}).get("uid") or "")


def _parsed(content: bytes, what: str) -> Json:
    try:
        answer = read_bounded_json(content)
    except ValueError as err:
        raise ApiError(f"{what}: the answer is not JSON: {err}") from err
    if not isinstance(answer, dict):
        raise ApiError(f"{what}: the answer is not a JSON object")
    return answer


def _failed(verb: str, path: str, status: int, text: str) -> ApiError:
    try:
        found: Any = read_bounded_json(text)
        text = str(found["message"])
    except (ValueError, KeyError, TypeError):
        text = text.strip()[:_MAX_TEXT]
    return ApiError(f"{verb} {path}: {status} {text}", status)


def _why(err: Exception) -> str:
    return str(err) or type(err).__name__
