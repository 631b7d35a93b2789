"""`Watched`: the page of a recorded life: every view shows the moment that a slider is on.

Run by `berth bench life --watch` after the life, in real time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import resources
from typing import Final

from berth_host.endpoints.loopback import LoopbackServer
from berth_host.endpoints.pages import LISTS, PREFIX
from berth_host.endpoints.request_response import Answer, Request, as_json, failure
from berth_host.endpoints.watching import Watches

from berth_bench.life.life import Result
from berth_bench.life.recording import Recording, Value

LIFE: Final = f"{PREFIX}life"
_SCRIPT: Final = "time.js"
_LOOK_S: Final = 0.1
"""Seconds between two looks of a stream: the page follows the slider."""


class Watched:
    """The handler of the paths below `/berth/v1/`. `moment`: the index of the moment that is shown."""

    def __init__(self, result: Result, recording: Recording) -> None:
        self.moment = len(recording.moments_s) - 1
        self._result = result
        self._recording = recording
        self._watches = Watches(self._value, LISTS, _LOOK_S)

    async def answer(self, request: Request) -> Answer:
        """Answer one request; with `watch=true` as a stream that follows the moment."""
        if request.path == LIFE:
            return self._life(request.query.get("moment") or ())
        if "true" in (request.query.get("watch") or ()):
            return await self._watches.answer(request)
        value = await self._value(request)
        return value if isinstance(value, Answer) else as_json(value)

    async def _value(self, request: Request) -> Value | Answer:
        return self._recording.value(request.path.removeprefix(PREFIX), self.moment)

    def _life(self, moment: Sequence[str]) -> Answer:
        """Return what the life was, after the choice of a moment, if one is given."""
        moments_s = self._recording.moments_s
        if moment:
            if not moment[0].isdecimal() or int(moment[0]) >= len(moments_s):
                return failure(400, "BadRequest", f"moment is not a number from 0 to {len(moments_s) - 1}")
            self.moment = int(moment[0])
        return as_json(
            {
                "seed": self._result.seed,
                "mood": self._result.mood,
                "broken": self._result.broken,
                "moment": self.moment,
                "moments": [_written(one) for one in moments_s],
            }
        )


@asynccontextmanager
async def serving(result: Result, recording: Recording) -> AsyncIterator[LoopbackServer]:
    """Serve the page of a life on a free port of 127.0.0.1 until the block ends."""
    server = LoopbackServer(Watched(result, recording).answer, scripts())
    await server.start(0)
    try:
        yield server
    finally:
        await server.stop()


async def serve(result: Result, recording: Recording, tell: Callable[[str], None]) -> None:
    """Serve the page until cancelled. `tell`: called with the page's address."""
    async with serving(result, recording) as server:
        tell(server.url)
        await asyncio.Event().wait()


def scripts() -> Mapping[str, bytes]:
    """Return the modules that this page has beside those of every page, by file name."""
    return {_SCRIPT: (resources.files("berth_bench.life") / "page" / _SCRIPT).read_bytes()}


def _written(moment_s: float) -> str:
    """Return the time since the life began, as `H:MM:SS`."""
    seconds = int(moment_s)
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
