"""HandleService: the calls of served plugins to the host. Served by `HandleServer`.

Every call names its plugin and carries the token of its attachment; then it is the same question that an
`InProcessHandle` puts to the same `HandleBackend`. The calls are the rows of `handle.calls`. Source: the
contract's handle.proto.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, nullcontext
from inspect import isawaitable
from typing import Any, Final, NoReturn

import grpc
from berth_sdk.errors import UndeclaredError
from berth_sdk.wire.call_names import disagreement_of
from berth_sdk.wire.message_limit import CURE
from berth_sdk.wire.pushback import PUSHBACK
from grpc import StatusCode

from berth_host.errors.state import InvariantError
from berth_host.handle.backend import (
    NoOpenCallError,
    QuestionUnderWayError,
    ScenarioError,
    UnknownNodesError,
    UnknownPodError,
)
from berth_host.handle.calls import (
    HANDLE_CALLS,
    AnyHandleCall,
    HandleSeams,
    Known,
    ServedCall,
    StaleStateError,
)
from berth_host.handle.grants import Grant, Grants
from berth_host.handle.rates import CALLS_PER_S, CallRates, RefusedRates
from berth_host.handle.refusals import Refusals
from berth_host.rpc.loop_slices import LoopSlices

MAX_READS: Final = 4
"""Concurrent reads of the state and the nominations by one plugin: each keeps its data alive, however slowly
it is read.
"""
Context = grpc.aio.ServicerContext[Any, Any]
_CODES: Final[dict[type[Exception], StatusCode]] = {
    NoOpenCallError: StatusCode.FAILED_PRECONDITION,
    StaleStateError: StatusCode.FAILED_PRECONDITION,
    UndeclaredError: StatusCode.PERMISSION_DENIED,
    QuestionUnderWayError: StatusCode.RESOURCE_EXHAUSTED,
    UnknownNodesError: StatusCode.INVALID_ARGUMENT,
    UnknownPodError: StatusCode.INVALID_ARGUMENT,
    ScenarioError: StatusCode.INVALID_ARGUMENT,
    ValueError: StatusCode.INVALID_ARGUMENT,
}
"""The host's refusals, and the gRPC code of each."""


