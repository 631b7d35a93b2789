"""A channel in memory to a plugin that answers at once, with any bytes.

    channel = RawChannel(lambda rpc, request: raw)
    link = raw_link(channel, feed)

`asked` counts the calls. A reply that cannot be read is None to a stub, as it is with grpc.aio.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import grpc
from berth_host.rpc.served.link import InstanceLink, LinkIdentity, StateFeed
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from support.honest_answers import INSTANCE
from support.scripted_plugin import SERVICES

Answer = Callable[[str, Any], bytes]
METHODS = {
    f"/{service.full_name}/{method.name}": method for service in SERVICES for method in service.methods
}
REPLIES: dict[str, Any] = {method.name: GetMessageClass(method.output_type) for method in METHODS.values()}
"""The type of the reply to each call of the contract."""


class RawChannel:
    """As much of `grpc.aio.Channel` as stubs need."""

    def __init__(self, answer: Answer) -> None:
        self.asked: Counter[str] = Counter()
        self._answer = answer

    def unary_unary(self, path: str, **codec: Any) -> Callable[..., Any]:
        """Return a call with one request."""
        method = METHODS[path]
        request_type = GetMessageClass(method.input_type)

        async def call(request: Any, **_options: Any) -> Any:
            message = request_type.FromString(request) if isinstance(request, bytes) else request
            return self._reply(method.name, message, codec.get("response_deserializer"))

        return call

    def stream_unary(self, path: str, **codec: Any) -> Callable[..., Any]:
        """Return a call with a stream of requests."""
        method = METHODS[path]

        async def call(requests: AsyncIterator[Any], **_options: Any) -> Any:
            messages = [request async for request in requests]
            return self._reply(method.name, messages, codec["response_deserializer"])

        return call

    def get_state(self) -> grpc.ChannelConnectivity:
        """As one that is connected."""
        return grpc.ChannelConnectivity.READY

    async def wait_for_state_change(self, _state: grpc.ChannelConnectivity) -> None:
        """It stays connected."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """There is nothing to close."""

    def _reply(self, rpc: str, request: Any, read: Callable[[bytes], Any] | None) -> Any:
        self.asked[rpc] += 1
        raw = self._answer(rpc, request)
        if read is None:
            return raw
        try:
            return read(raw)
        except DecodeError:
            return None


def raw_link(channel: RawChannel, feed: StateFeed | None) -> InstanceLink:
    """Return a link to it, attached already."""
    identity = LinkIdentity(instance_id=INSTANCE, attachment_id="raw", endpoint="memory:")
    return InstanceLink(cast(grpc.aio.Channel, channel), identity, feed, lambda: None)
