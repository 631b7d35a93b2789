"""An API server small enough to be wrong on purpose: list, watch, read and write over real HTTP on loopback.

For tests of `berth_kube` that need what a real API server does not do on demand: forget its history, end
watches at once, answer a given status, send lines that are no events. The real one: tests/cluster.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from berth_sdk.json.reader import read_deep_json

Json = dict[str, Any]

PLURALS = {
    "pods": ("v1", "Pod", True),
    "nodes": ("v1", "Node", False),
    "services": ("v1", "Service", True),
    "csinodes": ("storage.k8s.io/v1", "CSINode", False),
    "widgets": ("example.com/v1beta1", "Widget", True),
    "compositepodgroups": ("scheduling.k8s.io/v1beta1", "CompositePodGroup", True),
    "devicetaintrules": ("resource.k8s.io/v1", "DeviceTaintRule", False),
    "events": ("events.k8s.io/v1", "Event", True),
}


@dataclass
class Request:
    """One request that the server saw."""

    method: str
    path: str
    query: Mapping[str, str]
    content_type: str
    body: Any
    authorization: str
    headers: tuple[tuple[str, str], ...] = ()
    raw: bytes = b""


@dataclass
class Answer:
    """The next answer of the server, once, to a request whose method and path's end fit."""

    method: str
    path_end: str
    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    wait_s: float = 0.0


@dataclass
class Change:
    """One entry of a resource's history."""

    version: int
    type: str
    object: Json
    before: Json | None


