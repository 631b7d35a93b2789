"""`ApiServers`: two API servers of one cluster at one address, with the faults of a life.

A connection goes to one of the servers, by chance. The handlers are those of `berth_sim.cluster.http`, and
HTTP is aiohttp's, over a `MemoryNetwork`. A request is late, or meets a fault before or after its effect.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, NoReturn

import orjson
from aiohttp import web
from berth_sdk.kube_object import ObjectRef
from berth_sim.cluster.http.history import History
from berth_sim.cluster.http.serving import Handlers, failure
from berth_sim.cluster.http.target import target_of
from berth_sim.cluster.server import ApiServer

from berth_bench.life.faulty_cluster import HARMLESS, Fault, Faults
from berth_bench.life.late_history import LateHistory
from berth_bench.life.network import Address, MemoryNetwork, Transport

ADDRESS: Final[Address] = ("127.0.0.1", 6443)
URL: Final = f"http://{ADDRESS[0]}:{ADDRESS[1]}"
_LOG: Final = logging.Logger("api-servers", logging.CRITICAL)
"""Takes aiohttp's complaints about clients that are gone; `failure` has the others."""
EVENTS: Final = "events"
_BEFORE: Final = {
    Fault.INTERNAL_BEFORE: (500, "InternalError", "drawn by the life"),
    Fault.CONFLICT: (409, "Conflict", "the object has been modified; please apply your changes to it again"),
    Fault.TOO_MANY: (429, "TooManyRequests", "too many requests"),
    Fault.FORBIDDEN: (403, "Forbidden", "not allowed"),
}
_AFTER: Final = (Fault.TIME_OUT_AFTER, Fault.UNAVAILABLE_AFTER, Fault.INTERNAL_AFTER)
_UNAVAILABLE: Final = (503, "ServiceUnavailable", "the server is starting")
_CALLS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}


@dataclass(frozen=True, slots=True)
class Arrived:
    """A request that arrived. `client`: the process that sent it. `sent_s`: the loop's time when it did.

    `call`, `resource`, `key`: as a `ClusterPort` has them; `call` is also "list" and "watch". `node`: of a
    binding, else "".
    """

    client: str
    sent_s: float
    call: str
    resource: str
    key: str
    node: str = ""


NoteEvent = Callable[[ObjectRef, str, str], None]
Note = Callable[[str, Arrived, Fault], None]


