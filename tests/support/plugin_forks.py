"""Plugin servers as forks of one process that has imported the SDK: a start takes no time for imports.

A child is a process of its own, as `berth-sdk serve` is: it has its own environment, folder and streams, and
it is killed, stopped and asked for its exit code as every other. Nothing of gRPC runs before the fork.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import IO, Any

from support.places import TESTS


class Fork:
    """A child of the process that forks: what tests use of `asyncio.subprocess.Process`."""

    def __init__(self, parent: Parent, pid: int) -> None:
        self.pid = pid
        self._parent = parent
        self._code: int | None = None

    def kill(self) -> None:
        """End it at once."""
        self._send(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self._send(signal.SIGTERM)

    @property
    def returncode(self) -> int | None:
        """Its exit code, None while it runs."""
        if self._code is None:
            self._code = self._parent.ask({"ended": self.pid, "options": os.WNOHANG})
        return self._code

    async def wait(self) -> int:
        """Wait until it has ended; its exit code."""
        if (code := self.returncode) is not None:
            return code
        gone = asyncio.Event()
        loop, watched = asyncio.get_running_loop(), os.pidfd_open(self.pid)
        loop.add_reader(watched, gone.set)
        try:
            await gone.wait()
        finally:
            loop.remove_reader(watched)
            os.close(watched)
        code = self.returncode
        assert code is not None
        return code

    def reap(self) -> None:
        """Wait in this thread until it has ended, once it was killed."""
        if self._code is None:
            self._code = self._parent.ask({"ended": self.pid, "options": 0})

    def _send(self, number: signal.Signals) -> None:
        if self.returncode is None:  # no other process has its number before the parent is asked again
            os.kill(self.pid, number)


class Parent:
    """The process that forks. It ends when this process does."""

    def __init__(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "support.plugin_forks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._requests, self._answers = process, process.stdin, process.stdout
        atexit.register(self._close)

    def fork(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str], *, is_heard: bool
    ) -> Fork:
        """Start `python -m MODULE ARGUMENTS`. `is_heard`: it has this process's standard error."""
        request = {
            "module": module,
            "arguments": list(arguments),
            "environment": dict(environment),
            "folder": str(Path.cwd()),
            "is_heard": is_heard,
        }
        return Fork(self, self.ask(request))

    def ask(self, request: Mapping[str, Any]) -> Any:
        """Return the answer to one request."""
        self._requests.write(json.dumps(request).encode() + b"\n")
        self._requests.flush()
        return json.loads(self._answers.readline())

    def _close(self) -> None:
        self._requests.close()
        self._answers.close()
        self._process.wait()


@cache
def parent() -> Parent:
    """Return the one of this process."""
    return Parent()


def _import_all() -> None:
    """Import what a server of any plugin imports, with gRPC's settings before gRPC, as `berth-sdk` does."""
    from berth_sdk.wire.grpc_core import poll_by_the_caller, write_errors_alone

    poll_by_the_caller()
    write_errors_alone()
    import berth_sdk.cli.serve  # noqa: F401

    for entry in entry_points(group="berth.plugins"):
        if entry.value.startswith("berth_plugins."):
            entry.load()


def _serve_requests(requests: IO[bytes], answers: IO[bytes]) -> dict[str, Any] | None:
    """Fork and wait as requested; return the request in a child, None at the end."""
    for line in requests:
        request: dict[str, Any] = json.loads(line)
        if "ended" in request:
            pid, status = os.waitpid(request["ended"], request["options"])
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = os.fork()
            if answer == 0:
                return request
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()
    return None


def _become(request: Mapping[str, Any]) -> None:
    """Run the module in this process, with what a new interpreter would find."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[0] = request["folder"]
    sys.path[1:1] = [path for path in paths if path and path not in sys.path]
    nothing = os.open(os.devnull, os.O_RDWR)
    output = 2 if request["is_heard"] else nothing
    for number, used in ((0, nothing), (1, output), (2, output)):
        os.dup2(used, number)
    os.close(nothing)
    sys.argv = [request["module"], *request["arguments"]]
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


def main() -> None:
    """Import, then fork until the requests end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests; they end this process
    _import_all()
    gc.collect()
    gc.freeze()
    request = _serve_requests(sys.stdin.buffer, sys.stdout.buffer)
    if request is not None:
        _become(request)


if __name__ == "__main__":
    main()
