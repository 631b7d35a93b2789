"""`QueryService`: the calls of `proto/berth/query/v1/query.proto`, whose comments define the behaviour.

    metadata -> user and right (`Gate`) -> the leading host -> a place -> the request is read
        -> Simulate: `questions.simulating.Simulate`, slice by slice
        -> Fit, Queue, Drain, Why: the page of `/berth/v1/`

Fit, Queue, Drain and Why send the bytes that the page answers, so that both always say the same. Served by
`query_server`. This module brings gRPC, which a host without query service and served plugins never imports.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, NoReturn, Protocol
from urllib.parse import quote

import grpc
import orjson
from berth_sdk.query.v1 import query_pb2 as pb

from berth_host.endpoints.access import Authentication, Authorization
from berth_host.endpoints.pages import PREFIX, QUEUE_LIMIT, AnsweringProcess, Answers, HostOnPages
from berth_host.endpoints.request_response import Answer, Request
from berth_host.errors.endpoints import BusyError, QuestionCutError, QuestionError
from berth_host.explain.simulated import Placement, SimulationSummary
from berth_host.listening.turn_queue import TurnQueue
from berth_host.model.user import ANONYMOUS, User
from berth_host.questions.simulating import NodeTemplate, Simulate
from berth_host.rpc.served.registration import Read, RequestLimit

MOST_PODS: Final = 10_000
MOST_TEMPLATES: Final = 500
MOST_NODES: Final = 5_000
"""The most template nodes of one question."""
MOST_NODE_PODS: Final = 100
"""The most pods that a node of a template has from the start."""
MOST_PODS_THERE: Final = 20_000
"""The most pods that all template nodes together have from the start: each slice adds all of them anew."""
MOST_OBJECT_BYTES: Final = 3 * 512 * 1024
"""The most bytes of one pod or node: etcd's limit of a request, so no cluster has a larger object."""
MOST_NAME_BYTES: Final = 512
_LONGEST_NAME: Final = 253
"""The characters of the longest name of an object. A longer one would not fit into the text of a refusal."""
MOST_REQUEST_BYTES: Final = 32 * 1024 * 1024
_SHORT: Final = RequestLimit(16 * 1024, "send a shorter one")
LIMITS: Final[Mapping[str, RequestLimit]] = {
    "Simulate": RequestLimit(
        MOST_REQUEST_BYTES,
        "ask about fewer pods at a time, and leave out metadata.managedFields and status",
    ),
    "Fit": RequestLimit(MOST_OBJECT_BYTES + 1024, "leave out metadata.managedFields and status"),
    "Queue": _SHORT,
    "Drain": _SHORT,
    "Why": _SHORT,
}
"""The limit of the request of each call."""
MOST_CALLS: Final = 32
"""The most calls at the same time. A call counts once its caller is known to have a valid token."""
STRANGERS_PER_S: Final = 100.0
BURST_STRANGERS: Final = 200.0
"""Refusals of callers without a valid token."""
MOST_OPEN: Final = 4
"""The most simulations that run or wait at the same time."""
ANSWER_S: Final = 60.0
"""The most seconds from a request of Simulate to the end of its answer."""
MOST_READ: Final = 4
"""The most requests of the other calls that are read at the same time; as many again of callers whose right
depends on the request.
"""
MOST_UNCHECKED: Final = 8
"""The most calls at the same time, of callers whose right depends on the request, that wait for their turn or
are read. They leave the other calls of the server to those whose right is known.
"""
READ_S: Final = 30.0
"""The most seconds that a request of Simulate may take to arrive."""
SHORT_READ_S: Final = 10.0
"""The most seconds that a request of another call waits for its turn and takes to arrive."""
MOST_TEXT_BYTES: Final = 4096
"""The most bytes of the text of a refusal, as its header has them: clients take 8 KiB of all headers."""
PART_BYTES: Final = 1024 * 1024
"""The size from which on a message is sent: gRPC clients take 4 MiB unless they are told otherwise."""
NO_TOKEN: Final = (
    "the bearer token is missing or not valid: send a valid one as metadata `authorization: Bearer TOKEN`"
)
_Code = grpc.StatusCode
_CODES: Final[Mapping[int, grpc.StatusCode]] = {
    400: _Code.INVALID_ARGUMENT,
    404: _Code.NOT_FOUND,
    503: _Code.UNAVAILABLE,
}


