"""`HandleDouble`: HandleService as the kit serves it, for plugins that call their host.

It answers every call of an attachment as a host on which nothing waits: lists are empty. It refuses a call
without the token, and one whose metadata names somebody else than its message, and remembers what was wrong.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.message_factory import GetMessageClass

from berth_sdk.plugin.v1 import handle_pb2
from berth_sdk.plugin.v1 import identity_pb2 as identity
from berth_sdk.wire.call_names import ATTACHMENT_KEY, disagreement_of, metadata_of

_SERVICE: Final = handle_pb2.DESCRIPTOR.services_by_name["HandleService"]


class HandleDouble:
    """HandleService for all cases of a run.

    Attributes: endpoint (for Configure), attachment_ids (of each Configure with it), asked (names of calls),
    faults (of tokens and names), metadata_faults (of the names beside the messages).
    """

    def __init__(self, target: str) -> None:
        self.endpoint = identity.HandleEndpoint(target=target, token=secrets.token_hex(16))
        self.attachment_ids: set[str] = set()
        self.asked: list[str] = []
        self.faults: list[str] = []
        self.metadata_faults: list[str] = []

    def handlers(self) -> grpc.GenericRpcHandler:
        """Return the handlers of all calls of HandleService."""
        found = {}
        for method in _SERVICE.methods:
            reply = GetMessageClass(method.output_type)
            make = (
                grpc.unary_stream_rpc_method_handler
                if method.server_streaming
                else grpc.unary_unary_rpc_method_handler
            )
            found[method.name] = make(
                self._streamed(method.name, reply)
                if method.server_streaming
                else self._plain(method.name, reply),
                request_deserializer=GetMessageClass(method.input_type).FromString,
                response_serializer=reply.SerializeToString,
            )
        return grpc.method_handlers_generic_handler(_SERVICE.full_name, found)

    def _plain(self, name: str, reply: Any) -> Any:
        def answer(request: Any, context: grpc.ServicerContext) -> Any:
            self._check(name, request, context)
            return reply()

        return answer

    def _streamed(self, name: str, reply: Any) -> Any:
        def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            self._check(name, request, context)
            yield reply()

        return answer

    def _check(self, name: str, request: Any, context: grpc.ServicerContext) -> None:
        self.asked.append(name)
        sent = {str(key): str(value) for key, value in context.invocation_metadata()}
        if sent.get("authorization") != f"Bearer {self.endpoint.token}":
            self.faults.append(f"{name} comes without `authorization: Bearer TOKEN` of the last Configure")
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


@contextmanager
def handle_double() -> Iterator[HandleDouble]:
    """Serve HandleService at a Unix socket, for the block."""
    with tempfile.TemporaryDirectory(prefix="berth-kit-") as folder:
        double = HandleDouble(f"unix:{Path(folder) / 'handle.sock'}")
        server = grpc.server(ThreadPoolExecutor(8, thread_name_prefix="handle-double"))
        server.add_generic_rpc_handlers((double.handlers(),))
        server.add_insecure_port(double.endpoint.target)
        server.start()
        try:
            yield double
        finally:
            server.stop(0).wait()
