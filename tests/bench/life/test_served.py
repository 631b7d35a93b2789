"""A process of served plugins in a life: the SDK's calls on the loop, late, lost and spoilt."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from berth_bench.life.guard import GUARD, GuardLedger, Memory, guard
from berth_bench.life.link import Delays, Network
from berth_bench.life.served import Habits, PluginProcess, spoilt
from berth_bench.life.virtual_loop import VirtualClocks, VirtualLoop, run
from berth_host.attach.configured_places import Place
from berth_sdk.plugin.v1 import common_pb2, identity_pb2, identity_pb2_grpc, scheduling_pb2
from google.protobuf.message import DecodeError

ENDPOINT = "unix:///life/guard.sock"
DEADLINE_S = 5.0
REQUEST = identity_pb2.HandshakeRequest(attachment_id="a")


class Served:
    """A process at a link, and a stub for its identity."""

    def __init__(self, loop: VirtualLoop, habits: Habits) -> None:
        self.seen: list[str] = []
        cls = guard(GuardLedger(), Memory(), random.Random(0), 1, 0.0)
        self.process = PluginProcess({GUARD: cls}, loop, habits, random.Random(0), self.seen.append)
        network = Network(loop, Delays(random.Random(0), 0.0))
        network.link(ENDPOINT).listen(self.process)
        channel = network.dial(ENDPOINT, Place(endpoint=ENDPOINT, plugins=()))
        self.stub = identity_pb2_grpc.IdentityServiceStub(channel)

    async def shakes_hands(self) -> str:
        reply = await self.stub.Handshake(REQUEST, timeout=DEADLINE_S)
        return str(reply.plugins[0].name)


def with_process(habits: Habits, main: Callable[[Served, VirtualLoop], Awaitable[Any]]) -> Any:
    async def run_main(clocks: VirtualClocks) -> Any:
        return await main(Served(clocks.loop, habits), clocks.loop)

    return run(run_main, random.Random(0))


def test_call_of_the_sdk_is_answered() -> None:
    async def main(served: Served, loop: VirtualLoop) -> None:
        assert await served.shakes_hands() == GUARD
        assert served.seen == ["Handshake"]
        refused = identity_pb2.ConfigureRequest(attachment_id="unknown", accepted=True)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.stub.Configure(refused, timeout=DEADLINE_S)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED

    with_process(Habits(work_s=0.1), main)


def test_process_that_stands_still_answers_when_it_goes_on() -> None:
    async def main(served: Served, loop: VirtualLoop) -> None:
        served.process.stand_still()
        asked = asyncio.ensure_future(served.shakes_hands())
        await asyncio.sleep(2.0)
        assert not asked.done()
        served.process.go_on()
        assert await asked == GUARD

    with_process(Habits(), main)


def test_dead_process_answers_nothing_and_leaves_no_timer() -> None:
    async def main(served: Served, loop: VirtualLoop) -> None:
        asked = asyncio.ensure_future(served.shakes_hands())
        await asyncio.sleep(0.0)
        await asyncio.sleep(0.001)
        served.process.die()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asked
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert loop.timers() == []

    with_process(Habits(work_s=0.1), main)


def test_late_answer_comes_after_the_deadline() -> None:
    async def main(served: Served, loop: VirtualLoop) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            for _ in range(20):
                await served.shakes_hands()
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert set(served.seen) == {"Handshake"}

    with_process(Habits(late=1.0, late_s=60.0), main)


@pytest.mark.parametrize("seed", range(40))
def test_spoilt_answer_is_not_the_honest_one(seed: int) -> None:
    honest = scheduling_pb2.ReserveResponse()
    honest.ctx.cycle_id = "c"
    honest.ctx.status.code = common_pb2.PluginStatus.CODE_SUCCESS
    raw = spoilt("Reserve", honest.SerializeToString(), random.Random(seed))
    try:
        found = scheduling_pb2.ReserveResponse.FromString(raw)
    except DecodeError:
        return
    assert found.ctx.cycle_id != "c" or not found.ctx.HasField("status")
