"""Follow the pods of one namespace of a real API server for the account of a soak, by a separate watch.

Run by `real_cluster`. It shares only the connection code with the host, so it sees what the host's informers
miss. Source: the Kubernetes API's conventions on watches.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson
from berth_host.errors.cluster import ClusterError
from berth_kube.client import KubeClient, path_of

from berth_bench.soak.account import Account

_IDLE_S: Final = 30.0
"""A watch without data for this time, in seconds, is started again from its last version."""
_AGAIN_S: Final = 0.2
_GONE: Final = 410


class FollowedPods:
    """Reports pods to the account: call `count_anew`, then `run` until it is cancelled."""

    def __init__(self, client: KubeClient, namespace: str, account: Account) -> None:
        self._client = client
        self._path = path_of("/api/v1", "pods", namespace)
        self._account = account
        self._version = ""

    async def count_anew(self) -> None:
        """Report all current pods to the account. Raises ClusterError."""
        answer = await self._client.request("GET", self._path, resource="pods")
        self._account.are_there(answer.get("items") or ())
        self._version = str(answer["metadata"]["resourceVersion"])

    async def run(self) -> None:
        """Follow every change; continue after every failure of the server."""
        while True:
            try:
                if not self._version:
                    await self.count_anew()
                await self._watch()
            except ClusterError:
                await asyncio.sleep(_AGAIN_S)

    async def _watch(self) -> None:
        """Watch from the last version until the answer ends; forget the version if it is too old."""
        query = {"watch": "true", "resourceVersion": self._version, "allowWatchBookmarks": "true"}
        rest = b""
        async with self._client.stream(self._path, query=query, idle_s=_IDLE_S, resource="pods") as stream:
            while chunk := await stream.chunk():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if not self._takes(orjson.loads(line)):
                        return

    def _takes(self, change: dict[str, Any]) -> bool:
        """Report a change; return False if the watch has ended with an error."""
        obj = change["object"]
        match change["type"]:
            case "ERROR":
                if obj.get("code") == _GONE:
                    self._version = ""
                return False
            case "DELETED":
                self._account.is_gone(obj["metadata"]["name"])
            case "ADDED" | "MODIFIED":
                self._account.is_there(obj)
        self._version = str(obj["metadata"]["resourceVersion"])
        return True
