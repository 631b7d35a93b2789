"""The pages for debugging: `/debug/pprof/`, `/debug/flags/v`, `/statusz` and `/flagz`.

There is no pprof in Python: `/debug/pprof/` shows asyncio's tasks with their stacks, the threads, a profile
of some seconds, and the counts of objects, as text. `/statusz` and `/flagz` answer as text and as
`config.k8s.io` objects.
Sources: `k8s.io/apiserver/pkg/server/routes` for the paths, component-base `zpages/statusz` and
`zpages/flagz`, v1.36.
"""

from __future__ import annotations

import asyncio
import cProfile
import io
import platform
import pstats
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from berth_sdk.clocks import wall_s
from berth_sdk.rfc3339 import format_time

from berth_host.config.emulation import DEFAULT_VERSION
from berth_host.endpoints.heap import heap_text
from berth_host.endpoints.request_response import (
    NO_SNIFF,
    Answer,
    Handler,
    Request,
    as_json,
    not_acceptable,
    not_found,
    text,
)

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
<li><a href="heap?gc=1">heap</a>: the objects in memory by type, after a full collection</li>
<li><a href="profile?seconds=5">profile</a>: where the loop spends its time, for some seconds</li>
</ul></body></html>
"""


class Profiling:
    """The pages `/debug/pprof/`. Only one profile runs at a time, as a profile slows the event loop down."""

    def __init__(self) -> None:
        self._busy = False

    async def answer(self, request: Request) -> Answer:
        """Answer one path below PREFIX."""
        name = request.path.removeprefix(PREFIX)
        if not name:
            return Answer(_INDEX.encode(), "text/html; charset=utf-8", 200, NO_SNIFF)
        if name == "goroutine":
            return text(_stacks())
        if name == "heap":
            return text(heap_text(collect=(request.query.get("gc") or ["0"])[0] not in ("", "0")))
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
    """Make the handler of `PUT /debug/flags/v`, whose body is a number."""

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


COMPONENT: Final = "berth"
_WARNING: Final = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees "
    "and is for debugging purposes only."
)
_GROUP: Final = "config.k8s.io"
_VERSIONS: Final = ("v1beta1", "v1alpha1")


class Statusz:
    """The page `/statusz`. `paths`: returns the server's other paths. `emulated`: returns the version of
    kube-scheduler that is emulated; empty for none. `now_s`: reads the clock, in Unix seconds.
    """

    def __init__(
        self,
        started_s: float,
        paths: Callable[[], Sequence[str]],
        emulated: Callable[[], str] = str,
        now_s: Callable[[], float] = wall_s,
    ) -> None:
        self._started_s = started_s
        self._paths = paths
        self._emulated = emulated
        self._now_s = now_s

    async def answer(self, request: Request) -> Answer:
        """Answer with text, or with a Statusz object if the request accepts that."""
        up_s = int(self._now_s() - self._started_s)
        python = platform.python_version()
        version = _object_version(request.accept, "Statusz")
        if version is None:
            return not_acceptable()
        if version:
            return _object(
                "Statusz",
                version,
                {
                    "startTime": format_time(self._started_s),
                    "uptimeSeconds": up_s,
                    "goVersion": f"python{python}",
                    "binaryVersion": DEFAULT_VERSION,
                    "emulationVersion": self._emulated() or DEFAULT_VERSION,
                    "paths": list(self._paths()),
                },
            )
        started = time.strftime("%a %b %e %H:%M:%S UTC %Y", time.gmtime(self._started_s))
        rows = {
            "Started": started,
            "Up": f"{up_s // 3600} hr {up_s // 60 % 60:02d} min {up_s % 60:02d} sec",
            "Python version": python,
            "Binary version": DEFAULT_VERSION,
            "Emulation version": self._emulated() or DEFAULT_VERSION,
            "Paths": " ".join(self._paths()),
        }
        lines = "".join(f"{name}  {value}\n" for name, value in rows.items())
        return text(f"\n{COMPONENT} statusz\n{_WARNING}\n\n{lines}", sniff=True)


class Flagz:
    """Answers `/flagz`. `flags`: the value of every flag as text, by name."""

    def __init__(self, flags: Mapping[str, str]) -> None:
        self._flags = dict(sorted(flags.items()))

    async def answer(self, request: Request) -> Answer:
        """Answer with text, or with a Flagz object if the request accepts that."""
        version = _object_version(request.accept, "Flagz")
        if version is None:
            return not_acceptable()
        if version:
            return _object("Flagz", version, {"flags": self._flags})
        lines = "".join(f"{name}: {value}\n" for name, value in self._flags.items())
        return text(f"\n{COMPONENT} flagz\n{_WARNING}\n{lines}", sniff=True)


def _object_version(accept: str, kind: str) -> str | None:
    """Return the version of the object that the request accepts; empty: text; None: neither."""
    if not accept:
        return ""
    for media_type in accept.split(","):
        name, *parameters = (part.strip() for part in media_type.split(";"))
        given = dict(part.partition("=")[::2] for part in parameters)
        if name in ("text/plain", "text/*", "*/*"):
            return ""
        if name != "application/json" or given.get("as") != kind or given.get("g") != _GROUP:
            continue
        if given.get("v") in _VERSIONS:
            return given["v"]
    return None


def _object(kind: str, version: str, fields: Mapping[str, Any]) -> Answer:
    value = {
        "kind": kind,
        "apiVersion": f"{_GROUP}/{version}",
        "metadata": {"name": COMPONENT},
        **fields,
    }
    return as_json(value, content_type=f"application/json;g={_GROUP};v={version};as={kind}")
