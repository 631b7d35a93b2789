"""`Passing`: requests of the page, passed on to a host's secure port with the caller's credentials.

The way to the host is opened at the start, so that wrong options end the command. If the way fails later, as
when another replica becomes the leader, the next request opens a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import aiohttp

from berth_host.cli.kubectl.asking import AskError, Target
from berth_host.cli.kubectl.target import target
from berth_host.endpoints.request_response import Answer, Request, failure

_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=30.0)
"""The host sends something every second, and takes longer only for a large answer."""
_ANEW: Final = (401, 503)
"""The statuses after which the next request opens a new way: the token has expired, which is read or made
anew then, or the host is on standby.
"""


class Passing:
    """The handler of the page's requests. `options`: those of `target`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._way = AsyncExitStack()
        self._host: Target | None = None
        self._session: aiohttp.ClientSession | None = None
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Open the way to the host. Raises AskError."""
        self._session = aiohttp.ClientSession(timeout=_TIMEOUT, auto_decompress=True)
        try:
            await self._open()
        except BaseException:
            await self._session.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the way to the host."""
        if self._session is not None:
            await self._session.close()
        await self._way.aclose()

    async def answer(self, request: Request) -> Answer:
        """Return the host's answer, part by part; an error while the host cannot be reached."""
        try:
            host = await self._open()
            parts = self._parts(host, request)
            head = await anext(parts)
        except AskError as err:
            return failure(502, "BadGateway", str(err))
        except (aiohttp.ClientError, OSError) as err:
            await self._drop(host)
            return failure(502, "BadGateway", f"{host.title} cannot be reached: {err}; trying again")
        if head.status in _ANEW:
            body = b"".join([part async for part in _bodies(parts)])
            await self._drop(host)
            return Answer(body, content_type=head.content_type, status=head.status)
        return Answer(content_type=head.content_type, status=head.status, parts=_bodies(parts))

    async def _open(self) -> Target:
        async with self._opening:
            if self._host is None:
                self._host = await self._way.enter_async_context(target(self._options))
            return self._host

    async def _drop(self, host: Target) -> None:
        """Close the way, unless another request has opened a new one."""
        async with self._opening:
            if self._host is host:
                self._host = None
                way, self._way = self._way, AsyncExitStack()
                await way.aclose()

    async def _parts(self, host: Target, request: Request) -> AsyncGenerator[Answer, None]:
        """Yield the head of the host's answer, then the parts of its body."""
        headers = {"Accept": request.accept} if request.accept else {}
        if host.authorization:
            headers["Authorization"] = host.authorization
        assert self._session is not None
        async with self._session.request(
            request.method,
            f"{host.url}{quote(request.path)}",
            params=[(name, value) for name, values in request.query.items() for value in values],
            headers=headers,
            ssl=host.context,
            allow_redirects=False,
        ) as response:
            yield Answer(status=response.status, content_type=response.headers.get("Content-Type", ""))
            async for body in response.content.iter_any():
                yield Answer(body)


async def _bodies(parts: AsyncGenerator[Answer, None]) -> AsyncGenerator[bytes, None]:
    """Yield the bodies; end without a word if the host is lost, as the page asks again."""
    try:
        async for part in parts:
            yield part.body
    except (aiohttp.ClientError, OSError, TimeoutError):
        return
    finally:
        await parts.aclose()
