"""Serves the embedded cluster over HTTP on a loopback port.

Used by `berth bench soak`, in which the cluster outlives hosts that are killed. There is no authentication,
so the server listens on loopback only.

`Handlers` answers requests with calls of the embedded server. A list is never split into pages, as the API
allows. Events are counted and not kept. A watch is answered with the changes of one resource after a version,
as lines of JSON.
Source: the Kubernetes API's conventions and "efficient detection of changes" (watch, bookmarks, 410).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import orjson
from aiohttp import web
from berth_host.errors.cluster import ClusterError, ConflictError, InvalidError, NotFoundError
from berth_host.model.compact_json import json_bytes
from berth_host.model.patch_type import PatchType
from berth_sdk.json.objects import finish, object_steps
from berth_sdk.kube_object import KubeObject, ObjectRef

from berth_sim.cluster.http.history import Change, History, Watched
from berth_sim.cluster.http.target import Target, discovery_of, target_of
from berth_sim.cluster.kinds import POD
from berth_sim.cluster.server import ApiServer

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
            return _line("MODIFIED" if was else "ADDED", self.target.shown(new))
        if not was or old is None:
            return None
        last = new if new is not None else old
        metadata = {**last["metadata"], "resourceVersion": str(change.version)}
        return _line("DELETED", self.target.shown({**last, "metadata": metadata}))


async def watch(
    request: web.Request, history: Watched, selection: Selection, since: int, ends_s: float
) -> web.StreamResponse:
    """Answer with changes until `ends_s` (the loop's time), or until the client disconnects."""
    loop = asyncio.get_running_loop()
    waiting: deque[Change] = deque()
    came = asyncio.Event()

    def hear(change: Change) -> None:
        # A client may know more than this server, from another one.
        if change.kind is selection.target.kind and change.version > since:
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
                target = selection.target
                mark = {
                    "kind": target.kind.kind,
                    "apiVersion": target.api_version,
                    "metadata": {"resourceVersion": str(max(since, history.version))},
                }
                await response.write(_line("BOOKMARK", mark))
        return response
    finally:
        stop_listening()


def _line(event: str, obj: dict[str, Any]) -> bytes:
    return json_bytes({"type": event, "object": obj}) + b"\n"


def _gone(since: int, forgotten: int) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": 410,
        "reason": "Expired",
        "message": f"too old resource version: {since} ({forgotten})",
    }


_EVENTS: Final = "/events"
_VERSION: Final = "/version"
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_WATCH_S: Final = 600.0
Answer = Callable[[web.Request, Target], Awaitable[web.StreamResponse]]


