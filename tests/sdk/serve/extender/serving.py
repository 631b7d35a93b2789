"""Shared by the tests of this folder: an extender on a real socket, and the requests of a scheduler."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from berth_sdk import CycleState, Plugin, Pod, Status
from berth_sdk.runtime.descriptor import describe
from berth_sdk.serve.extender.api_server import ApiAccess
from berth_sdk.serve.extender.server import ExtenderServer, ExtenderSettings
from berth_sdk.serve.extender.tls import ExtenderTls
from berth_sdk.testing import node_object, pod_object
from support.kube_api import KubeApi
from support.waiting import PATIENCE_S, until

Json = dict[str, Any]


class Pools(Plugin):
    """Rejects by the label `pool`: `spot` may change, `gone` may not; scores by the label `rank`."""

    def filter(self, state: CycleState, pod: Pod, node: Any) -> Status:
        pool = node.labels.get("pool")
        if pool == "spot":
            return Status.unschedulable("node is a spot node", "and busy")
        return Status.unresolvable("node is gone") if pool == "gone" else Status.success()

    def score(self, state: CycleState, pod: Pod, node: Any) -> int:
        return int(node.labels.get("rank", 0))


class Asking:
    """A client of one extender."""

    def __init__(self, server: ExtenderServer, url: str, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.url = url
        self._session = session

    async def post(self, verb: str, body: Any) -> Any:
        """Return the answer, which must have status 200."""
        status, text = await self.reply(verb, body)
        assert status == 200, text
        return text

    async def reply(self, verb: str, body: Any) -> tuple[int, Any]:
        """Return status and answer: parsed JSON, else text. `body`: bytes are sent as they are."""
        async with self._session.post(f"{self.url}/{verb}", data=sent(body)) as answer:
            if answer.content_type == "application/json":
                return answer.status, await answer.json()
            return answer.status, await answer.text()

    async def get(self, path: str) -> tuple[int, str]:
        """Return status and text."""
        async with self._session.get(f"{self.url}{path}") as answer:
            return answer.status, await answer.text()


def sent(body: Any) -> bytes:
    """Return a request as Go writes it, without spaces; bytes as they are."""
    return body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()


@asynccontextmanager
async def extender(
    cls: type, *, tls: ssl.SSLContext | None = None, tls_files: ExtenderTls | None = None, **settings: Any
) -> AsyncIterator[Asking]:
    """Serve a plugin at a free port of loopback. `tls`: of the client; `tls_files`: of the extender."""
    settings.setdefault("listen", "127.0.0.1:0")
    server = ExtenderServer(describe(cls).name, cls, ExtenderSettings(tls=tls_files, **settings))
    url = await server.start()
    try:
        connector = aiohttp.TCPConnector(ssl=tls or False)
        async with aiohttp.ClientSession(connector=connector) as session:
            yield Asking(server, url, session)
    finally:
        await server.stop()


def access(api: KubeApi) -> ApiAccess:
    """Return the access to a server on loopback that trusts everybody."""
    return ApiAccess(url=api.url)


def pod(name: str = "web", **fields: Any) -> Json:
    """Return a pod as a scheduler sends it: without apiVersion and kind."""
    made = pod_object(name, **fields)
    return {key: value for key, value in made.items() if key not in ("apiVersion", "kind")}


def node(name: str, version: str = "1", **fields: Any) -> Json:
    """Return a node as a scheduler sends it."""
    made = node_object(name, meta={"resourceVersion": version}, **fields)
    return {key: value for key, value in made.items() if key not in ("apiVersion", "kind")}


def about_nodes(*nodes: Json, of: Json | None = None) -> Json:
    """Return ExtenderArgs with Node objects."""
    return {"Pod": of or pod(), "Nodes": {"metadata": {}, "items": list(nodes)}, "NodeNames": None}


def about_names(*names: str, of: Json | None = None) -> Json:
    """Return ExtenderArgs with names."""
    return {"Pod": of or pod(), "Nodes": None, "NodeNames": list(names)}


def about_victims(victims: Mapping[str, list[Json]], *, meta: bool = False, of: Json | None = None) -> Json:
    """Return ExtenderPreemptionArgs. `meta`: with the victims' uids alone."""
    by_node = {
        name: {
            "Pods": [{"UID": one["metadata"]["uid"]} for one in pods] if meta else pods,
            "NumPDBViolations": 1,
        }
        for name, pods in victims.items()
    }
    fields: Json = {"NodeNameToVictims": None, "NodeNameToMetaVictims": None}
    fields["NodeNameToMetaVictims" if meta else "NodeNameToVictims"] = by_node
    return {"Pod": of or pod(), **fields}


def names_in(answer: Json) -> list[str]:
    """Return the names of the nodes that a filter passed."""
    if answer["Nodes"] is None:
        return list(answer["NodeNames"])
    assert answer["NodeNames"] is None
    return [item["metadata"]["name"] for item in answer["Nodes"]["items"]]


async def has_nodes(api: KubeApi, *names: str, **fields: Any) -> None:
    """Create nodes."""
    for name in names:
        made = node(name, **fields)
        await api.put("nodes", name, **{key: made[key] for key in ("metadata", "spec", "status")})


async def has_pod(api: KubeApi, name: str, on: str = "", **fields: Any) -> Any:
    """Create a pod, on the node `on` where it is given."""
    made = pod(name, **({"node": on} if on else {}), **fields)
    return await api.put("pods", name, **{key: made[key] for key in ("metadata", "spec", "status")})


async def ready(asking: Asking) -> None:
    """Wait until the extender has its copy."""
    copy = asking.server.copy
    assert copy is not None
    await until(lambda: copy.is_synced)


async def passes(asking: Asking, *names: str) -> list[str]:
    """Return the nodes that the filter passes."""
    return names_in(await asking.post("filter", about_names(*names)))


async def passing(asking: Asking, wanted: list[str], *names: str) -> None:
    """Wait until the filter passes exactly these nodes."""
    async with asyncio.timeout(PATIENCE_S):
        while await passes(asking, *names) != wanted:
            await asyncio.sleep(0.01)
