"""`AnswerWait`: waits for one answer on its socket, without a turn of the event loop.

A turn of the loop between a request and its answer costs a wake-up, a timer for the deadline and the switch
of tasks, and other work runs before the pod goes on. But nothing else runs during such a wait. So three
limits hold (docs/decisions.md): 1.5 times the usual time of this call's answers, no wait after a late answer,
and a fifth of every second for all waits (`WaitShare`). A plugin that needs the host for its answer is late,
and the host hardly ever waits for it. Used by `FramedConnection`.
"""

from __future__ import annotations

import math
import select
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, Protocol, TypeAlias

from berth_sdk.clocks import work_s

LONGEST_S: Final = 0.005
"""The longest single wait, in seconds."""
OF_USUAL: Final = 1.5
"""The wait as a multiple of the usual answer time."""
_SHARE: Final = 1 / 8
_BURST_S: Final = 0.01
_PER_SECOND: Final = 0.19
"""With the burst, a fifth of any second."""
_MOST_SKIPPED: Final = 64
_SELECTABLE: Final = 1024
"""`select` takes descriptors below this number (FD_SETSIZE)."""


class Stream(Protocol):
    """The host's end of a framed connection: the part of a socket that does not block."""

    def send(self, data: memoryview, /) -> int:
        """Send as many bytes as there is room for; return their number. Raises OSError."""
        ...

    def recv(self, most_bytes: int, /) -> bytes:
        """Return what is there; nothing at the end. Raises OSError."""
        ...

    def fileno(self) -> int:
        """Return the number under which the event loop knows it."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


Readable: TypeAlias = Callable[[Stream, float], bool]
"""(socket, seconds) -> True once the socket can be read, False after that time."""
HAS_OTHER_WORK: Final[ContextVar[bool]] = ContextVar("HAS_OTHER_WORK", default=False)
"""True in a task whose cycle has other work to do during the call: the loop must turn."""


class WaitShare:
    """The time that all waits of one loop may take: at most a fifth of any second.

    The share grows by 0.19 seconds per second, up to 0.01 seconds.
    """

    __slots__ = ("_at_s", "_left_s", "clock")

    def __init__(self, clock: Callable[[], float] = work_s) -> None:
        self.clock = clock
        self._left_s = _BURST_S
        self._at_s = clock()

    def left_s(self, now_s: float) -> float:
        """Return the seconds that a wait which begins now may take; 0 or less: none."""
        self._left_s = min(self._left_s + _PER_SECOND * (now_s - self._at_s), _BURST_S)
        self._at_s = now_s
        return self._left_s

    def take(self, waited_s: float) -> None:
        """Record that a wait took `waited_s` seconds."""
        self._left_s -= waited_s


LOOP_SHARE: Final = WaitShare()
"""The share of the process, which has one loop."""


class _Usual:
    """The answers to one call so far. `usual_s`: their average time."""

    __slots__ = ("pause", "skip", "usual_s")

    def __init__(self) -> None:
        self.usual_s = 0.0
        self.skip = 0
        """The number of next calls without a wait."""
        self.pause = 1
        """The calls without a wait after the next late answer: twice as many after each late answer."""


class AnswerWait:
    """The waits of one connection, for one call at a time: `begin`, `at`, then `end`."""

    __slots__ = ("_began_s", "_by_call", "_readable", "_share", "_usual")

    def __init__(self, share: WaitShare | None = None, readable: Readable | None = None) -> None:
        """`share`: what the waits of all connections take together; None: that of the process.
        `readable`: waits until a socket can be read; None: `is_readable`.
        """
        self._share = share or LOOP_SHARE
        self._readable = readable or is_readable
        self._by_call: dict[int, _Usual] = {}
        self._usual = _Usual()
        self._began_s = 0.0

    def begin(self, call: int) -> None:
        """Begin the call with this number: its request is about to be sent."""
        usual = self._by_call.get(call)
        if usual is None:
            usual = self._by_call[call] = _Usual()
        self._usual = usual
        self._began_s = self._share.clock()

    def at(self, sock: Stream, deadline_s: float, receive: Callable[[], bool]) -> None:
        """Wait for the answer at its socket, if that is likely to be worth it, for `deadline_s` at most.

        `receive`: reads what is there, and returns True if the call has its answer or has failed.
        """
        left_s = limit_s = min(self.limit_s(), deadline_s)
        if limit_s <= 0.0:
            return
        began_s, came = self._now(), False
        while not came and left_s > 0.0 and self._readable(sock, left_s):
            came = receive()
            left_s = limit_s - (self._now() - began_s)
        self.waited(self._now() - began_s, came=came)

    def limit_s(self) -> float:
        """Return how many seconds to wait for the answer; 0: do not wait."""
        usual = self._usual
        if usual.skip:
            usual.skip -= 1
            return 0.0
        limit_s = OF_USUAL * usual.usual_s
        if not 0.0 < limit_s <= LONGEST_S or HAS_OTHER_WORK.get():
            return 0.0
        # A wait with less time than usual would end in vain nearly always.
        return limit_s if self._share.left_s(self._now()) >= limit_s else 0.0

    def waited(self, waited_s: float, *, came: bool) -> None:
        """Record a wait of `waited_s` seconds. `came` False: the answer is late."""
        self._share.take(waited_s)
        usual = self._usual
        if came:
            usual.pause = max(usual.pause // 2, 1)
        else:
            usual.skip = usual.pause
            usual.pause = min(2 * usual.pause, _MOST_SKIPPED)

    def end(self) -> None:
        """Take the time of the answer into the average, whichever way the answer came."""
        usual, took_s = self._usual, self._now() - self._began_s
        if usual.usual_s and took_s > OF_USUAL * usual.usual_s:
            usual.skip = max(usual.skip, 1)
        # The limit keeps one very long answer from dominating the average.
        took_s = min(took_s, 2 * LONGEST_S)
        usual.usual_s += (_SHARE if usual.usual_s else 1.0) * (took_s - usual.usual_s)

    def _now(self) -> float:
        return self._share.clock()


def is_readable(sock: Stream, within_s: float) -> bool:
    """Wait until the socket can be read, for `within_s` seconds at most; return False if it cannot."""
    number = sock.fileno()
    if number < _SELECTABLE:
        return bool(select.select((number,), (), (), within_s)[0])
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return bool(poll.poll(math.floor(within_s * 1000)))
