"""Answers a watch: the changes of one resource after a version, as lines of JSON.

Called by `handlers`. Source: the Kubernetes API's "efficient detection of changes" (watch, bookmarks, 410).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

import orjson
from aiohttp import web

from berth_host.cluster.memory.http.history import Change, History
from berth_host.cluster.memory.http.target import Target

BOOKMARK_S: Final = 5.0
"""Seconds without changes after which a watch gets a bookmark."""
_MOST_LINES: Final = 100
_OVER: Final = ("Succeeded", "Failed")
_NOT_OVER: Final = frozenset({"status.phase!=Succeeded", "status.phase!=Failed"})


class SelectorError(ValueError):
    """A field selector that this server does not support."""


class Selection:
    """The objects of a list or watch: those of a resource, of one namespace, or only unfinished pods."""

    def __init__(self, target: Target, field_selector: str) -> None:
        terms = frozenset(term for term in field_selector.split(",") if term)
        if terms and terms != _NOT_OVER:
            raise SelectorError(f"field selector {field_selector!r} is not known here")
        self.target = target
        self._not_over = bool(terms)

    def takes(self, obj: dict[str, Any]) -> bool:
        """Return True if the object belongs to the selection."""
        target = self.target
        if target.namespace and obj["metadata"].get("namespace") != target.namespace:
            return False
        return not self._not_over or (obj.get("status") or {}).get("phase") not in _OVER

    def line(self, change: Change) -> bytes | None:
        """Return the line for a change, None for no line; an object that leaves the selection is DELETED."""
        if change.kind is not self.target.kind:
            return None
        old, new = change.old, change.new
        was = old is not None and self.takes(old)
        if new is not None and self.takes(new):
            return _line("MODIFIED" if was else "ADDED", new)
        if not was or old is None:
            return None
        last = new if new is not None else old
        metadata = {**last["metadata"], "resourceVersion": str(change.version)}
        return _line("DELETED", {**last, "metadata": metadata})


async def watch(
    request: web.Request, history: History, selection: Selection, since: int, ends_s: float
) -> web.StreamResponse:
    """Answer with changes until `ends_s` (the loop's time), or until the client disconnects."""
    loop = asyncio.get_running_loop()
    waiting: deque[Change] = deque()
    came = asyncio.Event()

    def hear(change: Change) -> None:
        if change.kind is selection.target.kind:
            waiting.append(change)
            came.set()

    backlog = history.since(since)
    stop_listening = history.listen(hear)
    try:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if backlog is None:
            await response.write(_line("ERROR", _gone(since, history.forgotten)))
            return response
        waiting.extendleft(reversed(backlog))
        while (left_s := ends_s - loop.time()) > 0:
            if waiting:
                taken = [waiting.popleft() for _ in range(min(len(waiting), _MOST_LINES))]
                lines = [line for change in taken if (line := selection.line(change)) is not None]
                if lines:
                    await response.write(b"".join(lines))
                continue
            came.clear()
            try:
                async with asyncio.timeout(min(left_s, BOOKMARK_S)):
                    await came.wait()
            except TimeoutError:
                kind = selection.target.kind
                mark = {
                    "kind": kind.kind,
                    "apiVersion": kind.api_version,
                    "metadata": {"resourceVersion": str(history.version)},
                }
                await response.write(_line("BOOKMARK", mark))
        return response
    finally:
        stop_listening()


def _line(event: str, obj: dict[str, Any]) -> bytes:
    return orjson.dumps({"type": event, "object": obj}) + b"\n"


def _gone(since: int, forgotten: int) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": 410,
        "reason": "Expired",
        "message": f"too old resource version: {since} ({forgotten})",
    }
