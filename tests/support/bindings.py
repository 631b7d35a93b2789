"""Which pod was bound to which node, seen from outside: no pod may ever be bound twice.

Watches all pods of an API server while a test does its worst. Used by the tests of `tests/cluster`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp
from berth_bench.versus.api import ApiClient, ApiError
from support.waiting import PATIENCE_S

Json = dict[str, Any]


class Bindings:
    """`async with`: from then on every pod is followed, by uid, however often the server goes away.

    Attributes: node_of (by uid), problems (pods that were moved), deleted (uids that went away).
    """

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self.node_of: dict[str, str] = {}
        self.name_of: dict[str, str] = {}
        self.deleted: set[str] = set()
        self.problems: list[str] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Bindings:
        await self._list()
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def unbound(self) -> list[str]:
        """Names of the pods that exist and are on no node."""
        return [name for uid, name in self.name_of.items() if uid not in self.node_of]

    async def all_bound(self, count: int, timeout_s: float = PATIENCE_S) -> None:
        """Wait until so many pods have been bound since the beginning. Raises TimeoutError."""
        try:
            async with asyncio.timeout(timeout_s):
                while len(self.node_of) < count or self.unbound():
                    await asyncio.sleep(0.05)
        except TimeoutError:
            waiting = self.unbound()
            some = f"{len(waiting)} wait: {waiting[:5]}"
            raise TimeoutError(f"{len(self.node_of)} of {count} pods were bound, {some}") from None

    async def _list(self) -> str:
        items, version = await self._api.all_of("Pod")
        for item in items:
            self._seen("ADDED", item)
        there = {item["metadata"]["uid"] for item in items}
        for uid in [uid for uid in self.name_of if uid not in there]:
            self._gone(uid)
        return version

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError, ApiError, TimeoutError, OSError):
                version = await self._list()
                async for change, item in self._api.watch("Pod", version):
                    if change == "ERROR":
                        break
                    self._seen(change, item)
            await asyncio.sleep(0.1)

    def _seen(self, change: str, pod: Json) -> None:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        node = pod["spec"].get("nodeName", "")
        if node and self.node_of.setdefault(uid, node) != node:
            self.problems.append(f"{name} went from {self.node_of[uid]} to {node}")
        if change == "DELETED":
            self._gone(uid)
        else:
            self.name_of[uid] = name

    def _gone(self, uid: str) -> None:
        self.deleted.add(uid)
        self.name_of.pop(uid, None)


def bound_twice(audit_log: Path) -> list[str]:
    """Pods (by uid) for which the API server accepted two Bindings and more. LookupError: there is none."""
    accepted: Counter[str] = Counter()
    for line in audit_log.read_text().splitlines():
        # Other lines may have objects that are nested too deep for this parser: those of the fuzzer.
        if '"subresource":"binding"' not in line:
            continue
        event = json.loads(line)
        if event["objectRef"].get("subresource") == "binding" and event["responseStatus"]["code"] == 201:
            accepted[event["requestObject"]["metadata"]["uid"]] += 1
    if not accepted:
        raise LookupError(f"{audit_log} tells of no Binding")
    return [uid for uid, count in accepted.items() if count > 1]


async def until(condition: Callable[[], Awaitable[bool]], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Ask again and again until it holds. Raises TimeoutError with `what`, the name of the condition."""
    ends_s = time.monotonic() + timeout_s
    while not await condition():
        if time.monotonic() > ends_s:
            raise TimeoutError(f"waited {timeout_s:.0f} s in vain: {what}")
        await asyncio.sleep(0.05)
