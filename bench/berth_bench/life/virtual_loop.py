"""`VirtualLoop`: an asyncio event loop whose time moves only when nothing can run; `run` runs a life on it.

The time jumps to the next timer, so a life of days takes as long as its work. Nothing outside the loop
decides an order: there are no sockets, no signals and no other threads. Work for a thread is done on the
loop, after a delay that is drawn. Tasks and futures have a number as their hash, because a set of them would
otherwise be in the order of their addresses. Callbacks of a process (`processes`) wait while it is paused.
Connections are those of a `Network` in memory.
"""

from __future__ import annotations

import asyncio
import errno
import heapq
import itertools
import math
import random
import re
import socket
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any, Final, Protocol, TypeVar, TypeVarTuple

from berth_sdk.clocks import replaced

from berth_bench.life.processes import Process, current, end_coroutine, is_of, process_of

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
START_S: Final = 1_767_225_600.0
"""The Unix time at which each life begins: 2026-01-01T00:00:00Z."""
MOST_TURNS: Final = 200_000
"""Turns of the loop at one moment after which the work there counts as endless."""


class StuckError(Exception):
    """Nothing can run any more, although the life is not over: no task is ready, and there is no timer."""


class SpinningError(Exception):
    """Tasks wake each other without end, at one moment."""


class ForeignThreadError(Exception):
    """Another thread called the loop, so the order would depend on the machine."""


class VirtualFile(Protocol):
    """One end of a simulated connection, as a loop sees a socket."""

    @property
    def is_readable(self) -> bool:
        """True if a read returns at once: there are bytes, or the end."""
        ...

    @property
    def is_writable(self) -> bool:
        """True if there is room for bytes."""
        ...