class KubeApi:
    """Objects by plural and key. `history_from`: changes up to this version are forgotten (410)."""

    def __init__(self) -> None:
        self.version = 10
        self.objects: dict[str, dict[str, Json]] = {plural: {} for plural in PLURALS}
        self.history: dict[str, list[Change]] = {plural: [] for plural in PLURALS}
        self.history_from = 0
        self.requests: list[Request] = []
        self.answers: deque[Answer] = deque()
        self.held: asyncio.Event | None = None
        """Requests arrive, and are answered when it is set."""
        self.gate_of: Callable[[Request], asyncio.Event | None] = lambda _: None
        """Returns the event with which a request is answered; None: at once."""
        self.raw_lines: dict[str, list[list[bytes]]] = {}
        """Of a plural, the lines that its next watches are sent before anything else, one list each."""
        self.max_watch_s = 600.0
        self.bookmark_s = 0.2
        self.is_silent = False
        """A watch says nothing, for ever."""
        self.not_served: set[str] = {"compositepodgroups"}
        self.group_versions = ["scheduling.k8s.io/v1beta1"]
        """The API versions with composite groups, if these are served."""
        self.taint_rule_versions = ["resource.k8s.io/v1"]
        """The API versions with device taint rules. Others are refused: RBAC is asked first, and a role of a
        release without the rules has no right on them."""
        self.url = ""
        self._changed = asyncio.Condition()
        self._snapshots: dict[str, tuple[int, list[Json]]] = {}

    # --- what users do ---------------------------------------------------------------------------

    async def put(self, plural: str, name: str, namespace: str = "", **content: Any) -> Json:
        """Create or change an object."""
        api_version, kind, namespaced = PLURALS[plural]
        self.version += 1
        key = f"{namespace or 'default'}/{name}" if namespaced else name
        known = self.objects[plural].get(key)
        metadata: Json = {
            "name": name,
            "uid": known["metadata"]["uid"] if known else f"uid-{self.version}",
            "resourceVersion": str(self.version),
            "managedFields": [{"manager": "somebody"}],
        }
        if namespaced:
            metadata["namespace"] = namespace or "default"
        content = {**content, "metadata": {**content.get("metadata", {}), **metadata}}
        item = {"kind": kind, "apiVersion": api_version, **content}
        self.objects[plural][key] = item
        await self._tell(plural, Change(self.version, "MODIFIED" if known else "ADDED", item, known))
        return item

    async def delete(self, plural: str, key: str) -> None:
        """Delete an object."""
        known = self.objects[plural].pop(key)
        self.version += 1
        item = {**known, "metadata": {**known["metadata"], "resourceVersion": str(self.version)}}
        await self._tell(plural, Change(self.version, "DELETED", item, known))

    def compact(self) -> None:
        """Forget all history."""
        self.history_from = self.version
        self._snapshots.clear()

    async def _tell(self, plural: str, change: Change) -> None:
        self.history[plural].append(change)
        async with self._changed:
            self._changed.notify_all()

    def seen(self, method: str, path_end: str = "") -> list[Request]:
        """Return the requests so far of a method, to paths that end so."""
        return [
            request
            for request in self.requests
            if request.method == method and request.path.endswith(path_end)
        ]

    # --- what it answers ---------------------------------------------------------------------------

    async def handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = read_deep_json(raw) if raw else None
        self.requests.append(
            Request(
                request.method,
                request.path,
                dict(request.query),
                request.headers.get("Content-Type", ""),
                body,
                request.headers.get("Authorization", ""),
                tuple(request.headers.items()),
                raw,
            )
        )
        if self.held is not None:
            await self.held.wait()
        if (gate := self.gate_of(self.requests[-1])) is not None:
            await gate.wait()
        for answer in list(self.answers):
            if request.method == answer.method and request.path.endswith(answer.path_end):
                self.answers.remove(answer)
                await asyncio.sleep(answer.wait_s)
                return _json(answer.status, answer.body, answer.headers)
        return await self._route(request, body)

    async def _route(self, request: web.Request, body: Any) -> web.StreamResponse:
        discovered = self._discovery(request.path)
        if discovered is not None:
            return _json(200, discovered)
        parts = request.path.strip("/").split("/")
        api_version = "/".join(parts[1:3])
        parts = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = ""
        if len(parts) > 2 and parts[0] == "namespaces":
            namespace, parts = parts[1], parts[2:]
        plural, name, subresource = (*parts, "", "", "")[:3]
        if plural == "devicetaintrules" and api_version not in self.taint_rule_versions:
            return _status(403, "devicetaintrules.resource.k8s.io is forbidden", "Forbidden")
        is_served = plural in PLURALS and plural not in self.not_served
        if not is_served or (plural == "compositepodgroups" and api_version not in self.group_versions):
            return _status(404, "the server could not find the requested resource")
        key = f"{namespace}/{name}" if PLURALS[plural][2] else name
        if request.method == "GET" and not name:
            if request.query.get("watch") == "true":
                return await self._watch(request, plural)
            return self._list(request, plural, namespace)
        if request.method == "POST" and subresource == "binding":
            return await self._bind(key, body)
        if request.method == "POST":
            metadata = body["metadata"]
            name = metadata.get("name") or f"{metadata['generateName']}{self.version}"
            key = f"{namespace}/{name}" if PLURALS[plural][2] else name
            if key in self.objects[plural]:
                return _status(409, f'{plural} "{name}" already exists', "AlreadyExists")
            return _json(201, await self.put(plural, name, namespace, **body))
        item = self.objects[plural].get(key)
        if item is None:
            return _status(404, f'{plural} "{name}" not found', "NotFound")
        if request.method == "GET":
            return _json(200, item)
        if request.method == "DELETE":
            await self.delete(plural, key)
            return _json(200, {"kind": "Status", "status": "Success"})
        expected = (body.get("metadata") or {}).get("resourceVersion")
        if expected and expected != item["metadata"]["resourceVersion"]:
            return _status(409, f'Operation cannot be fulfilled on {plural} "{name}": modified', "Conflict")
        content = {k: v for k, v in {**item, **body}.items() if k != "metadata"}
        labels = (body.get("metadata") or {}).get("labels", item["metadata"].get("labels"))
        return _json(
            200,
            await self.put(plural, name, namespace, **content, metadata={"labels": labels} if labels else {}),
        )

    async def _bind(self, key: str, body: Json) -> web.Response:
        pod = self.objects["pods"].get(key)
        name = body["metadata"]["name"]
        if pod is None:
            return _status(404, f'pods "{name}" not found', "NotFound")
        spec = pod.get("spec") or {}
        if spec.get("nodeName"):
            text = f'pods/binding "{name}": pod {name} is already assigned to node "{spec["nodeName"]}"'
            return _status(409, f"Operation cannot be fulfilled on {text}", "Conflict")
        content = {k: v for k, v in pod.items() if k != "metadata"}
        content["spec"] = {**spec, "nodeName": body["target"]["name"]}
        await self.put("pods", name, body["metadata"]["namespace"], **content)
        return _json(201, {"kind": "Status", "status": "Success"})

    def _discovery(self, path: str) -> Json | None:
        if path == "/apis/example.com" and "widgets" not in self.not_served:
            return {
                "kind": "APIGroup",
                "preferredVersion": {"groupVersion": "example.com/v1beta1"},
                "versions": [{"groupVersion": "example.com/v1"}, {"groupVersion": "example.com/v1beta1"}],
            }
        if path == "/apis/example.com/v1beta1":
            resource = {"name": "widgets", "kind": "Widget", "namespaced": True}
            return {"kind": "APIResourceList", "resources": [resource]}
        if path == "/apis/scheduling.k8s.io/v1beta1" or path.removeprefix("/apis/") in self.group_versions:
            is_served = (
                "compositepodgroups" not in self.not_served
                and path.removeprefix("/apis/") in self.group_versions
            )
            groups = [{"name": "podgroups", "kind": "PodGroup", "namespaced": True}]
            groups += [{"name": "compositepodgroups", "kind": "CompositePodGroup"}] if is_served else []
            return {"kind": "APIResourceList", "resources": groups}
        if path == "/apis/resource.k8s.io/v1" or path.removeprefix("/apis/") in self.taint_rule_versions:
            served = [{"name": "resourceclaims", "kind": "ResourceClaim", "namespaced": True}]
            if path.removeprefix("/apis/") in self.taint_rule_versions:
                served.append({"name": "devicetaintrules", "kind": "DeviceTaintRule"})
            return {"kind": "APIResourceList", "resources": served}
        return None

    def _list(self, request: web.Request, plural: str, namespace: str = "") -> web.Response:
        token = request.query.get("continue", "")
        limit = int(request.query.get("limit") or 0)
        if token:
            snapshot, _, start_text = token.partition(":")
            if snapshot not in self._snapshots:
                return _status(410, "The provided continue parameter is too old", "Expired")
            version, items = self._snapshots[snapshot]
            start = int(start_text)
        else:
            version, start = self.version, 0
            items = [
                item
                for item in self.objects[plural].values()
                if _selected(request, item) and namespace in ("", item["metadata"].get("namespace"))
            ]
            snapshot = f"{plural}-{version}"
            self._snapshots[snapshot] = (version, items)
        end = start + limit if limit else len(items)
        metadata: Json = {"resourceVersion": str(version)}
        if end < len(items):
            metadata["continue"] = f"{snapshot}:{end}"
        # As the real one: the items of a list do not say what they are.
        bare = [
            {k: v for k, v in item.items() if k not in ("kind", "apiVersion")} for item in items[start:end]
        ]
        return _json(200, {"kind": "List", "metadata": metadata, "items": bare})

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if self.is_silent:
            await asyncio.sleep(600)
        if self.raw_lines.get(plural):
            for line in self.raw_lines[plural].pop(0):
                await response.write(line)
        if since < self.history_from:
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
            await response.write(_line("ERROR", gone))
            return response
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + min(self.max_watch_s, float(request.query["timeoutSeconds"]))
        position = 0
        history = self.history[plural]
        while loop.time() < ends_s:
            for change in history[position:]:
                position += 1
                if change.version > since and (event := _event(request, change)) is not None:
                    await response.write(event)
            try:
                async with asyncio.timeout(self.bookmark_s), self._changed:
                    while len(history) == position:
                        await self._changed.wait()
            except TimeoutError:
                bookmark = {"kind": PLURALS[plural][1], "metadata": {"resourceVersion": str(self.version)}}
                if len(history) == position:
                    await response.write(_line("BOOKMARK", bookmark))
        return response


