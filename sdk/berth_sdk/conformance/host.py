"""`Host`: the host's side of the contract, as a small client over raw stubs, for one case."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.struct_pb2 import Struct

from berth_sdk.clocks import monotonic_s
from berth_sdk.conformance.case import BrokenError, SkippedError, Subject
from berth_sdk.conformance.handle_double import HandleDouble
from berth_sdk.conformance.world import World, WorldNode, incoming, pod_object, stream
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2 as identity
from berth_sdk.plugin.v1 import queue_pb2, scheduling_pb2, state_pb2
from berth_sdk.wire.call_names import metadata_of

PROFILE: Final = "default-scheduler"
HANDSHAKE_S: Final = 5.0
PATIENCE_S: Final = 5.0
"""The time for one answer, where a case is not about the time."""
RETURN_S = 10.0
"""The time for a server to return after it failed a case."""
RESTARTED_S = 30.0
"""The time for a new instance to answer after the server was restarted."""
LIMIT: Final = 4 * 1024 * 1024
_VERSION: Final = "conformance-kit"
_SERVICES: Final = (
    identity.DESCRIPTOR.services_by_name["IdentityService"],
    state_pb2.DESCRIPTOR.services_by_name["StateService"],
    queue_pb2.DESCRIPTOR.services_by_name["QueueService"],
    scheduling_pb2.DESCRIPTOR.services_by_name["SchedulingService"],
)
_METHODS: Final = {method.name: (service, method) for service in _SERVICES for method in service.methods}
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Target:
    """The server under test, and the arguments and the pod with which the kit calls it.

    `args`: the plugin's arguments. `pod`: the pod that the kit asks about; None: a plain one.
    `pod_manifest`: the same as JSON. `double`: HandleService as the kit serves it. `credential`: the secret
    of the handshake. `restart`: restarts the server; raises RestartError; None: nothing does. `time_factor`:
    multiplies every time that the kit waits, deadlines included, for a slow machine.
    """

    address: str
    credentials: grpc.ChannelCredentials | None = None
    options: tuple[tuple[str, Any], ...] = ()
    args: dict[str, Any] | None = None
    pod: pb.PodSummary | None = None
    pod_manifest: str = ""
    double: HandleDouble | None = None
    credential: str = field(default="", repr=False)
    restart: Callable[[], None] | None = None
    time_factor: float = 1.0

    def without_secrets(self, text: str) -> str:
        """Return what a server said, without the secrets that the kit sent it."""
        tokens = () if self.double is None else tuple(self.double.endpoints)
        for secret in filter(None, (self.credential, *tokens)):
            text = text.replace(secret, "(secret)")
        return text

    def channel(self) -> grpc.Channel:
        """Return a new connection, which no other case shares."""
        options = [
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", LIMIT),
            ("grpc.max_send_message_length", -1),
            ("grpc.enable_http_proxy", 0),
            *self.options,
        ]
        if self.address.startswith("unix:"):
            # As the host: without it the socket's path would become the authority, which servers may refuse.
            options.append(("grpc.default_authority", "localhost"))
        if self.credentials is None:
            return grpc.insecure_channel(self.address, options)
        return grpc.secure_channel(self.address, self.credentials, options)


class RestartError(Exception):
    """The error of a server that could not be restarted. Its text says why."""


class CallError(BrokenError):
    """The error of a call that gRPC ended. Attributes: rpc, code, details."""

    def __init__(self, rpc: str, code: grpc.StatusCode, details: str, patience_s: float) -> None:
        self.rpc = rpc
        self.code = code
        self.details = details
        text = f"{rpc} failed with {code.name}: {details or 'no details'}"
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            text = f"{rpc} gave no answer in {patience_s:.3g} s"
        elif code is grpc.StatusCode.RESOURCE_EXHAUSTED and "CLIENT: " in details:
            text = f"the answer to {rpc} is larger than max_message_bytes ({LIMIT} bytes): {details}"
        elif code is grpc.StatusCode.UNIMPLEMENTED:
            text = f"{rpc} is not implemented, and the plugin declares its point: {details}"
        super().__init__(text)


class RefusedArgumentsError(BrokenError):
    """The error of a Configure that the plugin answered with an error."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A call that was begun. `given_s`: the time that it has."""

    rpc: str
    future: Any
    given_s: float

    def answer(self) -> Any:
        """Wait for the answer and return it. Raises CallError."""
        try:
            return self.future.result()
        except grpc.FutureCancelledError as err:
            code = grpc.StatusCode.CANCELLED
            raise CallError(self.rpc, code, "cancelled by the kit", self.given_s) from err
        except grpc.RpcError as err:
            raise _failed(self.rpc, err, self.given_s) from err

    def cancel(self) -> None:
        """Cancel the call, if it is still open."""
        self.future.cancel()


