"""The link itself: replies that cannot be read, and a synchronisation that takes long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, cast

import grpc
import pytest
from berth_host.errors.plugins import (
    HostFaultError,
    PluginProtocolError,
    PluginTimeoutError,
    PluginUnavailableError,
)
from berth_host.rpc.served.codec import CODECS
from berth_host.rpc.served.frames import FramedConnections
from berth_host.rpc.served.link import InstanceLink, LinkIdentity, StateFeed
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from berth_sdk.plugin.v1 import state_pb2
from berth_sdk.tables import ObjectStore, StateVersion
from berth_sdk.wire import records as wire

FILTER = CODECS["Filter"].method
ASKED = ("Demo", "Filter")


class Answering:
    """As much of a channel as a link needs; every call is answered with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.received: list[bytes] = []

    def unary_unary(self, path: str, **codec: Any) -> Callable[..., Awaitable[bytes]]:
        async def call(request: bytes, **_options: Any) -> bytes:
            self.received.append(request)
            return self.answer

        return call

    def stream_unary(self, path: str, **codec: Any) -> Callable[..., Awaitable[Any]]:
        return self.unary_unary(path, **codec)


def link_to(
    channel: Answering,
    sent: list[tuple[str, str, int, int]],
    limit_bytes: int = 1000,
    feed: StateFeed | None = None,
) -> InstanceLink:
    identity = LinkIdentity(
        instance_id="i", attachment_id="a", endpoint="nowhere:", max_message_bytes=limit_bytes
    )
    return InstanceLink(
        cast(grpc.aio.Channel, channel),
        identity,
        feed,
        lambda: None,
        lambda *message: sent.append(message),
    )


async def test_request_is_serialised_once_and_both_ways_are_counted() -> None:
    reply = spb.FilterResponse(early_scores=spb.Scores(dense=[1, 2, 100])).SerializeToString()
    channel, sent = Answering(reply), list[tuple[str, str, int, int]]()
    request = spb.FilterRequest()
    request.candidates.complement = True
    scored = await link_to(channel, sent).ask(FILTER, request, ASKED, 1.0)
    assert channel.received == [request.SerializeToString()]
    assert sent == [("Demo", "Filter", len(channel.received[0]), len(reply))]
    assert scored.scores == spb.Scores(dense=[1, 2, 100]).SerializeToString()
    assert not scored.message.HasField("early_scores")


async def test_scores_in_two_parts_are_put_together_as_protobuf_does() -> None:
    part = spb.FilterResponse(early_scores=spb.Scores(dense=[1, 2])).SerializeToString()
    scored = await link_to(Answering(part + part), []).ask(FILTER, spb.FilterRequest(), ASKED, 1.0)
    assert scored.scores == spb.Scores(dense=[1, 2, 1, 2]).SerializeToString()


@pytest.mark.parametrize("answer", [b"\xff", b"\x0a\x05x", b"\x1a\x02\x0a"])
async def test_reply_that_cannot_be_read_is_a_violation(answer: bytes) -> None:
    sent: list[tuple[str, str, int, int]] = []
    with pytest.raises(PluginProtocolError, match="no reply to it"):
        await link_to(Answering(answer), sent).ask(FILTER, spb.FilterRequest(), ASKED, 1.0)
    assert sent == [("Demo", "Filter", 0, len(answer))]


async def test_request_over_the_limit_is_not_sent() -> None:
    channel = Answering(b"")
    request = spb.FilterRequest()
    request.ctx.plugin_token = b"x" * 1000
    with pytest.raises(HostFaultError, match="1000 are the limit: raise the smaller one of maxMessageBytes"):
        await link_to(channel, []).ask(FILTER, request, ASKED, 1.0)
    assert not channel.received


class CutOff(Answering):
    """A channel whose calls are ended under those who wait for them."""

    def unary_unary(self, path: str, **codec: Any) -> Callable[..., Awaitable[bytes]]:
        async def call(request: bytes, **_options: Any) -> bytes:
            raise asyncio.CancelledError

        return call


