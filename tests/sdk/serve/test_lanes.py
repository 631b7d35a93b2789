"""Which calls run at the same time: one per plugin in the scheduling cycle, several in the binding cycle."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest
from berth_sdk.serve.lanes import (
    BindingLane,
    CallCancelledError,
    EventLoopThread,
    SchedulingLane,
    waiting_for_host,
)
from support.waiting import PATIENCE_S

WAIT_S = PATIENCE_S


class Call:
    """A call's context: active until it is ended."""

    def __init__(self) -> None:
        self._active = True
        self._callbacks: list[Callable[[], None]] = []

    def is_active(self) -> bool:
        return self._active

    def add_callback(self, callback: Callable[[], None]) -> bool:
        if self._active:
            self._callbacks.append(callback)
        return self._active

    def end(self) -> None:
        self._active = False
        for callback in self._callbacks:
            callback()


class Background:
    """A function on a thread; `result` raises what it raised."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._error: BaseException | None = None
        self._function = function
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._function()
        except BaseException as err:  # noqa: BLE001 (handed to the test)
            self._error = err

    def join(self) -> None:
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive()
        if self._error is not None:
            raise self._error


def test_the_next_call_waits_for_the_one_before() -> None:
    lane = SchedulingLane()
    inside: list[str] = []
    with lane.entered(Call()):
        second = Background(lambda: _note(lane, inside, "second"))
        inside.append("first")
    second.join()
    assert inside == ["first", "second"]


def _note(lane: SchedulingLane, inside: list[str], word: str) -> None:
    with lane.entered(Call()):
        inside.append(word)


def test_a_call_that_was_cancelled_while_it_waited_is_not_executed() -> None:
    lane = SchedulingLane()
    inside: list[str] = []
    call = Call()

    def enter() -> None:
        with lane.entered(call):
            inside.append("cancelled")

    with lane.entered(Call()):
        waiting = Background(enter)
        call.end()
        with pytest.raises(CallCancelledError):
            waiting.join()
    assert inside == []


def test_while_a_call_waits_for_the_host_the_next_one_is_let_in() -> None:
    lane = SchedulingLane()
    inside: list[str] = []
    with lane.entered(Call()):
        with waiting_for_host():
            Background(lambda: _note(lane, inside, "simulate")).join()
        other = Background(lambda: _note(lane, inside, "later"))
        inside.append("first again")
    other.join()
    assert inside == ["simulate", "first again", "later"]


def test_outside_of_a_call_nothing_is_paused() -> None:
    lane = SchedulingLane()
    with lane.entered(Call()):
        done = threading.Event()

        def unrelated() -> None:
            with waiting_for_host():
                done.set()

        Background(unrelated).join()
        assert done.is_set()
        late = Background(lambda: _note(lane, [], "late"))
        assert late.thread.is_alive()
    late.join()


def test_a_task_that_outlives_its_call_cannot_open_the_lane_of_another() -> None:
    lane = SchedulingLane()
    loop = EventLoopThread()
    go = threading.Event()
    paused = threading.Event()

    async def outlive() -> None:
        await asyncio.to_thread(go.wait, WAIT_S)
        await asyncio.to_thread(pause)

    def pause() -> None:
        with waiting_for_host():
            paused.set()

    tasks: list[asyncio.Task[None]] = []

    async def start() -> None:
        tasks.append(asyncio.create_task(outlive()))

    with lane.entered(Call()):
        loop.wait_for(start(), Call())
    inside: list[str] = []
    with lane.entered(Call()):
        go.set()
        assert paused.wait(WAIT_S)
        other = Background(lambda: _note(lane, inside, "other"))
        inside.append("holder")
    other.join()
    loop.stop()
    assert inside == ["holder", "other"]


def test_binding_calls_run_beside_each_other_up_to_the_limit() -> None:
    lane = BindingLane(2)
    both_in = threading.Barrier(2)
    order: list[str] = []

    def bind(word: str) -> Callable[[], None]:
        def run() -> None:
            with lane.entered(Call()):
                both_in.wait(WAIT_S)
                order.append(word)

        return run

    calls = [Background(bind("first")), Background(bind("second"))]
    for call in calls:
        call.join()
    with lane.entered(Call()), lane.entered(Call()):
        third = Call()
        waiting = Background(lambda: lane.entered(third).__enter__())
        third.end()
        with pytest.raises(CallCancelledError):
            waiting.join()
    assert sorted(order) == ["first", "second"]


# --- async def -------------------------------------------------------------------------------------


@pytest.fixture
def loop() -> Iterator[EventLoopThread]:
    thread = EventLoopThread()
    yield thread
    thread.stop()


def test_coroutines_run_on_one_thread(loop: EventLoopThread) -> None:
    async def where() -> str:
        return threading.current_thread().name

    assert {loop.wait_for(where(), Call()) for _ in range(3)} == {"berth-async-plugins"}


def test_exception_of_a_coroutine_passes_through(loop: EventLoopThread) -> None:
    async def broken() -> None:
        raise LookupError("no price list")

    with pytest.raises(LookupError, match="no price list"):
        loop.wait_for(broken(), Call())


def test_a_coroutine_that_exits_does_not_end_the_loop(loop: EventLoopThread) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    async def stay() -> str:
        return "here"

    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        loop.wait_for(leave(), Call())
    assert loop.wait_for(stay(), Call()) == "here"


def test_a_coroutine_is_cancelled_with_its_call(loop: EventLoopThread) -> None:
    started, cancelled = threading.Event(), threading.Event()

    async def hang() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    call = Call()
    waiting = Background(lambda: loop.wait_for(hang(), call))
    assert started.wait(WAIT_S)
    call.end()
    with pytest.raises(CallCancelledError):
        waiting.join()
    assert cancelled.wait(WAIT_S)


def test_a_coroutine_of_a_call_that_is_over_does_not_start(loop: EventLoopThread) -> None:
    ran = threading.Event()

    async def run() -> None:
        ran.set()

    call = Call()
    call.end()
    with pytest.raises(CallCancelledError):
        loop.wait_for(run(), call)
    assert not ran.is_set()


def test_stopping_cancels_what_still_runs() -> None:
    thread = EventLoopThread()
    cancelled = threading.Event()
    started = threading.Event()

    async def hang() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    waiting = Background(lambda: thread.wait_for(hang(), Call()))
    assert started.wait(WAIT_S)
    thread.stop()
    with pytest.raises(CallCancelledError):
        waiting.join()
    assert cancelled.is_set()


@pytest.mark.slow
@pytest.mark.parametrize("blocks_loop", [False, True])
def test_stopping_does_not_wait_for_a_coroutine_that_will_not_end(blocks_loop: bool) -> None:
    thread = EventLoopThread()
    started, let_go = threading.Event(), threading.Event()

    async def stubborn() -> None:
        started.set()
        if blocks_loop:
            let_go.wait(WAIT_S)
        while not let_go.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    waiting = Background(lambda: thread.wait_for(stubborn(), Call()))
    assert started.wait(WAIT_S)
    thread.stop()
    let_go.set()
    waiting.join()


def test_a_thread_that_never_ran_stops_at_once() -> None:
    EventLoopThread().stop()