@dataclass(frozen=True, slots=True)
class _Made:
    """The parts of a call. `stub`: of gRPC; `sent`: the request, or an iterator of requests."""

    stub: Any
    sent: Any
    given_s: float
    named: tuple[tuple[str, str], ...]


def _failed(rpc: str, err: Any, given_s: float) -> CallError:
    """Return the error for one of gRPC's."""
    return CallError(rpc, err.code(), err.details() or "", given_s)


class Host:
    """The calls of one case. Every call ends when the time of the case is over.

    Attributes: subject, target, world, attachment_id (of the last accepted Configure), limit_s (the time of
    the case), ends_at (in seconds of the monotonic clock), others (more plugins of the process, which
    Configure enables too), args (the plugin's arguments by profile; None: no arguments), offers_handle
    (Configure names the endpoint of HandleService).
    """

    def __init__(self, target: Target, subject: Subject, limit_s: float) -> None:
        self.target = target
        self.subject = subject
        self.limit_s = limit_s * target.time_factor
        self.ends_at = monotonic_s() + self.limit_s
        self.world = World(subject, target.pod)
        self.attachment_id = ""
        self.others: Sequence[identity.PluginDescriptor] = ()
        self.args: dict[str, dict[str, Any] | None] = {PROFILE: target.args}
        self.offers_handle = True
        self._channel = target.channel()

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    # --- calls -----------------------------------------------------------------------------------------

    def begin(
        self,
        rpc: str,
        request: Any,
        patience_s: float = PATIENCE_S,
        metadata: tuple[tuple[str, str], ...] | None = None,
    ) -> Begun:
        """Begin a call. A list is sent as a stream of requests.

        `metadata`: who is meant, beside the message; None: as the first message says.
        """
        made = self._made(rpc, request, patience_s, metadata)
        return Begun(
            rpc, made.stub.future(made.sent, timeout=made.given_s, metadata=made.named), made.given_s
        )

    def _made(
        self,
        rpc: str,
        request: Any,
        patience_s: float,
        metadata: tuple[tuple[str, str], ...] | None,
    ) -> _Made:
        service, method = _METHODS[rpc]
        path = f"/{service.full_name}/{rpc}"
        reply = GetMessageClass(method.output_type).FromString
        make = self._channel.stream_unary if method.client_streaming else self._channel.unary_unary
        stub = make(path, request_serializer=_serialized, response_deserializer=reply)
        first = request[0] if method.client_streaming else request
        given_s = max(0.001, min(patience_s * self.target.time_factor, self.ends_at - monotonic_s()))
        sent = iter(request) if method.client_streaming else request
        return _Made(stub, sent, given_s, _metadata(first) if metadata is None else metadata)

    def begin_all(self, rpc: str, request: Any, count: int, patience_s: float = PATIENCE_S) -> list[Any]:
        """Make the same call `count` times at once, and return the answers. Raises CallError."""
        begun = [self.begin(rpc, request, patience_s) for _ in range(count)]
        return [one.answer() for one in begun]

    def call(self, rpc: str, request: Any, patience_s: float = PATIENCE_S) -> Any:
        """Make a call and return the answer. Raises CallError."""
        return self._answer(rpc, request, patience_s)

    def _answer(
        self,
        rpc: str,
        request: Any,
        patience_s: float = PATIENCE_S,
        metadata: tuple[tuple[str, str], ...] | None = None,
    ) -> Any:
        # A future has a thread of gRPC for each call: that takes twice the time of the call.
        made = self._made(rpc, request, patience_s, metadata)
        try:
            return made.stub(made.sent, timeout=made.given_s, metadata=made.named)
        except grpc.RpcError as err:
            raise _failed(rpc, err, made.given_s) from err

    def refused(
        self,
        rpc: str,
        request: Any,
        *codes: grpc.StatusCode,
        metadata: tuple[tuple[str, str], ...] | None = None,
    ) -> None:
        """Make a call that must end with one of these gRPC codes. Raises BrokenError if it ends otherwise."""
        wanted = " or ".join(code.name for code in codes)
        beside = "" if not metadata else f" with the metadata {dict(metadata)} that its message contradicts"
        try:
            self._answer(rpc, request, metadata=metadata)
        except CallError as err:
            if err.code not in codes:
                raise BrokenError(f"{err}{beside}; the contract asks for {wanted}") from None
            return
        raise BrokenError(f"{rpc} was answered{beside}; the contract asks for {wanted}")

    # --- attachment ------------------------------------------------------------------------------------

    def handshake(self, attachment_id: str = "", **fields: Any) -> identity.HandshakeResponse:
        """Say who is there. An empty `attachment_id` draws a new one, which `drawn` returns."""
        request = identity.HandshakeRequest(
            host_version=_VERSION,
            host_epoch=self.world.epoch,
            attachment_id=attachment_id or new_id(),
            offered=[identity.ContractVersion(major=1)],
            features=["frames", "configure-trial"],
            credential=self.target.credential,
        )
        request.MergeFrom(identity.HandshakeRequest(**fields))
        found: identity.HandshakeResponse = self.call("Handshake", request, HANDSHAKE_S)
        return found

    def configuration(self, attachment_id: str, **fields: Any) -> identity.ConfigureRequest:
        """Return the answer to a handshake: all points of the plugin, in one profile."""
        plugin = self.subject.plugin
        mine = []
        for profile, args in self.args.items():
            mine.append(
                identity.PluginArgs(name=plugin.name, profile=profile, required=True, enabled=plugin.points)
            )
            if args is not None:
                given = Struct()
                given.update(args)
                mine[-1].args.CopyFrom(given)
        beside = [
            identity.PluginArgs(name=other.name, profile=PROFILE, required=True, enabled=other.points)
            for other in self.others
        ]
        offered = set(self.subject.hello.features)
        request = identity.ConfigureRequest(
            attachment_id=attachment_id,
            contract=identity.ContractVersion(major=1),
            features=[name for name in ("frames", "configure-trial") if name in offered],
            plugins=[*mine, *beside],
            max_message_bytes=min(LIMIT, self.subject.max_message_bytes),
            accepted=True,
        )
        offers = self.offers_handle and not fields.get("trial")
        if plugin.handle_client and self.target.double is not None and offers:
            request.handle.CopyFrom(self.target.double.new_endpoint(attachment_id))
        for name, value in fields.items():
            setattr(request, name, value)
        return request

    def configure(self, attachment_id: str, **fields: Any) -> identity.ConfigureResponse:
        """Answer a handshake, and use the attachment from now on. Raises BrokenError for an error."""
        request = self.configuration(attachment_id, **fields)
        answer = self.call("Configure", request, 10.0)
        if answer.error:
            raise RefusedArgumentsError(f"Configure refuses the arguments: {answer.error}")
        self.attachment_id = attachment_id
        if self.target.double is not None:
            self.target.double.accept(request.handle)
        found: identity.ConfigureResponse = answer
        return found

    def attach(self, *live: state_pb2.LiveReservation) -> state_pb2.ReconcileResponse | None:
        """Begin a new attachment, with the full state and the live reservations.

        Returns the answer to Reconcile; None: the plugin gets or offers no such call.
        """
        attachment_id = new_id()
        self.handshake(attachment_id)
        self.configure(attachment_id)
        if self.subject.keeps_state:
            self.sync([self.world.full()])
        return self.reconcile(*live) if self.subject.has("RESERVE", "PERMIT") else None

    def restart(self) -> None:
        """Restart the server, and wait until a new instance answers. Raises BrokenError, SkippedError."""
        if self.target.restart is None:
            raise SkippedError("the kit cannot restart the server: say how with --restart", "--restart")
        before = self.handshake().instance_id
        self.close()
        begun = monotonic_s()
        try:
            self.target.restart()
        except RestartError as err:
            raise BrokenError(f"the server could not be restarted: {err}") from err
        returns_s = RESTARTED_S * self.target.time_factor
        until = monotonic_s() + returns_s
        problem = "its instance_id is still the same"
        while monotonic_s() < until:
            self.ends_at += monotonic_s() - begun  # the time of the case is for its calls
            begun = monotonic_s()
            self._channel.close()
            self._channel = self.target.channel()
            try:
                if self.handshake().instance_id != before:
                    return
            except CallError as err:
                problem = str(err)
            time.sleep(0.05)
        raise BrokenError(
            f"the server did not come back with a new instance_id in {returns_s:g} s: {problem}; the command"
            " of --restart must end the process, and start another one at the same address"
        )

    def probe(self, attachment_id: str = "") -> identity.ProbeResponse:
        """Ask for the health."""
        request = identity.ProbeRequest(attachment_id=attachment_id or self.attachment_id)
        found: identity.ProbeResponse = self.call("Probe", request, 2.0)
        return found

    # --- state -----------------------------------------------------------------------------------------

    def try_sync(
        self, deltas: Sequence[pb.StateDelta], *, sequence: Sequence[int] = ()
    ) -> state_pb2.SyncStateResponse:
        """Send state, and return the answer."""
        chunks = stream(deltas, self.attachment_id, sequence=sequence)
        found: state_pb2.SyncStateResponse = self.call("SyncState", chunks, 10.0)
        return found

    def sync(self, deltas: Sequence[pb.StateDelta]) -> None:
        """Send state that the instance must take up. Raises BrokenError."""
        answer = self.try_sync(deltas)
        target = deltas[-1].target
        if answer.need_full:
            raise BrokenError(
                "SyncState answers need_full, although the state is complete and its sums are right"
            )
        if answer.have != target:
            raise BrokenError(
                f"SyncState answers the version {written(answer.have)}; the state sent is {written(target)}"
            )

    def reconcile(self, *live: state_pb2.LiveReservation) -> state_pb2.ReconcileResponse | None:
        """Send the list of live reservations. None: the plugin does not offer the call."""
        return self.reconcile_pages([live])

    def pages(self, lists: Sequence[Sequence[state_pb2.LiveReservation]]) -> list[state_pb2.ReconcileRequest]:
        """Return the pages of one list of live reservations."""
        return [
            state_pb2.ReconcileRequest(
                plugin=self.subject.plugin.name,
                host_epoch=self.world.epoch,
                live=live,
                sequence=number,
                last=number == len(lists) - 1,
                attachment_id=self.attachment_id,
            )
            for number, live in enumerate(lists)
        ]

    def reconcile_pages(
        self, lists: Sequence[Sequence[state_pb2.LiveReservation]]
    ) -> state_pb2.ReconcileResponse | None:
        """Send the live reservations in pages. None: the plugin does not offer the call."""
        try:
            found: state_pb2.ReconcileResponse = self.call("Reconcile", self.pages(lists), 10.0)
        except CallError as err:
            if err.code is grpc.StatusCode.UNIMPLEMENTED:
                return None
            raise
        return found

    # --- cycles ----------------------------------------------------------------------------------------

    def cycle(self, name: str = "") -> Cycle:
        """Begin a cycle of a new pod."""
        number = next(_numbers)
        made = Cycle(self, f"cycle-{number}-{secrets.token_hex(4)}", name or f"kit-pod-{number}")
        if self.target.double is not None:
            self.target.double.pods[made.id] = made.pod.ref.uid
        return made

    def candidates(self, nodes: Iterable[WorldNode] | None = None) -> pb.NodeSet:
        """Return nodes as the plugin's node mode names them; None: all."""
        if nodes is None and self.subject.is_snapshot:
            return pb.NodeSet(complement=True)
        chosen = self.world.candidates if nodes is None else list(nodes)
        if not self.subject.is_snapshot:
            return pb.NodeSet(names=[node.name for node in chosen])
        return pb.NodeSet(bitmap=bitmap_of(node.index for node in chosen))