@asynccontextmanager
async def kube_api(tls: ssl.SSLContext | None = None) -> AsyncIterator[KubeApi]:
    """Yield a server on a free loopback port; `url` says where. `tls`: its certificate."""
    api = KubeApi()
    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    host, port = runner.addresses[0][:2]
    api.url = f"{'https' if tls else 'http'}://{host}:{port}"
    try:
        yield api
    finally:
        await runner.cleanup()


def _selected(request: web.Request, item: Json) -> bool:
    labels = item["metadata"].get("labels") or {}
    for wanted in filter(None, request.query.get("labelSelector", "").split(",")):
        key, _, value = wanted.partition("=")
        if labels.get(key) != value:
            return False
    if "status.phase!=Succeeded" not in request.query.get("fieldSelector", ""):
        return True
    return (item.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _event(request: web.Request, change: Change) -> bytes | None:
    """Return the line for a change; an object that leaves the selection is deleted for this watcher."""
    was = change.before is not None and _selected(request, change.before)
    if change.type == "DELETED":
        return _line("DELETED", change.object) if was else None
    is_now = _selected(request, change.object)
    if was or is_now:
        kind = "MODIFIED" if was and is_now else "ADDED" if is_now else "DELETED"
        return _line(kind, change.object)
    return None


def _line(kind: str, item: Json) -> bytes:
    return json.dumps({"type": kind, "object": item}, separators=(",", ":")).encode() + b"\n"


def _json(status: int, body: Any, headers: Mapping[str, str] | None = None) -> web.Response:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
    return web.Response(status=status, body=raw, headers=headers, content_type="application/json")


def _status(code: int, message: str, reason: str = "") -> web.Response:
    return _json(code, {"kind": "Status", "code": code, "reason": reason, "message": message})
