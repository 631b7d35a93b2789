"""`in_slices`: long work of a plain method, in slices, between which the event loop serves others.

A pod, a node or a claim may list tens of thousands of conditions. A method that goes through such a list is
written as a generator that yields after each piece, and returns its answer:

    def filter_nodes(self, state, pod, nodes):
        return in_slices(self._judged(pod, nodes))

    def _judged(self, pod, nodes):
        verdicts = Verdicts.feasible(len(nodes))
        for condition in conditions_of(pod):
            verdicts = verdicts.otherwise(~condition.over(nodes), REASON)
            yield
        return verdicts

Work that ends within one slice is answered at once, as by any plain method. Longer work is answered with
`Slices`, which the host awaits. The deadline of a call stands still meanwhile: as for other plain methods, an
overrun is reported and nothing is cut off.

Between two slices, other methods of the same plugin may run (hints, questions), so a piece of work leaves
everything that methods share whole. The snapshot of the cycle does not change.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from berth_sdk.clocks import work_s

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
SLICE_S: Final = 0.02
"""Seconds of work after which others get their turn. A slice may take longer by `PIECES`."""
PIECES: Final = 16
"""The number of pieces between two looks at the clock. Work of so few pieces is never divided."""
_PIECES: Final = range(PIECES)
Work: TypeAlias = Generator[None, None, T]
"""Work that yields after each piece and returns its result."""
DEADLINE: Final[ContextVar[asyncio.Timeout | None]] = ContextVar("berth_deadline", default=None)
"""The deadline of the call that is being awaited; None: the call has none."""
_WORKS: Final[ContextVar[bool]] = ContextVar("berth_works", default=False)


def in_slices(
    work: Work[T], *, slice_s: float = SLICE_S, clock: Callable[[], float] = work_s
) -> T | Slices[T]:
    """Do the work for one slice. Return its result, or an awaitable of it that does the rest in slices.

    `clock`: seconds, of any start. Raises what the work raises.
    """
    try:
        _do_pieces(work)
        _do_slice(work, slice_s, clock)
    except StopIteration as end:
        result: T = end.value
        return result
    return Slices(work, slice_s, clock)


def _do_pieces(work: Work[Any]) -> None:
    for _ in _PIECES:
        next(work)


def _do_slice(work: Work[Any], slice_s: float, clock: Callable[[], float]) -> None:
    """Do the work of one slice. Raises StopIteration at the end of the work."""
    ends_s = clock() + slice_s
    _do_pieces(work)
    while clock() < ends_s:
        _do_pieces(work)


def at_once(work: Work[T]) -> T:
    """Do all of the work now and return its result. Raises what the work raises."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


async def done_in_slices(work: Work[T]) -> T:
    """Do the work in slices, for an `async def`, and return its result. Raises what the work raises."""
    answer = in_slices(work)
    return await answer if isinstance(answer, Slices) else answer


def works_in_slices() -> bool:
    """Return True while the current task awaits `Slices`."""
    return _WORKS.get()


@asynccontextmanager
async def without_deadline() -> AsyncIterator[None]:
    """Let the deadline of the call that is being awaited stand still for the block, in which the host works
    for the call and gives way to other tasks.
    """
    from asyncio import sleep

    await sleep(0)  # a call gets its deadline at its first wait
    deadline = DEADLINE.get()
    due_s = None if deadline is None else deadline.when()
    if deadline is None or due_s is None:
        yield
        return
    began_s = work_s()
    deadline.reschedule(None)
    try:
        yield
    finally:
        deadline.reschedule(due_s + work_s() - began_s)


class Slices(Awaitable[T]):
    """The rest of some work. Await it once; every wait but the last is one turn of the event loop."""

    __slots__ = ("_clock", "_slice_s", "_work")

    def __init__(self, work: Work[T], slice_s: float, clock: Callable[[], float]) -> None:
        self._work = work
        self._slice_s = slice_s
        self._clock = clock

    def __await__(self) -> Generator[Any, Any, T]:
        """Do the rest of the work. Raises what the work raises."""
        # Whoever imports the SDK without a loop does not wait for the import of asyncio.
        from asyncio import sleep

        began_s = work_s()
        _WORKS.set(True)
        due_s: float | None = None
        try:
            while True:
                deadline = DEADLINE.get()
                if deadline is not None and (when := deadline.when()) is not None:
                    due_s = when
                    deadline.reschedule(None)
                yield from sleep(0).__await__()
                _do_slice(self._work, self._slice_s, self._clock)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            self._work.close()
            _WORKS.set(False)
            deadline = DEADLINE.get()
            if due_s is not None and deadline is not None:
                deadline.reschedule(due_s + work_s() - began_s)
