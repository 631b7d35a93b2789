"""Connections in memory: in order, late, in pieces, reset, and silent while a process is paused."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from berth_bench.life.network import Lateness, MemoryNetwork, Transport
from berth_bench.life.processes import Process
from berth_bench.life.virtual_loop import VirtualClocks, VirtualLoop, run

ADDRESS = ("127.0.0.1", 1)
LATE = Lateness(delay_s=2.0, pieces=0.5)


class Peer(asyncio.Protocol):
    """Keeps what it hears. `answers`: sends everything back."""

    def __init__(self, *, answers: bool = False) -> None:
        self.answers = answers
        self.transport: Any = None
        self.got = b""
        self.parts = 0
        self.lost: list[Exception | None] = []
        self.may_write = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data
        self.parts += 1
        if self.answers:
            self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)

    def pause_writing(self) -> None:
        self.may_write = False

    def resume_writing(self) -> None:
        self.may_write = True


class Net:
    """A network with one server, and the peers that the server made."""

    def __init__(self, loop: VirtualLoop, lateness: Lateness, *, answers: bool = False) -> None:
        self.loop = loop
        self.network = loop.network = MemoryNetwork(loop, random.Random(1), lateness)
        self.servers: list[Peer] = []
        self._answers = answers
        self.network.listen(ADDRESS, self._accept)

    def _accept(self) -> Peer:
        self.servers.append(Peer(answers=self._answers))
        return self.servers[-1]

    async def client(self) -> Peer:
        _, peer = await self.loop.create_connection(Peer, *ADDRESS)
        assert isinstance(peer, Peer)
        return peer


def on_a_network(
    main: Callable[[Net], Coroutine[Any, Any, None]], lateness: Lateness = LATE, *, answers: bool = False
) -> None:
    async def life(_: VirtualClocks) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        net = Net(loop, lateness, answers=answers)
        await main(net)
        for connection in list(net.network.connections):
            net.network.cut(connection)
        await asyncio.sleep(0)

    run(life, random.Random(0))


def test_bytes_come_back_in_their_order_late_and_in_pieces() -> None:
    async def main(net: Net) -> None:
        peer = await net.client()
        sent = b""
        for number in range(20):
            part = b"%d," % number
            sent += part
            peer.transport.write(part)
            await asyncio.sleep(0.1)
        assert peer.got != sent
        await asyncio.sleep(100)
        assert peer.got == sent
        assert peer.parts > 5

    on_a_network(main, answers=True)


def test_receiver_knows_when_bytes_were_sent() -> None:
    async def main(net: Net) -> None:
        peer = await net.client()
        await asyncio.sleep(7)
        sent_s = net.loop.time()
        peer.transport.write(b"x")
        await asyncio.sleep(50)
        assert net.servers[0].transport.sent_s == sent_s

    on_a_network(main)


def test_close_comes_after_the_bytes_and_a_reset_before_them() -> None:
    async def main(net: Net) -> None:
        closing, aborting = await net.client(), await net.client()
        for peer in (closing, aborting):
            peer.transport.write(b"last words")
        closing.transport.close()
        aborting.transport.abort()
        await asyncio.sleep(50)
        assert [one.got for one in net.servers] == [b"last words", b""]
        assert net.servers[0].lost == [None]
        assert isinstance(net.servers[1].lost[0], ConnectionResetError)
        assert closing.lost == aborting.lost == [None]
        assert not net.network.connections

    on_a_network(main)


def test_both_sides_hear_of_a_cut_and_none_connects_to_what_does_not_listen() -> None:
    async def main(net: Net) -> None:
        peer = await net.client()
        [connection] = net.network.connections
        net.network.cut(connection)
        await asyncio.sleep(1)
        for side in (peer, net.servers[0]):
            assert isinstance(side.lost[0], ConnectionResetError)
        net.network.is_down = True
        with pytest.raises(ConnectionRefusedError):
            await net.client()
        net.network.is_down = False
        net.network.close(ADDRESS)
        with pytest.raises(ConnectionRefusedError):
            await net.client()

    on_a_network(main)


def test_sender_waits_while_the_receiver_is_paused() -> None:
    async def main(net: Net) -> None:
        process = Process("p")
        peer = await net.loop.create_task(net.client(), context=process.context())
        server = net.servers[0]
        net.loop.pause(process)
        server.transport.write(b"x" * 100_000)
        assert not server.may_write
        await asyncio.sleep(60)
        assert peer.got == b""
        net.loop.resume(process)
        await asyncio.sleep(60)
        assert len(peer.got) == 100_000
        assert server.may_write

    on_a_network(main)


def test_servers_hear_of_the_death_of_a_process_and_the_dead_connects_no_more() -> None:
    async def main(net: Net) -> None:
        process = Process("p")
        context = process.context()
        dead = await net.loop.create_task(net.client(), context=context)
        alive = await net.client()
        process.is_dead = True
        net.network.lose(process)
        net.loop.kill(process)
        await asyncio.sleep(1)
        assert [len(one.lost) for one in net.servers] == [1, 0]
        assert (dead.lost, alive.lost) == ([], [])
        dead.transport.write(b"from the grave")
        await asyncio.sleep(50)
        assert net.servers[0].got == b""

    on_a_network(main)


def test_reader_that_is_not_ready_gets_the_bytes_later() -> None:
    async def main(net: Net) -> None:
        peer = await net.client()
        transport = net.servers[0].transport
        assert isinstance(transport, Transport)
        transport.pause_reading()
        peer.transport.write(b"abc")
        await asyncio.sleep(50)
        assert net.servers[0].got == b""
        transport.resume_reading()
        await asyncio.sleep(50)
        assert net.servers[0].got == b"abc"

    on_a_network(main)
