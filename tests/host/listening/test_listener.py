"""Peers take turns for a place, before anything of their connections is read."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

import pytest
from berth_host.listening import listener
from berth_host.listening.connections import Connection, Connections, Limits
from berth_host.listening.listener import ACCEPTED_PER_S, BURST_ACCEPTED, Listener
from berth_host.metrics.connection_metrics import ConnectionMetrics
from support.waiting import PATIENCE_S, until

FLOOD = "127.0.0.1"
PROBE = "127.0.0.2"
OF_PEER = 16


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


async def test_peer_that_opens_many_connections_does_not_keep_out_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a further token of the rate for all, a flood of one peer fills its own places alone."""
    monkeypatch.setattr(listener, "BURST_TURNS", 1000.0)
    clock, served = Clock(), list[str]()
    metrics = ConnectionMetrics()
    connections = Connections("test", metrics, Limits(64, OF_PEER), clock)

    async def serve(connection: Connection, sock: socket.socket) -> None:
        served.append(connection.peer)
        sock.close()
        connections.remove(connection)

    def refused_count() -> float:
        shown = metrics.events.collect()
        return sum(one.value for one in shown.samples if one.labels["event"] == "refused") if shown else 0

    with ExitStack() as closing:
        listening = closing.enter_context(socket.create_server((FLOOD, 0)))
        accepting = Listener(listening, connections, serve, turns_per_s=1000.0, clock=clock)
        accepting.start()

        async def connect(source: str) -> None:
            sock = closing.enter_context(socket.socket())
            sock.setblocking(False)
            sock.bind((source, 0))
            await asyncio.get_running_loop().sock_connect(sock, listening.getsockname())
            sock.send(b"x")

        for _ in range(int(BURST_ACCEPTED)):
            await connect(FLOOD)
        await until(lambda: len(served) == BURST_ACCEPTED)
        for _ in range(3 * OF_PEER):
            await connect(FLOOD)
        await until(lambda: refused_count() == 2 * OF_PEER)
        await connect(PROBE)
        await asyncio.sleep(0.05)
        assert PROBE not in served
        clock.now_s += 1.01 / ACCEPTED_PER_S
        await until(lambda: len(served) > BURST_ACCEPTED)
        assert served[-1] == PROBE
        accepting.stop()
        async with asyncio.timeout(PATIENCE_S):
            await accepting.close_all()
    assert len(connections) == 0
