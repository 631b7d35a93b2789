"""`/debug/pprof/` and `/debug/flags/v`: the process's current work, and its log level.

There is no pprof in Python: the pages show asyncio's tasks with their stacks, the threads, and a profile
of some seconds as text. Source of the paths: `k8s.io/apiserver/pkg/server/routes`, v1.36.
"""

from __future__ import annotations

import asyncio
import cProfile
import io
import pstats
import sys
import traceback
from collections.abc import Callable
from typing import Final

from berth_host.endpoints.answer import NO_SNIFF, Answer, Handler, Request, not_found, text

PREFIX: Final = "/debug/pprof/"
MAX_PROFILE_S: Final = 60.0
_DEFAULT_PROFILE_S: Final = 5.0
_MAX_DIGITS: Final = 9
_SHOWN: Final = 40
_LINES: Final = 80
_INDEX: Final = """<html><head><title>/debug/pprof/</title></head><body>
<p>berth: what the process does</p>
<ul>
<li><a href="goroutine?debug=1">goroutine</a>: asyncio's tasks and the threads, with their stacks</li>
<li><a href="profile?seconds=5">profile</a>: where the loop spends its time, for some seconds</li>
</ul></body></html>
"""


class Profiling:
    """One profile at a time: it slows the loop down."""

    def __init__(self) -> None:
        self._busy = False

    async def answer(self, request: Request) -> Answer:
        """The page below PREFIX."""
        name = request.path.removeprefix(PREFIX)
        if not name:
            return Answer(_INDEX.encode(), "text/html; charset=utf-8", 200, NO_SNIFF)
        if name == "goroutine":
            return text(_stacks())
        if name == "profile":
            return await self._profile(request)
        return not_found()

    async def _profile(self, request: Request) -> Answer:
        try:
            seconds = float((request.query.get("seconds") or [str(_DEFAULT_PROFILE_S)])[0])
        except ValueError:
            return text("seconds: not a number\n", 400)
        if not 0 < seconds <= MAX_PROFILE_S:
            return text(f"seconds: more than 0 and at most {MAX_PROFILE_S:g}\n", 400)
        if self._busy:
            return text("another profile is being made\n", 409)
        self._busy = True
        profile = cProfile.Profile()
        try:
            profile.enable()
            await asyncio.sleep(seconds)
        except ValueError as err:
            return text(f"{err}\n", 409)  # another tool profiles this process already
        finally:
            profile.disable()
            self._busy = False
        out = io.StringIO()
        pstats.Stats(profile, stream=out).sort_stats("tottime").print_stats(_LINES)
        return text(out.getvalue())


def verbosity(set_verbosity: Callable[[int], None]) -> Handler:
    """`PUT /debug/flags/v` with a number as the body."""

    async def answer(request: Request) -> Answer:
        if request.method != "PUT":
            return _line(406, "unsupported http method")
        given = request.body.decode(errors="replace").strip()
        if not given.isdecimal() or len(given) > _MAX_DIGITS:
            return _line(400, f"the verbosity is a whole number, not {given[:_SHOWN]!r}")
        set_verbosity(int(given))
        return _line(200, f"successfully set klog.logging.verbosity to {given}")

    return answer


def _line(status: int, message: str) -> Answer:
    return Answer(f"{message}\n".encode(), "text/plain", status, NO_SNIFF)


def _stacks() -> str:
    tasks = asyncio.all_tasks()
    out = io.StringIO()
    out.write(f"tasks: {len(tasks)}\n")
    for task in sorted(tasks, key=lambda task: task.get_name()):
        out.write("\n")
        task.print_stack(file=out)
    for ident, frame in sys._current_frames().items():
        out.write(f"\nthread {ident}\n")
        out.writelines(traceback.format_stack(frame))
    return out.getvalue()
