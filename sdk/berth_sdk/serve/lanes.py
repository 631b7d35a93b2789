"""Lanes: which of a plugin's calls may run at the same time in the server, and on which thread.

The guarantee to authors, for each plugin:

- Plain `def` methods of the scheduling cycle and of the queue run one at a time.
- Plain `def` methods of the binding cycle run in up to `max_concurrency` threads.
- `async def` methods run on the one event-loop thread.
- A call that is cancelled before its turn does not run.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, Token
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")
_POLL_S: Final = 0.02
"""Seconds between two checks of a waiting call whether it was cancelled."""


_STOP_S: Final = 0.5
"""Seconds that a coroutine may take to end after its cancellation."""


class CallContext(Protocol):
    """The part of `grpc.ServicerContext` that lanes need."""

    def is_active(self) -> bool:
        """Return True until the call is answered, cancelled, or past its deadline."""
        ...

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Call `callback` when the call ends; return False if it has ended already."""
        ...


class CallCancelledError(Exception):
    """The error of a call whose caller no longer waits."""


class LaneFullError(Exception):
    """The error of a call that came while too many calls waited: it would take the last threads."""


class SchedulingLane:
    """A lane for one call at a time. While its holder waits for the host, the next call may enter.

    free -entered-> held -waiting_for_host-> free -answered-> held -> free. The next call is then the host's
    SimulateFilter for the PostFilter of this plugin.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def entered(self, context: CallContext) -> AbstractContextManager[None]:
        """Wait for a turn and keep it for the block. Raises CallCancelledError."""
        return _Turn(self._lock, context)


class _Turn:
    """The turn of one holder in a lane.

    Tasks and threads that the plugin started may pause the turn too, several at a time, and may outlive it.
    """

    __slots__ = ("_context", "_lock", "_mutex", "_over", "_pauses", "_token")

    def __init__(self, lock: threading.Lock, context: CallContext) -> None:
        self._lock = lock
        self._context = context
        self._mutex = threading.Lock()
        self._pauses = 0
        self._over = False
        self._token: Token[_Turn | None] | None = None

    def __enter__(self) -> None:
        _acquire(self._lock.acquire, self._context)
        self._token = _TURN.set(self)

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _TURN.reset(self._token)
        with self._mutex:
            self._over = True
            if self._pauses == 0:
                self._lock.release()

    def pause(self) -> None:
        with self._mutex:
            self._pauses += 1
            if self._pauses == 1 and not self._over:
                self._lock.release()

    def resume(self) -> None:
        with self._mutex:
            self._pauses -= 1
            if self._pauses == 0 and not self._over:
                self._lock.acquire()


# The turn of the running code; tasks and `asyncio.to_thread` inherit it.
_TURN: ContextVar[_Turn | None] = ContextVar("turn", default=None)


@contextmanager
def waiting_for_host() -> Iterator[None]:
    """Free the plugin's lane for the block, which is a call to the host."""
    turn = _TURN.get()
    if turn is None:
        yield
        return
    turn.pause()
    try:
        yield
    finally:
        turn.resume()


class BindingLane:
    """A lane for up to `limit` calls at a time."""

    def __init__(self, limit: int) -> None:
        self._turns = threading.BoundedSemaphore(limit)

    @contextmanager
    def entered(self, context: CallContext) -> Iterator[None]:
        """Wait for a turn and keep it for the block. Raises CallCancelledError."""
        _acquire(self._turns.acquire, context)
        try:
            yield
        finally:
            self._turns.release()


def _acquire(acquire: Callable[..., bool], context: CallContext) -> None:
    if acquire(blocking=False):
        return
    while not acquire(timeout=_POLL_S):
        if not context.is_active():
            raise CallCancelledError


class EventLoopThread:
    """The loop of all `async def` methods, in a thread that the first call starts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def wait_for(self, answer: Awaitable[T], context: CallContext) -> T:
        """Run `answer` and return its result. Raises CallCancelledError if the call ends before."""
        if not context.is_active():
            if isinstance(answer, Coroutine):
                answer.close()
            raise CallCancelledError
        future = asyncio.run_coroutine_threadsafe(_awaited(answer), self._running_loop())
        if not context.add_callback(lambda: _cancel(future)):
            future.cancel()
        try:
            return future.result()
        except CancelledError:
            raise CallCancelledError from None

    def stop(self) -> None:
        """Cancel all coroutines, and end the loop and its thread.

        If a coroutine does not end, the loop stays: its thread is a daemon.
        """
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        try:
            ended = asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result(2 * _STOP_S)
        except TimeoutError:
            ended = False
        if not ended:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="berth-async-plugins", daemon=True
                )
                self._thread.start()
            return self._loop


def _cancel(future: Future[Any]) -> None:
    future.cancel()


async def _awaited(answer: Awaitable[T]) -> T:
    try:
        return await answer
    except SystemExit as err:
        # SystemExit would end the loop, and all later calls would wait forever.
        raise RuntimeError(f"SystemExit: {err}") from err


async def _cancel_all() -> bool:
    """Cancel all tasks of the loop; return False if one does not end within _STOP_S."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    if not others:
        return True
    _, running = await asyncio.wait(others, timeout=_STOP_S)
    return not running
