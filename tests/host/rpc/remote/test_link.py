"""The link itself: replies that are none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import grpc
import pytest
from berth_host.errors.plugins import HostFaultError, PluginProtocolError
from berth_host.rpc.remote import methods
from berth_host.rpc.remote.link import InstanceLink, LinkIdentity
from berth_sdk.plugin.v1 import scheduling_pb2 as spb

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

    stream_unary = unary_unary


def link_to(
    channel: Answering, sent: list[tuple[str, str, int, int]], limit_bytes: int = 1000
) -> InstanceLink:
    identity = LinkIdentity(
        instance_id="i", attachment_id="a", endpoint="nowhere:", max_message_bytes=limit_bytes
    )
    return InstanceLink(
        cast(grpc.aio.Channel, channel),
        identity,
        None,
        lambda: None,
        lambda *message: sent.append(message),
    )


async def test_request_is_serialised_once_and_both_ways_are_counted() -> None:
    reply = spb.FilterResponse(eager_scores=spb.Scores(dense=[1, 2, 100])).SerializeToString()
    channel, sent = Answering(reply), list[tuple[str, str, int, int]]()
    request = spb.FilterRequest()
    request.candidates.complement = True
    scored = await link_to(channel, sent).ask(methods.FILTER, request, ASKED, 1.0)
    assert channel.received == [request.SerializeToString()]
    assert sent == [("Demo", "Filter", len(channel.received[0]), len(reply))]
    assert scored.scores == spb.Scores(dense=[1, 2, 100]).SerializeToString()
    assert not scored.message.HasField("eager_scores")


async def test_scores_in_two_parts_are_put_together_as_protobuf_does() -> None:
    part = spb.FilterResponse(eager_scores=spb.Scores(dense=[1, 2])).SerializeToString()
    scored = await link_to(Answering(part + part), []).ask(methods.FILTER, spb.FilterRequest(), ASKED, 1.0)
    assert scored.scores == spb.Scores(dense=[1, 2, 1, 2]).SerializeToString()


@pytest.mark.parametrize("answer", [b"\xff", b"\x0a\x05x", b"\x1a\x02\x0a"])
async def test_reply_that_cannot_be_read_is_a_violation(answer: bytes) -> None:
    sent: list[tuple[str, str, int, int]] = []
    with pytest.raises(PluginProtocolError, match="no reply to it"):
        await link_to(Answering(answer), sent).ask(methods.FILTER, spb.FilterRequest(), ASKED, 1.0)
    assert sent == [("Demo", "Filter", 0, len(answer))]


async def test_request_over_the_limit_is_not_sent() -> None:
    channel = Answering(b"")
    request = spb.FilterRequest()
    request.ctx.plugin_token = b"x" * 1000
    with pytest.raises(HostFaultError, match="over the agreed limit"):
        await link_to(channel, []).ask(methods.FILTER, request, ASKED, 1.0)
    assert not channel.received
