"""A plugin over raw servicers that keeps every rule, and variants of it that break one each.

`ConformingPlugin` rejects nothing and scores by the node's name. A fault overrides one method. It serves
from threads of the test's process.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import grpc
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2 as identity
from berth_sdk.plugin.v1 import scheduling_pb2 as scheduling
from berth_sdk.plugin.v1 import state_pb2
from berth_sdk.wire.call_names import disagreement_of
from google.protobuf.message_factory import GetMessageClass
from support.scripted_plugin import SERVICES, descriptor

SUCCESS = pb.PluginStatus(code=pb.PluginStatus.CODE_SUCCESS)
DENIED = grpc.StatusCode.PERMISSION_DENIED
POINTS = ("FILTER", "SCORE", "RESERVE", "PERMIT", "PRE_BIND", "BIND", "POST_BIND")


class RefusalError(Exception):
    """A call that ends with a gRPC code."""

    def __init__(self, code: grpc.StatusCode, text: str = "refused") -> None:
        self.code = code
        super().__init__(text)


class ConformingPlugin:
    """Keeps every rule. `points`, `fields`: of the descriptor of each plugin in `names`."""

    points: ClassVar[tuple[str, ...]] = POINTS
    is_snapshot: ClassVar[bool] = True
    fields: ClassVar[dict[str, Any]] = {}
    names: ClassVar[tuple[str, ...]] = ("Kit",)
    major: ClassVar[int] = 1

    def __init__(self) -> None:
        self.instance_id = "instance-1"
        self.lock = threading.RLock()
        self.named: deque[str] = deque(maxlen=64)
        self.attachment_id = ""
        self.served: set[tuple[str, str]] = set()
        """The plugins of the last Configure, each with a profile."""
        self.version: tuple[int, int] | None = None
        self.nodes: dict[int, int] = {}
        self.node_names: dict[int, str] = {}
        self.pods: dict[str, pb.PodSummary] = {}
        self.reserved: dict[tuple[str, str], str] = {}
        """The node of each reservation, by plugin and cycle."""
        self.given_back: set[tuple[str, str]] = set()
        self.server: grpc.Server | None = None
        self.hello = identity.HandshakeResponse(
            supported=[identity.ContractVersion(major=self.major)],
            plugins=[
                descriptor(name, *self.points, snapshot=self.is_snapshot, **self.fields)
                for name in self.names
            ],
            instance_id=self.instance_id,
        )
        self.hello.started_at.FromSeconds(1_763_638_000)

    # --- identity ---

    def Handshake(self, request: Any) -> Any:  # noqa: N802
        self.named.append(request.attachment_id)
        return self.hello

    def Configure(self, request: Any) -> Any:  # noqa: N802
        if request.attachment_id not in self.named:
            raise RefusalError(DENIED)
        if request.accepted and not request.trial:
            self.attachment_id = request.attachment_id
            self.served = {(one.name, one.profile) for one in request.plugins}
        return identity.ConfigureResponse()

    def check(self, attachment_id: str) -> None:
        if attachment_id != self.attachment_id:
            raise RefusalError(DENIED)

    def check_all(self, messages: list[Any]) -> None:
        for message in messages:
            self.check(message.attachment_id)
            self.check_named(message)

    def check_named(self, message: Any) -> None:
        """Refuse a message about a plugin, or a profile, that Configure did not name."""
        fields = message.DESCRIPTOR.fields_by_name
        for place, name in enumerate(("plugin", "profile")):
            if name in fields and getattr(message, name) not in {one[place] for one in self.served}:
                raise RefusalError(grpc.StatusCode.INVALID_ARGUMENT, f"no {name} of Configure")

    def Probe(self, request: Any) -> Any:  # noqa: N802
        self.check(request.attachment_id)
        return identity.ProbeResponse(ready=True, instance_id=self.instance_id)

    def Drain(self, request: Any) -> Any:  # noqa: N802
        self.check(request.attachment_id)
        return identity.DrainResponse()

    # --- state ---

    def apply(self, deltas: list[pb.StateDelta]) -> bool:
        """Apply the chunks of one delta; return False if the copy lacks their base, or the sums differ."""
        full = not deltas[0].HasField("base")
        target = (deltas[0].target.epoch, deltas[0].target.generation)
        if self.version == target and not full:
            return True
        if not full and not self.is_base(deltas[0]):
            return False
        nodes = {} if full else dict(self.nodes)
        for delta in deltas:
            for index in delta.removed:
                nodes.pop(index, None)
        names = {index: name for index, name in self.node_names.items() if index in nodes}
        for delta in deltas:
            for state in delta.upserts:
                nodes[state.index] = state.generation
                if names.setdefault(state.index, state.name) != (state.name or names[state.index]):
                    return False
        last = deltas[-1]
        if not all(names.values()) or not self.is_sum(nodes, last):
            return False
        self.nodes, self.node_names, self.version = nodes, names, target
        return True

    def is_base(self, delta: pb.StateDelta) -> bool:
        return self.version == (delta.base.epoch, delta.base.generation)

    def is_sum(self, nodes: dict[int, int], last: pb.StateDelta) -> bool:
        return (len(nodes), sum(nodes.values()) % 2**53) == (last.node_count, last.generation_sum)

    def have(self) -> pb.StateVersion | None:
        return (
            None
            if self.version is None
            else pb.StateVersion(epoch=self.version[0], generation=self.version[1])
        )

    def SyncState(self, chunks: list[Any]) -> Any:  # noqa: N802
        self.check_all(chunks)
        if [chunk.sequence for chunk in chunks] != list(range(len(chunks))):
            raise RefusalError(grpc.StatusCode.INVALID_ARGUMENT, "a gap in the chunks")
        done = self.apply([chunk.chunk for chunk in chunks])
        return state_pb2.SyncStateResponse(have=self.have(), need_full=not done)

    def Reconcile(self, pages: list[Any]) -> Any:  # noqa: N802
        self.check_all(pages)
        if pages[0].sequence or not pages[-1].last:
            raise RefusalError(grpc.StatusCode.INVALID_ARGUMENT, "a gap in the pages")
        plugin = pages[0].plugin
        live = {one.cycle_id: one for page in pages for one in page.live}
        unknown = [one for one in live if not self.takes_up(plugin, live[one])]
        for key in [key for key in self.reserved if key[0] == plugin and key[1] not in live]:
            del self.reserved[key]
        return state_pb2.ReconcileResponse(unknown_cycle_ids=unknown)

    def takes_up(self, plugin: str, live: state_pb2.LiveReservation) -> bool:
        """Return True if a reservation of Reconcile is known."""
        return (plugin, live.cycle_id) in self.reserved

    # --- cycles ---

    def lacking(self, ctx: pb.CallContext) -> list[pb.Missing.ValueType]:
        """Return what a call lacks, after its delta was applied."""
        for end in ctx.ended:
            self.pods.pop(end.cycle_id, None)
        if ctx.HasField("delta"):
            self.apply([ctx.delta])
        if ctx.HasField("version") and self.version != (ctx.version.epoch, ctx.version.generation):
            return [pb.MISSING_STATE]
        if ctx.pod.complete:
            self.pods[ctx.cycle_id] = ctx.pod.summary
        return [] if ctx.cycle_id in self.pods else [pb.MISSING_POD]

    def within(self, nodes: pb.NodeSet) -> list[int]:
        if not self.is_snapshot:
            return list(range(len(nodes.names)))
        bits = int.from_bytes(nodes.bitmap, "little")
        return [index for index in sorted(self.nodes) if (bits >> index & 1) != nodes.complement]

    def score_of(self, nodes: pb.NodeSet) -> list[int]:
        """Return a score for each node of a set."""
        names = [self.node_names[index] for index in self.within(nodes)] if self.is_snapshot else nodes.names
        return [sum(name.encode()) % 100 for name in names]

    def Filter(self, request: Any) -> Any:  # noqa: N802
        return scheduling.FilterResponse()

    def SimulateFilter(self, request: Any) -> Any:  # noqa: N802
        return scheduling.SimulateFilterResponse(statuses=[SUCCESS] * len(request.scenarios))

    def Score(self, request: Any) -> Any:  # noqa: N802
        scores = scheduling.Scores(dense=self.score_of(request.candidates))
        return scheduling.ScoreResponse(scores=scores)

    def Reserve(self, request: Any) -> Any:  # noqa: N802
        key = request.ctx.plugin, request.ctx.cycle_id
        if key in self.given_back:
            return scheduling.ReserveResponse(ctx=decided(pb.PluginStatus.CODE_ERROR))
        self.reserved[key] = request.node_name
        return scheduling.ReserveResponse(ctx=decided())

    def Unreserve(self, request: Any) -> Any:  # noqa: N802
        self.check(request.attachment_id)
        done = [item.cycle_id for item in request.items]
        for cycle_id in done:
            self.given_back.add((request.plugin, cycle_id))
            self.reserved.pop((request.plugin, cycle_id), None)
        return scheduling.UnreserveResponse(done_cycle_ids=done)

    def PostBind(self, request: Any) -> Any:  # noqa: N802
        self.check(request.attachment_id)
        return scheduling.PostBindResponse()

    def EndCycles(self, request: Any) -> Any:  # noqa: N802
        self.check(request.attachment_id)
        return scheduling.EndCyclesResponse()

    def Permit(self, request: Any) -> Any:  # noqa: N802
        return scheduling.PermitResponse(ctx=decided())

    def PreBindPreFlight(self, request: Any) -> Any:  # noqa: N802
        return scheduling.PreBindPreFlightResponse()

    def PreBind(self, request: Any) -> Any:  # noqa: N802
        answer = scheduling.PreBindResponse(ctx=decided())
        if not request.patched:
            body = b'{"metadata":{"annotations":{"example.com/kit":"1"}}}'
            answer.patches.add(resource="pods", ref=request.ctx.pod.summary.ref, merge_patch_json=body)
        return answer

    def Bind(self, request: Any) -> Any:  # noqa: N802
        return scheduling.BindResponse(ctx=decided(), host_binds=True)

    # --- the server ---

    def answer(self, rpc: str, request: Any, reply: Any) -> Any:
        """Return the answer to a call. Raises RefusalError."""
        with self.lock:
            return self._answer(rpc, request, reply)

    def _answer(self, rpc: str, request: Any, reply: Any) -> Any:
        method = getattr(self, rpc, None)
        if isinstance(request, list):
            return reply() if method is None else method(request)
        if "ctx" not in request.DESCRIPTOR.fields_by_name:
            self.check_named(request)
            return reply() if method is None else method(request)
        self.check(request.ctx.attachment_id)
        self.check_named(request.ctx)
        if missing := self.lacking(request.ctx):
            found = reply()
            found.ctx.missing.extend(missing)
            if (have := self.have()) is not None:
                found.ctx.have.CopyFrom(have)
        else:
            found = reply() if method is None else method(request)
        self.echo(request, found)
        return found

    def echo(self, request: Any, answer: Any) -> None:
        """Name the cycle in an answer."""
        answer.ctx.cycle_id = request.ctx.cycle_id

    def compare(self, request: Any, context: Any) -> None:
        """Refuse a call whose metadata disagrees with its message."""
        if wrong := disagreement_of(type(request))(request, context.invocation_metadata()):
            raise RefusalError(grpc.StatusCode.INVALID_ARGUMENT, wrong)

    @contextmanager
    def serving(self, folder: Path) -> Iterator[str]:
        """Serve at a Unix socket; yields its address."""
        self.server = grpc.server(ThreadPoolExecutor(32))
        for service in SERVICES:
            handlers = {}
            for method in service.methods:
                make: Any = (
                    grpc.stream_unary_rpc_method_handler
                    if method.client_streaming
                    else grpc.unary_unary_rpc_method_handler
                )
                reply = GetMessageClass(method.output_type)
                handlers[method.name] = make(
                    self._handler(method.name, reply, method.client_streaming),
                    request_deserializer=GetMessageClass(method.input_type).FromString,
                    response_serializer=lambda found: found.SerializeToString(),
                )
            self.server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(service.full_name, handlers),)
            )
        address = f"unix:{folder / 'kit.sock'}"
        self.server.add_insecure_port(address)
        self.server.start()
        try:
            yield address
        finally:
            self.server.stop(0).wait()

    def _handler(self, rpc: str, reply: Any, is_stream: bool) -> Any:
        def handle(request: Any, context: Any) -> Any:
            asked = list(request) if is_stream else request
            try:
                self.compare(asked[0] if is_stream else asked, context)
                return self.answer(rpc, asked, reply)
            except RefusalError as err:
                context.abort(err.code, str(err))

        return handle


def decided(code: pb.PluginStatus.Code.ValueType = pb.PluginStatus.CODE_SUCCESS) -> pb.ReplyContext:
    """Return a reply's context with a decision."""
    return pb.ReplyContext(status=pb.PluginStatus(code=code))
