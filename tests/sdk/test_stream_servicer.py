"""Calls on a stream that stays open, against a real server: the same answers, errors, turns and ends."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

import grpc
import pytest
from berth_sdk import CycleState, Plugin, Pod, Status
from berth_sdk._stream_servicer import OpenStreams, _Stream
from berth_sdk.node import Node
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from berth_sdk.plugin.v1 import stream_pb2
from berth_sdk.plugin.v1.stream_pb2_grpc import StreamServiceStub
from support.sdk_server import ALL, RawHost, Serving

from .conftest import Serve

WAIT_S = 60.0
POD = Pod(name="p", uid="p")


class Demo(Plugin):
    """Rejects what its pod asks for by name."""

    entered = threading.Semaphore(0)
    out = threading.Event()

    def filter(self, state: CycleState, pod: Pod, node: Any) -> Status:
        if pod.name == "broken":
            raise RuntimeError("it broke")
        if pod.name == "slow":
            self.entered.release()
            self.out.wait(WAIT_S)
        return Status.unschedulable("no") if node.name == "n1" else Status.success()

    async def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return Status.success()


class Calls:
    """One stream, one call after the other."""

    def __init__(self, host: RawHost) -> None:
        self._requests: queue.SimpleQueue[stream_pb2.StreamCallsRequest | None] = queue.SimpleQueue()
        self.stream: Any = StreamServiceStub(host.channel).StreamCalls(
            iter(self._requests.get, None), timeout=WAIT_S
        )

    def send(self, **call: Any) -> None:
        self._requests.put(stream_pb2.StreamCallsRequest(**call))

    def ask(self, **call: Any) -> stream_pb2.StreamCallsResponse:
        self.send(**call)
        answer: stream_pb2.StreamCallsResponse = next(self.stream)
        return answer

    def error(self) -> grpc.StatusCode:
        with pytest.raises(grpc.RpcError):
            next(self.stream)
        code: grpc.StatusCode = self.stream.code()
        return code

    def close(self) -> None:
        self._requests.put(None)


@pytest.fixture
def serving(serve: Serve) -> Iterator[Serving]:
    Demo.entered, Demo.out = threading.Semaphore(0), threading.Event()
    serving = serve(Demo)
    serving.host.attach()
    serving.host.give_nodes(Node(name="n0"), Node(name="n1"))
    yield serving
    Demo.out.set()


@pytest.fixture
def calls(serving: Serving) -> Iterator[Calls]:
    calls = Calls(serving.host)
    yield calls
    calls.close()


def filter_request(host: RawHost, name: str = "p", cycle_id: str = "c1") -> spb.FilterRequest:
    pod = Pod(name=name, uid=name)
    return spb.FilterRequest(ctx=host.ctx("Demo", pod, cycle_id), candidates=ALL)


def test_answers_are_those_of_calls_of_their_own(serving: Serving, calls: Calls) -> None:
    host = serving.host
    streamed = calls.ask(filter=filter_request(host, cycle_id="c1"))
    alone = host.filter("Demo", POD, "c2")
    assert (streamed.filter.ctx.cycle_id, alone.ctx.cycle_id) == ("c1", "c2")
    assert streamed.filter.verdicts == alone.verdicts
    assert len(streamed.filter.verdicts.rejected) == 1
    request = spb.ReserveRequest(ctx=host.ctx("Demo", POD, "c1", complete=False), node_name="n0")
    assert calls.ask(reserve=request).reserve.ctx.status.code == pb.Status.CODE_SUCCESS


def test_many_calls_go_over_one_stream(serving: Serving, calls: Calls) -> None:
    for turn in range(100):
        request = spb.ReserveRequest(ctx=serving.host.ctx("Demo", POD, f"c{turn}"), node_name="n0")
        assert calls.ask(reserve=request).WhichOneof("answer") == "reserve"


def test_a_call_that_fails_ends_the_stream_with_its_code(serving: Serving, calls: Calls) -> None:
    calls.send(filter=filter_request(serving.host, "broken"))
    assert calls.error() is grpc.StatusCode.INTERNAL
    assert calls.stream.details() == "Demo.filter raised RuntimeError: it broke"
    another = Calls(serving.host)
    assert another.ask(filter=filter_request(serving.host)).HasField("filter")
    another.close()


def test_a_message_without_a_call_is_invalid(calls: Calls) -> None:
    calls.send()
    assert calls.error() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_cancelled_stream_cancels_its_call_and_the_next_one_has_its_turn(
    serving: Serving, calls: Calls
) -> None:
    calls.send(filter=filter_request(serving.host, "slow"))
    assert Demo.entered.acquire(timeout=WAIT_S)
    calls.stream.cancel()
    another = Calls(serving.host)
    another.send(filter=filter_request(serving.host))
    Demo.out.set()
    assert next(another.stream).HasField("filter")
    another.close()


def test_a_stream_between_two_calls_does_not_hold_up_the_end(serving: Serving, calls: Calls) -> None:
    calls.ask(filter=filter_request(serving.host))
    begun_s = time.monotonic()
    assert serving.server.stop(WAIT_S)
    assert time.monotonic() - begun_s < WAIT_S / 2
    calls.send(filter=filter_request(serving.host))
    with pytest.raises((grpc.RpcError, StopIteration)):
        next(calls.stream)


def test_the_end_of_the_server_lets_the_call_of_a_stream_end(serving: Serving, calls: Calls) -> None:
    calls.send(filter=filter_request(serving.host, "slow"))
    assert Demo.entered.acquire(timeout=WAIT_S)
    with ThreadPoolExecutor(1) as threads:
        stopped: Future[bool] = threads.submit(serving.server.stop, WAIT_S)
        while not serving.server._streams._stopping:
            time.sleep(0.002)
        Demo.out.set()
        assert next(calls.stream).HasField("filter")
        assert stopped.result(WAIT_S)
    with pytest.raises(StopIteration):
        next(calls.stream)


class Cancelled:
    """As much of a context as a stream needs that comes too late."""

    def __init__(self) -> None:
        self.cancelled = False

    def add_callback(self, _callback: Any) -> bool:
        return True

    def cancel(self) -> None:
        self.cancelled = True


def test_a_stream_that_begins_while_the_server_stops_ends_at_once() -> None:
    streams, context = OpenStreams(), Cancelled()
    streams.stop()
    stream = _Stream(cast(grpc.ServicerContext, context))
    streams.add(stream)
    assert context.cancelled
    assert not streams.take_up(stream)