@dataclass
class Cycle:
    """One cycle, with what the host remembers of it.

    `sent`: the pod went to the instance, complete. `trial`: of the pod's group; None: the pod has no group.
    `extra`: more fields of each context. `is_plain`: the pod is a plain one, whatever the target says.
    `like`: the pod is as this one, but for its name.
    """

    host: Host
    id: str
    pod_name: str
    token: bytes = b""
    sent: bool = False
    reserved_on: WorldNode | None = None
    trial: scheduling_pb2.ReservationTrial | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    is_plain: bool = False
    like: pb.PodSummary | None = None
    profile: str = PROFILE

    @property
    def pod(self) -> pb.PodSummary:
        """The pod, complete."""
        return incoming(self.pod_name, self.like or (None if self.is_plain else self.host.target.pod))

    def context(
        self, *, complete: bool | None = None, binding: bool = False, **fields: Any
    ) -> pb.CallContext:
        """Return the context of the next call. `complete` None: as the host decides."""
        host, subject = self.host, self.host.subject
        if complete is None:
            complete = not subject.is_snapshot or not self.sent
        made = pb.CallContext(
            cycle_id=self.id,
            plugin=subject.plugin.name,
            profile=self.profile,
            attachment_id=host.attachment_id,
            plugin_token=self.token,
        )
        pod = self.pod
        if complete:
            made.pod.summary.CopyFrom(pod)
            made.pod.complete = True
            if identity.DeclaredNeed.KIND_WHOLE_POD in subject.kinds:
                manifest = "" if self.is_plain else host.target.pod_manifest
                sized = self.like is not None
                made.pod.object.CopyFrom(pod_object(pod, "incoming", manifest, sized=sized))
        else:
            made.pod.summary.ref.CopyFrom(pod.ref)
        if subject.keeps_state and not binding:
            made.version.CopyFrom(host.world.version)
        made.MergeFrom(pb.CallContext(**self.extra))
        made.MergeFrom(pb.CallContext(**fields))
        return made

    def request(self, rpc: str, context: pb.CallContext | None = None, **fields: Any) -> Any:
        """Return the request of a call of this cycle."""
        binding = rpc in ("PreBindPreFlight", "PreBind", "Bind")
        kind = GetMessageClass(_METHODS[rpc][1].input_type)
        return kind(ctx=context or self.context(binding=binding), **fields)

    def ask(
        self,
        rpc: str,
        context: pb.CallContext | None = None,
        *,
        patience_s: float = PATIENCE_S,
        **fields: Any,
    ) -> Any:
        """Make a call that the instance must execute; return the answer. Raises BrokenError."""
        answer = self.host.call(rpc, self.request(rpc, context, **fields), patience_s)
        self.take(rpc, answer)
        return answer

    def take(self, rpc: str, answer: Any) -> None:
        """Check the context of an answer that executed the call, and keep its token. Raises BrokenError."""
        self.check_cycle(rpc, answer)
        if answer.ctx.missing:
            names = ", ".join(missing_name(number) for number in answer.ctx.missing)
            raise BrokenError(f"{rpc} answers {names}, although the request brings everything")
        self.sent = True
        if answer.ctx.HasField("plugin_token"):
            self.token = answer.ctx.plugin_token
            if len(self.token) > 4096:
                raise BrokenError(f"{rpc} sets a token of {len(self.token)} bytes; 4096 is the limit")
        for entry in answer.ctx.publish:
            if not entry.key.startswith(f"{self.host.subject.plugin.name}/"):
                raise BrokenError(
                    f"{rpc} publishes the key {entry.key!r}; a key begins with the plugin's name and '/'"
                )
            if len(entry.key.encode()) > 256 or len(entry.value) > 64 * 1024:
                raise BrokenError(
                    f"{rpc} publishes {entry.key[:64]!r} with {len(entry.value)} bytes; a key has at most"
                    " 256 bytes, and a value 64 KiB"
                )

    def check_cycle(self, rpc: str, answer: Any) -> None:
        """Check that the answer names this cycle. Raises BrokenError."""
        found = answer.ctx.cycle_id
        if found != self.id:
            what = f"the cycle {found!r}" if found else "no cycle_id"
            raise BrokenError(f"{rpc} answers {what}; ctx.cycle_id of the request is {self.id!r}")