class Gate(Protocol):
    """Decides whether a call may be answered. Called with the path and the verb of the page."""

    async def knows(self, metadata: Iterable[tuple[str, str | bytes]]) -> bool:
        """Return True if the caller has a valid token. Called before the request is read.

        Raises BusyError.
        """
        ...

    async def refusal(
        self, metadata: Iterable[tuple[str, str | bytes]], verb: str, path: str
    ) -> tuple[grpc.StatusCode, str] | None:
        """Return the code and the text of a refusal; None: the call may go on."""
        ...


class OpenGate:
    """Lets every call in: for a loopback port of one user, as that of `berth ui`."""

    async def knows(self, metadata: Iterable[tuple[str, str | bytes]]) -> bool:
        """Return True."""
        return True

    async def refusal(
        self, metadata: Iterable[tuple[str, str | bytes]], verb: str, path: str
    ) -> tuple[grpc.StatusCode, str] | None:
        """Return None."""
        return None


class ReviewingGate:
    """Identifies the user by the bearer token, and checks the right, as the secure port does."""

    def __init__(self, authentication: Authentication, authorization: Authorization) -> None:
        self._authentication = authentication
        self._authorization = authorization

    async def refusal(
        self, metadata: Iterable[tuple[str, str | bytes]], verb: str, path: str
    ) -> tuple[grpc.StatusCode, str] | None:
        """Return the refusal of a token that is not valid, or of a user without the right; else None."""
        try:
            user = await self._user(metadata)
            if user is None:
                return _Code.UNAUTHENTICATED, NO_TOKEN
            if await self._authorization.may(user, verb.upper(), path):
                return None
        except BusyError as err:
            return _Code.RESOURCE_EXHAUSTED, str(err)
        return (
            _Code.PERMISSION_DENIED,
            f'user "{user.name}" may not {verb} {path}: grant the verb {verb} on this nonResourceURL',
        )

    async def knows(self, metadata: Iterable[tuple[str, str | bytes]]) -> bool:
        """Return True if the token is valid. Without a token nobody is known, whatever RBAC grants to
        system:anonymous, as requests are large. Raises BusyError.
        """
        return await self._user(metadata) is not None

    async def _user(self, metadata: Iterable[tuple[str, str | bytes]]) -> User | None:
        headers: dict[str, list[str]] = {}
        for name, value in metadata:
            if isinstance(value, str):
                headers.setdefault(name.lower(), []).append(value)
        user = await self._authentication.user_of(headers, None)
        return None if user is ANONYMOUS else user


class StrangersAreRefused(grpc.aio.ServerInterceptor):
    """Refuses a call without a valid token before its request, which may be large, is read.

    Refusals have a bounded rate, and those that wait take no place of a call.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._turns = TurnQueue(STRANGERS_PER_S, BURST_STRANGERS)

    async def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Return the handler of the call, or one that refuses it."""
        code, text = _Code.UNAUTHENTICATED, NO_TOKEN
        try:
            if await self._gate.knows(details.invocation_metadata or ()):
                return await continuation(details)
        except BusyError as err:
            code, text = _Code.RESOURCE_EXHAUSTED, str(err)

        async def refuse(requests: Any, context: Any) -> AsyncIterator[bytes]:
            await self._turns.take("")
            await _abort(context, code, text)
            yield b""  # `abort` raises

        # A handler of streams reads nothing of the request by itself.
        return grpc.stream_stream_rpc_method_handler(refuse)


