"""`CallStream`: one plugin's stream for calls of the scheduling cycle, and all of one instance's.

A call on a stream that is open costs half of a call of its own. What fails ends the stream, with the code
that the call would have ended with; the next call opens another. Used by `InstanceLink`. Source: the
contract's stream.proto.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import grpc
from berth_sdk.plugin.v1 import stream_pb2
from berth_sdk.runtime.answers import begun, settled
from berth_sdk.wire.stream import FEATURE, wrap
from grpc import StatusCode

from berth_host.rpc.remote.busy_poll import BusyPoll
from berth_host.rpc.remote.grpc_errors import rpc_error
from berth_host.rpc.remote.lines import answer_to

EOF: Final = grpc.aio.EOF
_ENDED: Final = (grpc.aio.AioRpcError, asyncio.InvalidStateError)
_END_S: Final = 0.5
_SERVICE: Final[Any] = stream_pb2.DESCRIPTOR.services_by_name["StreamService"]
_PATH: Final = f"/{_SERVICE.full_name}/{_SERVICE.methods[0].name}"
_Open: TypeAlias = Callable[[], Any]


class CallStream:
    """closed -ask-> busy -answered-> idle -ask-> busy; busy or idle -a failure, close-> closed"""

    def __init__(self, open_stream: _Open, poll: BusyPoll) -> None:
        self.busy = False
        self._poll = poll
        self._open = open_stream
        self._stream: Any = None
        self._proven: Any = None
        """The stream, once it has carried a call."""
        self._patience: asyncio.Timeout | None = None

    async def ask(self, number: int, raw: bytes, deadline_s: float) -> bytes | None:
        """One call; None: the stream was closed and the call not executed. Raises what a call of its own
        would: AioRpcError, DecodeError, CancelledError.
        """
        stream = self._stream
        if stream is None or stream.done():
            stream = self._stream = self._open()
        self.busy = True
        self._poll.begin()
        answered = False
        try:
            async with asyncio.timeout(deadline_s) as self._patience:
                message = wrap(number, raw)
                if stream is self._proven:
                    answer = await _asked(stream, message)
                else:
                    answer = await _first_asked(stream, message)
            if answer is EOF:
                return None
            reply = answer_to(number, answer)
            answered = True
            self._proven = stream
            return reply
        except grpc.aio.AioRpcError as err:
            if err.code() is StatusCode.UNIMPLEMENTED and stream is not self._proven:
                text = f'StreamService.StreamCalls, which its feature "{FEATURE}" promises: {err.details()}'
                raise rpc_error(StatusCode.UNIMPLEMENTED, text) from err
            raise
        except TimeoutError as err:
            if self._stream is not stream:
                raise rpc_error(StatusCode.CANCELLED, "the stream was closed") from err
            raise rpc_error(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from err
        finally:
            self.busy = False
            self._poll.end()
            self._patience = None
            if not answered:
                self.close()

    async def end(self) -> None:
        """Let the instance end a stream between two calls, so that nothing of it is under way any more."""
        stream = self._stream
        if stream is None or self.busy or stream.done():
            return
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await stream.done_writing()
            await stream.read()

    def close(self) -> None:
        """End the stream, and with it a call that is open."""
        stream, self._stream = self._stream, None
        self._proven = None
        if stream is not None:
            stream.cancel()
        patience = self._patience
        if patience is not None and not patience.expired():
            # gRPC does not wake a task that waits to write on a stream that is cancelled before it began.
            loop = asyncio.get_running_loop()
            patience.reschedule(loop.time())


async def _first_asked(stream: Any, message: bytes) -> Any:
    """The answer of a stream that has carried no call yet; EOF: it had ended before.

    An instance without the service may end the stream before the message is written. The next stream would
    end likewise, so that error is raised.
    """
    if await _written(stream.write(message)):
        return await stream.read()
    try:
        await stream.read()
    except _ENDED as err:
        if isinstance(err, grpc.aio.AioRpcError) and err.code() is StatusCode.UNIMPLEMENTED:
            raise
    return EOF


async def _asked(stream: Any, message: bytes) -> Any:
    """What the stream answers; EOF: it had ended before.

    Reading begins before the message is known to be sent: what comes back meanwhile then needs no more
    turns of gRPC's than the one it comes with.
    """
    try:
        writing = begun(stream.write(message))
    except _ENDED:
        return EOF
    try:
        answer = await stream.read()
    except grpc.aio.AioRpcError:
        if await _written(writing):
            raise
        return EOF
    return answer if await _written(writing) else EOF


async def _written(writing: Awaitable[None] | None) -> bool:
    """False: the stream had ended before, which this side may hear of no earlier."""
    try:
        await settled(writing)
    except _ENDED:
        return False
    return True


class CallStreams:
    """The streams of one instance, by plugin, each opened when it is needed."""

    name = FEATURE

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._open: _Open = channel.stream_stream(_PATH)
        self._poll = BusyPoll()
        self._streams: dict[str, CallStream] = {}

    def free(self, plugin: str) -> CallStream | None:
        """The plugin's stream; None: it carries a call already."""
        stream = self._streams.get(plugin)
        if stream is None:
            stream = self._streams[plugin] = CallStream(self._open, self._poll)
        return None if stream.busy else stream

    async def end(self) -> None:
        """Let the instance end those between two calls; one that does not is left to `close`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await asyncio.gather(*(stream.end() for stream in self._streams.values()))

    def close(self) -> None:
        """No call will be answered any more."""
        for stream in self._streams.values():
            stream.close()
