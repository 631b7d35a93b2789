"""A plugin's stream: kept while calls are answered, ended by one that fails, passed by when it is busy."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from berth_host.rpc.calls import PointPolicy, Policy
from berth_host.rpc.remote.busy_poll import BusyPoll
from berth_host.rpc.remote.call_stream import LARGEST_BYTES, CallStream, CallStreams
from berth_host.rpc.remote.grpc_errors import rpc_error
from berth_sdk._wire_stream import FEATURE, NUMBERS, wrap
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from berth_sdk.plugin.v1 import stream_pb2
from berth_sdk.status import Code
from support.attached import PATIENCE_S, AttachedHost, at_socket, attached_host, until
from support.line import Line
from support.scripted_plugin import ScriptedPlugin, decided, descriptor, for_ever

POINTS = ("PRE_FILTER", "FILTER", "RESERVE", "PERMIT", "PRE_BIND")


class Streaming(ScriptedPlugin):
    """Counts the streams that it is asked to open."""

    features = (FEATURE,)
    opened = ended = 0

    async def _calls(self, requests: Any, context: Any) -> AsyncIterator[stream_pb2.StreamCallsResponse]:
        self.opened += 1
        async for answer in super()._calls(requests, context):
            yield answer
        self.ended += 1


class Leaving(Streaming):
    """Ends its stream after every answer, as a server that stops does."""

    async def _calls(self, requests: Any, context: Any) -> AsyncIterator[stream_pb2.StreamCallsResponse]:
        async for answer in super()._calls(requests, context):
            yield answer
            return


class Confused(Streaming):
    """Answers another call than was asked."""

    async def _calls(self, requests: Any, context: Any) -> AsyncIterator[stream_pb2.StreamCallsResponse]:
        async for _ in super()._calls(requests, context):
            yield stream_pb2.StreamCallsResponse(permit=spb.PermitResponse(ctx=decided()))


class Boasting(ScriptedPlugin):
    """Names the feature and has no such service."""

    features = (FEATURE,)

    def _handlers(self) -> Iterator[grpc.GenericRpcHandler]:
        *handlers, _ = super()._handlers()
        return iter(handlers)


@asynccontextmanager
async def attached(tmp_path: Path, plugin: ScriptedPlugin, **options: Any) -> AsyncIterator[AttachedHost]:
    path = tmp_path / "p.sock"
    names = [item.name for item in plugin.plugins]
    async with plugin.serving(path), attached_host(at_socket(path, *names), **options) as host:
        yield host


async def test_stream_that_was_promised_and_is_not_served_is_named(tmp_path: Path) -> None:
    plugin = Boasting(descriptor("Demo", *POINTS))
    async with attached(tmp_path, plugin) as host:
        status = (await host.client.filter(host.cycle(), host.nodes)).status(0)
        assert f'StreamService.StreamCalls, which its feature "{FEATURE}" promises' in status.message
        assert host.client.stats.of("Filter").failures == {"violation": 1}


async def test_calls_of_the_scheduling_cycle_share_one_stream(tmp_path: Path) -> None:
    plugin = Streaming(descriptor("Demo", *POINTS))
    async with attached(tmp_path, plugin) as host:
        for _ in range(3):
            cycle = host.cycle()
            await host.client.pre_filter(cycle, host.nodes)
            await host.client.filter(cycle, host.nodes)
            assert (await host.client.reserve(cycle, "n0")).is_success
            assert (await host.client.pre_bind(cycle, "n0")).status.is_success
    assert (plugin.opened, plugin.streamed) == (1, 9)
    assert len(plugin.requests("PreBind")) == 3


async def test_a_stream_ends_with_the_attachment_and_is_not_cut_off(tmp_path: Path) -> None:
    plugin = Streaming(descriptor("Demo", *POINTS))
    async with attached(tmp_path, plugin) as host:
        await host.client.filter(host.cycle(), host.nodes)
        assert plugin.ended == 0
        await host.attachments.stop()
        assert plugin.ended == 1


async def test_an_instance_without_the_feature_gets_calls_of_their_own(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", *POINTS))
    async with attached(tmp_path, plugin) as host:
        await host.client.filter(host.cycle(), host.nodes)
    assert plugin.streamed == 0
    assert len(plugin.requests("Filter")) == 1


async def test_each_plugin_has_a_stream_and_one_waits_for_no_other(tmp_path: Path) -> None:
    plugin = Streaming(descriptor("One", "FILTER"), descriptor("Two", "FILTER"))
    both = asyncio.Event()

    async def together(_request: Any) -> None:
        if len(plugin.requests("Filter")) == 2:
            both.set()
        await both.wait()

    plugin.on("Filter", together)
    async with attached(tmp_path, plugin) as host:
        cycle = host.cycle(budget_s=30.0)
        await asyncio.gather(*(client.filter(cycle, host.nodes) for client in host.clients.values()))
    assert (plugin.opened, plugin.streamed) == (2, 2)


async def test_a_call_beside_an_open_one_goes_by_itself(tmp_path: Path) -> None:
    plugin = Streaming(descriptor("Demo", "FILTER"))
    both = asyncio.Event()

    async def together(_request: Any) -> None:
        if len(plugin.requests("Filter")) == 2:
            both.set()
        await both.wait()

    plugin.on("Filter", together)
    async with attached(tmp_path, plugin) as host:
        cycles = (host.cycle(budget_s=30.0) for _ in range(2))
        await asyncio.gather(*(host.client.filter(cycle, host.nodes) for cycle in cycles))
    assert plugin.streamed == 1


async def test_a_deadline_ends_the_stream_and_the_next_call_opens_another(tmp_path: Path) -> None:
    plugin = Streaming(descriptor("Demo", "FILTER"))
    plugin.once("Filter", for_ever)
    async with attached(tmp_path, plugin, points={"filter": PointPolicy(0.1, Policy.FAIL)}) as host:
        late = (await host.client.filter(host.cycle(), host.nodes)).to_list()
        assert {status.code for status in late} == {Code.ERROR}
        assert "within 100 ms" in late[0].reasons[0]
        assert (await host.client.filter(host.cycle(), host.nodes)).all_passed
    assert (plugin.opened, plugin.streamed) == (2, 2)


async def test_a_stream_that_the_instance_ended_between_two_calls_is_opened_again(tmp_path: Path) -> None:
    plugin = Leaving(descriptor("Demo", "RESERVE"))
    async with attached(tmp_path, plugin) as host:
        for turn in range(1, 20):
            cycle = host.cycle()
            assert (await host.client.reserve(cycle, "n0")).is_success
            assert len(plugin.requests("Reserve")) == turn


async def test_the_answer_to_another_call_is_a_violation(tmp_path: Path) -> None:
    plugin = Confused(descriptor("Demo", "FILTER"))
    async with attached(tmp_path, plugin) as host:
        result = await host.client.filter(host.cycle(), host.nodes)
        text = result.to_list()[0].reasons[0]
        assert "answered what is no reply to it" in text
        assert host.client.stats.violations == 1


async def test_a_large_request_goes_by_itself(tmp_path: Path) -> None:
    plugin = Streaming(descriptor("Demo", "FILTER", snapshot=False))
    async with attached(tmp_path, plugin) as host:
        cycle = host.cycle()
        cycle.state("Demo").token = b"x" * LARGEST_BYTES
        await host.client.filter(cycle, host.nodes)
    assert plugin.streamed == 0
    assert len(plugin.requests("Filter")) == 1


async def test_a_call_on_a_stream_that_never_began_ends_when_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "mute.sock"
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()  # and nobody takes the connections
    channel = grpc.aio.insecure_channel(f"unix://{path}")
    try:
        streams = CallStreams(channel)
        stream = streams.free("Demo")
        assert stream is not None
        call = asyncio.ensure_future(stream.ask(NUMBERS["Filter"], b"", 10 * PATIENCE_S))
        await until(lambda: stream.busy)
        streams.close()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(call, PATIENCE_S)
        assert caught.value.code() is grpc.StatusCode.CANCELLED
        assert not stream.busy
    finally:
        await channel.close()
        listening.close()


class Counted(BusyPoll):
    """Remembers how often the loop was told to stay awake, and how often that it may sleep."""

    begun = ended = 0

    def begin(self) -> None:
        self.begun += 1
        super().begin()

    def end(self) -> None:
        self.ended += 1
        super().end()


async def test_the_loop_stays_awake_for_a_call_however_it_ends() -> None:
    poll = Counted(2)
    seen: list[tuple[int, int]] = []

    async def fails() -> Any:
        seen.append((poll.begun, poll.ended))
        raise rpc_error(grpc.StatusCode.UNAVAILABLE, "gone")

    async def ends() -> Any:
        seen.append((poll.begun, poll.ended))
        return grpc.aio.EOF

    async def hangs() -> Any:
        seen.append((poll.begun, poll.ended))
        await asyncio.Event().wait()

    async def ask(answer: Callable[[], Awaitable[Any]], deadline_s: float = PATIENCE_S) -> bytes | None:
        return await CallStream(lambda: Line(answer), poll).ask(NUMBERS["Filter"], b"", deadline_s)

    with pytest.raises(grpc.aio.AioRpcError):
        await ask(fails)
    assert await ask(ends) is None
    with pytest.raises(grpc.aio.AioRpcError):
        await ask(hangs, 0.0)
    call = asyncio.ensure_future(ask(hangs))
    await until(lambda: len(seen) == 4)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert seen == [(1, 0), (2, 1), (3, 2), (4, 3)]
    assert (poll.begun, poll.ended) == (4, 4)


class Slow(Line):
    """Says that a message is written when it is told to, or that it is not."""

    def __init__(self, answer: Callable[[], Awaitable[Any]]) -> None:
        super().__init__(answer)
        self.written: asyncio.Future[None] = asyncio.Future()
        self.written.set_result(None)
        self.messages = 0

    async def write(self, message: bytes) -> None:
        self.messages += 1
        await self.written


def gone() -> grpc.aio.AioRpcError:
    return rpc_error(grpc.StatusCode.UNAVAILABLE, "gone")


@pytest.mark.parametrize("executed", [True, False])
async def test_error_of_a_stream_in_use_counts_if_the_message_had_gone_out(executed: bool) -> None:
    answers: list[bytes | Exception] = []

    async def answer() -> bytes:
        await asyncio.sleep(0)
        found = answers.pop()
        if isinstance(found, Exception):
            raise found
        return found

    number = NUMBERS["Filter"]
    line = Slow(answer)
    stream = CallStream(lambda: line, BusyPoll(1))
    answers.append(wrap(number, b""))
    assert await stream.ask(number, b"", PATIENCE_S) == b""
    answers.append(gone())
    if executed:
        with pytest.raises(grpc.aio.AioRpcError):
            await stream.ask(number, b"", PATIENCE_S)
    else:
        line.written = asyncio.Future()
        asyncio.get_running_loop().call_soon(line.written.set_exception, gone())
        assert await stream.ask(number, b"", PATIENCE_S) is None
    assert line.messages == 2
    assert not answers


async def test_stream_in_use_is_read_while_the_message_is_on_its_way() -> None:
    number, reading = NUMBERS["Filter"], asyncio.Event()

    async def answer() -> bytes:
        reading.set()
        return wrap(number, b"")

    line = Slow(answer)
    stream = CallStream(lambda: line, BusyPoll(1))
    assert await stream.ask(number, b"", PATIENCE_S) == b""
    reading.clear()
    line.written = asyncio.Future()
    call = asyncio.ensure_future(stream.ask(number, b"", PATIENCE_S))
    async with asyncio.timeout(PATIENCE_S):
        await reading.wait()
    assert not call.done()
    line.written.set_result(None)
    assert await call == b""