class QueryService:
    """The calls over one process. `gate`: decides about each call."""

    def __init__(
        self,
        process: AnsweringProcess,
        gate: Gate,
        *,
        answer_s: float = ANSWER_S,
        read_s: float = READ_S,
        short_read_s: float = SHORT_READ_S,
    ) -> None:
        """Create the service. `answer_s`, `read_s`, `short_read_s`: see the constants of these names."""
        self.interceptors = [StrangersAreRefused(gate)]
        """The server calls them before it reads a request."""
        self._process = process
        self._gate = gate
        self._answer_s = answer_s
        self._read_s = read_s
        self._short_read_s = short_read_s
        self._turns = asyncio.Semaphore(MOST_READ)
        self._unchecked_turns = asyncio.Semaphore(MOST_READ)
        self._unchecked_count = 0
        self._pages = Answers(process)
        self._open = 0
        self._call_count = 0

    @property
    def handlers(self) -> Mapping[str, Callable[..., Any]]:
        """The calls by name."""
        calls = {
            "Simulate": self.simulate,
            "Fit": self.fit,
            "Queue": self.queue,
            "Drain": self.drain,
            "Why": self.why,
        }
        return {name: self._placed(call) for name, call in calls.items()}

    def _placed(self, call: Callable[[Read, Any], AsyncGenerator[Any, None]]) -> Callable[..., Any]:
        """Return the call with a place among MOST_CALLS, which it has until its end."""

        async def placed(read: Read, context: Any) -> AsyncGenerator[Any, None]:
            if self._call_count >= MOST_CALLS:
                await _abort(
                    context,
                    _Code.RESOURCE_EXHAUSTED,
                    f"{MOST_CALLS} calls are open: ask again when one has ended",
                )
            self._call_count += 1
            try:
                async with aclosing(call(read, context)) as replies:
                    async for reply in replies:
                        yield reply
            finally:
                self._call_count -= 1

        return placed

    # --- Simulate ----------------------------------------------------------------------------------

    async def simulate(self, read: Read, context: Any) -> AsyncGenerator[pb.SimulateResponse, None]:
        """Place pods on nodes of the cluster and on nodes that do not exist."""
        host = await self._admitted(context, "post", f"{PREFIX}simulate")
        if self._open >= MOST_OPEN:
            await _abort(
                context,
                _Code.RESOURCE_EXHAUSTED,
                f"{MOST_OPEN} simulations are open: ask again when one has ended",
            )
        self._open += 1
        try:
            loop = asyncio.get_running_loop()
            request = await _arriving(read, context, loop.time() + self._read_s, self._read_s)
            ends_s = loop.time() + self._answer_s
            async with aclosing(messages_of(host, request)) as answers:
                while True:
                    async with asyncio.timeout_at(ends_s):
                        answer = await anext(answers, None)
                    if answer is None:
                        break
                    yield answer
                    if loop.time() >= ends_s:
                        raise TimeoutError
        except TimeoutError:
            await _abort(
                context,
                _Code.RESOURCE_EXHAUSTED,
                f"the answer took more than {self._answer_s:g} s: ask about fewer pods or nodes at a time",
            )
        except QuestionCutError as err:
            await _abort(context, _Code.UNAVAILABLE, str(err))
        except _LimitError as err:
            await _abort(context, _Code.RESOURCE_EXHAUSTED, str(err))
        except QuestionError as err:
            await _abort(context, _Code.INVALID_ARGUMENT, str(err))
        finally:
            self._open -= 1

    # --- the answers of pages ------------------------------------------------------------------------

    async def fit(self, read: Read, context: Any) -> AsyncGenerator[pb.FitResponse, None]:
        """Say where one pod would go."""
        path = f"{PREFIX}fit"
        await self._admitted(context, "post", path)
        request: pb.FitRequest = await self._taken(read, context, self._turns)
        try:
            _object("pod", request.pod)
        except _LimitError as err:
            await _abort(context, _Code.RESOURCE_EXHAUSTED, str(err))
        except QuestionError as err:
            await _abort(context, _Code.INVALID_ARGUMENT, str(err))
        asked = Request(method="POST", path=path, body=request.pod)
        for part in await self._page(context, asked):
            yield pb.FitResponse(json=part)

    async def queue(self, read: Read, context: Any) -> AsyncGenerator[pb.QueueResponse, None]:
        """List the pods of the queue."""
        path = f"{PREFIX}queue"
        await self._admitted(context, "get", path)
        request: pb.QueueRequest = await self._taken(read, context, self._turns)
        query = {
            "limit": [str(request.limit or QUEUE_LIMIT)],
            "offset": [str(request.offset)],
            "part": [request.part],
            "reason": [request.reason],
            "contains": [request.contains],
            "order": [request.order or "oldest"],
        }
        for part in await self._page(context, Request(method="GET", path=path, query=query)):
            yield pb.QueueResponse(json=part)

    async def drain(self, read: Read, context: Any) -> AsyncGenerator[pb.DrainResponse, None]:
        """Say who could not leave a node."""
        request: pb.DrainRequest = await self._taken_unchecked(read, context)
        name = await _segment(context, "node_name", request.node_name)
        path = f"{PREFIX}nodes/{name}/drain"
        await self._admitted(context, "get", path)
        for part in await self._page(context, Request(method="GET", path=path)):
            yield pb.DrainResponse(json=part)

    async def why(self, read: Read, context: Any) -> AsyncGenerator[pb.WhyResponse, None]:
        """Say where a pod is, and why."""
        request: pb.WhyRequest = await self._taken_unchecked(read, context)
        namespace = await _segment(context, "namespace", request.namespace)
        name = await _segment(context, "name", request.name)
        path = f"{PREFIX}pods/{namespace}/{name}"
        await self._admitted(context, "get", path)
        query = {"node": [request.node_name], "attempts": [str(request.attempts or 1)]}
        for part in await self._page(context, Request(method="GET", path=path, query=query)):
            yield pb.WhyResponse(json=part)

    async def _taken_unchecked(self, read: Read, context: Any) -> Any:
        """Return the request of a caller whose right depends on it; abort the call if too many wait."""
        if self._unchecked_count >= MOST_UNCHECKED:
            await _abort(
                context,
                _Code.RESOURCE_EXHAUSTED,
                f"{MOST_UNCHECKED} other requests have not arrived yet: ask again soon",
            )
        self._unchecked_count += 1
        try:
            return await self._taken(read, context, self._unchecked_turns)
        finally:
            self._unchecked_count -= 1

    async def _taken(self, read: Read, context: Any, turns: asyncio.Semaphore) -> Any:
        """Return the request, which is read when it has its turn; abort the call if this takes too long."""
        ends_s = asyncio.get_running_loop().time() + self._short_read_s
        try:
            async with asyncio.timeout_at(ends_s):
                await turns.acquire()
        except TimeoutError:
            await _abort(
                context,
                _Code.RESOURCE_EXHAUSTED,
                f"{MOST_READ} other requests have not arrived yet: ask again soon",
            )
        try:
            return await _arriving(read, context, ends_s, self._short_read_s)
        finally:
            turns.release()

    async def _page(self, context: Any, request: Request) -> Sequence[bytes]:
        """Return the body of a page in parts; abort the call with the text of an error."""
        answer: Answer = await self._pages.answer(request)
        if answer.status != 200:
            code = _CODES.get(answer.status, _Code.INTERNAL)
            await _abort(context, code, orjson.loads(answer.body)["message"])
        body = answer.body
        return [body[at : at + PART_BYTES] for at in range(0, len(body), PART_BYTES)]

    async def _admitted(self, context: Any, verb: str, path: str) -> HostOnPages:
        """Return the host that schedules; abort a call that may not be answered."""
        refused = await self._gate.refusal(context.invocation_metadata() or (), verb, path)
        if refused is not None:
            await _abort(context, *refused)
        host = self._process.host
        if host is None or not self._process.is_connected:
            await _abort(
                context, _Code.UNAVAILABLE, "the scheduler has not listed the cluster yet: ask again"
            )
        if not self._process.is_leading:
            await _abort(
                context,
                _Code.FAILED_PRECONDITION,
                "this replica is on standby, and only the leader schedules pods: ask the leader",
            )
        return host