async def test_call_that_is_ended_under_its_caller_is_unavailable_and_cancels_nobody() -> None:
    with pytest.raises(PluginUnavailableError, match="was cut off"):
        await link_to(CutOff(b""), []).ask(FILTER, spb.FilterRequest(), ASKED, 1.0)


class SlowSync(Answering):
    """A channel whose SyncState ends when it is told to."""

    def __init__(self, version: StateVersion) -> None:
        super().__init__(b"")
        self.version = version
        self.may_end = asyncio.Event()
        self.streams = 0

    def stream_unary(self, path: str, **codec: Any) -> Callable[..., Awaitable[Any]]:
        async def call(chunks: AsyncIterator[Any], **_options: Any) -> state_pb2.SyncStateResponse:
            self.streams += 1
            async for _ in chunks:
                pass
            await self.may_end.wait()
            return state_pb2.SyncStateResponse(have=wire.encode_version(self.version))

        return call


class OneVersion:
    """A feed that stands still and has no deltas."""

    version = StateVersion(1, 7)

    def index_of(self, node_name: str) -> int | None:
        return None

    def node_names(self) -> list[str]:
        return []

    def objects(self, resource: str) -> ObjectStore:
        return ObjectStore()

    async def refresh(self) -> None:
        """Nothing moves."""

    def delta(self, base: StateVersion, max_message_bytes: int) -> None:
        return None

    def stream(
        self, base: StateVersion | None, max_message_bytes: int
    ) -> tuple[StateVersion, Iterator[state_pb2.SyncStateRequest | None]]:
        return self.version, iter([state_pb2.SyncStateRequest()])


async def test_synchronisation_outlives_the_call_that_needed_it() -> None:
    channel = SlowSync(OneVersion.version)
    link = link_to(channel, [], feed=OneVersion())
    with pytest.raises(PluginTimeoutError):
        await link.delta_for_call(ASKED, time.monotonic() + 0.01)
    with pytest.raises(PluginTimeoutError):
        await link.delta_for_call(ASKED, time.monotonic() + 0.01)
    channel.may_end.set()
    assert await link.delta_for_call(ASKED, time.monotonic() + 60.0) is None
    assert (channel.streams, link.held) == (1, OneVersion.version)


async def test_synchronisation_ends_with_its_link() -> None:
    link = link_to(SlowSync(OneVersion.version), [], feed=OneVersion())
    waiting = asyncio.ensure_future(link.delta_for_call(ASKED, time.monotonic() + 60.0))
    await asyncio.sleep(0)
    link.close()
    with pytest.raises(PluginUnavailableError, match="lost its instance"):
        await waiting


async def test_a_link_that_is_closed_is_not_asked_for_a_synchronisation() -> None:
    channel = SlowSync(OneVersion.version)
    link = link_to(channel, [], feed=OneVersion())
    link.close()
    with pytest.raises(PluginUnavailableError, match="lost its instance"):
        await link.delta_for_call(ASKED, time.monotonic() + 60.0)
    assert channel.streams == 0


class Ending:
    """A framed carrier that does not execute its call, as the attachment ends meanwhile."""

    link: InstanceLink

    def free(self, _plugin: str) -> Ending:
        return self

    async def ask(self, _number: int, _raw: bytes, _deadline_s: float) -> None:
        self.link.close()

    def close(self) -> None:
        pass


async def test_a_call_whose_connection_ends_with_the_attachment_is_not_made_again() -> None:
    channel, frames = Answering(b""), Ending()
    identity = LinkIdentity(instance_id="i", attachment_id="a", endpoint="nowhere:")
    link = frames.link = InstanceLink(
        cast(grpc.aio.Channel, channel),
        identity,
        None,
        lambda: None,
        frames=cast(FramedConnections, frames),
    )
    with pytest.raises(PluginUnavailableError, match="lost its instance"):
        await link.ask(FILTER, spb.FilterRequest(), ASKED, 1.0)
    assert not channel.received
