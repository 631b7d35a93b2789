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
from berth_host.rpc.remote.busy_poll import BusyPoll
from berth_host.rpc.remote.call_stream import CallStream, CallStreams
from berth_host.rpc.remote.grpc_errors import rpc_error
from berth_sdk.wire.stream import FEATURE, NUMBERS, wrap
from support.attached import AttachedHost, at_socket, attached_host
from support.line import Line
from support.scripted_plugin import ScriptedPlugin, descriptor
from support.waiting import PATIENCE_S, until

POINTS = ("PRE_FILTER", "FILTER", "RESERVE", "PERMIT", "PRE_BIND")


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


async def test_a_call_on_a_stream_that_never_began_ends_when_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "mute.sock"
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()  # and no thread takes the connections
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


class Ended(Line):
    """A stream that the instance ended before the first message was written."""

    async def write(self, message: bytes) -> None:
        del message
        raise asyncio.InvalidStateError("RPC already finished.")


@pytest.mark.parametrize("code", [grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAVAILABLE])
async def test_stream_that_ended_before_its_first_message_is_named_where_no_service_is(
    code: grpc.StatusCode,
) -> None:
    async def answer() -> bytes:
        raise rpc_error(code, "Method not found!")

    asked = CallStream(lambda: Ended(answer), BusyPoll(1)).ask(NUMBERS["Filter"], b"", PATIENCE_S)
    if code is grpc.StatusCode.UNIMPLEMENTED:
        with pytest.raises(grpc.aio.AioRpcError, match="which its feature"):
            await asked
    else:
        assert await asked is None


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
