"""The simulated link: bytes and messages keep their order, are lost with their connection, never double."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any

import grpc
import pytest
from berth_bench.life.link import Delays, FramedEnd, Network, Pipe, ServerCall, SimulatedChannel
from berth_bench.life.processes import Process as Host
from berth_bench.life.virtual_loop import VirtualClocks, VirtualLoop, run
from berth_host.attach import dialing
from berth_host.attach.configured_places import Place
from berth_host.attach.peer import DialError, Peer
from berth_sdk.wire.frames import Frame, call_frame

ENDPOINT = "unix:///life/echo.sock"
PLACE = Place(endpoint=ENDPOINT, plugins=())
METHOD = "/berth.plugin.v1.SchedulingService/Filter"
FILTER = 2
DEADLINE_S = 5.0


class Echo:
    """A process that answers each call with its request, `after_s` seconds later."""

    def __init__(self, loop: VirtualLoop, after_s: float = 0.0) -> None:
        self.loop = loop
        self.after_s = after_s
        self.calls: list[ServerCall] = []
        self.frames: list[Frame] = []

    def take(self, call: ServerCall) -> None:
        self.calls.append(call)
        self.loop.call_later(self.after_s, call.answer, b"".join(call.raw))

    def take_frame(self, request: Frame, stream: FramedEnd) -> None:
        self.frames.append(request)
        reply = call_frame(request.call, request.payload)
        self.loop.call_later(self.after_s, stream.answer, reply)


def on_a_network(main: Callable[[Network, VirtualLoop], Awaitable[Any]], seed: int = 0) -> Any:
    async def run_main(clocks: VirtualClocks) -> Any:
        return await main(Network(clocks.loop, Delays(random.Random(seed), 0.1)), clocks.loop)

    return run(run_main, random.Random(seed))


async def asked(network: Network) -> object:
    """Return the answer to a unary call on a new channel."""
    call: Any = network.dial(ENDPOINT, PLACE).unary_unary(METHOD)
    return await call(b"ask", timeout=60.0)


async def code_of(call: Awaitable[Any]) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    code = caught.value.code()
    assert code is not None
    return code


@pytest.mark.parametrize("seed", range(5))
def test_what_is_sent_on_one_connection_arrives_in_order(seed: int) -> None:
    async def main(network: Network, loop: VirtualLoop) -> list[int]:
        arrived: list[int] = []
        pipe: Pipe[int] = Pipe(loop, Delays(random.Random(seed), 1.0), arrived.append, copy_context())
        for number in range(50):
            pipe.send(number)
            await asyncio.sleep(0.01)
        await asyncio.sleep(2.0)
        return arrived

    assert on_a_network(main, seed) == list(range(50))


def test_pipe_that_is_cut_drops_what_is_under_way() -> None:
    async def main(network: Network, loop: VirtualLoop) -> None:
        arrived: list[int] = []
        pipe: Pipe[int] = Pipe(loop, Delays(random.Random(0), 1.0), arrived.append, copy_context())
        pipe.send(1)
        pipe.send(2)
        assert pipe.cut() == [1, 2]
        await asyncio.sleep(2.0)
        assert arrived == []
        assert loop.timers() == []

    on_a_network(main)


def test_call_is_answered_and_a_channel_connects_again() -> None:
    async def main(network: Network, loop: VirtualLoop) -> None:
        link = network.link(ENDPOINT)
        channel = network.dial(ENDPOINT, PLACE)
        call: Any = channel.unary_unary(METHOD)
        assert await code_of(call(b"ask", timeout=DEADLINE_S)) is grpc.StatusCode.UNAVAILABLE
        link.listen(Echo(loop))
        assert await call(b"ask", timeout=DEADLINE_S) == b"ask"
        assert channel.get_state() is grpc.ChannelConnectivity.READY
        lost = asyncio.ensure_future(channel.wait_for_state_change(grpc.ChannelConnectivity.READY))
        await asyncio.sleep(0.0)
        link.lose()
        await lost
        assert await call(b"again", timeout=DEADLINE_S) == b"again"
        await channel.close()
        assert await code_of(call(b"late", timeout=DEADLINE_S)) is grpc.StatusCode.CANCELLED

    on_a_network(main)


def test_open_call_ends_with_its_connection_and_the_process_hears_of_it() -> None:
    async def main(network: Network, loop: VirtualLoop) -> None:
        link, echo = network.link(ENDPOINT), Echo(loop, after_s=1.0)
        link.listen(echo)
        call: Any = network.dial(ENDPOINT, PLACE).unary_unary(METHOD)
        asked = asyncio.ensure_future(call(b"ask", timeout=DEADLINE_S))
        await asyncio.sleep(0.5)
        assert echo.calls[0].is_active()
        link.lose()
        assert not echo.calls[0].is_active()
        assert await code_of(asked) is grpc.StatusCode.UNAVAILABLE
        await asyncio.sleep(2.0)

    on_a_network(main)


def test_late_call_is_given_up_at_its_deadline() -> None:
    async def main(network: Network, loop: VirtualLoop) -> None:
        echo = Echo(loop, after_s=60.0)
        network.link(ENDPOINT).listen(echo)
        call: Any = network.dial(ENDPOINT, PLACE).unary_unary(METHOD)
        assert await code_of(call(b"ask", timeout=DEADLINE_S)) is grpc.StatusCode.DEADLINE_EXCEEDED
        assert loop.time() == DEADLINE_S
        assert not echo.calls[0].is_active()

    on_a_network(main)


def test_link_that_is_down_refuses_what_is_new() -> None:
    async def main(network: Network, loop: VirtualLoop) -> None:
        link = network.link(ENDPOINT)
        link.listen(Echo(loop))
        link.is_down = True
        with pytest.raises(DialError):
            await network.peer_at(ENDPOINT, PLACE)
        connection = network.frames_at(ENDPOINT, 1000, ()).free("Echo")
        assert connection is not None
        assert await connection.ask(FILTER, b"ask", DEADLINE_S) is None
        link.is_down = False
        assert await connection.ask(FILTER, b"ask", DEADLINE_S) == b"ask"
        connection.close()
        await asyncio.sleep(1.0)
        assert loop.timers() == []

    on_a_network(main)


@pytest.mark.parametrize("seed", range(20))
def test_frames_come_whole_and_once_whatever_the_pieces(seed: int) -> None:
    async def main(network: Network, loop: VirtualLoop) -> list[bytes]:
        echo = Echo(loop)
        network.link(ENDPOINT).listen(echo)
        connection = network.frames_at(ENDPOINT, 100_000, ()).free("Echo")
        assert connection is not None
        sent = [bytes([number]) * (1 + 997 * number) for number in range(40)]
        for payload in sent:
            assert await connection.ask(FILTER, payload, DEADLINE_S) == payload
        assert [frame.payload for frame in echo.frames] == sent
        connection.close()
        return sent

    on_a_network(main, seed)


@pytest.mark.parametrize("seed", range(20))
def test_loss_leaves_the_call_unanswered_or_not_executed(seed: int) -> None:
    async def main(network: Network, loop: VirtualLoop) -> None:
        link, echo = network.link(ENDPOINT), Echo(loop)
        link.listen(echo)
        connection = network.frames_at(ENDPOINT, 100_000, ()).free("Echo")
        assert connection is not None
        asked = asyncio.ensure_future(connection.ask(FILTER, bytes(5000), DEADLINE_S))
        await asyncio.sleep(random.Random(seed).uniform(0.0, 0.2))
        if asked.done():
            return
        link.lose()
        assert await code_of(asked) is grpc.StatusCode.UNAVAILABLE
        assert len(echo.frames) <= 1
        assert await connection.ask(FILTER, b"again", DEADLINE_S) == b"again"
        connection.close()

    on_a_network(main, seed)


def test_successor_at_the_same_endpoint_is_another_one() -> None:
    async def main(network: Network, loop: VirtualLoop) -> None:
        link = network.link(ENDPOINT)
        assert network.identity_of(ENDPOINT) is None
        link.listen(Echo(loop))
        first = network.identity_of(ENDPOINT)
        frames = network.frames_at(ENDPOINT, 1000, ())
        link.listen(Echo(loop))
        assert network.identity_of(ENDPOINT) not in (None, first)
        connection = frames.free("Echo")
        assert connection is not None
        assert await connection.ask(FILTER, b"ask", DEADLINE_S) is None

    on_a_network(main)


def test_host_reaches_plugins_by_the_link_until_the_block_ends() -> None:
    async def main(network: Network, loop: VirtualLoop) -> None:
        network.link(ENDPOINT).listen(Echo(loop))
        assert dialing.identity_of(ENDPOINT) is None
        with pytest.raises(ZeroDivisionError), dialing.replaced(network):
            assert dialing.identity_of(ENDPOINT) == network.identity_of(ENDPOINT) is not None
            assert isinstance(await dialing.peer_at(ENDPOINT, PLACE), Peer)
            assert isinstance(dialing.dial(ENDPOINT, PLACE), SimulatedChannel)
            raise ZeroDivisionError
        assert dialing.identity_of(ENDPOINT) is None
        with pytest.raises(DialError, match="No such file"):
            await dialing.peer_at(ENDPOINT, PLACE)

    on_a_network(main)


@pytest.mark.parametrize("is_framed", [False, True])
def test_answer_waits_while_the_host_is_paused_and_the_process_works_on(is_framed: bool) -> None:
    async def main(network: Network, loop: VirtualLoop) -> None:
        echo = Echo(loop, after_s=1.0)
        network.link(ENDPOINT).listen(echo)
        host = Host("host-1.1", machine="host-1")
        got: list[object] = []

        async def ask() -> None:
            if is_framed:
                connection = network.frames_at(ENDPOINT, 1000, ()).free("Echo")
                assert connection is not None
                got.append(await connection.ask(FILTER, b"ask", 60.0))
            else:
                got.append(await asked(network))

        asking = loop.create_task(ask(), context=host.context())
        await asyncio.sleep(0.0)
        await asyncio.sleep(0.0)
        loop.pause(host)
        await asyncio.sleep(20.0)
        assert len(echo.calls) + len(echo.frames) == 1
        assert got == []
        loop.resume(host)
        await asking
        assert len(got) == 1

    on_a_network(main)


@pytest.mark.parametrize("is_framed", [False, True])
def test_connections_of_a_killed_host_are_lost_and_those_of_the_other_stay(is_framed: bool) -> None:
    async def main(network: Network, loop: VirtualLoop) -> None:
        echo = Echo(loop, after_s=1.0)
        link = network.link(ENDPOINT)
        link.listen(echo)
        hosts = [Host(name, machine=name) for name in ("host-1", "host-2")]
        got: list[str] = []

        async def ask(name: str) -> None:
            if is_framed:
                connection = network.frames_at(ENDPOINT, 1000, ()).free("Echo")
                assert connection is not None
                assert await connection.ask(FILTER, b"ask", 60.0) is not None
            else:
                await asked(network)
            got.append(name)

        tasks = [loop.create_task(ask(one.name), context=one.context()) for one in hosts]
        await asyncio.sleep(0.5)
        loop.kill(hosts[0])
        await asyncio.sleep(20.0)
        assert got == ["host-2"]
        assert tasks[1].done()
        active = [call.is_active() for call in echo.calls]
        assert active == ([] if is_framed else [False, False])
        assert len(link._wires) + len(link._streams) == 1  # noqa: SLF001 (of the host that lives)

    on_a_network(main)


def test_hosts_with_processes_of_their_own_do_not_reach_each_others() -> None:
    async def main(clocks: VirtualClocks) -> None:
        network = Network(clocks.loop, Delays(random.Random(0), 0.0), is_shared=False)
        network.link(ENDPOINT, "host-1").listen(Echo(clocks.loop))

        async def reach() -> Peer:
            return await network.peer_at(ENDPOINT, PLACE)

        ours = Host("host-1.1", machine="host-1").context()
        assert isinstance(await clocks.loop.create_task(reach(), context=ours), Peer)
        other = Host("host-2.1", machine="host-2").context()
        with pytest.raises(DialError, match="refused"):
            await clocks.loop.create_task(reach(), context=other)

    run(main, random.Random(0))