class Handlers:
    """The request handlers of one server.

    `events_taken`: the number of events that hosts wrote. `rebinds`: the number of refused requests to bind
    a pod to a second node.
    """

    def __init__(self, server: ApiServer, history: Watched | None = None) -> None:
        """`history`: of the watches; None: a new one."""
        self._server = server
        self.history: Watched = history if history is not None else History(server.store)
        self.events_taken = 0
        self.rebinds = 0
        self._by_method: dict[str, Answer] = {
            "GET": self._get,
            "POST": self._post,
            "PUT": self._put,
            "PATCH": self._patch,
            "DELETE": self._delete,
        }

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer any request."""
        if request.method == "POST" and request.path.endswith(_EVENTS):
            self.events_taken += 1
            return _json(201, orjson.loads(await request.read()))
        if request.path == _VERSION:
            return _json(200, {"major": "1", "minor": "37", "gitVersion": "v1.37.2"})
        if request.path == _REVIEWS:
            # There is no authentication, so every right is granted.
            return _json(201, {**orjson.loads(await request.read()), "status": {"allowed": True}})
        discovered = discovery_of(request.path) if request.method == "GET" else None
        if discovered is not None:
            return _json(200, discovered)
        target = target_of(request.path)
        answer = self._by_method.get(request.method)
        if target is None or answer is None:
            return _status(404, "NotFound", "the server could not find the requested resource")
        try:
            return await answer(request, target)
        except ClusterError as err:
            return _refusal(err)
        except (orjson.JSONDecodeError, SelectorError, KeyError, TypeError, ValueError) as err:
            return _status(400, "BadRequest", f"the request cannot be read: {err}")

    async def _get(self, request: web.Request, target: Target) -> web.StreamResponse:
        if target.name:
            found = self._server.get(target.kind.resource, target.ref)
            if found is None:
                raise NotFoundError(target.kind.resource, target.ref.key)
            return _object(target, found)
        selection = Selection(target, request.query.get("fieldSelector", ""))
        if request.query.get("watch") == "true":
            seconds = float(request.query.get("timeoutSeconds") or _WATCH_S)
            since = int(request.query.get("resourceVersion") or self.history.version)
            ends_s = asyncio.get_running_loop().time() + seconds
            return await watch(request, self.history, selection, since, ends_s)
        items = [obj.parsed for obj in self._server.list(target.kind.resource)]
        return _json(
            200,
            {
                "kind": f"{target.kind.kind}List",
                "apiVersion": target.api_version,
                "metadata": {"resourceVersion": str(self.history.list_version)},
                "items": [target.shown(item) for item in items if selection.takes(dict(item))],
            },
        )

    async def _post(self, request: web.Request, target: Target) -> web.StreamResponse:
        body = await _read(request, target)
        if target.kind is POD and target.subresource == "binding":
            return self._bind(target, body)
        metadata = {**(body.get("metadata") or {})}
        if target.kind.namespaced:
            metadata["namespace"] = target.namespace
        kind = target.kind
        created = self._server.create(
            {**body, "apiVersion": target.api_version, "kind": kind.kind, "metadata": metadata}
        )
        return _object(target, created, 201)

    def _bind(self, target: Target, body: dict[str, Any]) -> web.Response:
        node_name = str(body["target"]["name"])
        found = self._server.get("pods", target.ref)
        node_before = "" if found is None else str(found.get("spec.nodeName") or "")
        if node_before not in ("", node_name):
            self.rebinds += 1
        uid = str((body.get("metadata") or {}).get("uid") or "")
        self._server.bind(ObjectRef(name=target.name, namespace=target.namespace, uid=uid), node_name)
        return _json(201, {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201})

    async def _put(self, request: web.Request, target: Target) -> web.StreamResponse:
        body = await _read(request, target)
        kind = target.kind
        metadata = {**(body.get("metadata") or {}), "name": target.name}
        if kind.namespaced:
            metadata["namespace"] = target.namespace
        whole = {**body, "apiVersion": target.api_version, "kind": kind.kind, "metadata": metadata}
        return _object(target, self._server.update(whole, subresource=target.subresource))

    async def _patch(self, request: web.Request, target: Target) -> web.StreamResponse:
        patched = self._server.patch(
            target.kind.resource,
            target.ref,
            await _read(request, target),
            patch_type=PatchType(request.content_type),
            subresource=target.subresource,
            api_version=target.api_version,
        )
        return _object(target, patched)

    async def _delete(self, request: web.Request, target: Target) -> web.StreamResponse:
        raw = await request.read()
        options = orjson.loads(raw) if raw else {}
        grace_period_s = options.get("gracePeriodSeconds")
        self._server.delete(target.kind.resource, target.ref, grace_period_s=grace_period_s)
        return _json(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})


async def _read(request: web.Request, target: Target) -> Any:
    """Read a request's body, of any depth. Raises ValueError."""
    return finish(object_steps(target.kind.kind, await request.read(), orjson.loads))


def _refusal(err: ClusterError) -> web.Response:
    text = err.server_message or err.text
    if isinstance(err, NotFoundError):
        return _status(404, "NotFound", text)
    if isinstance(err, ConflictError):
        return _status(409, "AlreadyExists" if text.endswith("already exists") else "Conflict", text)
    if isinstance(err, InvalidError):
        causes = [{"field": problem.path, "message": problem.problem} for problem in err.problems]
        return _status(422, "Invalid", text, {"causes": causes})
    return _status(500, "InternalError", text)


def failure(code: int, reason: str, message: str) -> dict[str, Any]:
    """Return the Status object of a refused request. `code`: the HTTP status."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }


def _status(code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> web.Response:
    status = failure(code, reason, message)
    return _json(code, status if details is None else {**status, "details": details})


def _object(target: Target, obj: KubeObject, code: int = 200) -> web.Response:
    return _json(code, target.shown(obj.parsed))


def _json(code: int, body: Any) -> web.Response:
    return web.Response(status=code, body=json_bytes(body), content_type="application/json")


_HOST: Final = "127.0.0.1"
_MAX_BYTES: Final = 2**24


class ServedCluster:
    """The HTTP server. `url`: its address. `handlers`: its request handlers, with their counts."""

    def __init__(self, server: ApiServer) -> None:
        self.handlers = Handlers(server)
        self.url = ""
        self._port = 0
        self._runner: web.AppRunner | None = None

    async def listen(self) -> None:
        """Start to listen; a later call uses the same port again. Raises OSError."""
        app = web.Application(client_max_size=_MAX_BYTES)
        app.router.add_route("*", "/{path:.*}", self.handlers.handle)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, _HOST, self._port, reuse_address=True).start()
        self._runner = runner
        self._port = runner.addresses[0][1]
        self.url = f"http://{_HOST}:{self._port}"

    async def fall_silent(self) -> None:
        """Close every connection and stop listening, until `listen`."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        # The loop closes the sockets in its next turn.
        await asyncio.sleep(0)


@asynccontextmanager
async def served(server: ApiServer) -> AsyncIterator[ServedCluster]:
    """Serve `server` until the block ends."""
    cluster = ServedCluster(server)
    await cluster.listen()
    try:
        yield cluster
    finally:
        await cluster.fall_silent()
        cluster.handlers.history.close()
