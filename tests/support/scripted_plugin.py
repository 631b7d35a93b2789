"""A plugin server of raw messages on a real socket, whose answers a test writes call by call.

    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    plugin.on("Filter", lambda request: scheduling_pb2.FilterResponse(...))
    async with plugin.serving(tmp_path / "p.sock"): ...

Unscripted calls get the shortest good answer. `asked` keeps every request. Answers of a cycle name the cycle
that was asked about, unless the script names one. A script that answers bytes has them sent as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

import grpc
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2, queue_pb2, scheduling_pb2, state_pb2
from berth_sdk.serve.reservations import whole_list
from berth_sdk.wire.frames import CALLS
from berth_sdk.wire.frames import FEATURE as FRAMED
from google.protobuf.message_factory import GetMessageClass
from support.scripted_frames import ScriptedFrames

SERVICES = (
    identity_pb2.DESCRIPTOR.services_by_name["IdentityService"],
    state_pb2.DESCRIPTOR.services_by_name["StateService"],
    queue_pb2.DESCRIPTOR.services_by_name["QueueService"],
    scheduling_pb2.DESCRIPTOR.services_by_name["SchedulingService"],
)
WAYS: dict[str, tuple[str, ...]] = {"unary": (), "framed": (FRAMED,)}
"""How calls of scheduling cycles travel to an instance that names these features."""
SUCCESS = pb.PluginStatus(code=pb.PluginStatus.CODE_SUCCESS)
_instances = itertools.count(1)


def descriptor(
    name: str, *points: str, snapshot: bool = True, **fields: Any
) -> identity_pb2.PluginDescriptor:
    """Return a descriptor with these points, spelled as in the enum without its prefix."""
    message = identity_pb2.PluginDescriptor(
        name=name,
        points=[identity_pb2.ExtensionPoint.Value(f"EXTENSION_POINT_{point}") for point in points],
        node_mode=identity_pb2.NODE_MODE_SNAPSHOT if snapshot else identity_pb2.NODE_MODE_NAMES,
        **fields,
    )
    if snapshot and "needs" not in fields:
        message.needs.add(kind=identity_pb2.DeclaredNeed.KIND_NODE_SUMMARY)
    return message


WHOLE_POD: Final = identity_pb2.DeclaredNeed(kind=identity_pb2.DeclaredNeed.KIND_WHOLE_POD)


class ScriptedError(Exception):
    """Raised by a script: answer with this gRPC code."""

    def __init__(self, code: grpc.StatusCode, text: str = "scripted") -> None:
        self.code = code
        self.text = text
        super().__init__(text)


class ScriptedPlugin:
    """Attributes: asked (rpc, request) in order, instance_id, started_at_s, plugins, held (the version it
    claims), framed (how many calls came in frames), frames (the connections of these), pages (how many each
    Reconcile had; `asked` has them as one), metadata (rpc and metadata of each gRPC call), echoes
    (False: answers name no cycle by themselves).
    `features`, `max_message_bytes`: what it names in the handshake.
    """

    features: ClassVar[tuple[str, ...]] = ()
    max_message_bytes = 0

    def __init__(self, *plugins: identity_pb2.PluginDescriptor) -> None:
        self.plugins = plugins
        self.instance_id = f"instance-{next(_instances)}"
        self.started_at_s = int(time.time())
        self.asked: list[tuple[str, Any]] = []
        self.held: pb.StateVersion | None = None
        self.framed = 0
        self.frames = ScriptedFrames(self._carried)
        self.echoes = True
        self.pages: list[int] = []
        self.metadata: list[tuple[str, dict[str, Any]]] = []
        self._server: grpc.aio.Server | None = None
        self._scripts: dict[str, Callable[[Any], Any]] = {}
        self._once: dict[str, list[Callable[[Any], Any]]] = {}

    def on(self, rpc: str, answer: Callable[[Any], Any]) -> None:
        """Answer every `rpc` so; the answer may be awaitable, or raise ScriptedError."""
        self._scripts[rpc] = answer

    def once(self, rpc: str, answer: Callable[[Any], Any]) -> None:
        """Answer the next `rpc` so, before what `on` says."""
        self._once.setdefault(rpc, []).append(answer)

    def requests(self, rpc: str) -> list[Any]:
        """Every request of one call."""
        return [request for name, request in self.asked if name == rpc]

    @asynccontextmanager
    async def serving(self, path: Path) -> AsyncIterator[ScriptedPlugin]:
        """Serve at a Unix socket."""
        self._server = server = self.server(f"unix://{path}")
        await server.start()
        try:
            async with self.frames.listening(path) if FRAMED in self.features else contextlib.nullcontext():
                yield self
        finally:
            await server.stop(0)

    async def stop(self) -> None:
        """End at once, as a crash would, with calls open."""
        self.frames.cut_off()
        if self._server is not None:
            await self._server.stop(0)

    def server(self, address: str) -> grpc.aio.Server:
        """Return a server that was not started yet."""
        server = grpc.aio.server()
        server.add_generic_rpc_handlers(list(self._handlers()))
        server.add_insecure_port(address)
        return server

    def _handlers(self) -> Iterator[grpc.GenericRpcHandler]:
        for service in SERVICES:
            handlers = {}
            for method in service.methods:
                request_type = GetMessageClass(method.input_type)
                reply_type = GetMessageClass(method.output_type)
                streams = method.client_streaming
                make = (
                    grpc.stream_unary_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler
                )
                handlers[method.name] = make(
                    self._stream(method.name, reply_type)
                    if streams
                    else self._unary(method.name, reply_type),
                    request_deserializer=request_type.FromString,
                    response_serializer=serialized,
                )
            yield grpc.method_handlers_generic_handler(service.full_name, handlers)

    async def _carried(self, call: int, raw: bytes, context: Any) -> tuple[int, bytes]:
        self.framed += 1
        rpc = CALLS[call - 1]
        request = getattr(scheduling_pb2, f"{rpc}Request").FromString(raw)
        reply = await self._unary(rpc, getattr(scheduling_pb2, f"{rpc}Response"), framed=True)(
            request, context
        )
        return call, serialized(reply)

    def _unary(self, rpc: str, reply_type: Any, *, framed: bool = False) -> Callable[[Any, Any], Any]:
        async def answer(request: Any, context: Any) -> Any:
            self.asked.append((rpc, request))
            if not framed:
                self.metadata.append((rpc, dict(context.invocation_metadata())))
            try:
                reply = self._script(rpc)(request)
                if inspect.isawaitable(reply):
                    reply = await reply
            except ScriptedError as refusal:
                await context.abort(refusal.code, refusal.text)
            reply = reply if reply is not None else reply_type()
            return echoing(request, reply) if self.echoes and not isinstance(reply, bytes) else reply

        return answer

    def _stream(self, rpc: str, reply_type: Any) -> Callable[[Any, Any], Any]:
        async def answer(requests: Any, context: Any) -> Any:
            chunks: Any = [chunk async for chunk in requests]
            if rpc == "Reconcile":
                self.pages.append(len(chunks))
                chunks = whole_list(chunks)
            self.asked.append((rpc, chunks))
            self.metadata.append((rpc, dict(context.invocation_metadata())))
            try:
                reply = self._script(rpc)(chunks)
                if inspect.isawaitable(reply):
                    reply = await reply
            except ScriptedError as refusal:
                await context.abort(refusal.code, refusal.text)
            return reply if reply is not None else reply_type()

        return answer

    def _script(self, rpc: str) -> Callable[[Any], Any]:
        if self._once.get(rpc):
            return self._once[rpc].pop(0)
        if rpc in self._scripts:
            return self._scripts[rpc]
        return self.unscripted(rpc)

    # --- the shortest good answers -----------------------------------------------------------------

    def unscripted(self, rpc: str) -> Callable[[Any], Any]:
        """Return the answer to a call (`Bind`) where no script gives one."""
        answer: Callable[[Any], Any] = getattr(self, f"_{rpc}", _nothing)
        return answer

    def _Handshake(self, _request: Any) -> identity_pb2.HandshakeResponse:  # noqa: N802
        reply = identity_pb2.HandshakeResponse(
            supported=[identity_pb2.ContractVersion(major=1)],
            plugins=self.plugins,
            instance_id=self.instance_id,
            features=self.features,
            max_message_bytes=self.max_message_bytes,
        )
        reply.started_at.FromSeconds(self.started_at_s)
        return reply

    def _Probe(self, _request: Any) -> identity_pb2.ProbeResponse:  # noqa: N802
        return identity_pb2.ProbeResponse(ready=True, instance_id=self.instance_id)

    def _SyncState(self, chunks: list[Any]) -> state_pb2.SyncStateResponse:  # noqa: N802
        self.held = chunks[-1].chunk.target
        return state_pb2.SyncStateResponse(have=self.held)

    def _PreEnqueue(self, request: Any) -> queue_pb2.PreEnqueueResponse:  # noqa: N802
        return queue_pb2.PreEnqueueResponse(statuses=[SUCCESS] * len(request.pods))

    def _SortKeys(self, request: Any) -> queue_pb2.SortKeysResponse:  # noqa: N802
        return queue_pb2.SortKeysResponse(keys=[b"k"] * len(request.pods))

    def _QueueingHints(self, request: Any) -> queue_pb2.QueueingHintsResponse:  # noqa: N802
        return queue_pb2.QueueingHintsResponse(queue=[True] * len(request.pods))

    def _SimulateFilter(self, request: Any) -> scheduling_pb2.SimulateFilterResponse:  # noqa: N802
        return scheduling_pb2.SimulateFilterResponse(statuses=[SUCCESS] * len(request.scenarios))

    def _Reserve(self, _request: Any) -> scheduling_pb2.ReserveResponse:  # noqa: N802
        return scheduling_pb2.ReserveResponse(ctx=decided())

    def _Permit(self, _request: Any) -> scheduling_pb2.PermitResponse:  # noqa: N802
        return scheduling_pb2.PermitResponse(ctx=decided())

    def _PreBind(self, _request: Any) -> scheduling_pb2.PreBindResponse:  # noqa: N802
        return scheduling_pb2.PreBindResponse(ctx=decided())

    def _Bind(self, _request: Any) -> scheduling_pb2.BindResponse:  # noqa: N802
        return scheduling_pb2.BindResponse(ctx=decided(), host_binds=True)

    def _Unreserve(self, request: Any) -> scheduling_pb2.UnreserveResponse:  # noqa: N802
        done = [item.cycle_id for item in request.items]
        return scheduling_pb2.UnreserveResponse(done_cycle_ids=done)


def serialized(reply: Any) -> bytes:
    """Return the bytes of an answer."""
    return reply if isinstance(reply, bytes) else bytes(reply.SerializeToString())


def echoing(request: Any, reply: Any) -> Any:
    """Return the reply, about the cycle that was asked about; one that names a cycle is left as it is."""
    if "ctx" in request.DESCRIPTOR.fields_by_name and not reply.ctx.cycle_id:
        echoed = type(reply)()
        echoed.CopyFrom(reply)  # a script may answer with one message again and again
        echoed.ctx.cycle_id = request.ctx.cycle_id
        return echoed
    return reply


def decided(
    code: pb.PluginStatus.Code.ValueType = pb.PluginStatus.CODE_SUCCESS, *reasons: str
) -> pb.ReplyContext:
    """Return a reply's context with a decision."""
    return pb.ReplyContext(status=pb.PluginStatus(code=code, reasons=reasons))


def lacking(*missing: pb.Missing.ValueType, have: pb.StateVersion | None = None) -> pb.ReplyContext:
    """Return a reply's context that executes nothing."""
    return pb.ReplyContext(missing=missing, have=have)


async def for_ever(_request: Any) -> Any:
    """Return a script: never answer."""
    await asyncio.Event().wait()


def refuse(code: grpc.StatusCode) -> Callable[[Any], Any]:
    """Return a script: answer with a gRPC code."""

    def answer(_request: Any) -> Any:
        raise ScriptedError(code)

    return answer


def _nothing(_request: Any) -> None:
    return None