def new_id() -> str:
    """Return a new attachment id."""
    return f"kit-{secrets.token_hex(8)}"


def bitmap_of(indices: Iterable[int]) -> bytes:
    """Return a bitmap: index i is bit i mod 8, from the least significant, of byte i div 8."""
    number = 0
    for index in indices:
        number |= 1 << index
    return number.to_bytes((number.bit_length() + 7) // 8, "little")


def missing_name(number: pb.Missing.ValueType) -> str:
    """Return the name of a value of Missing."""
    return pb.Missing.Name(number) if number in pb.Missing.values() else f"the unknown value {number}"


def written(version: pb.StateVersion) -> str:
    """Return a version as epoch/generation."""
    return f"{version.epoch}/{version.generation}"


def skipped(reason: str, needs: str = "") -> SkippedError:
    """Return the end of a case that cannot be judged. `needs`: the option with which it can be."""
    return SkippedError(reason, needs)


def _serialized(message: Any) -> bytes:
    raw: bytes = message.SerializeToString()
    return raw


def _metadata(request: Any) -> tuple[tuple[str, str], ...]:
    """Return who is meant, as the host says it beside each message."""
    named = request.ctx if "ctx" in request.DESCRIPTOR.fields_by_name else request
    return metadata_of(getattr(named, "attachment_id", ""), getattr(named, "plugin", ""))