class Network(Protocol):
    """The network between the processes of a life, in place of sockets."""

    async def connect(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        address: tuple[str, int],
        sock: socket.socket,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Open a connection to a server that listens; `sock` is its descriptor. Raises OSError."""
        ...


class NoNetwork:
    """A life without connections."""

    async def connect(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        address: tuple[str, int],
        sock: socket.socket,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Raise OSError."""
        raise ConnectionRefusedError(errno.ECONNREFUSED, "this life has no network")


class _NoSelector:
    """Stands where a loop waits for sockets. `advance`: moves the time to the next timer."""

    def __init__(self, advance: Callable[[float | None], None]) -> None:
        self._advance = advance

    def select(self, timeout_s: float | None) -> tuple[()]:
        self._advance(timeout_s)
        return ()


class _Future(asyncio.Future[T]):
    """A future with a number as its hash. `process`: the one that it belongs to."""

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self._number = number
        self.process = current()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class _Task(asyncio.Task[T]):
    """A task with a number as its hash. `process`: the one that it belongs to."""

    _log_destroy_pending: bool

    def __init__(self, number: int, main: Any, **more: Any) -> None:
        self._number = number
        self.process = process_of(more.get("context"))
        super().__init__(main, **more)

    def __hash__(self) -> int:
        return self._number


def _owner(task: asyncio.Task[Any]) -> Process | None:
    """Return the process of a task. From 3.12 on, aiohttp starts tasks that the loop does not make."""
    if isinstance(task, _Task):
        return task.process
    context_of = getattr(task, "get_context", None)
    return None if context_of is None else process_of(context_of())


def _order(task: asyncio.Task[Any]) -> tuple[bool, int, str]:
    """Return a key that sorts tasks by their creation: those of the loop first."""
    if isinstance(task, _Task):
        return False, hash(task), ""
    return True, len(task.get_name()), task.get_name()


class _Nothing(asyncio.Handle):
    """A callback that was taken off the loop."""

    def __init__(self) -> None:
        self._cancelled = True
        self._context = Context()


_NOTHING: Final = _Nothing()


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop. `chance` draws the delays of work for threads, up to `thread_s` seconds before and after it.

    `time()` begins at 0 seconds. `unhandled`: the errors of tasks and callbacks that nothing has
    read, without those of processes that were killed.
    """

    # Of asyncio's own loop, which its selector would use.
    _thread_id: int | None
    _stopping: bool
    _scheduled: list[asyncio.TimerHandle]
    _ready: deque[asyncio.Handle]
    _timer_cancelled_count: int
    _clock_resolution: float

    def __init__(self, chance: random.Random, thread_s: float = 0.0) -> None:
        super().__init__()
        self._chance = chance
        self._thread_delay_s = thread_s
        self._now_s = 0.0
        # asyncio calls a timer one resolution early. At a time that stands still, a task that waits again for
        # the rest would never see its end.
        self._clock_resolution = math.ulp(self._now_s)
        self._turns_now = 0
        self._numbers = itertools.count(1)
        self._selector = _NoSelector(self._advance)
        self._files: dict[int, tuple[VirtualFile, Context]] = {}
        self._readers: dict[int, Callable[[], object]] = {}
        self._writers: dict[int, Callable[[], object]] = {}
        self._looked_at_soon: set[int] = set()
        self._addresses: weakref.WeakKeyDictionary[socket.socket, tuple[str, int]] = (
            weakref.WeakKeyDictionary()
        )
        self.network: Network = NoNetwork()
        self.unhandled: list[str] = []
        self.at_kill: list[Callable[[Process], None]] = []
        """Called with each process that is killed, before its tasks end."""
        self.set_task_factory(self._new_task)

    def time(self) -> float:
        """Return the virtual seconds since the loop was made."""
        return self._now_s

    def timers(self) -> list[str]:
        """Return the callbacks of the timers that are set and not cancelled, in an order of their names."""
        return sorted(repr(timer) for timer in self._scheduled if not timer.cancelled())

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep an error that nothing has read."""
        source = context.get("task") or context.get("future")
        handle = context.get("handle")
        owner = getattr(source, "process", None)
        if source is None and handle is not None:
            owner = process_of(handle._context)
        if owner is None or not owner.is_dead:
            error = context.get("exception")
            # Without what differs between machines: a path, or an address.
            said = re.split(r"(?<=in callback) | <", str(context.get("message")))[0]
            self.unhandled.append(f"{said}: {type(error).__name__}: {error}" if error else said)

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future with a number as its hash."""
        return _Future(next(self._numbers), self)

    def run_in_executor(  # type: ignore[override]  # typeshed's own form of the same arguments
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Call `func` on the loop after a drawn delay, and set the result after another one.

        As with a thread, a cancellation keeps a call from its begin, and does not end one that has begun.
        """
        answer: asyncio.Future[T] = self.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(result)  # type: ignore[arg-type]  # without an error there is a result
            else:
                answer.set_exception(error)

        def work() -> None:
            if answer.cancelled():
                return
            result, error = None, None
            try:
                result = func(*args)
            except Exception as err:  # noqa: BLE001  # a future carries any error
                error = err
            self.call_later(self._drawn_s(), settle, result, error)

        self.call_later(self._drawn_s(), work)
        return answer

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call `callback` soon. Raises ForeignThreadError in another thread than the loop's."""
        if self._thread_id not in (None, threading.get_ident()):
            raise ForeignThreadError(
                f"thread {threading.current_thread().name} calls the virtual loop: let the loop run its work"
            )
        return self.call_soon(callback, *args, context=context)

    # --- simulated connections -------------------------------------------------------------------------

    def open_file(self, file: VirtualFile) -> int:
        """Return a new number under which `add_reader` and `add_writer` know a simulated connection.

        Its callbacks belong to the process that opens it.
        """
        number = next(self._numbers)
        self._files[number] = file, copy_context()
        return number

    def close_file(self, number: int) -> None:
        """Forget a simulated connection, and its callbacks."""
        for known in (self._files, self._readers, self._writers):
            known.pop(number, None)

    def file_changed(self, number: int) -> None:
        """Look soon whether the connection can be read or written now."""
        if number in self._files and number not in self._looked_at_soon:
            self._looked_at_soon.add(number)
            self.call_soon(self._look_at, number, context=self._files[number][1])

    def add_reader(self, fd: Any, callback: Callable[[*Ts], Any], *args: *Ts) -> None:
        """Call `callback` whenever the simulated connection can be read."""
        self._readers[fd] = lambda: callback(*args)
        self.file_changed(fd)

    def remove_reader(self, fd: Any) -> bool:
        """Remove the callback; return False if there was none."""
        return self._readers.pop(fd, None) is not None

    def add_writer(self, fd: Any, callback: Callable[[*Ts], Any], *args: *Ts) -> None:
        """Call `callback` whenever the simulated connection has room."""
        self._writers[fd] = lambda: callback(*args)
        self.file_changed(fd)

    def remove_writer(self, fd: Any) -> bool:
        """Remove the callback; return False if there was none."""
        return self._writers.pop(fd, None) is not None

    def _look_at(self, number: int) -> None:
        self._looked_at_soon.discard(number)
        if number not in self._files:
            return
        file, _ = self._files[number]
        for callbacks, is_ready in ((self._readers, file.is_readable), (self._writers, file.is_writable)):
            if is_ready and number in callbacks:
                callbacks[number]()
                self.file_changed(number)

    # --- processes ---------------------------------------------------------------------------------

    def pause(self, process: Process) -> None:
        """Let no callback of the process run until `resume`."""
        process.is_paused = True
        for handle in self._taken(process):
            process.keep(handle)

    def resume(self, process: Process) -> None:
        """Let the callbacks of the process run again, those first that waited."""
        process.is_paused = False
        held, process.held = process.held, []
        for handle in held:
            if handle.cancelled():
                continue
            if isinstance(handle, asyncio.TimerHandle):
                self._set(handle)
            else:
                self._ready.append(handle)

    def kill(self, process: Process) -> None:
        """End every task of the process where it is; nothing that they do at their end has an effect."""
        process.is_dead = True
        for told in self.at_kill:
            told(process)
        self._taken(process)
        # At their end, tasks may make others.
        while tasks := self._tasks_of(process):
            for task in tasks:
                setattr(task, "_log_destroy_pending", False)  # noqa: B010  # not of every type of task
                asyncio.tasks._unregister_task(task)
                end_coroutine(process, task.get_coro())  # type: ignore[arg-type]  # tasks are of coroutines
        process.go()

    def _tasks_of(self, process: Process) -> list[asyncio.Task[Any]]:
        """Return the tasks of a process that have not ended, in the order of their creation."""
        return sorted((task for task in asyncio.all_tasks(self) if _owner(task) is process), key=_order)

    def _taken(self, process: Process) -> list[asyncio.Handle]:
        """Take the callbacks of a process off the loop; return them, those that are due first."""
        due = [handle for handle in self._ready if is_of(process, handle)]
        later = sorted((timer for timer in self._scheduled if is_of(process, timer)), key=_when)
        if due:
            # The loop may be in the middle of its turn, for which it has counted the callbacks.
            self._ready = deque(_NOTHING if is_of(process, handle) else handle for handle in self._ready)
        if later:
            self._scheduled = [timer for timer in self._scheduled if not is_of(process, timer)]
            heapq.heapify(self._scheduled)
        for timer in later:
            # The loop counts the cancelled ones of the timers that it has.
            if timer.cancelled():
                self._timer_cancelled_count -= 1
            timer._scheduled = False  # type: ignore[attr-defined]
        return [*due, *(timer for timer in later if not timer.cancelled())]

    def _set(self, timer: asyncio.TimerHandle) -> None:
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True  # type: ignore[attr-defined]

    def _call_soon(self, callback: Any, args: Any, context: Context | None) -> asyncio.Handle:
        process = process_of(context)
        if process is None or process.runs:
            return super()._call_soon(callback, args, context)  # type: ignore[misc, no-any-return]
        handle = asyncio.Handle(callback, args, self, context)
        process.keep(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Set a timer, which belongs to the process of its context."""
        process = process_of(context)
        if process is None or process.runs:
            return super().call_at(when, callback, *args, context=context)
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        process.keep(timer)
        return timer

    # --- connections -------------------------------------------------------------------------------

    async def getaddrinfo(self, host: Any, port: Any, **more: Any) -> list[Any]:
        """Return the address of a name: there are no names but addresses."""
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Note the address for the `create_connection` that gets the socket."""
        self._addresses[sock] = address

    async def create_connection(  # type: ignore[override]  # typeshed has two forms of it
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        sock: socket.socket | None = None,
        **more: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Open a connection over `network`. The socket is only a descriptor, for its options."""
        if sock is None:
            assert host is not None and port is not None
            address = (host, port)
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        else:
            address = self._addresses[sock]
        try:
            return await self.network.connect(protocol_factory, address, sock)
        except BaseException:
            sock.close()
            raise

    def _drawn_s(self) -> float:
        return self._chance.uniform(0.0, self._thread_delay_s)

    def _new_task(
        self,
        loop: asyncio.AbstractEventLoop,
        main: Generator[Any, None, T] | Coroutine[Any, Any, T],
        **more: Any,
    ) -> asyncio.Task[T]:
        return _Task(next(self._numbers), main, loop=loop, **more)

    def _advance(self, timeout_s: float | None) -> None:
        """Move the time to the next timer, if nothing can run now. Raises StuckError and SpinningError.

        `timeout_s`: what the loop would wait for sockets. 0: something can run. None: no timer is set.
        """
        if timeout_s is None:
            if not self._stopping:
                raise StuckError("no task can run and no timer is set: something waits for ever")
            return
        if timeout_s <= 0:
            self._turns_now += 1
            if self._turns_now > MOST_TURNS:
                self._turns_now = 0  # what the error cancels needs turns, too
                raise SpinningError(f"{MOST_TURNS} turns of the loop at {self._now_s:.6f} s, and no end")
            return
        self._turns_now = 0
        # The loop waits a day at most, and the head of its heap is a timer that is still wanted.
        self._now_s = max(self._now_s, min(self._scheduled[0].when(), self._now_s + timeout_s))
        self._clock_resolution = math.ulp(self._now_s)

    def _process_events(self, events: Any) -> None:
        """Do nothing: no socket has news."""

    def _write_to_self(self) -> None:
        """Do nothing: no other thread waits for the loop."""


def _when(timer: asyncio.TimerHandle) -> float:
    return timer.when()


class VirtualClocks:
    """The clocks of a life, for the host (`Clock`), and for all that reads `berth_sdk.clocks`.

    The wall clock is that of the process that reads it.

    `work_step_s`: the seconds that each look at a clock of work finds to have passed since the last one, so
    that long work is divided into slices, in the same way on every machine. `loop`: the loop.
    """

    def __init__(self, loop: VirtualLoop, work_step_s: float) -> None:
        self.loop = loop
        self._work_step_s = work_step_s
        self._work_s = 0.0

    def now_s(self) -> float:
        """Return the time in Unix seconds, as the process reads it."""
        return self.wall_s()

    def wall_s(self) -> float:
        """Return the time in Unix seconds, as the process reads it."""
        now_s = self.loop.time()
        process = current()
        return START_S + now_s + (0.0 if process is None else process.skew_s + process.drift * now_s)

    def monotonic_s(self) -> float:
        """Return the loop's time."""
        return self.loop.time()

    def call_at(self, when_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Set a timer of the loop."""
        return self.loop.call_at(when_s, callback)

    def work_s(self) -> float:
        """Return seconds of work, one step more than before."""
        self._work_s += self._work_step_s
        return self._work_s

    def thread_s(self) -> float:
        """Return seconds of work, one step more than before."""
        return self.work_s()


class ProcessClock:
    """The `Clock` of a process, whose monotonic time drifts from the loop's."""

    def __init__(self, clocks: VirtualClocks, drift: float) -> None:
        self._clocks = clocks
        self._rate = 1 + drift

    def now_s(self) -> float:
        """Return the time in Unix seconds, as the process reads it."""
        return self._clocks.wall_s()

    def monotonic_s(self) -> float:
        """Return seconds of the process."""
        return self._clocks.monotonic_s() * self._rate

    def call_at(self, when_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Set a timer of the loop for the time when the process reads `when_s`."""
        # Rounded up: at that time, the process must read no less than `when_s`.
        loops_s = math.nextafter(math.nextafter(when_s / self._rate, math.inf), math.inf)
        return self._clocks.call_at(loops_s, callback)


def run(
    main: Callable[[VirtualClocks], Coroutine[Any, Any, T]],
    chance: random.Random,
    *,
    thread_s: float = 0.0,
    work_step_s: float = 0.0,
) -> T:
    """Run `main` on a new virtual loop, on whose clocks the whole process runs meanwhile.

    Raises what `main` raises, StuckError and SpinningError.
    """
    loop = VirtualLoop(chance, thread_s)
    clocks = VirtualClocks(loop, work_step_s)
    with replaced(clocks), asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main(clocks))
