"""`Refresher`: a value that a plugin reads from outside, in the background.

A call of the scheduling cycle must not wait for a server. So a thread reads the value every few seconds, and
the call takes the last one, if it is not too old.

    def __init__(self, args, handle):
        super().__init__(args, handle)
        self.load = Refresher(lambda: fetch(args["url"]), every_s=5, limit_s=60)

    def score(self, state, pod, node):
        load = self.load.value  # None: there is no value, or it is older than 60 s
        return 0 if load is None else 100 - load.get(node.name, 100)
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, Generic, TypeVar

from berth_sdk.clocks import monotonic_s
from berth_sdk.errors import HandleError

T = TypeVar("T")
LOG: Final = logging.getLogger(__name__)
CLOSE_S: Final = 1.0
"""Seconds that `close` waits for a read under way."""


_MADE: Final[ContextVar[list[Refresher[Any]] | None]] = ContextVar("made", default=None)
"""The Refreshers made in `closed_on_error`; None outside of it."""


@contextmanager
def closed_on_error() -> Iterator[None]:
    """Close the Refreshers that are made in the block if it raises, as for wrong arguments of a plugin."""
    made: list[Refresher[Any]] = []
    before = _MADE.set(made)
    try:
        yield
    except BaseException:
        for refresher in made:
            refresher.close()
        raise
    finally:
        _MADE.reset(before)


class Refresher(Generic[T]):
    """A value from outside, and its age. Any thread may read it.

    A thread calls `read` at once, and again `every_s` seconds after each call has ended. A call that raises
    leaves the value as it is, and the value grows older. The first of several failures is logged.

    The SDK closes a Refresher that is an attribute of the plugin, after the plugin's own `close`. The author
    closes any other one in `close`. A class whose answers follow from the value declares
    `depends_on = DependsOn.OTHER`, so that no answer is kept.
    """

    def __init__(
        self,
        read: Callable[[], T],
        *,
        every_s: float,
        limit_s: float,
        changed: Callable[[], object] | None = None,
        clock: Callable[[], float] = monotonic_s,
    ) -> None:
        """`read`: returns the value; it must end by itself, so give its request a timeout. `limit_s`: the age
        in seconds from which the value is not used. Values that cannot be compared, as arrays, count as
        changed.

        `changed`: called on the reading thread after a read that changes `value`, also from None, such as
        `lambda: handle.requeue(reason="the server has seats")`. Its HandleError has no effect: a host that
        comes back tries the pods again. `clock`: seconds, for tests. Raises ValueError for times that are not
        above 0.
        """
        if every_s <= 0 or limit_s <= 0:
            raise ValueError(f"every_s is {every_s:g} and limit_s is {limit_s:g}: both must be above 0")
        self._ask = read
        self._every_s = every_s
        self._limit_s = limit_s
        self._changed = changed
        self._clock = clock
        self._last: tuple[T, float] | None = None
        self._error: Exception | None = None
        self._turn = threading.Lock()  # held during a read
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="berth-refresher", daemon=True)
        made = _MADE.get()
        if made is not None:
            made.append(self)
        self._thread.start()

    @property
    def value(self) -> T | None:
        """The value of the last good read. None: there is none yet, or it is older than the limit."""
        last = self._last
        return None if last is None or self._clock() - last[1] > self._limit_s else last[0]

    @property
    def age_s(self) -> float | None:
        """Seconds since the begin of the last good read, also over the limit. None: there is none yet."""
        last = self._last
        return None if last is None else self._clock() - last[1]

    @property
    def error(self) -> Exception | None:
        """The exception of the last read. None: the read succeeded, or there was none yet."""
        return self._error

    @property
    def is_closed(self) -> bool:
        """True after `close`: no further read begins."""
        return self._ended.is_set()

    def refresh(self) -> T | None:
        """Read now, on this thread, and return `value`. For tests, and where a plugin knows of a change.

        Waits for a read that is under way. Reads nothing after `close`. Not for calls of the scheduling
        cycle, which would wait for the server.
        """
        with self._turn:
            is_new = not self._ended.is_set() and self._read_once()
        if is_new and self._changed is not None:
            with suppress(HandleError):
                self._changed()
        return self.value

    def close(self) -> None:
        """Begin no further read, and wait up to CLOSE_S for one that is under way. Has no effect the second
        time.
        """
        self._ended.set()
        if self._thread is not threading.current_thread():
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self.refresh()
            except Exception:
                LOG.exception("the call of `changed` failed")
            self._ended.wait(self._every_s)

    def _read_once(self) -> bool:
        """Return True if `value` differs from before."""
        # The value is at least as old as the begin of the read.
        before, begun_s = self.value, self._clock()
        try:
            value = self._ask()
        except Exception as err:  # noqa: BLE001  # the author's code may raise anything
            if self._error is None:
                LOG.warning("a value from outside cannot be read: %s: %s", type(err).__name__, err)
            self._error = err
            return False
        if self._error is not None:
            LOG.info("a value from outside can be read again")
        self._last, self._error = (value, begun_s), None
        try:
            return before is None or bool(before != value)
        except Exception:  # noqa: BLE001  # such as two arrays of numpy, whose comparison is an array
            return True
