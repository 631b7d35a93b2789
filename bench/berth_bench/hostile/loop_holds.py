"""Measure how long one step holds an event loop: its CPU time from when the loop runs a callback until that
returns.

    python -m berth_bench.hostile.loop_holds FILE scheduler --config ...    writes the longest step to FILE

The loop is asyncio's own, whose callbacks all pass through `asyncio.Handle`; uvloop's do not. CPU time of the
loop's thread is measured, so that other work on the machine does not count.
"""

from __future__ import annotations

import asyncio
import mmap
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

_LAYOUT: Final = struct.Struct("<dH")
_NAME_BYTES: Final = 200
_BYTES: Final = _LAYOUT.size + _NAME_BYTES


class LoopHolds:
    """The longest step of a loop since the last `reset`, in a file that two processes may share."""

    def __init__(self, path: Path) -> None:
        """Open the file, and make it if it does not exist."""
        with path.open("ab") as file:
            file.truncate(_BYTES)
        self._is_left_out = False
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _BYTES)

    def reset(self) -> None:
        """Forget the longest step."""
        self._memory[:] = bytes(_BYTES)

    def leave_out_step(self) -> None:
        """Do not count the step that runs now: it does something else than a scheduler does."""
        self._is_left_out = True

    def longest(self) -> tuple[float, str]:
        """Return the CPU seconds of the longest step, and the name of its callback."""
        seconds, length = _LAYOUT.unpack_from(self._memory)
        return seconds, self._memory[_LAYOUT.size : _LAYOUT.size + length].decode(errors="replace")

    def close(self) -> None:
        """Close the file."""
        self._memory.close()

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure every step of the loops of this process within the block."""
        run: Callable[[asyncio.Handle], None] = asyncio.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            began_s = time.thread_time()
            try:
                run(handle)
            finally:
                if self._is_left_out:
                    self._is_left_out = False
                else:
                    self._took(time.thread_time() - began_s, handle)

        vars_of = cast(Any, asyncio.Handle)
        vars_of._run = timed
        try:
            yield
        finally:
            vars_of._run = run

    def _took(self, seconds: float, handle: asyncio.Handle) -> None:
        if self._memory.closed or seconds <= _LAYOUT.unpack_from(self._memory)[0]:
            return
        name = _name(getattr(handle, "_callback", None)).encode()[:_NAME_BYTES]
        self._memory[: _LAYOUT.size + len(name)] = _LAYOUT.pack(seconds, len(name)) + name


def _name(callback: Any) -> str:
    """Return the name of a callback; of a task's step that of its coroutine."""
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        coroutine = task.get_coro()
        return str(getattr(coroutine, "__qualname__", coroutine))
    return str(getattr(callback, "__qualname__", callback))


def main() -> None:
    """Run `berth` with the arguments after the first one, which is the file. Does not return."""
    # berth's own loop is asyncio's where this import fails.
    sys.modules["uvloop"] = cast(Any, None)
    from berth_host import run

    with LoopHolds(Path(sys.argv[1])).measured():
        run(arguments=sys.argv[2:])


if __name__ == "__main__":
    main()