class HandleService:
    """The calls of `handle.calls`, with tokens, rates and refusals. All calls run on the host's loop."""

    def __init__(self, seams: HandleSeams, grants: Grants) -> None:
        self._seams = seams
        self._grants = grants
        self._reads: Counter[str] = Counter()
        self._comparing: dict[Any, Callable[[Any, Any], str]] = {}
        self._rates = CallRates(seams.clock)
        self._refusals = Refusals(seams.clock)
        self._refused_rates = RefusedRates(seams.clock)

    @property
    def handlers(self) -> dict[str, Callable[[Any, Context], Any]]:
        """RPC -> handler: a coroutine function, or an async generator function for an answer in chunks."""
        return {call.rpc: self._handler(call) for call in HANDLE_CALLS}

    def _handler(self, call: AnyHandleCall) -> Callable[[Any, Context], Any]:
        async def answer(request: Any, context: Context) -> Any:
            grant = await self._admit(request, context)
            async with self._refusing(call, request, context):
                return await _fitting(await self._answer(call, request, grant.attachment_id), grant, context)

        async def answer_in_chunks(request: Any, context: Context) -> AsyncIterator[Any]:
            grant = await self._admit(request, context)
            async with self._reading(request.plugin, context) if call.holds_data else nullcontext():
                async with self._refusing(call, request, context):
                    found = await self._answer(call, request, grant.attachment_id)
                # Closed here however the stream ends: its captured data must not outlive it.
                async with aclosing(found) as chunks:
                    async for chunk in chunks:
                        yield await _fitting(chunk, grant, context)

        return answer_in_chunks if call.in_chunks else answer

    async def _answer(self, call: AnyHandleCall, request: Any, asking: str) -> Any:
        """Return the response, or the generator of its chunks. Raises the errors of `_CODES`."""
        if isinstance(call, ServedCall):
            served = call.answer(self._seams, request)
            return await served if isawaitable(served) else served
        backend, plugin = self._seams.backend, request.plugin
        answers = []
        pace = (
            LoopSlices()
        )  # one call may hold hundreds of thousands of questions, which must not hold the loop
        for question in call.read(request, asking):
            if isinstance(question, Known):
                answers.append(question.answer)
            else:
                answer = call.local(backend, plugin, *question)
                answers.append(await answer if isawaitable(answer) else answer)
            await pace.step()
        return call.write(request, answers)

    @asynccontextmanager
    async def _reading(self, plugin: str, context: Context) -> AsyncIterator[None]:
        """Count one more read of the plugin; refuse it if the plugin has too many."""
        if self._reads[plugin] >= MAX_READS:
            text = f"{plugin} has {MAX_READS} reads under way: end one first"
            await _refuse(context, StatusCode.RESOURCE_EXHAUSTED, text)
        self._reads[plugin] += 1
        try:
            yield
        finally:
            self._reads[plugin] -= 1

    @asynccontextmanager
    async def _refusing(self, call: AnyHandleCall, request: Any, context: Context) -> AsyncIterator[None]:
        """End the call with the gRPC code of an error; refuse a plugin that is not at the call's point."""
        plugin = request.plugin
        if call.point is not None:
            descriptor = self._seams.descriptor_of(plugin)
            if descriptor is None or not descriptor.has(call.point):
                text = f"{plugin} is not at the extension point {call.point.config_name}"
                await _refuse(context, StatusCode.PERMISSION_DENIED, text)
        try:
            yield
        except NoOpenCallError as err:
            text = f"no {call.open_in} of {plugin} is open in cycle {request.cycle_id}"
            await _refuse(context, _CODES[type(err)], text)
        except UndeclaredError as err:
            await self._note(request, context, str(err))
            await _refuse(context, _CODES[type(err)], str(err))
        except tuple(_CODES) as err:
            code = next(code for kind, code in _CODES.items() if isinstance(err, kind))
            await _refuse(context, code, str(err))

    # --- the caller --------------------------------------------------------------------------------

    async def _admit(self, request: Any, context: Context) -> Grant:
        """Let the call pass, or end it; return the grant of the attachment that it comes from."""
        token = _bearer(context)
        grant = None if token is None else self._grants.find(token)
        if grant is None:
            await self._note(request, context, "no token" if token is None else "no token of an attachment")
            await _refuse(
                context,
                StatusCode.UNAUTHENTICATED,
                "the token is missing, unknown, or of an earlier attachment: use that of the last Configure",
            )
        if why := self._disagreement(request, context):
            await self._note(request, context, why)
            await _refuse(context, StatusCode.INVALID_ARGUMENT, why)
        if why := grant.why_not_of(_properties(context)):
            await self._note(request, context, why)
            await _refuse(context, StatusCode.UNAUTHENTICATED, why)
        if request.plugin not in grant.plugins:
            held = ", ".join(sorted(grant.plugins)) or "no plugin any more: they are in quarantine"
            await self._note(request, context, f"the token is for {held}")
            await _refuse(
                context,
                StatusCode.PERMISSION_DENIED,
                f"plugin {request.plugin!r} is not one of this attachment that asked for the handle, or it is"
                " in quarantine",
            )
        size = request.ByteSize()
        if size > grant.max_message_bytes:
            text = f"the request has {size} bytes, and {grant.max_message_bytes} are the limit: ask in parts"
            await _refuse(context, StatusCode.RESOURCE_EXHAUSTED, text)
        wait_s = self._rates.take(request.plugin)
        if wait_s > 0:
            await _refuse_for_now(context, request.plugin, wait_s)
        return grant

    def _disagreement(self, request: Any, context: Context) -> str:
        """Return how the call's metadata and its message differ; empty if they agree."""
        kind: Any = type(request)
        compare = self._comparing.get(kind)
        if compare is None:
            compare = self._comparing[kind] = disagreement_of(kind)
        return compare(request, context.invocation_metadata() or ())

    async def _note(self, request: Any, context: Context, why: str) -> None:
        """Log the refusal, and wait if this peer is refused too often."""
        call = type(request).__name__.removesuffix("Request")
        self._refusals.note(request.plugin, call, context.peer(), why)
        await self._refused_rates.hold(context.peer())


async def _fitting(answer: Any, grant: Grant, context: Context) -> Any:
    """Return an answer, or a chunk of one, that has at most the agreed size; end the call with the cure for a
    larger one.
    """
    size = answer.ByteSize()
    if size > grant.max_message_bytes:
        text = f"a message of the answer has {size} bytes, and {grant.max_message_bytes} are the limit"
        await _refuse(context, StatusCode.RESOURCE_EXHAUSTED, f"{text}: {CURE}")
    return answer


async def _refuse_for_now(context: Context, plugin: str, wait_s: float) -> NoReturn:
    """Refuse a call that comes too soon. The time to wait is in the text, and in the metadata for gRPC's
    clients.
    """
    wait_ms = math.ceil(wait_s * 1000)
    text = f"{plugin} asks more than {CALLS_PER_S:g} times a second: wait {wait_ms} ms"
    await context.abort(StatusCode.RESOURCE_EXHAUSTED, text, trailing_metadata=((PUSHBACK, str(wait_ms)),))
    raise InvariantError("abort has returned")  # it raises; the checker does not know


def _properties(context: Context) -> Mapping[str, Any]:
    # Lists of bytes, whatever the types of the package say.
    properties: Any = context.auth_context()
    found: Mapping[str, Any] = properties
    return found


def _bearer(context: Context) -> bytes | None:
    for key, value in context.invocation_metadata() or ():
        if key == "authorization":
            raw = value.encode() if isinstance(value, str) else value
            return raw[7:] if raw.startswith(b"Bearer ") else None
    return None


async def _refuse(context: Context, code: StatusCode, text: str) -> NoReturn:
    await context.abort(code, text)
    raise InvariantError(f"abort has returned after {text!r}")  # it raises; the checker does not know
