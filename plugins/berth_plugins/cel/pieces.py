"""`in_pieces`: a plain function whose work is done in pieces, wherever in its calls a piece ends.

One evaluation may take half a second, and the search for devices as long as its timeout allows. Both are
nested functions, which a generator in every place would slow down. So they count their work (`count`). A
function that fits in one piece runs as any other. A longer one is begun again in a thread of its own. That
thread runs only while the caller waits for the next piece: nothing runs at the same time as something else.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar, cast

from berth_sdk.slices import Work

T = TypeVar("T")
PIECE: Final = 4_000
"""The work of one piece: cost and steps of evaluations, about 2 ms."""
# The elements of a list that are counted together.
_FEW: Final = 256
# The frames that the deepest tree needs which the parser lets through: 250 levels of each rule, about ten
# calls in each, and as much again for the caller.
_DEEPEST: Final = 12_000


class _TooLongError(BaseException):
    """The function does not fit in one piece."""


class _AbandonedError(BaseException):
    """Raised in a function whose caller no longer waits. A BaseException, so that the function's own handlers
    do not catch it.
    """


class _Here(threading.local):
    """The work of this thread. `ends`: called at the end of a piece; None: the work is not divided."""

    left = 0
    ends: Callable[[], None] | None = None
    is_apart = False


_here: Final = _Here()


def count(work: int) -> None:
    """Count work that was done or is about to be done. Others get their turn when a piece is over."""
    if _here.ends is not None:
        _here.left -= work
        if _here.left < 0:
            _here.left = PIECE
            _here.ends()


def each(values: Iterable[T], length: int) -> Iterable[T]:
    """Return the values of a list of this length, and count them while they are gone through."""
    return values if length <= _FEW else _counted(values)


def _counted(values: Iterable[T]) -> Iterator[T]:
    for i, one in enumerate(values):
        if not i % _FEW:
            count(_FEW)
        yield one


def in_pieces(function: Callable[[], T]) -> Work[T]:
    """Call a function, and return its result. Raises what the function raises.

    The function may be begun twice: it changes nothing that its second run would see, other than caches.
    """
    try:
        return _in_one_piece(function)
    except _TooLongError:
        pass
    yield
    return (yield from _Apart(function).pieces())


def _too_long() -> None:
    raise _TooLongError


def _in_one_piece(function: Callable[[], T]) -> T:
    """Call a function. Raises _TooLongError."""
    before = _here.ends, _here.left
    _here.ends, _here.left = _too_long, PIECE
    try:
        return function()
    finally:
        _here.ends, _here.left = before


class _Apart(Generic[T]):
    """A function in a thread of its own, and the two signals by which thread and caller take turns."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._resumed = threading.Semaphore(0)
        self._paused = threading.Semaphore(0)
        self._is_over = False
        self._is_abandoned = False
        self._result: T | None = None
        self._error: BaseException | None = None

    def pieces(self) -> Work[T]:
        """Return the function's result, after yielding at the end of each piece but the last."""
        thread = threading.Thread(target=self._run, name="berth-pieces", daemon=True)
        with deep_stack():
            thread.start()
            self._paused.acquire()
        try:
            while not self._is_over:
                yield
                with deep_stack():
                    self._resumed.release()
                    self._paused.acquire()
        finally:
            if not self._is_over:
                self._is_abandoned = True
                self._resumed.release()
            thread.join()
        if self._error is not None:
            raise self._error
        return cast(T, self._result)

    def _run(self) -> None:
        _here.ends, _here.left, _here.is_apart = self._wait, PIECE, True
        try:
            self._result = self._function()
        except _AbandonedError:
            pass
        except BaseException as err:  # noqa: BLE001 - raised again where the caller waits
            self._error = err
        finally:
            self._is_over = True
            self._paused.release()

    def _wait(self) -> None:
        self._paused.release()
        self._resumed.acquire()
        if self._is_abandoned:
            raise _AbandonedError


class _Deep:
    """The functions that run now, in all threads, and the limit of recursion before the first of them."""

    lock = threading.Lock()
    count = 0
    before = 0


@contextmanager
def deep_stack() -> Iterator[None]:
    """Let deep expressions recurse. The calls are Python's own, which take no space on the stack of C.

    The limit belongs to the whole process: the last of several threads puts it back. For a function in a
    thread of its own, the caller does this, and only while it waits.
    """
    if _here.is_apart:
        yield
        return
    with _Deep.lock:
        if _Deep.count == 0:
            _Deep.before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_Deep.before, _DEEPEST))
        _Deep.count += 1
    try:
        yield
    finally:
        with _Deep.lock:
            _Deep.count -= 1
            if _Deep.count == 0:
                sys.setrecursionlimit(_Deep.before)
