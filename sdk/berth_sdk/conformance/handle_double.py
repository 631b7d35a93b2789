"""`HandleDouble`: HandleService as the kit serves it, for plugins that call their host.

It lists the pods that wait on Permit in the kit, and decides as a host does; other lists are empty. It
refuses a call without the newest token, and one whose metadata names somebody else than its message, and
remembers what was wrong.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.message_factory import GetMessageClass

from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import handle_pb2
from berth_sdk.plugin.v1 import identity_pb2 as identity
from berth_sdk.wire.call_names import ATTACHMENT_KEY, disagreement_of, metadata_of

_SERVICE: Final = handle_pb2.DESCRIPTOR.services_by_name["HandleService"]


@dataclass(frozen=True, slots=True)
class Asked:
    """A call of HandleService. `token`, `target`: with which, and where it came."""

    name: str
    token: str
    target: str
    request: Any


class HandleDouble:
    """HandleService for all cases of a run. Each Configure gets a new token, and another one of two sockets.

    Attributes: attachment_ids (of each Configure with an endpoint), pods
    (the uid of the pod of each cycle that the kit began), waiting (pods that wait on Permit, by cycle), calls
    (that came), faults (of tokens and names), metadata_faults (of the names beside the messages).
    """

    def __init__(self, *targets: str) -> None:
        self.targets = targets
        self.endpoints: dict[str, identity.HandleEndpoint] = {}
        """The endpoints that were offered, by token, the newest last."""
        self.accepted = 0
        """The number of the endpoint in the newest Configure that was accepted; the ones before are over."""
        self.attachment_ids: set[str] = set()
        self.pods: dict[str, str] = {}
        self.waiting: dict[str, handle_pb2.WaitingPod] = {}
        self.calls: list[Asked] = []
        self.faults: list[str] = []
        self.metadata_faults: list[str] = []

    @property
    def asked(self) -> list[str]:
        """The names of the calls that came."""
        return [call.name for call in self.calls]

    @property
    def decisions(self) -> list[handle_pb2.WaitDecision]:
        """The decisions of all calls of DecideWaitingPods."""
        calls = [call.request for call in self.calls if call.name == "DecideWaitingPods"]
        return [decision for request in calls for decision in request.decisions]

    def new_endpoint(self, attachment_id: str) -> identity.HandleEndpoint:
        """Return the endpoint for a Configure."""
        self.attachment_ids.add(attachment_id)
        target = self.targets[len(self.endpoints) % len(self.targets)]
        made = identity.HandleEndpoint(target=target, token=secrets.token_hex(16))
        self.endpoints[made.token] = made
        return made

    def accept(self, endpoint: identity.HandleEndpoint) -> None:
        """End the endpoints of earlier Configures. The waits of their attachments are over too."""
        if endpoint.token:
            self.accepted = list(self.endpoints).index(endpoint.token)
        self.waiting.clear()

    def is_over(self, token: str) -> bool:
        """Return True for a token that is not that of the newest attachment."""
        return token not in list(self.endpoints)[self.accepted :]

    def wait(self, plugin: str, cycle_id: str, pod: pb.PodSummary, node_name: str) -> None:
        """List a pod as one that waits for the plugin."""
        made = handle_pb2.WaitingPod(
            pod=pod, cycle_id=cycle_id, node_name=node_name, pending_plugins=[plugin]
        )
        made.deadline.GetCurrentTime()
        made.deadline.seconds += 900
        self.waiting[cycle_id] = made

    def handlers(self, target: str) -> grpc.GenericRpcHandler:
        """Return the handlers of all calls of HandleService at one of the two sockets."""
        found = {}
        for method in _SERVICE.methods:
            reply = GetMessageClass(method.output_type)
            make = (
                grpc.unary_stream_rpc_method_handler
                if method.server_streaming
                else grpc.unary_unary_rpc_method_handler
            )
            found[method.name] = make(
                self._streamed(method.name, reply, target)
                if method.server_streaming
                else self._plain(method.name, reply, target),
                request_deserializer=GetMessageClass(method.input_type).FromString,
                response_serializer=reply.SerializeToString,
            )
        return grpc.method_handlers_generic_handler(_SERVICE.full_name, found)

    def _plain(self, name: str, reply: Any, target: str) -> Any:
        def answer(request: Any, context: grpc.ServicerContext) -> Any:
            self._check(name, request, context, target)
            if name == "DecideWaitingPods":
                return self._decided(request)
            return reply()

        return answer

    def _streamed(self, name: str, reply: Any, target: str) -> Any:
        def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            self._check(name, request, context, target)
            if name == "ListWaitingPods":
                yield reply(pods=list(self.waiting.values()))
            else:
                yield reply()

        return answer

    def _decided(self, request: handle_pb2.DecideWaitingPodsRequest) -> Any:
        """Return what became of decisions, as a host answers them."""
        reply = handle_pb2.DecideWaitingPodsResponse()
        waits = {one.pod.ref.uid for one in self.waiting.values()}
        for decision in request.decisions:
            known = self.waiting.get(decision.cycle_id)
            if known is not None and known.pod.ref.uid == decision.pod_uid:
                del self.waiting[decision.cycle_id]
                reply.results.append(reply.RESULT_APPLIED)
            elif decision.pod_uid in waits:
                reply.results.append(reply.RESULT_STALE_CYCLE)
            else:
                reply.results.append(reply.RESULT_NOT_WAITING)
        return reply

    def _check(self, name: str, request: Any, context: grpc.ServicerContext, target: str) -> None:
        sent = {str(key): str(value) for key, value in context.invocation_metadata()}
        token = sent.get("authorization", "").removeprefix("Bearer ")
        self.calls.append(Asked(name, token, target, request))
        if sent.get("authorization") != f"Bearer {token}" or token not in self.endpoints:
            self.faults.append(f"{name} comes without `authorization: Bearer TOKEN` of the last Configure")
        if self.is_over(token):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is not that of the attachment")
        if not getattr(request, "plugin", "x"):
            self.faults.append(f"{name} names no plugin")
        if fault := self._metadata_fault(name, request, sent):
            self.metadata_faults.append(fault)
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, fault)

    def _metadata_fault(self, name: str, request: Any, sent: Mapping[str, str]) -> str:
        """Return what is wrong with the names beside a message; empty: nothing."""
        if fault := disagreement_of(type(request))(request, sent.items()):
            return f"{name}: {fault}"
        wanted = dict(metadata_of(plugin=getattr(request, "plugin", "")))
        if lacking := [key for key in wanted if key not in sent]:
            return f"{name} comes without the metadata `{lacking[0]}`: send the plugin that the message names"
        attachment_id = sent.get(ATTACHMENT_KEY)
        if attachment_id is not None and attachment_id not in self.attachment_ids:
            return (
                f"{name} comes with the metadata `{ATTACHMENT_KEY}` {attachment_id[:128]!r}, which is no"
                " attachment with this endpoint: send that of the last Configure, or leave it out"
            )
        return ""


def _stop(server: grpc.Server) -> None:
    server.stop(0).wait()


@contextmanager
def handle_double() -> Iterator[HandleDouble]:
    """Serve HandleService at two Unix sockets, for the block."""
    with tempfile.TemporaryDirectory(prefix="berth-kit-") as folder, ExitStack() as stack:
        double = HandleDouble(*(f"unix:{Path(folder) / name}.sock" for name in ("handle", "other")))
        for target in double.targets:
            server = grpc.server(ThreadPoolExecutor(8, thread_name_prefix="handle-double"))
            server.add_generic_rpc_handlers((double.handlers(target),))
            server.add_insecure_port(target)
            server.start()
            stack.callback(_stop, server)
        yield double
