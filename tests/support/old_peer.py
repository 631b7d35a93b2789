"""A peer of a released contract, made of a plugin of today: a relay that lets through what the release knows.

Every message goes through the classes of the release, which drop what they do not know, in both directions.
So to the host the relay is a plugin that was built from the release, and to the plugin it is such a host. It
speaks gRPC only, as the peers of most languages do, and relays HandleService too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf import descriptor_pool, duration_pb2, message_factory, struct_pb2, timestamp_pb2
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import Message

PACKAGE: Final = "berth.plugin.v1"
_SERVICES: Final = ("IdentityService", "QueueService", "SchedulingService", "StateService")
_WELL_KNOWN: Final = (duration_pb2, struct_pb2, timestamp_pb2)
_FRAMES: Final = "frames"


class OldPeer:
    """The relay. `dropped` counts the messages that had something which the release does not know."""

    def __init__(self, release: FileDescriptorSet, plugin: str, folder: Path) -> None:
        """`plugin`: the gRPC target of the plugin. `folder`: where the relay's sockets are made."""
        pool = descriptor_pool.DescriptorPool()
        for module in _WELL_KNOWN:
            pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        files = {file.name: file for file in release.file}
        done = {module.DESCRIPTOR.name for module in _WELL_KNOWN}

        def add(name: str) -> None:
            if name not in done:
                done.add(name)
                for needed in files[name].dependency:
                    add(needed)
                pool.Add(files[name])

        for name in files:
            add(name)
        self._pool = pool
        self._plugin = grpc.insecure_channel(plugin)
        self._handle: grpc.Channel | None = None
        self.target = f"unix://{folder / 'relay.sock'}"
        self.handle_target = f"unix://{folder / 'handle.sock'}"
        self.calls: set[str] = set()
        self.dropped = 0

    @contextmanager
    def serving(self) -> Iterator[OldPeer]:
        """Serve the host at `target`, and the plugin at `handle_target`."""
        servers = [
            self._server(_SERVICES, self.target, lambda: self._plugin),
            self._server(["HandleService"], self.handle_target, self._to_host),
        ]
        try:
            yield self
        finally:
            for server in servers:
                server.stop(None).wait()
            self._plugin.close()

    def _to_host(self) -> grpc.Channel:
        if self._handle is None:
            raise RuntimeError("the plugin calls the host before Configure")
        return self._handle

    def _server(
        self, services: Iterable[str], target: str, onward: Callable[[], grpc.Channel]
    ) -> grpc.Server:
        server = grpc.server(ThreadPoolExecutor(32))
        for name in services:
            service = self._pool.FindServiceByName(f"{PACKAGE}.{name}")
            handlers = {method.name: self._handler(method, onward) for method in service.methods}
            server.add_generic_rpc_handlers(
                [grpc.method_handlers_generic_handler(service.full_name, handlers)]
            )
        server.add_insecure_port(target)
        server.start()
        return server

    def _handler(self, method: MethodDescriptor, onward: Callable[[], grpc.Channel]) -> Any:
        path = f"/{method.containing_service.full_name}/{method.name}"
        request_class = message_factory.GetMessageClass(method.input_type)
        reply_class = message_factory.GetMessageClass(method.output_type)

        def options(context: grpc.ServicerContext) -> dict[str, Any]:
            self.calls.add(method.name)
            metadata = [(key, value) for key, value in context.invocation_metadata() if _is_ours(key)]
            return {"timeout": context.time_remaining(), "metadata": metadata}

        def unary(raw: bytes, context: grpc.ServicerContext) -> bytes:
            with _passing_on_errors(context):
                call: Any = onward().unary_unary(path)
                answer: bytes = call(self._old(request_class, raw), **options(context))
                return self._old(reply_class, answer)
            raise AssertionError

        def stream_in(chunks: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
            with _passing_on_errors(context):
                old = (self._old(request_class, raw) for raw in chunks)
                call: Any = onward().stream_unary(path)
                answer: bytes = call(old, **options(context))
                return self._old(reply_class, answer)
            raise AssertionError

        def stream_out(raw: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            with _passing_on_errors(context):
                call: Any = onward().unary_stream(path)
                for answer in call(self._old(request_class, raw), **options(context)):
                    yield self._old(reply_class, answer)

        if method.client_streaming:
            return grpc.stream_unary_rpc_method_handler(stream_in)
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(stream_out)
        return grpc.unary_unary_rpc_method_handler(unary)

    def _old(self, of: type[Message], raw: bytes) -> bytes:
        """Return the message as a peer of the release understands it."""
        message: Any = of.FromString(raw)
        before = message.ByteSize()
        message.DiscardUnknownFields()
        self.dropped += message.ByteSize() != before
        if hasattr(message, "features") and _FRAMES in message.features:
            message.features.remove(_FRAMES)
        if of.DESCRIPTOR.name == "ConfigureRequest" and message.HasField("handle"):
            self._handle = grpc.insecure_channel(message.handle.target)
            message.handle.target = self.handle_target
        text: bytes = message.SerializeToString()
        return text


def _is_ours(key: str) -> bool:
    return key == "authorization" or key.startswith("berth-")


@contextmanager
def _passing_on_errors(context: grpc.ServicerContext) -> Iterator[None]:
    try:
        yield
    except grpc.RpcError as err:
        failed: Any = err
        context.abort(failed.code(), failed.details())
