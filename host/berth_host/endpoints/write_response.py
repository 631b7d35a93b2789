"""Writes an `Answer` to the connection of its request: whole, or part by part while it is made.

A part is taken only after the reader has room for it, so a slow reader gets the newest state, and never a
backlog. A reader that leaves ends the answer.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Final

from aiohttp import web
from aiohttp.web_request import BaseRequest

from berth_host.endpoints.request_response import Answer

READ_WITHIN_S: Final = 60.0
"""The longest time, in seconds, that a reader may take for one part before its connection is closed."""
_CACHE_CONTROL: Final = ("Cache-Control", "no-cache, private")


def query_of(raw: BaseRequest) -> dict[str, list[str]]:
    """Return all values of the request's URL by parameter."""
    query: dict[str, list[str]] = {}
    for name, value in raw.query.items():
        query.setdefault(name, []).append(value)
    return query


async def sent(raw: BaseRequest, answer: Answer) -> web.StreamResponse:
    """Return the response. An answer with `parts` has been written when this returns, or its reader left."""
    headers = [_CACHE_CONTROL, *answer.headers.items()]
    if answer.content_type:
        headers.append(("Content-Type", answer.content_type))
    if answer.parts is not None:
        return await _in_parts(raw, web.StreamResponse(status=answer.status, headers=headers), answer)
    if not answer.body:
        headers.append(("Content-Length", "0"))
    return web.Response(status=answer.status, body=answer.body or None, headers=headers)


async def _in_parts(raw: BaseRequest, response: web.StreamResponse, answer: Answer) -> web.StreamResponse:
    assert answer.parts is not None
    transport = raw.transport
    async with aclosing(answer.parts) as parts:
        try:
            await response.prepare(raw)
            async for part in parts:
                if transport is None or transport.is_closing():
                    break
                if part:
                    async with asyncio.timeout(READ_WITHIN_S):
                        await response.write(part)
            else:
                await response.write_eof()
        except (ConnectionError, TimeoutError):
            if transport is not None:
                transport.abort()
    return response