class _LimitError(QuestionError):
    """A question over a limit."""


async def _abort(context: Any, code: grpc.StatusCode, text: str) -> NoReturn:
    """End the call with a text. Cut its middle where gRPC's clients would not take all of it."""
    whole, size = text, MOST_TEXT_BYTES
    while len(quote(text)) > MOST_TEXT_BYTES:
        size = size * 3 // 4
        text = f"{whole[:size]} ... {whole[-size // 4 :]}"
    await context.abort(code, text)
    raise AssertionError  # `abort` raises


async def _arriving(read: Read, context: Any, ends_s: float, most_s: float) -> Any:
    """Return the request; abort the call if it has not arrived at `ends_s`, after `most_s` seconds."""
    try:
        async with asyncio.timeout_at(ends_s):
            return await read()
    except TimeoutError:
        await _abort(
            context,
            _Code.DEADLINE_EXCEEDED,
            f"the request did not arrive within {most_s:g} s: send a smaller one, or over a faster network",
        )


async def _segment(context: Any, field: str, value: str) -> str:
    """Return a name that is a part of a path; abort the call for one that is none."""
    if not value or "/" in value or len(value) > _LONGEST_NAME:
        await _abort(
            context,
            _Code.INVALID_ARGUMENT,
            f"{field} {value[:40]!r} is no name of an object: give its metadata.name",
        )
    return value


async def messages_of(
    host: HostOnPages, request: pb.SimulateRequest
) -> AsyncGenerator[pb.SimulateResponse, None]:
    """Yield the messages of the answer. Raises QuestionError."""
    simulation = await host.ask(_asked(request))
    message = pb.SimulateResponse()
    size = 0
    async with aclosing(simulation.run()) as slices:
        async for found in slices:
            for placement in found:
                answer = _answer(placement)
                size += answer.ByteSize()
                message.pods.append(answer)
                if size >= PART_BYTES:
                    yield message
                    message, size = pb.SimulateResponse(), 0
            if message.pods:
                yield message
                message, size = pb.SimulateResponse(), 0
    yield pb.SimulateResponse(summary=_summary(simulation.summary()))


