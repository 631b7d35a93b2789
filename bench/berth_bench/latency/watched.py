"""Runs `berth`, and writes to a file when its loop pauses and when Python collects garbage.

    python -m berth_bench.latency.watched FILE scheduler --config ...

A pulse on the scheduler's own loop asks every PULSE_S to be called again, and a pause is how much later than
that it was called. Its CPU time is that of the loop's thread meanwhile: the rest are other processes. A line
is written for each pause of at least NOTED_S, and for each full collection and each collection that takes as
long; the last line that ends is complete, so that another process may read the file at any time.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Final

import orjson

PULSE_S: Final = 0.01
NOTED_S: Final = 0.02
_FULL: Final = 2


class Watch:
    """The pulse of one loop, and the collections of its process."""

    def __init__(self, file: IO[bytes], clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: monotonic seconds."""
        self._file = file
        self._clock = clock
        self._asked_s = 0.0
        self._cpu_s = 0.0
        self._collecting_s = 0.0

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the pulse with the loop's first turn, and note the collections of this process."""
        gc.callbacks.append(self.collected)
        loop.call_soon(self._beat, loop)

    def collected(self, phase: str, info: Mapping[str, Any]) -> None:
        """Note a collection: called by Python before and after it."""
        if phase == "start":
            self._collecting_s = self._clock()
            return
        took_s = self._clock() - self._collecting_s
        if info["generation"] == _FULL or took_s >= NOTED_S:
            self._write("collection", took_s, generation=info["generation"])

    def beat(self) -> None:
        """Note the pause since the pulse asked to be called."""
        late_s = self._clock() - self._asked_s - PULSE_S
        if self._asked_s and late_s >= NOTED_S:
            self._write("pause", late_s, cpu_ms=round(1000 * (time.thread_time() - self._cpu_s), 3))
        self._asked_s, self._cpu_s = self._clock(), time.thread_time()

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self.beat()
        loop.call_later(PULSE_S, self._beat, loop)

    def _write(self, what: str, took_s: float, **more: Any) -> None:
        line = {"what": what, "ended_s": time.time(), "ms": round(1000 * took_s, 3), **more}
        self._file.write(orjson.dumps(line) + b"\n")
        self._file.flush()


def main() -> None:
    """Run `berth` with the arguments after the first one, which is the file. Does not return."""
    from berth_host import run
    from berth_host.process import event_loop

    factory = event_loop.loop_factory()
    watch = Watch(Path(sys.argv[1]).open("ab"))  # noqa: SIM115 - open until the process ends

    def watched() -> asyncio.AbstractEventLoop:
        loop: asyncio.AbstractEventLoop = (factory or asyncio.new_event_loop)()
        watch.begin(loop)
        return loop

    event_loop.loop_factory = lambda: watched
    run(arguments=sys.argv[2:])


if __name__ == "__main__":
    main()
