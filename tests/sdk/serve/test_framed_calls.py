"""Calls in frames against a real server: the answers, errors, turns and ends of unary calls."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, ClassVar, TypeAlias

import grpc
import pytest
from berth_sdk import CycleState, Plugin, Pod, Status
from berth_sdk.node import Node
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from support.framed_client import WAIT_S, FramedClient
from support.sdk_server import ALL, RawHost, Serving

from .conftest import Serve

POD = Pod(name="p", uid="p")


class Demo(Plugin):
    """Rejects what its pod asks for by name."""

    entered = threading.Semaphore(0)
    out = threading.Event()
    given_up = threading.Event()
    asked: ClassVar[list[str]] = []

    def filter(self, state: CycleState, pod: Pod, node: Any) -> Status:
        self.asked.append(pod.name)
        if pod.name == "broken":
            raise RuntimeError("it broke")
        if pod.name == "slow":
            self.entered.release()
            self.out.wait(WAIT_S)
        return Status.unschedulable("no") if node.name == "n1" else Status.success()

    async def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        if pod.name == "slow":
            self.entered.release()
            try:
                await asyncio.sleep(WAIT_S)
            finally:
                self.given_up.set()
        return Status.success()


Opened: TypeAlias = Callable[[], FramedClient]


@pytest.fixture
def serving(serve: Serve) -> Iterator[Serving]:
    Demo.asked.clear()
    Demo.entered, Demo.out, Demo.given_up = threading.Semaphore(0), threading.Event(), threading.Event()
    serving = serve(Demo)
    serving.host.attach()
    serving.host.give_nodes(Node(name="n0"), Node(name="n1"))
    yield serving
    Demo.out.set()


@pytest.fixture
def opened(serving: Serving) -> Iterator[Opened]:
    """Opens another framed connection."""
    with ExitStack() as stack:

        def another() -> FramedClient:
            calls = FramedClient(serving.address)
            stack.callback(calls.close)
            return calls

        yield another


@pytest.fixture
def calls(opened: Opened) -> FramedClient:
    return opened()


def filter_request(host: RawHost, name: str = "p", cycle_id: str = "c1") -> spb.FilterRequest:
    pod = Pod(name=name, uid=name)
    return spb.FilterRequest(ctx=host.ctx("Demo", pod, cycle_id), candidates=ALL)


def test_answers_are_those_of_unary_calls(serving: Serving, calls: FramedClient) -> None:
    host = serving.host
    framed = calls.ask(filter_request(host, cycle_id="c1"))
    alone = host.filter("Demo", POD, "c2")
    assert (framed.ctx.cycle_id, alone.ctx.cycle_id) == ("c1", "c2")
    assert framed.verdicts == alone.verdicts
    assert len(framed.verdicts.rejected) == 1
    request = spb.ReserveRequest(ctx=host.ctx("Demo", POD, "c1", complete=False), node_name="n0")
    assert calls.ask(request).ctx.status.code == pb.PluginStatus.CODE_SUCCESS


def test_many_calls_go_over_one_connection(serving: Serving, calls: FramedClient) -> None:
    for turn in range(100):
        request = spb.ReserveRequest(ctx=serving.host.ctx("Demo", POD, f"c{turn}"), node_name="n0")
        assert calls.ask(request).ctx.cycle_id == f"c{turn}"


def test_a_call_that_fails_has_its_code(serving: Serving, calls: FramedClient, opened: Opened) -> None:
    calls.send(filter_request(serving.host, "broken"))
    code, details = calls.error()
    assert code is grpc.StatusCode.INTERNAL
    assert details.startswith("Demo.filter raised RuntimeError: it broke at ")
    assert opened().ask(filter_request(serving.host)).HasField("ctx")


def test_a_closed_connection_cancels_its_call_and_the_next_one_has_its_turn(
    serving: Serving, calls: FramedClient, opened: Opened
) -> None:
    calls.send(filter_request(serving.host, "slow"))
    assert Demo.entered.acquire(timeout=WAIT_S)
    calls.cancel()
    another = opened()
    another.send(filter_request(serving.host))
    Demo.out.set()
    assert another.answer(spb.FilterResponse).HasField("ctx")


def test_an_idle_connection_does_not_hold_up_the_end(serving: Serving, calls: FramedClient) -> None:
    calls.ask(filter_request(serving.host))
    begun_s = time.monotonic()
    assert serving.server.stop(WAIT_S)
    assert time.monotonic() - begun_s < WAIT_S / 2
    assert calls.ends()


def test_the_server_stops_after_the_call_that_is_open(serving: Serving, calls: FramedClient) -> None:
    calls.send(filter_request(serving.host, "slow"))
    assert Demo.entered.acquire(timeout=WAIT_S)
    with ThreadPoolExecutor(1) as threads:
        stopped: Future[bool] = threads.submit(serving.server.stop, WAIT_S)
        while not serving.server.framed.is_stopping:
            time.sleep(0.002)
        Demo.out.set()
        assert calls.answer(spb.FilterResponse).HasField("ctx")
        assert stopped.result(WAIT_S)
    assert calls.ends()


def test_a_call_past_its_turn_is_not_executed_for_a_host_that_has_gone(
    serving: Serving, calls: FramedClient, opened: Opened
) -> None:
    calls.send(filter_request(serving.host, "slow"))
    assert Demo.entered.acquire(timeout=WAIT_S)
    waiting = opened()
    waiting.send(filter_request(serving.host, "late", "c2"))
    while serving.server.instance.in_flight.count < 2:
        time.sleep(0.002)
    waiting.cancel()
    while serving.server.instance.in_flight.count > 1:
        time.sleep(0.002)
    Demo.out.set()
    assert calls.answer(spb.FilterResponse).HasField("ctx")
    assert "late" not in Demo.asked


def test_a_coroutine_is_cancelled_when_the_host_gives_it_up(serving: Serving, calls: FramedClient) -> None:
    host = serving.host
    calls.send(spb.ReserveRequest(ctx=host.ctx("Demo", Pod(name="slow", uid="s")), node_name="n0"))
    assert Demo.entered.acquire(timeout=WAIT_S)
    calls.cancel()
    assert Demo.given_up.wait(WAIT_S)


def test_calls_of_another_attachment_are_refused(serving: Serving, calls: FramedClient) -> None:
    request = filter_request(serving.host)
    request.ctx.attachment_id = "another"
    calls.send(request)
    code, text = calls.error()
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert "under another attachment_id" in text


def test_an_answer_over_the_agreed_size_is_refused(serving: Serving, calls: FramedClient) -> None:
    serving.host.attach(max_message_bytes=10)
    serving.host.give_nodes(Node(name="n0"), Node(name="n1"))
    calls.send(filter_request(serving.host))
    code, text = calls.error()
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "has 23 bytes, and 10 are the limit" in text