class ApiServers:
    """The API servers. `faults`: of requests from now on. `late`: the changes that the second server has.

    `failure`: the first error of the servers themselves. `note`: called twice for each request: when it
    arrived ("begun"), and when it takes effect ("done"). `note_event`: called with object, reason and text of
    each new event about a pod; with "" as the text for the repetition of one.
    """

    def __init__(
        self,
        server: ApiServer,
        network: MemoryNetwork,
        chance: random.Random,
        faults: Faults,
        note: Note,
        note_event: NoteEvent,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.faults = faults
        self.failure: Exception | None = None
        self.history = History(server.store)
        self.late = LateHistory(self.history, loop)
        self._events: dict[str, tuple[ObjectRef, str]] = {}
        """The pod and the reason of each event, by the event's path."""
        self._network = network
        self._chance = chance
        self._note = note
        self._note_event = note_event
        self._nothing_fails = asyncio.Event()
        self._servers = [
            web.Server(
                self._answering(Handlers(server, history)),
                handler_cancellation=True,
                access_log=None,
                logger=_LOG,
            )
            for history in (self.history, self.late)
        ]
        network.listen(ADDRESS, self._accept)

    def _accept(self) -> asyncio.BaseProtocol:
        """Return the protocol for a new connection, of a server that is drawn."""
        return self._chance.choice(self._servers)()

    def go_away(self) -> None:
        """Reset all connections, and refuse new ones."""
        self._network.is_down = True
        for connection in list(self._network.connections):
            self._network.cut(connection)

    def come_back(self) -> None:
        """Take connections again."""
        self._network.is_down = False

    def compact(self) -> None:
        """Forget all changes so far, and reset all connections: who missed one has to list again."""
        for connection in list(self._network.connections):
            self._network.cut(connection)
        self.history.compact()

    def behave(self) -> None:
        """Let nothing fail and nothing be late from now on.

        Requests that have no answer are reset: a watch would wait longer for one than the laws do for rest.
        """
        self._nothing_fails.set()
        self.faults = replace(HARMLESS, turns=0)
        self._network.lateness = replace(self._network.lateness, delay_s=0.0, pieces=0.0)
        self.come_back()
        self.late.catch_up()

    async def stop(self) -> None:
        """Close all connections, and end what answers them."""
        self._network.close(ADDRESS)
        for server in self._servers:
            await server.shutdown(0.0)
        self.late.close()
        self.history.close()

    def _answering(self, handlers: Handlers) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            try:
                return await self._answer(handlers, request)
            except ConnectionError:
                raise  # the client is gone
            except Exception as err:
                self.failure = self.failure or err
                raise

        return answer

    async def _answer(self, handlers: Handlers, request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        assert isinstance(transport, Transport)
        # The handlers read it, too, and then without a wait: so the effect comes at the note of it.
        body = await request.read()
        arrived = _arrived(request, transport, body)
        fault = self._drawn(arrived)
        self._note("begun", arrived, fault)
        await self._dawdle()
        if fault is Fault.TIME_OUT_BEFORE:
            await self._hang(transport)
        if fault is Fault.UNAVAILABLE_BEFORE:
            if self._chance.random() < 0.5:
                return _refusal(*_UNAVAILABLE)
            _reset(transport)
        if fault in _BEFORE:
            return _refusal(*_BEFORE[fault])
        self._note("done", arrived, fault)
        if arrived.resource == EVENTS:
            self._hear_event(arrived.call, request.path, body)
        answer = await handlers.handle(request)  # type: ignore[arg-type]  # which reads no more than this has
        await self._dawdle()
        if fault is Fault.TIME_OUT_AFTER:
            await self._hang(transport)
        if fault is Fault.UNAVAILABLE_AFTER:
            _reset(transport)
        return _refusal(*_BEFORE[Fault.INTERNAL_BEFORE]) if fault is Fault.INTERNAL_AFTER else answer

    def _hear_event(self, call: str, path: str, body: bytes) -> None:
        if call == "patch":
            if found := self._events.get(path):
                self._note_event(*found, "")
            return
        event = orjson.loads(body)
        about = event.get("regarding")
        if call == "create" and about is not None and about.get("kind") == "Pod":
            ref = ObjectRef(name=about["name"], namespace=about["namespace"], uid=about["uid"])
            self._events[f"{path}/{event['metadata']['name']}"] = ref, event["reason"]
            self._note_event(ref, event["reason"], "" if "series" in event else event["note"])

    def _drawn(self, arrived: Arrived) -> Fault:
        faults = self.faults
        if not faults.share or self._chance.random() >= faults.share:
            return Fault.NONE
        fault = self._chance.choice(faults.kinds)
        is_read = arrived.call in ("get", "list", "watch")
        if (fault is Fault.CONFLICT and is_read) or (fault in _AFTER and arrived.call == "watch"):
            return Fault.UNAVAILABLE_BEFORE
        return fault

    async def _hang(self, transport: Transport) -> NoReturn:
        """Answer nothing; reset the connection once nothing fails any more. Raises ConnectionResetError."""
        await self._nothing_fails.wait()
        _reset(transport)

    async def _dawdle(self) -> None:
        if self.faults.delay_s:
            await asyncio.sleep(self._chance.uniform(0.0, self.faults.delay_s))


def _arrived(request: web.BaseRequest, transport: Transport, body: bytes) -> Arrived:
    call = _CALLS.get(request.method, request.method)
    target = target_of(request.path)
    client = transport.get_extra_info("peername")[0]
    if target is None:
        what = EVENTS if EVENTS in request.path else request.path
        return Arrived(client, transport.sent_s, call, what, "")
    if call == "get" and not target.name:
        call = "watch" if request.query.get("watch") == "true" else "list"
    node = ""
    if target.subresource == "binding":
        call, node = "bind", orjson.loads(body)["target"]["name"]
    return Arrived(client, transport.sent_s, call, target.kind.resource, target.ref.key, node)


def _reset(transport: Transport) -> NoReturn:
    transport.abort()
    raise ConnectionResetError("the request has no answer")


def _refusal(code: int, reason: str, message: str) -> web.Response:
    headers = {"Retry-After": "1"} if code == 429 else {}
    return web.Response(
        status=code,
        body=orjson.dumps(failure(code, reason, message)),
        content_type="application/json",
        headers=headers,
    )