def _asked(request: pb.SimulateRequest) -> Simulate:
    """Return the question of a request. Raises QuestionError, which names the field and the cure."""
    _limit("pods", len(request.pods), MOST_PODS, "ask about fewer pods at a time")
    _limit("templates", len(request.templates), MOST_TEMPLATES, "ask about fewer templates at a time")
    nodes = sum(one.count for one in request.templates)
    _limit("templates: the sum of all counts", nodes, MOST_NODES, "ask about fewer nodes at a time")
    there = sum(one.count * len(one.pods) for one in request.templates)
    _limit(
        "templates: the sum of count times pods",
        there,
        MOST_PODS_THERE,
        "ask about fewer nodes at a time, or subtract what these pods request from the node's allocatable",
    )
    if not request.pods:
        raise QuestionError("pods is empty: give at least one pod")
    if request.only_templates and not request.templates:
        raise QuestionError("only_templates leaves no node, as templates is empty: give a template")
    names: dict[str, int] = {}
    for at, one in enumerate(request.templates):
        field = f"templates[{at}]"
        if not one.name or len(one.name.encode()) > MOST_NAME_BYTES:
            raise QuestionError(
                f"{field}.name has {len(one.name.encode())} bytes: give 1 to {MOST_NAME_BYTES}"
            )
        if one.name in names:
            raise QuestionError(
                f"{field}.name {one.name[:40]!r} is that of templates[{names[one.name]}], too: give each"
                " template a name of its own"
            )
        names[one.name] = at
        if not one.count:
            raise QuestionError(f"{field}.count is 0: give the number of nodes, or leave out the template")
        _limit(f"{field}.pods", len(one.pods), MOST_NODE_PODS, "give the pods of one node")
    return Simulate(
        pods=[_object(f"pods[{at}]", text) for at, text in enumerate(request.pods)],
        templates=[
            NodeTemplate(
                name=one.name,
                node=_object(f"templates[{at}].node", one.node),
                count=one.count,
                pods=[_object(f"templates[{at}].pods[{place}]", text) for place, text in enumerate(one.pods)],
            )
            for at, one in enumerate(request.templates)
        ],
        scheduler_name=request.scheduler_name,
        only_templates=request.only_templates,
        each_alone=request.each_alone,
        fills_used_nodes=request.fills_used_nodes,
        all_verdicts=request.all_verdicts,
    )


def _limit(field: str, count: int, most: int, cure: str) -> None:
    if count > most:
        raise _LimitError(f"{field}: there are {count}, and the limit is {most}: {cure}")


def _object(field: str, text: bytes) -> Mapping[str, Any]:
    _check_size(field, text)
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as err:
        raise QuestionError(f"{field} is not JSON ({err}): send the object as JSON in UTF-8") from err
    if not isinstance(value, dict):
        raise QuestionError(f"{field} is not a JSON object: send a Kubernetes object")
    return value


def _check_size(field: str, text: bytes) -> None:
    if len(text) > MOST_OBJECT_BYTES:
        raise _LimitError(
            f"{field} has {len(text)} bytes, and the limit is {MOST_OBJECT_BYTES}: leave out"
            " metadata.managedFields and status"
        )


def _answer(placement: Placement) -> pb.PodAnswer:
    return pb.PodAnswer(
        index=placement.index,
        pod=placement.pod,
        node_name=placement.node_name,
        template=placement.template,
        ordinal=placement.ordinal,
        message=placement.message,
        verdicts=[
            pb.Verdict(
                template=one.template,
                fitting_count=one.fitting_count,
                rejections=[
                    pb.Rejection(plugin=item.plugin, reason=item.reason, node_count=item.node_count)
                    for item in one.rejections
                ],
            )
            for one in placement.verdicts
        ],
    )


def _summary(sums: SimulationSummary) -> pb.Summary:
    found = pb.Summary(
        templates=[
            pb.TemplateUse(template=one.template, used_count=one.used_count, pod_count=one.pod_count)
            for one in sums.templates
        ],
        placed_count=sums.placed_count,
        pending_count=sums.pending_count,
        slice_count=sums.slice_count,
        notes=sums.notes,
    )
    found.held.FromMicroseconds(round(sums.held_s * 1e6))
    return found
